from pdlrecover.experiments.batch.folders import run_into
from pdlrecover.experiments.experiment.config import Config

SMALL = {"model": "logistic", "peers": 8, "malicious": 2, "rounds": 4, "clear": True}


def test_runs_that_were_done_before_are_counted_when_others_go_on(tmp_path):
    runs = {
        tmp_path / f"seed-{seed}": Config(**SMALL, methods=("retrain",), seed=seed)
        for seed in range(3)
    }
    first, *_ = runs
    run_into({first: runs[first]}, workers=1)
    seen = []
    assert len(run_into(runs, workers=1, watcher=seen.append)) == 3
    assert {status.total for status in seen} == {3}
    assert {status.done for status in seen} >= {2, 3}
    assert min(status.done for status in seen) >= 1
