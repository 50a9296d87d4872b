"""Knot's clusters against a search over all assignments, and its ledger."""

from itertools import permutations

import numpy as np
import pytest
import small
from quadratics import ROUNDS, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.groups import divided, kept_groups, train_apart
from pdlrecover.recovery.knot import KnotOptions, assigned, disparities, knot
from pdlrecover.recovery.requests import Individual, Individuals, Update


def test_the_disparity_is_the_angle_to_the_consensus():
    rows = np.array([[2, 0], [0, 1], [0, 0], [1, 0]], dtype=np.float32)
    found = disparities(Individuals(values=rows, weights=np.ones(4)))
    length = np.hypot(3, 1)
    expected = [(1 - 3 / length) / 2, (1 - 1 / length) / 2, 0.5, (1 - 3 / length) / 2]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_clusters_of_these_sizes_have_distances_that_come_earlier(seed):
    """The lexicographical minimum, by trying all assignments of 6 peers to clusters of 2."""
    disparity = np.random.default_rng(seed).uniform(size=6)

    def sorted_distances(group_of):
        return sorted((abs((g + 1) / 3 - s) for g, s in zip(group_of, disparity, strict=True)))[
            ::-1
        ]

    best = min(sorted_distances(each) for each in set(permutations([0, 0, 1, 1, 2, 2])))
    np.testing.assert_allclose(sorted_distances(assigned(disparity, 3)), best)


def test_it_trains_the_clusters_apart_and_returns_their_mean():
    engine = Quadratics((1, 2, 3), sgd(), weights=(0.7, 1.0, 0.25, 0.6))
    rows = np.stack([engine.update(p, engine.run.models[0]) for p in range(4)])
    group_of = assigned(disparities(Individuals(values=rows, weights=np.ones(4))), 2)
    expected = engine.drive(train_apart(engine.run, kept_groups(engine.run, group_of)))
    engine.requests.clear()
    found = engine.drive(knot(engine.run, KnotOptions(clusters=2)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert kinds(engine) == {Individual, Update}
    (first,) = [r for r in engine.requests if isinstance(r, Individual)]
    assert (first.round, first.at, first.everybody) == (0, None, True)
    assert len(engine.steps()) == ROUNDS


def test_clusters_drawn_at_random_need_no_single_updates():
    engine = Quadratics((1, 2, 3), sgd())
    expected = engine.drive(train_apart(engine.run, kept_groups(engine.run, divided(4, 2))))
    engine.requests.clear()
    found = engine.drive(knot(engine.run, KnotOptions(clusters=2, assignment="random")))
    np.testing.assert_array_equal(found, expected)
    assert kinds(engine) == {Update}


def test_in_a_federation_it_sees_everybody_once():
    federation = small.trained(clear=True)
    state = federation.recover(small.REMOVED, "knot:clusters=2", reason="malicious")
    openings = dict(state.ledger.openings)
    assert openings["individual"] == small.PEERS
    assert openings["group sums"] + openings.get("group sums (training)", 0) == 2 * 40
    assert state.accuracy(*small.points(seed=99, count=200)) > 0.9


def test_on_shares_it_is_refused():
    federation = small.trained(rounds=12)
    with pytest.raises(PlanError, match="knot needs single peers' updates"):
        federation.recover(small.REMOVED, "knot", reason="malicious")


@pytest.mark.parametrize("wrong", [{"clusters": 0}, {"assignment": "size"}])
def test_constants_that_cannot_be_are_refused(wrong):
    with pytest.raises(PlanError, match=r"at least 1 cluster|disparity or random"):
        KnotOptions(**wrong)
