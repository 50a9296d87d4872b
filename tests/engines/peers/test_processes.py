"""Five processes on the loopback: trained, killed, frozen, recovered."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import town

from pdlrecover.engines.peers.report import ask


class Town:
    def __init__(self, place):
        self.place, self.running = place, {}
        self.federation = town.settle(place)

    def folder(self, me):
        return self.place / town.NAMES[me]

    def start(self, me):
        command = [sys.executable, "-m", "pdlrecover", "peer", "run"]
        command += [self.federation, self.folder(me), "--json-logs"]
        with (self.place / f"{me}.log").open("ab") as log:
            self.running[me] = subprocess.Popen(
                command, stdout=log, stderr=log, env=town.environment()
            )

    def verify(self, me):
        """Check that a stopped peer's history is whole."""
        command = [sys.executable, "-m", "pdlrecover", "history", "verify", self.folder(me)]
        done = subprocess.run(command, capture_output=True, text=True, env=town.environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kill(self, me, how=signal.SIGKILL):
        process = self.running.pop(me)
        process.send_signal(how)
        process.wait(20)

    def signal(self, me, what):
        self.running[me].send_signal(what)

    def ask(self, me, **command):
        return asyncio.run(ask(self.folder(me) / "control", command))

    def step(self, me, kind="training"):
        try:
            runs = town.status(self.folder(me))["runs"].values()
        except FileNotFoundError:
            return -1
        return max((run["step"] for run in runs if run["kind"] == kind), default=-1)

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            told = [p.poll() for p in self.running.values()]
            assert all(code is None for code in told), f"a peer has died: {told}"
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.1)

    def have(self, peers, pattern):
        return lambda: all(list(self.folder(me).glob(pattern)) for me in peers)


@pytest.fixture
def place(tmp_path):
    made = Town(tmp_path)
    yield made
    for process in made.running.values():
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(20)


def same(paths):
    models = [town.weights(path) for path in paths]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    return models[0]


@pytest.mark.slow
def test_processes_train_and_recover_to_the_bit_though_one_is_killed_and_one_frozen(place):
    everybody = range(town.PEERS)
    for me in everybody:
        place.start(me)
    place.wait(place.have(everybody, "trained.safetensors"))
    simulation = town.simulation()
    trained = same([place.folder(me) / "trained.safetensors" for me in everybody])
    expected = simulation.original.models[town.ROUNDS].astype(np.float32)
    np.testing.assert_array_equal(trained, expected)

    place.signal(3, signal.SIGSTOP)  # to be removed, and frozen
    answer = place.ask(0, do="propose-removal", removed=["elm", "birch"], reason="malicious")
    name = answer["removal"]
    for me in (2, 4):
        place.wait(lambda me=me: bool(place.ask(me, do="status")["removals"]))
        assert "approved" in place.ask(me, do="approve", removal=name)
    place.wait(lambda: place.step(2, "recovery") >= 2)
    place.kill(2)
    assert "nothing damaged, of 10 rounds" in place.verify(2)
    place.start(2)
    kept = (0, 2, 4)
    place.wait(place.have(kept, "recovered-*.json"))
    recovered = same([place.folder(me) / f"recovered-{name[:16]}.safetensors" for me in kept])
    wanted = simulation.recover((1, 3), reason="malicious", settings=town.SETTINGS)
    told = [
        json.loads((place.folder(me) / f"recovered-{name[:16]}.json").read_text()) for me in kept
    ]
    assert len({each["log"] for each in told}) == 1
    np.testing.assert_array_equal(recovered, wanted.weights.astype(np.float32))
    for me in (0, 4):
        assert place.ask(me, do="status")["blames"] == []
        process = place.running[me]
        place.kill(me, signal.SIGTERM)
        assert process.returncode == 0
        assert "rounds that are whole: 0–9" in place.verify(me)


@pytest.mark.slow
def test_a_killed_peer_starts_again_with_the_same_command_and_loses_no_round(place):
    everybody = range(town.PEERS)
    for me in everybody:
        place.start(me)
    place.wait(lambda: place.step(4) >= 3)
    place.kill(4)
    before = place.verify(4)
    stored = int(before.split("nothing damaged, of ")[1].split()[0])
    assert stored >= 3
    place.wait(lambda: place.step(0) >= min(stored + 2, town.ROUNDS))
    place.start(4)
    place.wait(place.have(everybody, "trained.json"))
    same([place.folder(me) / "trained.safetensors" for me in everybody])
    told = [json.loads((place.folder(me) / "trained.json").read_text()) for me in everybody]
    assert len({each["log"] for each in told}) == 1
    for me in everybody:
        place.kill(me, signal.SIGTERM)
    assert "nothing damaged, of 10 rounds" in place.verify(4)
    assert "rounds whose model is whole: 0–10" in place.verify(4)
