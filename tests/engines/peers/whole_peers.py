"""Whole peers on the loopback with all their files, for tests in one process and in many."""

import json
import os
from dataclasses import replace

import numpy as np
import small
from loopback import free_addresses

from pdlrecover import Federation, Tolerance
from pdlrecover.engines.peers.federation.federation_file import write_federation
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.federation.signatures import add_signature, sign_federation
from pdlrecover.engines.peers.folder import IDENTITY, signatures_path
from pdlrecover.engines.peers.folder import SETTINGS as SETTINGS_FILE
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.settings import (
    Code,
    Data,
    History,
    Listening,
    PeerSettings,
    write_settings,
)
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.recovery.methods import Settings

PEERS, ROUNDS = 5, 10
NAMES = ("ash", "birch", "cedar", "elm", "fir")
TREES = (*NAMES, "hazel", "larch", "maple", "oak", "pine")
"""Names for more peers."""
SIZES = [12 + peer for peer in range(PEERS)]
TOLERANCE = Tolerance(colluders=1, dropouts=2)
TRAINING = Training(rounds=ROUNDS, samples=max(SIZES), batch_size=4, learning_rate=0.3, seed=5)
RECOVERY = Recovery(preparation=3, period=5, final=2, buffer=2)
SETTINGS = Settings(options=RECOVERY.options(ROUNDS), batch_size=4)
ALLOWED = Code(allowed=("whole_peers:model", "whole_peers:large"))
DEADLINES = Deadlines(message=5.0, dealing=6.0, receipts=1.0, view=3.0, resend=0.7, behind=0.4)


def model():
    """Return what the federation trains; its name in the federation file is whole_peers:model."""
    return small.module(hidden=2)


def large():
    """Return a model whose shares take more than one chunk each, of some 175,000 parameters."""
    return small.module(hidden=25_000)


def datasets(peers=PEERS):
    return [small.points(seed=peer, count=12 + peer) for peer in range(peers)]


def training(peers=PEERS, rounds=ROUNDS):
    """Return what so many peers agree on to train."""
    return replace(TRAINING, rounds=rounds, samples=11 + peers)


def settle(place, peers=PEERS, **agreed):
    """Make every peer's folder and the signed federation file; return the file's path."""
    identities, addresses = [], free_addresses(peers)
    for name, (x, y) in zip(TREES, datasets(peers), strict=False):
        folder = place / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identities.append(Identity.create(folder / IDENTITY, name))
        (place / "keys").mkdir(exist_ok=True)
        StorageKey.create(place / "keys" / f"{name}.key")
        np.savez(folder / "own.npz", x=x, y=y)
        write(folder, History(key_file=f"../keys/{name}.key"))
    membership = Membership(
        name="clinics",
        peers=tuple(i.member(a) for i, a in zip(identities, addresses, strict=True)),
        **{
            "tolerance": TOLERANCE,
            "model": Model(name="whole_peers:model", shape=(3,), classes=3),
            "training": training(peers),
            "recovery": RECOVERY,
            "deadlines": DEADLINES,
            **agreed,
        },
    )
    path = place / "federation.toml"
    path.write_text(write_federation(membership))
    text = ""
    for identity in identities:
        text = add_signature(text, sign_federation(identity, membership))
    signatures_path(path).write_text(text)
    return path


def write(folder, history, **tables):
    settings = PeerSettings(
        history=history, **{"data": Data(source="own.npz"), "code": ALLOWED, **tables}
    )
    (folder / SETTINGS_FILE).write_text(write_settings(settings))


MADE = []
"""The peers that a test has made in its own process."""


def peer(me, place, listen=None, founded=False, **arguments):
    """Return a peer, ready to run; its store is to be closed afterwards.

    If the training is `founded`, it begins at once: a lone peer would wait for others to found it.
    """
    folder = place / NAMES[me]
    if listen:
        history = History(key_file=f"../keys/{NAMES[me]}.key")
        write(folder, history, network=Listening(listen=listen))
    files = PeerFiles(place / "federation.toml", folder)
    MADE.append(files.peer(files.archive(files.storage_key()), **arguments))
    if founded:
        MADE[-1].runs.settle_epoch(bytes(32))
    return MADE[-1]


def simulation(peers=PEERS, rounds=ROUNDS, tolerance=TOLERANCE, **arguments):
    """Return the same federation in one process, trained."""
    federation = Federation.simulate(
        model(), datasets(peers), tolerance, batch_size=4, seed=5, peer_by_peer=True, **arguments
    )
    federation.train(rounds, optimizer=TRAINING.steps())
    return federation


def environment():
    """Return the environment of a peer's process: where `whole_peers` is, and one thread."""
    here = os.path.dirname(__file__)
    tests = os.path.dirname(os.path.dirname(here))
    paths = [here, tests, os.path.join(os.path.dirname(tests), "src")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def weights(path):
    """Return the model in a file as one vector."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    names = [name for name, _ in small.module(hidden=2).named_parameters()]
    return np.concatenate([tensors[name].ravel() for name in names])


def status(folder):
    return json.loads((folder / "status.json").read_text())
