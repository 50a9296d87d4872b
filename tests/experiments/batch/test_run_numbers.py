import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pdlrecover.errors import RecordError
from pdlrecover.experiments.batch.run_numbers import add_runs, read_runs


def record(seed, **methods):
    config = {"seed": seed, "peers": 10, "methods": list(methods)}
    return {"config": config, "versions": {"torch": "2"}, "methods": methods, "complete": True}


def entry(accuracy):
    return {"accuracy": accuracy, "curve": {"round": [1]}, "seconds": {"total": 1 / 3}}


def test_runs_are_kept_by_config_and_gain_methods(tmp_path):
    add_runs([record(0, retrain=entry(0.5)), record(1, retrain=entry(0.6))], tmp_path)
    path = add_runs([record(0, auto=entry(0.123456789)), record(1, retrain=entry(0.7))], tmp_path)
    zero, one = read_runs(path)
    assert zero["methods"] == {
        "retrain": {"accuracy": 0.5, "seconds": {"total": 0.333333}},
        "auto": {"accuracy": 0.123457, "seconds": {"total": 0.333333}},
    }
    assert one["methods"]["retrain"]["accuracy"] == 0.7
    assert "methods" not in zero["config"]
    assert [json.loads(line) for line in path.read_text().splitlines()] == [zero, one]


def test_a_damaged_file_of_runs_is_said_and_kept(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{\n")
    with pytest.raises(RecordError, match="is damaged"):
        add_runs([record(0, retrain=entry(0.5))], tmp_path)
    assert path.read_text() == "{\n"


def test_two_commands_with_one_folder_lose_no_runs(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        for seed in range(80):
            pool.submit(add_runs, [record(seed, retrain=entry(0.5))], tmp_path)
    found = read_runs(tmp_path / "runs.jsonl")
    assert sorted(run["config"]["seed"] for run in found) == list(range(80))
    assert not list(tmp_path.glob("*.part"))
