"""What real peers let their own TensorBoard and MLflow know, and that nothing depends on it."""

import asyncio
import socket
from itertools import pairwise

import numpy as np
import pytest
import whole_peers
from curves import curve, curves, text
from loopback import until

from pdlrecover import Federation
from pdlrecover.cli.peer_run import observers_of
from pdlrecover.engines.events import Ended, RoundDone
from pdlrecover.engines.peers.federation.plan import EvaluationPlan
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.engines.peers.settings import History, Tracking
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.tracking import MLflow, TensorBoard

EVALUATION = EvaluationPlan(held_out=0.25, every=4)
ROUNDS = list(range(1, whole_peers.ROUNDS + 1))


class Keeps:
    """An observer that keeps the events of every run by its name."""

    def __init__(self):
        self.events = {}

    def begin(self, run):
        return self.events.setdefault(run.name, []).append

    def told(self, name):
        """Return what was told of a run, without what was timed."""
        return [
            vars(event) | ({"seconds": None} if isinstance(event, RoundDone) else {})
            for event in self.events[name]
        ]


class Fails:
    def begin(self, run):
        raise OSError("no space left on device")


def begun(tmp_path, observers):
    """Return peers with these observers, and their tasks."""
    peers = [whole_peers.peer(me, tmp_path, observers=each) for me, each in enumerate(observers)]
    return peers, [asyncio.create_task(each.run()) for each in peers]


async def stopped(peers, tasks):
    for each in peers:
        each.stop()
    await asyncio.gather(*tasks)


def trained(tmp_path):
    return lambda: all((tmp_path / n / "trained.json").exists() for n in whole_peers.NAMES)


@pytest.mark.slow
def test_all_peers_tell_the_same_which_is_what_the_simulation_tells(tmp_path, caplog):
    """One has a disk that is full, and another a server that does not answer."""
    keeps = [Keeps() for _ in whole_peers.NAMES]

    async def story():
        whole_peers.settle(tmp_path, evaluation=EVALUATION)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            server = MLflow(f"http://127.0.0.1:{silent.getsockname()[1]}", wait=0.0)
            more = [[TensorBoard(tmp_path / "runs")], [Fails()], [server], [], []]
            peers, tasks = begun(
                tmp_path, [[mine, *others] for mine, others in zip(keeps, more, strict=True)]
            )
            await until(trained(tmp_path))
            removal = {"do": "propose-removal", "removed": ["fir"], "reason": "left"}
            removal["method"] = "accelerated-retrain:rounds=4"
            name = (await ask(tmp_path / "ash" / "control", removal))["removal"]
            for me in (1, 2):
                await until(lambda me=me: peers[me].control.status().removals)
                await ask(
                    tmp_path / whole_peers.NAMES[me] / "control",
                    {"do": "approve", "removal": name},
                )
            await until(lambda: all(list((tmp_path / n).glob("rec*.json")) for n in kept))
            await stopped(peers, tasks)
        return f"recovery-{name[:16]}"

    kept = whole_peers.NAMES[:4]
    recovery = asyncio.run(story())
    for each in keeps[1:]:
        assert each.told("training") == keeps[0].told("training")
    for each in keeps[1:4]:
        assert each.told(recovery) == keeps[0].told(recovery)
    assert keeps[4].events.keys() == {"training"}
    said = [record.getMessage() for record in caplog.records if "no further" in record.getMessage()]
    assert [each.partition(" no further")[0] for each in said] == [
        "Fails follows training",
        f"Fails follows {recovery}",
    ]

    simulated = Federation.simulate(
        whole_peers.model(),
        whole_peers.datasets(),
        whole_peers.TOLERANCE,
        batch_size=4,
        seed=5,
        peer_by_peer=True,
        held_out=EVALUATION.held_out,
        evaluate_every=EVALUATION.every,
    )
    optimizer = whole_peers.TRAINING.steps()
    simulated.train(
        whole_peers.ROUNDS, optimizer=optimizer, observer=TensorBoard(tmp_path / "simulated")
    )
    ours, theirs = curves(tmp_path / "runs/training"), curves(tmp_path / "simulated/training")
    assert {k: v for k, v in ours.items() if not k.startswith("final/")} == {
        k: v for k, v in theirs.items() if not k.startswith("final/")
    }
    assert [step for step, _ in ours["held_out/accuracy"]] == [4, 8, 10]
    assert "| removed | fir |" in text(tmp_path / "runs" / recovery, "settings")
    assert curve(tmp_path / "runs" / recovery, "round/seconds")


@pytest.mark.slow
def test_a_peer_that_was_stopped_goes_on_with_its_curves(tmp_path):
    runs = tmp_path / "runs"

    class Stops:
        def begin(self, run):
            def follow(event):
                if isinstance(event, RoundDone) and event.round == 3:
                    asyncio.get_running_loop().call_soon(self.peer.stop)

            return follow

    async def story():
        whole_peers.settle(tmp_path, evaluation=EVALUATION)
        stops, others = Stops(), [[]] * (whole_peers.PEERS - 1)
        peers, tasks = begun(tmp_path, [[TensorBoard(runs), stops], *others])
        stops.peer = peers[0]
        await tasks[0]
        peers[0].runs.store.close()
        before = [step for step, _ in curve(runs / "training", "round/exact")]
        assert before == list(range(1, len(before) + 1))
        assert 3 <= len(before) < whole_peers.ROUNDS
        keeps = Keeps()
        peers[0] = whole_peers.peer(0, tmp_path, observers=[TensorBoard(runs), keeps])
        tasks[0] = asyncio.create_task(peers[0].run())
        await until(trained(tmp_path))
        await stopped(peers, tasks)
        return before, keeps.events["training"]

    before, again = asyncio.run(story())
    assert [place.name for place in runs.iterdir()] == ["training"]
    for tag in ("round/exact", "round/update_norm", "opened/fresh_sums"):
        assert [step for step, _ in curve(runs / "training", tag)] == ROUNDS
    stored = [event for event in again if isinstance(event, RoundDone)][: len(before)]
    assert [event.seconds for event in stored] == [None] * len(before)
    assert isinstance(again[-1], Ended)
    norms = [value for _, value in curve(runs / "training", "round/update_norm")]
    federation = whole_peers.simulation(held_out=EVALUATION.held_out)
    models = [np.array(model) for model in federation.original.models]
    moved = [np.linalg.norm(b - a) / 0.3 for a, b in pairwise(models)]
    np.testing.assert_allclose(norms, moved, rtol=1e-5)


def test_places_in_peer_toml_are_meant_from_the_peers_folder(tmp_path):
    federation, folder = whole_peers.settle(tmp_path), tmp_path / "ash"
    history = History(key_file="../keys/ash.key")
    whole_peers.write(folder, history, tracking=Tracking(tensorboard="runs", mlflow="mlruns"))
    tensorboard, mlflow = observers_of(PeerFiles(federation, folder))
    assert tensorboard.folder == folder / "runs"
    assert mlflow.uri == (folder / "mlruns").as_uri()
    server = Tracking(mlflow="http://127.0.0.1:5000")
    whole_peers.write(folder, history, tracking=server)
    (mlflow,) = observers_of(PeerFiles(federation, folder))
    assert mlflow.uri == "http://127.0.0.1:5000"
    whole_peers.write(folder, history)
    assert observers_of(PeerFiles(federation, folder)) == []
