from dataclasses import replace

import numpy as np
import pytest
import small
import torch

from pdlrecover.adversary import (
    Attack,
    Backdoor,
    BadUnlearn,
    GaussianNoise,
    LittleIsEnough,
    MinMax,
    NoAttack,
    PartialTrim,
    SignFlip,
    Trim,
)
from pdlrecover.engines import dealers
from pdlrecover.errors import RangeError
from pdlrecover.field import F61
from pdlrecover.recovery.requests import Teacher


def simulated_peers(**arguments):
    return small.federation(**arguments).simulated_peers


def test_sums_are_what_encoding_every_peer_by_itself_gives():
    people = simulated_peers()
    w = people.updates.model.initial
    everyone = range(small.PEERS)
    each = people.dealt(4, w, everyone, "training").double().numpy().copy()
    encoded = people.code.encode(np.column_stack([each, people.updates.weights]))
    expected = people.code.decode(F61.sum(encoded, axis=0))
    found = people.sums(4, w, [everyone])[0] / people.code.scale
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bits", [10, 20, 26, 34])
def test_sums_are_exact_with_few_bits_and_with_many(bits):
    people = replace(simulated_peers(), fraction_bits=bits)
    w = people.updates.model.initial
    each = people.dealt(4, w, range(small.PEERS), "training").double().numpy().copy()
    expected = np.rint(each * people.code.scale).sum(axis=0)
    found = people.sums(4, w, [range(small.PEERS)])[0][:-1]
    np.testing.assert_array_equal(found, expected)


def test_groups_add_up_to_everybody():
    people = simulated_peers()
    w = people.updates.model.initial
    groups = people.sums(2, w, [[0, 3], [1, 2, 4], [5, 6, 7]])
    np.testing.assert_array_equal(groups.sum(axis=0), people.sums(2, w, [range(8)])[0])


def test_each_peer_alone_is_the_plain_gradient_of_its_batch():
    people = simulated_peers()
    w = people.updates.model.initial
    found = people.sums(5, w, [[3]])[0] / people.code.scale
    x, y = people.batches.take(people.x, people.y, [3], 5)
    module = people.updates.model.module_with(w)
    torch.nn.functional.cross_entropy(module(x[0]), y[0]).backward()
    plain = torch.cat([p.grad.flatten() for p in module.parameters()]).double().numpy()
    np.testing.assert_allclose(found[:-1], people.updates.weights[3] * plain, atol=2e-6)
    assert found[-1] == pytest.approx(people.updates.weights[3], abs=1e-6)


@pytest.mark.parametrize("malicious", [[2], [0, 1], [6, 3]])
def test_an_attack_changes_the_malicious_peers_only(malicious):
    honest, attacked = (
        simulated_peers(),
        simulated_peers(malicious=malicious, attack=SignFlip(scale=2.0)),
    )
    w = honest.updates.model.initial
    ours = honest.dealt(0, w, range(8), "training").clone()
    theirs = attacked.dealt(0, w, range(8), "training")
    torch.testing.assert_close(theirs[malicious], -2.0 * ours[malicious])
    rest = [peer for peer in range(8) if peer not in malicious]
    torch.testing.assert_close(theirs[rest], ours[rest], rtol=0, atol=0)


@pytest.mark.parametrize("malicious", [[0, 1], [2, 5]])
def test_poisoning_leaves_the_data_as_it_is(malicious):
    people = simulated_peers(malicious=malicious, attack=Backdoor(trigger=lambda x: -x))
    before = people.x.clone(), people.y.clone()
    w = people.updates.model.initial
    first = people.dealt(0, w, range(8), "training").clone()
    assert torch.equal(people.x, before[0])
    assert torch.equal(people.y, before[1])
    assert torch.equal(people.dealt(0, w, range(8), "training"), first)


class Witness(Attack):
    """Takes note of what it is shown."""

    def __init__(self):
        self.shown = []

    def poison(self, x, y, context):
        self.shown.append((context.places, context.phase, x.clone()))
        return x, y

    def corrupt(self, updates, benign, context):
        self.shown.append((context.places, context.phase, updates.clone(), benign.clone()))
        return updates


def test_attackers_are_told_their_places_whoever_is_asked_and_in_whatever_order():
    witness = Witness()
    people = simulated_peers(malicious=[6, 1, 4], attack=witness)
    w = people.updates.model.initial
    people.dealt(0, w, range(8), "training")
    people.dealt(0, w, [7, 6, 3, 4], "recovery")
    (all_places, _, everybody), _, (places, phase, x), _ = witness.shown
    assert (all_places, places, phase) == ((0, 1, 2), (1, 2), "recovery")
    assert torch.equal(x, everybody[1:])


def test_attackers_are_shown_gradients_before_weighing():
    witness = Witness()
    people = simulated_peers(malicious=[1, 4], attack=witness)
    w = people.updates.model.initial
    assert len(set(people.updates.weights)) == small.PEERS
    dealt = people.dealt(0, w, range(8), "training")
    _, (_, _, updates, benign) = witness.shown
    weights = torch.from_numpy(people.updates.weights).float()[:, None]
    assert torch.equal(dealt[[1, 4]], weights[[1, 4]] * updates)
    others = [0, 2, 3, 5, 6, 7]
    assert torch.equal(dealt[others], weights[others] * benign)
    assert torch.equal(dealt, simulated_peers().dealt(0, w, range(8), "training"))


@pytest.mark.parametrize("attack", [Trim(), GaussianNoise(std=1.0)])
def test_the_order_of_asking_makes_no_difference_to_a_random_attack(attack):
    people = simulated_peers(malicious=[1, 4, 6], attack=attack)
    w = people.updates.model.initial
    expected = people.dealt(0, w, range(8), "training").clone()
    shuffled = [6, 0, 3, 4, 7, 1, 2, 5]
    found = people.dealt(0, w, shuffled, "training")
    torch.testing.assert_close(found, expected[shuffled])


def test_an_attacker_asked_alone_deals_what_it_deals_among_all_who_take_part():
    people = simulated_peers(malicious=[0, 6], attack=LittleIsEnough(z=1.0))
    w = people.updates.model.initial
    kept = [2, 3, 4, 5, 6, 7]
    expected = people.dealt(3, w, kept, "recovery").clone()
    alone = people.individuals(3, w, [6, 7], "recovery", kept)
    np.testing.assert_allclose(alone.values, expected[-2:].numpy(), atol=1e-7)
    with_the_removed = people.individuals(3, w, [6, 7], "recovery", range(8))
    assert not np.allclose(with_the_removed.values[0], alone.values[0], atol=1e-4)


def test_updates_beyond_the_bound_are_clipped_and_counted():
    people = simulated_peers(bound=0.01)
    dealt = people.dealt(0, people.updates.model.initial, range(8), "training")
    assert float(torch.linalg.vector_norm(dealt.double(), dim=1).max()) <= 0.01
    assert people.clipped == 8


@pytest.mark.parametrize("value", [np.nan, 3e38])
@pytest.mark.parametrize(
    "attack", [NoAttack(), Trim(), PartialTrim(), LittleIsEnough(), BadUnlearn(then=MinMax())]
)
def test_a_diverged_model_is_refused_with_a_clear_word(attack, value):
    people = simulated_peers(malicious=[0, 1, 2], attack=attack)
    with pytest.raises(RangeError, match="training has diverged; lower the learning rate"):
        people.sums(0, np.full(people.updates.model.size, value), [range(8)], "recovery")


@pytest.mark.parametrize(
    "attack",
    [
        NoAttack(),
        Backdoor(trigger=lambda x: -x, scale=2.0),
        GaussianNoise(std=0.1),
        SignFlip(),
        PartialTrim(),
        BadUnlearn(then=GaussianNoise(std=0.1)),
        LittleIsEnough(),
    ],
)
@pytest.mark.parametrize("groups", [[[0, 3], [6, 1, 4], [5, 2, 7]], [[7, 6, 1, 0]]])
def test_sums_added_up_in_pieces_are_those_of_all_at_once_to_the_bit(attack, groups, monkeypatch):
    people = simulated_peers(malicious=[6, 1, 4], attack=attack)
    people.updates = replace(people.updates, chunk=2)
    w, who = people.updates.model.initial, [peer for group in groups for peer in group]
    dealt = people.dealt(3, w, who, "recovery").double().numpy() * people.code.scale
    whole, start = [], 0
    for group in groups:
        whole.append(np.rint(dealt[start : start + len(group)]).sum(axis=0))
        start += len(group)
    monkeypatch.setattr(dealers, "_PIECE_NUMBERS", 1)
    before = people.clipped
    found = people.sums(3, w, groups, "recovery")
    np.testing.assert_array_equal(found[:, :-1], np.array(whole))
    assert found[:, -1].tolist() == [people._weights[list(group)].sum() for group in groups]
    assert people.clipped - before == before


def test_no_more_than_a_piece_and_the_malicious_updates_are_held_at_once(monkeypatch):
    people = simulated_peers(malicious=[2], attack=SignFlip())
    people.updates = replace(people.updates, chunk=2)
    rows, room = [], people.room
    people.room = lambda peers, size: rows.append(peers) or room(peers, size)
    monkeypatch.setattr(dealers, "_PIECE_NUMBERS", 1)
    people.sums(0, people.updates.model.initial, [range(small.PEERS)])
    assert rows == [2] * (small.PEERS // 2)


def test_attackers_act_as_one_only_where_their_attack_says_so_and_some_are_asked():
    people = simulated_peers(malicious=[2, 3, 4, 6], attack=SignFlip())
    assert not people.acts_as_one(range(small.PEERS))
    assert simulated_peers(malicious=[2], attack=PartialTrim()).acts_as_one([2])
    assert not simulated_peers(malicious=[2], attack=PartialTrim()).acts_as_one([1, 3])


def test_teachers_label_samples_of_many_peers_at_a_time(monkeypatch):
    monkeypatch.setattr(dealers, "_PIECE_NUMBERS", 1)
    monkeypatch.setattr(dealers, "_TAUGHT_PEERS", 5)
    people = simulated_peers()
    people.updates = replace(people.updates, chunk=2)
    w, who = people.updates.model.initial, range(small.PEERS)
    teacher = Teacher(models=(np.ones_like(w), w), temperature=2.0)
    rows, room = [], people.room
    people.room = lambda peers, size: rows.append(peers) or room(peers, size)
    found = people.sums(0, w, [who], teacher=teacher)
    assert rows == [4] * (small.PEERS // 4)
    monkeypatch.setattr(dealers, "_TAUGHT_PEERS", 100)
    assert np.abs(found - people.sums(0, w, [who], teacher=teacher)).max() <= small.PEERS
