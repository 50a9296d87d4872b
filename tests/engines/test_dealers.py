from dataclasses import dataclass

import numpy as np
import pytest
import small
import torch

from pdlrecover.adversary import Attack, Backdoor, SignFlip
from pdlrecover.engines.peers.runs.contribution import Contribution
from pdlrecover.engines.simulated_peers import simulate_peers
from pdlrecover.errors import DataError
from pdlrecover.learning import FlatModel, LocalTraining
from pdlrecover.recovery.requests import Update

SIZES = [9, 40, 21, 33, 12]
SEED, BATCH, WIDE = 7, 8, 64


def own_data(peer):
    x, y = small.points(seed=peer, count=SIZES[peer])
    return torch.from_numpy(x), torch.from_numpy(y)


def simulated(peer, attack=None, **arguments):
    """Return all peers in one process; this one has the attack, if any."""
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    x, y = (torch.cat(each) for each in zip(*map(own_data, range(len(SIZES))), strict=True))
    malicious = () if attack is None else (peer,)
    arguments = {"batch_size": BATCH, "seed": SEED, "peer_by_peer": True, **arguments}
    return simulate_peers(
        small.module(hidden=WIDE), x, y, parts, malicious=malicious, attack=attack, **arguments
    )


def asked(round, at):
    return Update(round=round, at=at)


def real(peer, attack=None, **arguments):
    x, y = own_data(peer)
    return Contribution(
        peer=peer,
        peers=len(SIZES),
        model=FlatModel(small.module(hidden=WIDE), (3,)),
        x=x,
        y=y,
        attack=attack,
        **{"size_bound": max(SIZES), "batch_size": BATCH, "seed": SEED, "bound": 10.0, **arguments},
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"bound": 0.05}, {"local": LocalTraining(l2=0.1, steps=3)}]
)
@pytest.mark.parametrize(
    "attack",
    [None, SignFlip(scale=2.0), Backdoor(trigger=lambda x: -x)],
    ids=["honest", "sign flip", "backdoor"],
)
def test_a_real_peer_deals_to_the_bit_what_a_simulation_computes_for_it(attack, arguments):
    w = np.linspace(-1, 1, FlatModel(small.module(hidden=WIDE), (3,)).size)
    for peer in range(len(SIZES)):
        people = simulated(peer, attack, **arguments)
        among_all = people.sums(3, w, [[p] for p in range(len(SIZES))], "recovery")
        for other in range(len(SIZES)):
            one = real(other, attack if other == peer else None, **arguments)
            assert one.code == people.code
            np.testing.assert_array_equal(one(asked(3, w), "recovery"), among_all[other])


def test_a_real_peers_update_is_not_overwritten_by_its_next_one():
    w = FlatModel(small.module(hidden=WIDE), (3,)).initial
    one = real(2)
    first = one(asked(0, w))
    kept = first.copy()
    assert not np.array_equal(one(asked(1, w)), first)
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(("size_bound", "labels"), [(20, 21), (40, 20)])
def test_a_peer_with_more_data_than_agreed_or_missing_labels_is_refused(size_bound, labels):
    x, y = own_data(2)
    with pytest.raises(DataError, match=f"1 to {size_bound} samples .* got 21 and {labels}"):
        Contribution(
            peer=2,
            peers=5,
            model=FlatModel(small.module(), (3,)),
            x=x,
            y=y[:labels],
            size_bound=size_bound,
            batch_size=BATCH,
            seed=SEED,
            bound=10.0,
        )


@dataclass(frozen=True)
class Doubles(Attack):
    """Claims one row for all attackers, in float64."""

    reads_others: bool

    def corrupt(self, updates, benign, context):
        return torch.linspace(-1, 1, updates.shape[1], dtype=torch.float64) / 3


def test_what_attackers_claim_counts_the_same_whether_they_read_others_or_not():
    w = FlatModel(small.module(hidden=WIDE), (3,)).initial
    groups = [[3, 2], [0, 4, 1]]
    first, second = (
        simulated(2, Doubles(reads_others=reads), bound=0.05).sums(3, w, groups)
        for reads in (True, False)
    )
    np.testing.assert_array_equal(first, second)


def test_a_real_peer_computes_by_the_same_calls_as_a_simulation_peer_by_peer():
    assert real(2)._dealers.updates.chunk == simulated(2).updates.chunk == 1
