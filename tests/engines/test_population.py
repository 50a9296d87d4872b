import numpy as np
import pytest
import small
import torch

from pdlrecover.adversary import SignFlip
from pdlrecover.errors import RangeError
from pdlrecover.field import F61


def population(**arguments):
    return small.federation(**arguments).population


def test_sums_are_what_encoding_every_peer_by_itself_gives():
    people = population()
    w = people.updates.model.initial
    everyone = range(small.PEERS)
    each = people.dealt(4, w, everyone, "training").double().numpy().copy()
    encoded = people.code.encode(np.column_stack([each, people.updates.weights]))
    expected = people.code.decode(F61.sum(encoded, axis=0))
    found = people.sums(4, w, [everyone])[0] / people.code.scale
    np.testing.assert_array_equal(found, expected)


def test_groups_add_up_to_everybody():
    people = population()
    w = people.updates.model.initial
    groups = people.sums(2, w, [[0, 3], [1, 2, 4], [5, 6, 7]])
    np.testing.assert_array_equal(groups.sum(axis=0), people.sums(2, w, [range(8)])[0])


def test_each_peer_alone_is_the_plain_gradient_of_its_batch():
    people = population()
    w = people.updates.model.initial
    found = people.sums(5, w, [[3]])[0] / people.code.scale
    x, y = people.batches.take(people.x, people.y, [3], 5)
    module = people.updates.model.module_with(w)
    torch.nn.functional.cross_entropy(module(x[0]), y[0]).backward()
    plain = torch.cat([p.grad.flatten() for p in module.parameters()]).double().numpy()
    np.testing.assert_allclose(found[:-1], people.updates.weights[3] * plain, atol=2e-6)
    assert found[-1] == pytest.approx(people.updates.weights[3], abs=1e-6)


def test_an_attack_changes_the_malicious_peers_only():
    honest, attacked = population(), population(malicious=[2], attack=SignFlip(scale=2.0))
    w = honest.updates.model.initial
    ours = honest.dealt(0, w, range(8), "training").clone()
    theirs = attacked.dealt(0, w, range(8), "training")
    torch.testing.assert_close(theirs[2], -2.0 * ours[2])
    rest = [0, 1, 3, 4, 5, 6, 7]
    torch.testing.assert_close(theirs[rest], ours[rest], rtol=0, atol=0)


def test_updates_beyond_the_bound_are_clipped_and_counted():
    people = population(bound=0.01)
    dealt = people.dealt(0, people.updates.model.initial, range(8), "training")
    assert float(torch.linalg.vector_norm(dealt.double(), dim=1).max()) <= 0.01
    assert people.clipped == 8


def test_a_diverged_model_is_refused_with_a_clear_word():
    people = population()
    with pytest.raises(RangeError, match="training has diverged; lower the learning rate"):
        people.sums(0, np.full(people.updates.model.size, np.nan), [range(8)])
