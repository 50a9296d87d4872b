import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from pdlrecover.cluster import joined
from pdlrecover.errors import ClusterError
from pdlrecover.experiments.batch import nodes as room
from pdlrecover.experiments.batch.cache import key_of, run_cells, run_errands
from pdlrecover.experiments.batch.errand import Errand
from pdlrecover.experiments.batch.nodes import ClusterCrew, likeness_of
from pdlrecover.experiments.batch.recorded import Cell
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.run import run

TINY = Config(
    peers=8,
    malicious=2,
    rounds=12,
    learning_rate=0.3,
    model="mlp-8",
    clear=True,
    methods=("retrain", "historical"),
)
LONG = replace(TINY, rounds=400, methods=("historical",))


def same(one, other):
    """Say whether two caches have the same models to the bit, and the same results but times."""
    models = [
        {
            path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("*/models/*")
        }
        for folder in (one, other)
    ]
    results = [
        {path.parent.name: _timeless(json.loads(path.read_text())) for path in sorted(found)}
        for found in (one.glob("*/result.json"), other.glob("*/result.json"))
    ]
    assert models[0]
    return models[0] == models[1] and results[0] == results[1]


def _timeless(value):
    if not isinstance(value, dict):
        return value
    gone = ("seconds", "digest", "commit")
    return {key: _timeless(each) for key, each in value.items() if key not in gone}


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nodes_compute_the_same_as_this_machine_and_both_work(two_nodes, tmp_path):
    seen = []
    honest = replace(TINY, malicious=0, leavers=2)
    configs = [honest, replace(TINY, attack="label-flip"), *(replace(TINY, seed=s) for s in (1, 2))]
    here, there = tmp_path / "here", tmp_path / "there"
    mine = run_cells(configs, here, workers=1)
    theirs = run_cells(configs, there, on=two_nodes.address, watcher=seen.append)
    assert same(here, there)
    assert [r.config for r in theirs] == [r.config for r in mine]
    assert theirs[1].methods["retrain"].borrowed_from == key_of(honest)
    assert seen[-1].done == seen[-1].total == 4
    again = run_cells(configs, there, on="127.0.0.1:9")  # it is all there: nobody is asked
    assert again == theirs
    assert not list(there.glob(".*")) + list(there.glob("*/progress"))


def test_what_is_there_is_continued_and_a_failure_keeps_what_it_has(two_nodes, tmp_path):
    place = tmp_path / key_of(TINY)
    first = run(replace(TINY, methods=("historical",)), place)
    lacking = replace(TINY, dataset="mnist")
    with pytest.raises(Exception, match=r"1 of 2 runs failed.*not in the data folder.*\(mnist"):
        run_cells([TINY, lacking], tmp_path, on=two_nodes.address, data_dir=tmp_path)
    (found,) = run_cells([TINY], tmp_path)
    for name in ("poisoned", "historical"):  # computed once: the times would differ
        assert found.methods[name].seconds == first.methods[name].seconds
    assert "retrain" in found.methods
    assert (place / "models" / "retrain.safetensors").exists()


@pytest.mark.slow
def test_a_killed_process_and_a_killed_node_cost_only_their_cells(
    two_nodes, another_node, tmp_path
):
    third = another_node("third")
    configs = [replace(LONG, seed=seed) for seed in range(5)]
    errands = [Errand(cell=Cell(config=c), place=tmp_path / "there" / key_of(c)) for c in configs]
    (tmp_path / "there").mkdir()
    killed = []

    def watch(status):
        nodes = {note.partition(":")[0] for note in status.running}
        if "second" in nodes and "second" not in killed:
            busy = [h for h in crew._hands if h.node.name == "second" and h.errand]
            if not busy:
                return
            os.kill(crew._ray.get(pid_of(busy[0])), signal.SIGKILL)
            killed.append("second")
        if "third" in nodes and "third" not in killed:
            two_nodes.remove_node(third, allow_graceful=False)
            killed.append("third")

    def pid_of(hand):
        return hand.actor.number.options(concurrency_group=room.NOTES).remote()

    with joined(two_nodes.address) as cluster:
        crew = ClusterCrew(cluster, likeness_of(errands))
        run_errands(errands, crew, watch)
    assert sorted(killed) == ["second", "third"]
    run_cells(configs, tmp_path / "here")
    assert same(tmp_path / "here", tmp_path / "there")


@pytest.mark.slow
def test_without_a_node_the_wait_is_over_and_a_node_that_joins_is_used(
    two_nodes, another_node, tmp_path, monkeypatch
):
    errand = Errand(cell=Cell(config=TINY), place=tmp_path / "cell")
    seen = []
    with joined(two_nodes.address) as cluster:
        monkeypatch.setattr(cluster, "nodes", lambda every=cluster.nodes: every()[2:])
        with pytest.raises(ClusterError, match=r"no node .* for 2 seconds; start one by `ray sta"):
            run_errands([errand], ClusterCrew(cluster, dict, wait=2))

        def watch(status):
            seen.extend(status.running)
            if len(added) == 0:
                added.append(another_node("third"))

        added = []
        run_errands([errand], ClusterCrew(cluster, dict, wait=60), watch)
    assert errand.is_done()


@pytest.mark.slow
def test_an_interruption_ends_soon_and_the_same_command_goes_on(two_nodes, tmp_path, command):
    flags = ["--on", two_nodes.address, "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    script = (
        "import signal\nfrom pdlrecover.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nmain()\n"
    )
    given = [sys.executable, "-c", script, "reproduce", "attacks", "--quick", *flags]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, given)), start_new_session=True, **streams) as process:
        try:
            until(lambda: list((tmp_path / "cache").glob("*/progress")))
            before = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert time.monotonic() - before < 10
    assert process.returncode == 130
    assert "interrupted; the same command goes on from what is done" in out
    assert all(line.startswith("attacks: ") for line in err.splitlines()), err
    assert not list((tmp_path / "cache").glob("*/progress"))
    assert not list((tmp_path / "cache").glob("*.part"))
