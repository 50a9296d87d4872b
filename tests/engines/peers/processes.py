"""A federation whose peers are processes on the loopback: killed, frozen and started again."""

import asyncio
import json
import resource
import signal
import subprocess
import sys
import time
from functools import partial

import mishaps
import numpy as np
import whole_peers

from pdlrecover.engines.peers.folder import HISTORY
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.engines.peers.startup import verified

WAIT = 180
"""So many seconds are allowed for anything, on a machine with other work."""


class Processes:
    """One folder for each peer, and the processes that run there."""

    def __init__(self, place, forked_peers=None, peers=whole_peers.PEERS, **agreed):
        """Processes are forked by `forked_peers` if there is one, and started anew otherwise."""
        self.place, self.forked_peers, self.running = place, forked_peers, {}
        self.everybody = range(peers)
        self.federation = whole_peers.settle(place, peers=peers, **agreed)

    def folder(self, me):
        return self.place / whole_peers.TREES[me]

    def start(self, *peers, descriptors=None, cheat=None):
        """Start peers; those that are forked may play a cheat of `chaos`, and those that are
        started anew be limited to so many descriptors.
        """
        for me in peers:
            command = ["peer", "run", self.federation, self.folder(me), "--json-logs"]
            log = self.place / f"{me}.log"
            if self.forked_peers:
                folder = self.folder(me)
                self.running[me] = self.forked_peers.start(folder, command, log, cheat)
                continue
            with log.open("ab") as file:
                self.running[me] = subprocess.Popen(
                    [sys.executable, "-m", "pdlrecover", *command],
                    stdout=file,
                    stderr=file,
                    env=whole_peers.environment(),
                    preexec_fn=descriptors and partial(_limit, descriptors),
                )

    def verify(self, me):
        """Check that a stopped peer's history is whole, by the command."""
        command = [sys.executable, "-m", "pdlrecover", "history", "verify", self.folder(me)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=whole_peers.environment()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stored(self, me, kind="training"):
        """Return how many steps of a run a stopped peer's history has, having found it whole."""
        key = StorageKey.from_file(self.place / "keys" / f"{whole_peers.TREES[me]}.key")
        found = verified(self.folder(me) / HISTORY, key)
        assert all(each.sound for each in found.values()), (me, found)
        return sum(v.rounds for name, v in found.items() if name.startswith(kind))

    def kill(self, me, how=signal.SIGKILL):
        process = self.running.pop(me)
        process.send_signal(how)
        process.wait(20)
        return process

    def send(self, me, what):
        self.running[me].send_signal(what)

    def end(self):
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(20)

    def ask(self, me, **command):
        return asyncio.run(ask(self.folder(me) / "control", command))

    def step(self, me, kind="training"):
        try:
            runs = whole_peers.status(self.folder(me))["runs"].values()
        except FileNotFoundError:
            return -1
        return max((run["step"] for run in runs if run["kind"] == kind), default=-1)

    def wait(self, condition, seconds=WAIT):
        end = time.monotonic() + seconds
        while not (found := condition()):
            told = {me: p.poll() for me, p in self.running.items()}
            assert all(code is None for code in told.values()), f"a peer has died: {told}"
            assert time.monotonic() < end, f"it takes too long: {self.told()}"
            time.sleep(0.1)
        return found

    def have(self, peers, pattern):
        return lambda: all(list(self.folder(me).glob(pattern)) for me in peers)

    def remove(self, removed, by, method="pdlrecover"):
        """Propose a removal at the first of some peers, and approve it at the others."""
        names = [whole_peers.TREES[me] for me in removed]
        order = {"do": "propose-removal", "removed": names, "reason": "malicious"}
        name = self.ask(by[0], **order, method=method)["removal"]
        for me in by[1:]:
            self.wait(lambda me=me: bool(self.ask(me, do="status")["removals"]))
            assert "approved" in self.ask(me, do="approve", removal=name)
        return name

    def told(self):
        """Return the last that each peer said, for when something takes too long."""
        logs = {me: self.place / f"{me}.log" for me in self.everybody}
        return {me: log.read_text()[-300:] for me, log in logs.items() if log.exists()}

    def warnings(self):
        """Return what peers warned of, but not whom they cannot reach or wait for; all is JSON."""
        lines = [
            json.loads(line)
            for me in self.everybody
            for line in (self.place / f"{me}.log").read_text().splitlines()
        ]
        told = [line["text"] for line in lines if line["level"] != "info"]
        waits = (text for text in told if " waits for " not in text)
        return [text for text in waits if not text.startswith("cannot reach ")]

    def mishap(self, at, *, run="training", step=0, me=None, how=signal.SIGKILL):
        """Set a mishap for one peer, or for whoever comes there first."""
        where = self.place if me is None else self.folder(me)
        told = {"at": at, "run": run, "step": step, "signal": how}
        mishaps.write(where / "mishap.json", told)

    def deaths(self, count, seconds=WAIT):
        """Wait until mishaps have killed so many peers; return what happened, by peer."""
        end = time.monotonic() + seconds
        while len(dead := [me for me, p in self.running.items() if p.poll() is not None]) < count:
            assert time.monotonic() < end, f"nothing happens: {self.told()}"
            time.sleep(0.1)
        assert [self.running.pop(me).returncode for me in dead] == [-signal.SIGKILL] * count
        return {me: self.happened(me) for me in dead}

    def happened(self, me):
        """Return the mishap of a peer, once."""
        path = self.folder(me) / "happened.json"
        told = json.loads(path.read_text())
        path.unlink()
        return told

    def gate(self, run, step):
        """Let nobody deal in this step and later ones."""
        mishaps.write(self.place / "gate.json", {run: step})

    def held(self, peers, run="training", after=-1):
        """Wait until these peers are held at the gate, all in one step, and return it."""

        def found():
            steps = set()
            for me in peers:
                path = self.folder(me) / "holding.json"
                told = json.loads(path.read_text()) if path.exists() else {}
                steps.add(told["step"] if told.get("run") == run else -1)
            return len(steps) == 1 and min(steps) > after and steps.pop() + 1

        return self.wait(found) - 1

    def committed(self, me, run="training"):
        """Return when each step's write had returned, by step."""
        path = self.folder(me) / "committed.txt"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {int(step): float(at) for kind, step, at in lines if kind == run}


def _limit(descriptors):
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


def same(paths):
    """Return the model that is in all these files."""
    models = [whole_peers.weights(path) for path in paths]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    return models[0]
