"""Ties the committed documents to the recorded runs, in both directions.

Every document is made anew from `runs.jsonl` and must be what is committed: summary, tables,
figures, ledger and note. Of curves by round only the last points are tied, to the recorded rates;
what lies before is in no record. A run's seconds are tied where a document shows them, and else
only to the hours in its note, as far as that is rounded.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.batch.recorded import Recorded
from pdlrecover.experiments.batch.run_numbers import identity_of, read_runs
from pdlrecover.experiments.reproductions import REPRODUCTIONS, document_of_records
from pdlrecover.experiments.reproductions.scale import FULL
from pdlrecover.experiments.reproductions.theorem1 import BOUND, measure_bound

FOLDER = Path(__file__).parents[3] / "results" / "reproductions"
RUNS = read_runs(FOLDER / "runs.jsonl")
RECORDED = Recorded(RUNS)
FEW = 8
COMPUTED = {"bound"}
"""Made of no runs."""
TIED = [
    name for name in REPRODUCTIONS if (FOLDER / f"{name}.json").exists() and name not in COMPUTED
]


def committed(name):
    return Document.from_record(json.loads((FOLDER / f"{name}.json").read_text()))


def remade(name, recorded=RECORDED, earlier=None):
    """Return a document as it follows from recorded runs, with the earlier one's curves."""
    return document_of_records(REPRODUCTIONS[name], FULL, recorded, earlier or committed(name))


@pytest.mark.parametrize("name", TIED)
def test_a_document_is_what_follows_from_the_recorded_runs(name):
    found = json.loads((FOLDER / f"{name}.json").read_text())
    assert json.loads(json.dumps(remade(name).record())) == found


def test_every_committed_document_is_tied_to_runs_or_computed():
    assert {path.stem for path in FOLDER.glob("*.json")} == {*TIED, *COMPUTED}


def test_no_run_is_recorded_twice():
    counts = Counter(run.identity for run in RUNS)
    assert [identity for identity, count in counts.items() if count > 1] == []


def some(values):
    """Return a few of many, from the first to the last: each takes a document's time."""
    values = list(values)
    step = (len(values) - 1) / (FEW - 1)
    return values if len(values) <= FEW else [values[round(i * step)] for i in range(FEW)]


def falsified(name):
    """Yield the document with one number changed, in some tables and figures."""
    for place in ("comparison", "tables", "figures"):
        found = committed(name).record()[place]
        for i in some(range(len(found) if isinstance(found, list) else bool(found))):
            record = committed(name).record()
            part = record[place] if place == "comparison" else record[place][i]
            if place != "figures":
                numbers = [
                    (row, c)
                    for row in part["rows"]
                    for c, cell in enumerate(row)
                    if isinstance(cell, int | float)
                ]
                if not numbers:
                    continue  # a table of words
                row, column = numbers[-1]
                row[column] += 1
            elif part["series"]:
                part["series"][-1]["y"][-1] += 0.001
            else:
                continue
            yield Document.from_record(json.loads(json.dumps(record)))
    yield replace(committed(name), summary=[*committed(name).summary[:-1], "All is well."])


@pytest.mark.parametrize("name", TIED)
def test_a_falsified_document_contradicts_the_runs(name):
    for false in falsified(name):
        assert remade(name, earlier=false) != false


@pytest.mark.parametrize("name", TIED)
def test_a_falsified_run_contradicts_its_document(name):
    found = committed(name)
    config = REPRODUCTIONS[name].cells(FULL)[0]
    key = identity_of(config.record())
    number = {"table-1": "seconds", "table-2": "seconds", "scaling": "seconds"}.get(name)
    said = json.dumps(found.record())
    shown = [method for method in config.methods if number or f'"{method}"' in said]
    assert shown
    for method in some(shown):
        lies = []
        for run in RUNS:
            if run.identity == key:
                one = run.methods[method]
                spent = replace(one.seconds, processor=1.02 * one.seconds.processor + 0.1)
                false = {"seconds": spent} if number else {"accuracy": one.accuracy - 0.02}
                if name == "ledger":
                    false = {"bytes_per_peer": one.bytes_per_peer + 10**6}
                run = replace(run, methods={**run.methods, method: replace(one, **false)})
            lies.append(run)
        assert remade(name, Recorded(lies)) != found, method


def test_the_bound_is_what_is_computed():
    lines = {series.name: series.y for series in committed("bound").figures[0].series}
    found = measure_bound(BOUND)
    assert lines[f"measured, seed {BOUND.seed}"] == pytest.approx(found.distance, rel=1e-3)
    assert lines[f"bound, seed {BOUND.seed}"] == pytest.approx(found.bound, rel=1e-3)
