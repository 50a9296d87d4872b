"""A peer that deals otherwise than it should, among honest ones."""

import hashlib

import numpy as np
from wire import Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import dealing
from pdlrecover.engines.peers.protocol.dealing import NONCE_BYTES, Dealt, Public
from pdlrecover.field import F61

ROUNDS = 3
CHEAT = 3
PEERS = 7
TOLERANCE = Tolerance(colluders=1, dropouts=2, liars=1)
HONEST = [p for p in range(PEERS) if p != CHEAT]


def with_dealer(change):
    """Train with a peer that deals otherwise than it should."""
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    cheat = network.sessions[CHEAT]
    cheat.deal = lambda job: change(cheat.task.kind, job.binding, job.run())
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=500)
    same_models(network, HONEST)
    return setup, network


def rows_of(private):
    return [np.frombuffer(p[NONCE_BYTES:], dtype="<i8").astype(np.int64) for p in private]


def proven(kind, binding, private, rows):
    """Return a dealing that commits to some rows, with the proof that other rows would have."""
    commitments = b"".join(hashlib.sha256(b"pdlrecover row" + p).digest() for p in private)
    shares, random = np.split(np.stack(rows[: kind.degree + 1]), [kind.blocks], axis=1)
    proof = dealing._combined(kind, binding, commitments, shares, random).ravel()
    return Dealt(public=Public(commitments=commitments, proof=proof), private=tuple(private))


def changed(private, by):
    row = rows_of([private])[0]
    return private[:NONCE_BYTES] + F61.add(row, by).astype("<i8").tobytes()
