import numpy as np
import pytest
import small
import torch

from pdlrecover import Federation, Tolerance
from pdlrecover.adversary import Backdoor
from pdlrecover.errors import (
    DataError,
    HistoryError,
    ModelError,
    PlanError,
    RangeError,
    ToleranceError,
)

TRAINED = small.trained()


class LastColumn:
    """A trigger for points in the plane: the constant column jumps."""

    def __call__(self, x):
        x = x.clone()
        x[..., 2] = 4.0
        return x


def test_the_recovered_model_is_the_users_own_module():
    state = TRAINED.recover([0, 1], settings=small.SETTINGS)
    assert isinstance(state.model, torch.nn.Sequential)
    x, y = small.points(seed=99, count=400)
    named = state.model(torch.from_numpy(x)).argmax(dim=1).numpy()
    assert state.accuracy(x, y) == pytest.approx((named == y).mean())
    assert state.accuracy(x, y) > 0.9


@pytest.mark.slow
def test_a_backdoor_is_planted_and_recovered_from():
    attack = Backdoor(trigger=LastColumn(), target=1)
    federation = small.federation(malicious=[0, 1, 2], attack=attack)
    poisoned = federation.train(120, 0.5)
    clean = federation.recover([0, 1, 2], reason="malicious", settings=small.SETTINGS)
    retrained = federation.recover([0, 1, 2], "retrain", reason="malicious")
    x, y = small.points(seed=99, count=400)
    before = poisoned.attack_success(x, y, attack)
    after = clean.attack_success(x, y, attack)
    assert before > 0.9
    assert after < retrained.attack_success(x, y, attack) + 0.05
    assert clean.accuracy(x, y) > retrained.accuracy(x, y) - 0.02


def test_a_single_honest_leaver_is_not_removed_alone():
    with pytest.raises(PlanError, match="would reveal the updates of peer 3"):
        TRAINED.recover([3], settings=small.SETTINGS)
    TRAINED.recover([3], settings=small.SETTINGS, accept_differencing=True)
    TRAINED.recover([3], settings=small.SETTINGS, reason="malicious")


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ([2, 9], "there is no peer 9"),
        ([-1, 2], "there is no peer -1"),
        (range(8), "nobody is left to recover"),
        ([0, 1, 2, 3], "4 peers are to be removed .* survive 3 dropouts"),
    ],
)
def test_removals_that_cannot_be_are_refused(remove, message):
    with pytest.raises(PlanError, match=message):
        TRAINED.recover(remove)


def test_cohorts_can_be_named_and_must_be_removed_whole():
    federation = small.trained(rounds=12, cohorts=[[0, 1], [5, 6, 7]])
    assert len(federation.history.layout.cohorts) == 5
    settings = small.SETTINGS
    whole = federation.recover([0, 1], "historical", settings=settings)
    alone = small.trained(rounds=12).recover([0, 1], "historical", settings=settings)
    np.testing.assert_array_equal(whole.weights, alone.weights)
    with pytest.raises(HistoryError, match="record them as a cohort of their own"):
        federation.recover([0, 2], "historical", settings=settings)


@pytest.mark.parametrize("cohorts", [[[0, 1], [1, 2]], [[0, 9]], [[]]])
def test_senseless_cohorts_are_refused(cohorts):
    with pytest.raises(HistoryError, match="cohorts must be disjoint groups"):
        small.federation(cohorts=cohorts)


def test_a_history_beyond_the_budget_is_refused_and_cohorts_are_offered():
    federation = small.federation(budget=1000)
    with pytest.raises(HistoryError, match=r"for 8 cohorts, .* Name cohorts"):
        federation.train(10, 0.1)


def test_a_federation_is_trained_once():
    with pytest.raises(PlanError, match="has 40 rounds of training in its history, and 3 were"):
        TRAINED.train(3, 0.1)


def test_empty_or_broken_data_is_refused():
    good = [small.points(seed=peer) for peer in range(7)]
    empty = (np.zeros((0, 3), dtype=np.float32), np.zeros(0, dtype=np.int64))
    with pytest.raises(DataError, match="peer 7 has 0 samples"):
        Federation.simulate(small.module(), [*good, empty], small.TOLERANCE)
    with pytest.raises(DataError, match="at least one peer's dataset"):
        Federation.simulate(small.module(), [], small.TOLERANCE)
    x, y = small.points()
    x[0, 0] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        Federation.simulate(small.module(), [*good, (x, y)], small.TOLERANCE)


def test_a_model_with_nan_weights_is_refused():
    module = small.module()
    with torch.no_grad():
        module[0].weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="not finite"):
        Federation.simulate(module, [small.points()] * 8, small.TOLERANCE)


def test_too_few_peers_for_the_tolerance_are_refused():
    with pytest.raises(ToleranceError, match="have at least 9 peers"):
        Federation.simulate(
            small.module(), [small.points()] * 4, Tolerance(colluders=4, dropouts=2, liars=1)
        )


def test_unknown_malicious_peers_are_refused():
    with pytest.raises(PlanError, match="no peer 8"):
        small.federation(malicious=[8])


def test_an_interrupted_training_is_taken_up_and_a_finished_one_is_replayed(tmp_path):
    first = small.federation(folder=tmp_path)
    first.train(12, 0.3)
    again = small.federation(folder=tmp_path, resume=True)
    with pytest.raises(PlanError, match="12 rounds of training in its history, and 20 were"):
        again.train(20, 0.3)
    state = again.train(12, 0.3)
    np.testing.assert_array_equal(state.weights, first.original.models[-1])
    again.recover([0, 1], "historical")


def test_fewer_rounds_than_the_history_has_are_refused(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(step):
        if step.round == 17:
            raise EnoughError

    with pytest.raises(EnoughError):
        small.federation(folder=tmp_path).train(40, 0.3, observer=stop)
    with pytest.raises(PlanError, match="18 rounds of training in its history, and 10 were"):
        small.federation(folder=tmp_path, resume=True).train(10, 0.3)


def test_two_recoveries_that_differ_by_one_leaver_are_refused():
    federation = small.trained(rounds=12)
    federation.recover([3, 7], "historical")
    federation.recover([3, 7], "retrain")
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        federation.recover([3, 5, 7], "historical")
    federation.recover([3, 5, 7], "historical", accept_differencing=True)


def test_a_third_recovery_is_held_against_all_before_it():
    """Each pair of leavers hides its two; the three sums together tell each of them."""
    federation = small.trained(rounds=12)
    federation.recover([0, 1], "historical")
    federation.recover([1, 2], "historical")
    with pytest.raises(PlanError, match="would reveal the updates of peer 0"):
        federation.recover([0, 2], "historical")
    federation.recover([0, 2], "accelerated-retrain:start=fresh+rounds=3")


def test_an_unknown_reason_is_refused():
    with pytest.raises(PlanError, match="the reason is one of left, malicious, got 'leave'"):
        TRAINED.recover([3], reason="leave")


def test_colluders_must_not_be_all_but_one_of_a_sum():
    datasets = [small.points(seed=peer) for peer in range(8)]
    with pytest.raises(PlanError, match="7 colluders who take their own part out of a sum over 8"):
        Federation.simulate(small.module(), datasets, Tolerance(colluders=7))
    made = Federation.simulate(small.module(), datasets, Tolerance(colluders=5, dropouts=2))
    made.train(6, 0.3)
    with pytest.raises(PlanError, match="sum over 6 peers would know a single other's"):
        made.recover([0, 1], "retrain")


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0, -100]])
def test_labels_that_the_model_does_not_know_are_refused(labels):
    x = np.zeros((2, 3), dtype=np.float32)
    datasets = [small.points(seed=peer) for peer in range(7)]
    with pytest.raises(DataError, match="labels must be whole numbers from 0 to 2"):
        Federation.simulate(small.module(), [*datasets, (x, labels)], small.TOLERANCE)


def test_data_of_other_shapes_or_kinds_is_refused():
    datasets = [small.points(seed=peer) for peer in range(7)]
    wide = np.zeros((2, 4), dtype=np.float32), [0, 1]
    with pytest.raises(DataError, match=r"peer 0 has \(3,\) and peer 7 \(4,\)"):
        Federation.simulate(small.module(), [*datasets, wide], small.TOLERANCE)
    with pytest.raises(DataError, match="labels must be whole numbers, the classes"):
        TRAINED.recover([0, 1], "historical").accuracy(np.zeros((1, 3)), [0.5])


def test_a_bound_must_be_positive():
    with pytest.raises(RangeError, match="bound must be a finite number above 0, got -10"):
        small.federation(bound=-10.0)
