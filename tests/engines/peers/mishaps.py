"""Ways for a peer's process to come to grief at an exact step: for tests, nothing of it is shipped.

A mishap is a file, so that it can be set while peers run: `mishap.json` in a peer's folder, or in
the folder above for whoever comes there first.

    {"at": WHERE, "run": "training" or "recovery", "step": FIRST, "signal": NUMBER}

A peer that is there, at that step or a later one, moves the file to `happened.json` in its folder,
adds the step and the time, and sends itself the signal. Other files that are looked at:

    gate.json    in the folder above: by kind of run, the first step in which nobody deals yet; a
                 peer that waits for that says where in `holding.json`
    slow         in a peer's folder: how many seconds it takes to send a message

And one that is written: `committed.txt`, a line for every step once its write has returned.
"""

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pdlrecover.engines.peers.peer import Peer
from pdlrecover.engines.peers.protocol import codec, messages
from pdlrecover.engines.peers.runs import result_files
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.engines.peers.transport import link
from pdlrecover.engines.peers.transport.network import Network
from pdlrecover.history.sealed import journal
from pdlrecover.history.sealed.records import STATE

BEFORE_DEALING = "before dealing"
HALF_DEALT = "half-way through dealing"
BEFORE_RECEIPT = "before the receipt"
BEFORE_PROPOSING = "as leader, before proposing"
HALF_PROPOSED = "as leader, half-way through proposing"
BEFORE_OPENING = "before opening"
BEFORE_OPENING_STORED = "before opening what is stored"
WRITING = "while writing history"
WRITTEN = "between the database and its head file"
WRITING_MODEL = "between the model and what is told of it"
ARRIVING = "while a large share arrives"

HALF = 2
"""So many of the messages of one kind have been acknowledged when it is half-way."""
_SENDING = {
    messages.Receipt: BEFORE_RECEIPT,
    messages.Proposal: BEFORE_PROPOSING,
    messages.SubSecret: BEFORE_OPENING,
}
_ACKNOWLEDGED = {messages.Dealing: HALF_DEALT, messages.Proposal: HALF_PROPOSED}


class Mishaps:
    """What may happen to the peer of one folder."""

    def __init__(self, folder):
        self.folder, self.runs = folder, None
        self.places = (folder / "mishap.json", folder.parent / "mishap.json")
        self.writing = None
        self.acknowledged, self.one_by_one = Counter(), asyncio.Lock()

    def kind(self, run):
        known = {self.runs.founding: "founding", self.runs.training: "training"}
        return known.get(run, "recovery")

    def meet(self, at, run, step):
        """Come to a place; perhaps it is the last."""
        for path in self.places:
            told = _read(path)
            if not told or (told["at"], told["run"]) != (at, self.kind(run)) or step < told["step"]:
                continue
            happened = self.folder / "happened.json"
            try:
                path.rename(happened)
            except FileNotFoundError:  # somebody else was there first
                continue
            happened.write_text(json.dumps({**told, "step": step, "time": time.time()}))
            os.kill(os.getpid(), told["signal"])

    def is_set(self, at):
        return any(_read(path).get("at") == at for path in self.places)

    def wait_at_gate(self, run, step):
        kind, told = self.kind(run), False
        while step >= _read(self.folder.parent / "gate.json").get(kind, step + 1):
            if not told:
                write(self.folder / "holding.json", {"run": kind, "step": step})
            told = True
            time.sleep(0.05)

    @property
    def delay(self):
        return _read(self.folder / "slow") or 0.0

    def commit(self, run, step):
        line = f"{self.kind(run)} {step} {time.time()}\n"
        with (self.folder / "committed.txt").open("a") as file:
            file.write(line)


def install(folder):
    """Change the package, in this process only, so that mishaps can happen to this peer."""
    here = Mishaps(Path(folder))
    _watch_dealing(here)
    _watch_sending(here)
    _watch_writing(here)


def write(path, value):
    """Write a file that is looked at: the old one or the new one is seen, whole."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value))
    part.rename(path)


def _read(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def _watch_dealing(here):
    begin, compute = Peer.__init__, Peer._compute

    def begin_known(self, run_factory, **arguments):
        here.runs = run_factory
        begin(self, run_factory, **arguments)

    def compute_watched(self, run, job):
        def deal(binding, seed):
            here.wait_at_gate(run, job.step)
            here.meet(BEFORE_DEALING, run, job.step)
            return job.deal(binding, seed)

        compute(self, run, replace(job, deal=deal))

    Peer.__init__, Peer._compute = begin_known, compute_watched


def _watch_sending(here):
    send, link_send, whole = Network.send, link.Link._send, Network._whole

    def send_watched(self, peer, data):
        envelope = codec.decode(data)
        run, step, at = envelope.header.run, envelope.header.step, type(envelope.body)
        if at in _SENDING:
            here.meet(_SENDING[at], run, step)
        if at is messages.SubSecret and envelope.body.choice == messages.NOTHING:
            here.meet(BEFORE_OPENING_STORED, run, step)
        send(self, peer, data)

    async def link_send_watched(self, call, message):
        if here.delay:
            await asyncio.sleep(here.delay)
        envelope = codec.decode(message.data)
        kind, at = type(envelope.body), (envelope.header.run, envelope.header.step)
        if kind not in _ACKNOWLEDGED or not here.is_set(_ACKNOWLEDGED[kind]):
            await link_send(self, call, message)
            return
        async with here.one_by_one:
            if here.acknowledged[kind, *at] >= HALF:
                here.meet(_ACKNOWLEDGED[kind], *at)
            await link_send(self, call, message)
            while message in self._unanswered:
                await asyncio.sleep(0.01)
            here.acknowledged[kind, *at] += 1

    async def whole_watched(self, source, chunk, context):
        if len(chunk) == link.SIZE_BYTES + link.CHUNK:
            here.meet(ARRIVING, codec.peek_run(chunk[link.SIZE_BYTES :]), 0)
        return await whole(self, source, chunk, context)

    Network.send, link.Link._send = send_watched, link_send_watched
    Network._whole = whole_watched


def _watch_writing(here):
    commit, put, remember = Archive.commit, journal._Write.put, journal.remember
    write_json = result_files.write_json

    def commit_watched(self, run, entry, shares, model):
        here.writing = run, len(self.log(run))
        commit(self, run, entry, shares, model)
        here.commit(*here.writing)
        here.writing = None

    def put_watched(self, key, content):
        if here.writing and key == STATE:  # everything is in the write, and the write is not done
            here.meet(WRITING, *here.writing)
        return put(self, key, content)

    def remember_watched(store, sealer, state):
        if here.writing:
            here.meet(WRITTEN, *here.writing)
        remember(store, sealer, state)

    def write_json_watched(path, value):
        here.meet(WRITING_MODEL, here.runs.training if path.stem == "trained" else b"", 0)
        write_json(path, value)

    Archive.commit, journal._Write.put = commit_watched, put_watched
    journal.remember, result_files.write_json = remember_watched, write_json_watched
