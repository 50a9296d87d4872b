"""Short runs of `pdlrecover peer chaos` and `peer fuzz`: real processes, TLS and histories."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pdlrecover", "peer", *map(str, command)],
        capture_output=True,
        text=True,
        env=environment,
    )


def chaos(path, *options):
    """Run chaos in one federation; return what was said, and the verdict."""
    done = run("chaos", "--duration", 1, "--record", path, *options)
    assert done.returncode in (0, 1), done.stderr
    verdict = json.loads(path.read_text())
    assert verdict["holds"] == (done.returncode == 0)
    return done.stdout, verdict


@pytest.mark.slow
def test_peers_that_are_killed_and_frozen_end_with_one_model_and_lose_nothing(tmp_path):
    options = ("--peers", 5, "--seed", 4)
    said, verdict = chaos(tmp_path / "verdict.json", *options)
    assert verdict["problems"] == []
    (trial,) = verdict["trials"]
    assert [each["run"] for each in trial["endings"]] == [
        "training",
        "accelerated-retrain",
        "pdlrecover",
    ]
    assert all(len(each["weights"]) == 64 for each in trial["endings"])
    assert trial["endings"][-1]["exact_rounds"] < trial["endings"][-1]["rounds"]
    assert sum(trial["faults"].values()) >= 2
    assert all(f"  {kind} " in said for kind in trial["faults"])
    assert said.endswith("it holds\n")


@pytest.mark.slow
def test_a_cheat_is_named_and_removed_and_the_training_goes_on_without_it(tmp_path):
    options = ("--peers", 5, "--seed", 1, "--cheats", "large-weight")
    said, verdict = chaos(tmp_path / "verdict.json", *options)
    assert verdict["problems"] == []
    (trial,) = verdict["trials"]
    assert trial["cheats"] == {"fir": "large-weight"}
    assert any(what.startswith("dealt a weight of ") for what in trial["named"]["fir"])
    assert "fir (large-weight) was named: " in said
    assert said.index("shall be removed by accelerated-retrain") < said.index("training has ended")


def runs(pid):
    """Say whether a process runs: one that has ended stands in /proc until that is noticed."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_a_chaos_run_that_is_terminated_ends_its_peers(tmp_path):
    command = [sys.executable, "-m", "pdlrecover", "peer", "chaos", "--keep", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(started := children.read_text().split()) < 5:
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        assert process.wait(60) == 130
    end = time.monotonic() + 30
    while left := [pid for pid in started if runs(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


@pytest.mark.slow
def test_a_live_peer_takes_signed_odd_messages_and_the_others_train_on(tmp_path):
    path = tmp_path / "verdict.json"
    done = run("fuzz", "--messages", 5000, "--signed", 3000, "--seed", 5, "--record", path)
    verdict = json.loads(path.read_text())
    assert verdict["decoder"]["problems"] == verdict["peer"]["problems"] == []
    assert done.returncode == 0, done.stderr
    assert verdict["peer"]["messages"] == 3000
    assert len(verdict["peer"]["weights"]) == 64
    assert verdict["peer"]["named"]
