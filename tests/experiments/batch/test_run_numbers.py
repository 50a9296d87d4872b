import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import simulated

from pdlrecover.errors import RecordError
from pdlrecover.experiments.batch.run_numbers import add_runs, read_runs
from pdlrecover.experiments.experiment.result import as_record

RUNS = Path(__file__).parents[3] / "results" / "reproductions" / "runs.jsonl"


def record(seed, **methods):
    return simulated.result(methods, seed=seed)


def entry(accuracy):
    return simulated.entry(accuracy, seconds=simulated.seconds(1 / 3))


def test_runs_are_kept_by_config_and_gain_methods(tmp_path):
    add_runs([record(0, retrain=entry(0.5)), record(1, retrain=entry(0.6))], tmp_path)
    path = add_runs([record(0, auto=entry(0.123456789)), record(1, retrain=entry(0.7))], tmp_path)
    zero, one = read_runs(path)
    assert {name: method.accuracy for name, method in zero.methods.items()} == {
        "retrain": 0.5,
        "auto": 0.123457,
    }
    assert {method.seconds.total for method in zero.methods.values()} == {0.333333}
    assert one.methods["retrain"].accuracy == 0.7
    assert "methods" not in zero.config
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [as_record(zero), as_record(one)]
    assert not {"curve", "liars"} & lines[0]["methods"]["auto"].keys()
    assert lines[0]["methods"]["auto"]["opened"]["fresh sums"]["openings"] == 10


def test_the_committed_runs_are_written_again_as_they_are():
    text = RUNS.read_text()
    assert "".join(f"{json.dumps(as_record(run))}\n" for run in read_runs(RUNS)) == text


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
    assert sorted(run.config["seed"] for run in found) == list(range(80))
    assert not list(tmp_path.glob("*.part"))
