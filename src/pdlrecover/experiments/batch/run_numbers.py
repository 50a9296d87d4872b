"""The numbers of single runs beside the documents made of them: one line of JSON for each run.

A document has means; here is what they are means of, so that anyone can compute others. Curves are
left out, and numbers are rounded to six digits; documents are made of the rounded numbers, so they
can be made again from this file. Of two commands with one folder, the second waits for the first
to write.

A run is identified by what it computes: by the settings that differ from their defaults, without
the methods. So a setting that is added later, whose default is what was done before, loses no run.
One that is there gets the methods it did not have, and newer numbers; every method says by which
commit it was computed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdlrecover.decode import decode
from pdlrecover.errors import RecordError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import with_success_above
from pdlrecover.experiments.experiment.result import MethodNumbers, Result, as_record, read_result
from pdlrecover.files import alone, make_folder, read_text, write_whole

NAME = "runs.jsonl"
DIGITS = 6
DEFAULTS = Config().record()


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """The numbers of one run."""

    config: dict[str, Any]
    """The settings, without the methods; those of earlier versions may be in it."""
    versions: dict[str, str]
    dataset_note: str | None = None
    methods: dict[str, MethodNumbers]

    @property
    def identity(self) -> str:
        """What tells this run from others."""
        return identity_of(self.config)


def identity_of(settings: dict[str, Any]) -> str:
    """Return what tells a run with these settings from others."""
    own = {key: v for key, v in settings.items() if key not in DEFAULTS or v != DEFAULTS[key]}
    return json.dumps({key: v for key, v in own.items() if key != "methods"}, sort_keys=True)


def add_runs(results: Sequence[Result], folder: Path) -> Path:
    """Write these runs into the folder's file, and keep the others that are in it."""
    make_folder(folder, RecordError)
    path = folder / NAME
    with alone(path):
        runs: dict[str, RunNumbers] = {}
        for run in [*(read_runs(path) if path.exists() else []), *map(_numbers, results)]:
            known = runs.get(run.identity, run)
            note = run.dataset_note or known.dataset_note
            methods = {**known.methods, **run.methods}
            runs[run.identity] = replace(run, methods=methods, dataset_note=note)
        ordered = sorted(runs.values(), key=lambda run: json.dumps(run.config, sort_keys=True))
        lines = (json.dumps(as_record(run)) for run in ordered)
        write_whole(path, "".join(f"{line}\n" for line in lines), RecordError)
    return path


def read_runs(path: Path) -> list[RunNumbers]:
    """Return the runs of a file."""
    text = read_text(path, RecordError)
    try:
        return [_read(json.loads(line), f"run {i}") for i, line in enumerate(text.splitlines())]
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}; delete it to write it again") from error


def rounded(result: Result) -> Result:
    """Return a result with its numbers as they are written down; its curves are as they were.

    A backdoor's success above that of retraining is the difference of the rounded rates.
    """
    record = as_record(result)
    methods = {n: {**_rounded(one), "curve": one["curve"]} for n, one in record["methods"].items()}
    found = read_result({**record, "methods": methods})
    again = {
        name: replace(one, attack_success_above_retrain=_rounded(one.attack_success_above_retrain))
        for name, one in with_success_above(found.methods).items()
    }
    return replace(found, methods=again)


def _numbers(result: Result) -> RunNumbers:
    """Return the numbers of a result, rounded."""
    record = as_record(rounded(result))
    del record["config"]["methods"]
    methods = {name: _known(one) for name, one in record["methods"].items()}
    return _read({**record, "methods": methods})


def _known(record: dict[str, Any]) -> dict[str, Any]:
    """Return a method's record without an empty list of openings: then they are not known."""
    return {key: value for key, value in record.items() if key != "opened" or value}


def _read(record: Any, where: str = "") -> RunNumbers:
    return decode(RunNumbers, record, RecordError, where=where, ignore_unknown=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
