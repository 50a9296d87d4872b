"""Groups and SISA against training every group by itself."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small
from quadratics import ROUNDS, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.recovery.groups import divided, kept_groups, train_apart
from pdlrecover.recovery.methods import check_between_peers
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.requests import Update
from pdlrecover.recovery.sisa import SisaOptions, sisa

WEIGHTS = (0.7, 1.0, 0.25, 0.6)
GROUP_OF = [0, 1, 0, 1]


def trained_alone(engine, optimizer, peers):
    """Return the model that these peers come to by themselves."""
    stepper, w = optimizer.start(), engine.run.models[0]
    for _ in range(ROUNDS):
        w = stepper.step(w, engine.total(peers, w) / engine.weights[peers].sum())
    return w


@pytest.mark.parametrize(
    "optimizer", [sgd(), SGD(rate=Rate(peak=0.05), momentum=0.8), Adam(rate=Rate(peak=0.1))]
)
def test_each_group_trains_as_if_it_were_alone(optimizer):
    engine = Quadratics((1, 2, 3), optimizer, weights=WEIGHTS)
    groups = kept_groups(engine.run, GROUP_OF)
    mean = engine.drive(train_apart(engine.run, groups))
    assert [group.of for group in groups] == [(1,), (0, 2)]
    alone = [trained_alone(engine, optimizer, peers) for peers in ([2], [1, 3])]
    for group, expected in zip(groups, alone, strict=True):
        np.testing.assert_allclose(group.model, expected, rtol=1e-12)
    expected = (0.25 * alone[0] + 1.6 * alone[1]) / 1.85
    np.testing.assert_allclose(mean, expected, rtol=1e-12)


def test_only_the_groups_of_removed_peers_are_a_cost_of_the_recovery():
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(train_apart(engine.run, kept_groups(engine.run, GROUP_OF)))
    asked = Counter((r.of, r.before) for r in engine.requests if isinstance(r, Update))
    assert asked == {((1,), False): ROUNDS, ((0, 2), True): ROUNDS}


def test_a_group_that_lost_everybody_is_gone():
    engine = Quadratics((1, 3), sgd())
    (group,) = kept_groups(engine.run, GROUP_OF)
    assert (group.of, group.touched) == ((0, 1), False)


@pytest.mark.parametrize(("peers", "groups"), [(20, 3), (4, 4), (7, 1)])
def test_peers_are_divided_evenly_and_always_alike(peers, groups):
    found = divided(peers, groups)
    sizes = Counter(found).values()
    assert len(sizes) == groups
    assert max(sizes) - min(sizes) <= 1
    assert found == divided(peers, groups)


def test_neighbours_are_not_divided_by_their_numbers():
    """A partition may give neighbours, or every k-th peer, the same classes."""
    found = divided(200, 5)
    assert found != [i % 5 for i in range(200)]
    assert found != sorted(found)


def test_sisa_ends_near_the_vote_of_the_shards():
    """The quadratics' distillation loss is least at the mean of the teachers."""
    engine = Quadratics((1, 2, 3), sgd(), weights=WEIGHTS)
    groups = kept_groups(engine.run, divided(4, 2))
    start = engine.drive(train_apart(engine.run, groups))
    vote = np.mean([group.model for group in groups], axis=0)
    assert np.linalg.norm(start - vote) > 0.05  # by weight, where the vote is one for each shard
    engine.requests.clear()
    found = engine.drive(sisa(engine.run, SisaOptions(distil=60)))
    np.testing.assert_allclose(found, vote, atol=1e-3)
    teachers = [r.teacher for r in engine.requests if isinstance(r, Update) and r.teacher]
    assert len(teachers) == 60
    assert kinds(engine) == {Update}
    rounds = [step.round for step in engine.steps()]
    assert rounds == list(range(ROUNDS + 60))


def test_without_distillation_sisa_is_the_mean_of_the_shards():
    engine = Quadratics((1, 2, 3), sgd(), weights=WEIGHTS)
    mean = engine.drive(train_apart(engine.run, kept_groups(engine.run, divided(4, 2))))
    found = engine.drive(sisa(engine.run, SisaOptions(distil=0)))
    np.testing.assert_array_equal(found, mean)


def test_one_shard_is_retraining():
    engine = Quadratics((1, 2, 3), sgd(), weights=WEIGHTS)
    found = engine.drive(sisa(engine.run, SisaOptions(shards=1, distil=0)))
    np.testing.assert_allclose(found, trained_alone(engine, sgd(), [1, 2, 3]), rtol=1e-12)


def test_in_a_federation_it_opens_sums_over_shards():
    federation = small.trained(clear=True)
    state = federation.recover(small.REMOVED, "sisa", reason="malicious")
    assert state.accuracy(*small.points(seed=99, count=200)) > 0.9
    shards = divided(small.PEERS, 2)
    touched = {shards[peer] for peer in small.REMOVED}
    openings = {"fresh sums": 4, "group sums": 40 * len(touched)}
    if len(touched) == 1:
        openings["group sums (training)"] = 40
    assert dict(state.ledger.openings) == openings
    members = [p for p in range(small.PEERS) if p not in small.REMOVED and shards[p] in touched]
    assert state.ledger.gradient_evaluations == 40 * len(members) + 4 * 6


def test_on_shares_a_shard_must_keep_enough_peers_to_hide_each():
    federation = small.trained(rounds=12)
    with pytest.raises(PlanError, match="1 colluders who take their own part out of a sum over"):
        federation.recover(small.REMOVED, "sisa:shards=4", reason="malicious")


def test_shards_that_are_too_small_are_refused_before_anything_runs():
    config = Config(peers=20, malicious=5, methods=("sisa",), colluders=2)
    message = "of 2 groups of 20 peers one keeps 7, and a sum must be over at least 8"
    with pytest.raises(PlanError, match=message):
        replace(config, colluders=6)
    replace(config, colluders=6, clear=True)
    with pytest.raises(PlanError, match="of 5 groups"):
        replace(config, methods=("sisa:shards=5",))


def test_between_peers_it_is_refused():
    with pytest.raises(PlanError, match="sisa is not known to lead every peer to the same model"):
        check_between_peers("sisa")


def test_constants_that_cannot_be_are_refused():
    with pytest.raises(PlanError, match="at least 1 shard, got 0"):
        SisaOptions(shards=0)
    engine = Quadratics((1, 2, 3), sgd())
    with pytest.raises(PlanError, match="4 peers cannot be divided into 5 shards"):
        engine.drive(sisa(engine.run, SisaOptions(shards=5)))
    with pytest.raises(PlanError, match="0 peers trained, and 4 are in groups"):
        kept_groups(replace(engine.run, peers=0), GROUP_OF)
