import json
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest
from simulated import POISONED, entry, record, result

from pdlrecover.errors import RecordError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import (
    MethodResult,
    NumberName,
    as_record,
    read_result,
)

RESULTS = Path(__file__).parents[3] / "results" / "backdoor"


def test_a_result_survives_its_record():
    lost = entry(0.1, diverged="it grew", held_out_loss=None, rounds_from_history=3)
    one = replace(result({**POISONED, "auto": lost}), complete=True, clipped_updates=7)
    assert read_result(json.loads(json.dumps(as_record(one)))) == one


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_results_mean_what_they_say(path):
    written = json.loads(path.read_text())
    written["config"] = {**Config().record(), **written["config"]}  # settings were added later
    assert as_record(read_result(written)) == written


def test_what_says_nothing_is_not_written():
    written = record(POISONED)["methods"]["retrain"]
    assert not {"diverged", "borrowed_from", "rounds_from_history", "held_out_loss"} & set(written)
    assert written["distance_to_retrain"] is written["remembered"] is None


def test_parts_that_are_not_known_are_ignored_and_later_ones_may_be_missing():
    written = record(POISONED)
    for part in ("versions", "commit", "complete"):
        del written[part]
    for setting in ("undetected", "accused", "block"):
        del written["config"][setting]
    written |= {"weather": "fine"}
    written["config"]["mood"] = written["methods"]["retrain"]["colour"] = "blue"
    found = read_result(written)
    assert found == replace(result(POISONED), versions={}, commit=None)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), 2, "it is of format 2, and this reads 1"),
        (("seed",), "x", "seed must be a whole number, got 'x'"),
        (("config",), [], "config must be a table of keys and values, got []"),
        (("config", "peers"), "ten", "config.peers must be a whole number, got 'ten'"),
        (("config", "peers"), 1, "config: peers must be at least 2, got 1"),
        (("methods", "retrain"), 3, "methods.retrain must be a table of keys and values, got 3"),
        (
            ("methods", "retrain", "accuracy"),
            None,
            "retrain.accuracy must be a number, got None",
        ),
        (
            ("methods", "retrain", "exact_rounds"),
            True,
            "exact_rounds must be a whole number, got T",
        ),
        (("methods", "auto", "seconds"), {}, "methods.auto.seconds.gradient is missing"),
        (
            ("methods", "auto", "curve", "round"),
            ["a"],
            "curve.round[0] must be a whole number",
        ),
    ],
)
def test_damage_is_named(path, value, said):
    written = record({**POISONED, "auto": entry(0.9)})
    part = written
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(RecordError) as raised:
        read_result(written)
    assert said in str(raised.value)


def test_seconds_of_the_processor_that_were_not_measured_are_not_made_up():
    written = record(POISONED)
    del written["methods"]["retrain"]["seconds"]["processor"]
    found = read_result(written).methods["retrain"]
    assert found.seconds.total == 20
    with pytest.raises(RecordError, match="seconds are missing; run the experiment again"):
        _ = found.processor_seconds


def test_every_number_that_is_averaged_is_a_field():
    names = {name for part in get_args(NumberName) for name in get_args(part) or (part,)}
    assert names <= {field.name for field in fields(MethodResult)}
    assert {"accuracy", "bytes_per_peer"} <= names


def test_a_curve_whose_lists_differ_in_length_is_damage():
    record = as_record(result(POISONED))
    record["methods"]["poisoned"]["curve"]["round"].append(99)
    with pytest.raises(RecordError, match="a curve's lists must have one length"):
        read_result(record)
