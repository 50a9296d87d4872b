from fractions import Fraction

import numpy as np
import pytest
from quadratics import ROUNDS, Quadratics

from pdlrecover.errors import PlanError, RangeError
from pdlrecover.recovery.accelerated import (
    ENOUGH,
    HARD_RATE,
    RATES,
    AcceleratedOptions,
    accelerated_retrain,
)
from pdlrecover.recovery.evaluation import (
    LOSS_STEPS,
    EvaluationTerms,
    decode_tally,
    encode_tally,
    evaluated,
    is_below,
)
from pdlrecover.recovery.optimizers import SGD, Rate
from pdlrecover.recovery.requests import Continued, Evaluation, Stepped, Tally, Update
from pdlrecover.recovery.retrain import train

STEPS = SGD(rate=Rate(peak=0.2))


def tally(correct, count=1000):
    return Tally(correct=correct, count=count, loss=0.0)


def driven(method, scores, engine=None):
    """Go through a method whose evaluations are answered by `scores`; return what it asked."""
    engine = engine or Quadratics((1, 2, 3), STEPS)
    scores, asked, answer = iter(scores), [], None
    while True:
        try:
            request = method.send(answer)
        except StopIteration as end:
            return end.value, asked
        asked.append(request)
        answer = None
        if isinstance(request, Evaluation):
            answer = next(scores)
        elif isinstance(request, Update):
            answer = engine.answer(request)


def evaluations(asked):
    return [request for request in asked if isinstance(request, Evaluation)]


@pytest.mark.parametrize(
    ("every", "expected"), [(4, [4, 8, 10]), (5, [5, 10]), (20, [10]), (1, list(range(1, 11)))]
)
def test_a_method_is_evaluated_every_few_rounds_and_once_at_its_end(every, expected):
    method = evaluated(train(np.zeros(6), STEPS, range(10)), every)
    model, asked = driven(method, [tally(1)] * 20)
    found = evaluations(asked)
    assert [request.round for request in found] == expected
    np.testing.assert_array_equal(found[-1].at, model)


def test_evaluations_do_not_change_what_a_method_asks_or_comes_to():
    plain, asked = driven(train(np.zeros(6), STEPS, range(10)), [])
    watched, also = driven(evaluated(train(np.zeros(6), STEPS, range(10)), 3), [tally(1)] * 9)
    np.testing.assert_array_equal(plain, watched)
    rest = [type(request) for request in also if not isinstance(request, Evaluation)]
    assert rest == [type(request) for request in asked]


def recovery(goal, scores, every=4, batch_size=0, **options):
    engine = Quadratics((1, 2, 3), STEPS)
    run = engine.run
    object.__setattr__(run, "goal", run.models[-1] if goal == "model" else goal)
    method = accelerated_retrain(
        run, AcceleratedOptions(**{"rounds": 8, **options}), batch_size=batch_size
    )
    return driven(evaluated(method, every), scores, engine)


def continued(asked):
    (news,) = [request for request in asked if isinstance(request, Continued)]
    return news


def rounds_of(asked):
    return [request.round for request in asked if isinstance(request, Update)]


def test_a_recovery_that_ends_more_than_half_a_point_below_goes_on_once():
    _, asked = recovery("model", [tally(950), tally(900), tally(944), tally(0), tally(0)])
    assert rounds_of(asked) == list(range(16))
    first, *_ = evaluations(asked)
    assert first.original
    news = continued(asked)
    assert news.rounds == 16
    assert "94.40%" in news.why
    assert "95.00%" in news.why


@pytest.mark.parametrize("reached", [tally(945), tally(999), None])
def test_a_recovery_that_ends_near_enough_or_without_knowing_is_over(reached):
    _, asked = recovery("model", [tally(950), tally(900), reached])
    assert rounds_of(asked) == list(range(8))


@pytest.mark.parametrize(
    ("goal", "scores", "options"),
    [
        (None, [tally(0)] * 9, {}),
        ("model", [None, *[tally(0)] * 9], {}),
        ("model", [tally(0)] * 9, {"cycles": 1}),
    ],
)
def test_without_a_goal_or_a_second_cycle_there_is_one(goal, scores, options):
    _, asked = recovery(goal, scores, **options)
    assert rounds_of(asked) == list(range(8))


def test_an_evaluation_that_is_known_already_is_compared_with_and_not_asked_for():
    _, asked = recovery(tally(950), [tally(900)] * 9)
    assert rounds_of(asked) == list(range(16))
    assert not any(request.original for request in evaluations(asked))


def test_the_second_cycle_goes_on_from_the_first_with_its_schedule_begun_anew():
    model, asked = recovery(tally(950), [tally(900)] * 9)
    once, _ = recovery(None, [tally(0)] * 9)
    steps = [request for request in asked if isinstance(request, Stepped)]
    np.testing.assert_array_equal(steps[7].model, once)
    last, first = (np.abs(steps[t].model - steps[t - 1].model).max() for t in (7, 8))
    assert first > 4 * last
    np.testing.assert_array_equal(steps[-1].model, model)


def test_a_cycle_after_one_that_ended_far_below_takes_larger_steps_with_a_longer_memory():
    """The first step of a cycle has no momentum yet, so only the rates differ there."""
    usual, hard = (recovery(tally(950), [tally(score)] * 9) for score in (900, 899))
    steps, hard_steps = (
        [request for request in asked if isinstance(request, Stepped)] for _, asked in (usual, hard)
    )
    np.testing.assert_array_equal(steps[7].model, hard_steps[7].model)
    first, first_hard = (of[8].model - of[7].model for of in (steps, hard_steps))
    np.testing.assert_allclose(first_hard, HARD_RATE / RATES["muon"] * first, rtol=1e-9)
    assert "working against" in continued(hard[1]).why
    assert "working against" not in continued(usual[1]).why


SAMPLES = -(-ENOUGH // 3)
"""Of each of three peers, so that a round has enough."""


def test_where_nobody_evaluates_a_hard_cycle_follows_if_the_means_still_pull_one_way():
    """Eight steps that short come nowhere near the minimum: the pull is that of the losses."""
    _, asked = recovery(None, [tally(0)] * 9, batch_size=SAMPLES)
    assert rounds_of(asked) == list(range(16))
    steps = [request for request in asked if isinstance(request, Stepped)]
    longest = [np.abs(steps[t].model - steps[t - 1].model).max() for t in (1, 8)]
    assert longest[1] > 2 * longest[0]
    assert "still pull one way" in continued(asked).why
    assert "working against" in continued(asked).why


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": SAMPLES - 1},
        {"batch_size": SAMPLES, "optimizer": "adam"},
        {"batch_size": SAMPLES, "cycles": 1},
        {"batch_size": SAMPLES, "rate": 0.3, "rounds": 60},
    ],
    ids=["few samples", "the rival", "one cycle", "at the minimum"],
)
def test_no_hard_cycle_follows_where_nothing_tells_of_an_attack(options):
    _, asked = recovery(None, [tally(0)] * 99, **options)
    assert rounds_of(asked) == list(range(options.get("rounds", 8)))


def test_a_rival_by_adam_has_no_hard_cycle():
    usual, hard = (
        recovery(tally(950), [tally(score)] * 9, optimizer="adam") for score in (900, 800)
    )
    np.testing.assert_array_equal(usual[0], hard[0])


def test_a_second_cycle_is_asked_for_by_exact_numbers():
    goal = Tally(correct=3, count=3, loss=0.0)
    assert not is_below(Tally(correct=995, count=1000, loss=0.0), goal)
    assert is_below(Tally(correct=9949, count=10000, loss=0.0), goal)
    assert is_below(tally(0), tally(6), Fraction(1, 200))


def test_a_tally_is_opened_as_it_was_dealt():
    total = encode_tally(3, 1.25, 5) + encode_tally(0, 32.0, 2)
    found = decode_tally(total, most=10)
    assert found == Tally(correct=3, loss=33.25, count=7)
    assert found.accuracy == 3 / 7
    assert found.mean_loss == 33.25 / 7


@pytest.mark.parametrize(
    "lie",
    [(-1, 0, 5), (6, 0, 5), (5, 0, 11), (1, -1, 5), (1, 5 * 16 * LOSS_STEPS + 1, 5), (0, 0, -1)],
)
def test_what_honest_peers_cannot_have_dealt_is_void(lie):
    with pytest.raises(RangeError, match="somebody lied"):
        decode_tally(np.array(lie), most=10)


def test_without_a_single_sample_there_is_nothing_to_say():
    with pytest.raises(RangeError, match="nobody"):
        decode_tally(np.array([0, 0, 0]), most=10)


@pytest.mark.parametrize("liars", [1, 3])
@pytest.mark.parametrize("correct", [0, 100, 430, 500])
def test_liars_within_their_bounds_move_the_accuracy_by_at_most_their_share(liars, correct):
    """C = 500 honest samples, H = 60: every count and every number of correct answers is tried."""
    honest, most = tally(correct, 500), 60
    bound = Fraction(liars * most, honest.count + liars * most)
    shifts = [
        abs(Fraction(correct + right, 500 + count) - Fraction(correct, 500))
        for count in range(liars * most + 1)
        for right in (0, count // 2, count)
    ]
    assert max(shifts) <= bound
    if correct in (0, 500):
        assert max(shifts) == bound


def test_terms_that_make_no_sense_or_do_not_fit_the_field_are_refused():
    with pytest.raises(PlanError, match="at least 1 round"):
        EvaluationTerms(every=0, most=1, peers=3)
    with pytest.raises(RangeError, match="hold out fewer"):
        EvaluationTerms(every=1, most=1 << 36, peers=1000)


def test_rounds_and_evaluations_of_a_training_take_their_steps_in_turn():
    """The second, simpler truth is the list of what the method asks."""
    for every in (1, 3, 10, ROUNDS, 99):
        _, asked = driven(evaluated(train(np.zeros(6), STEPS, range(ROUNDS)), every), [None] * 99)
        openings = [request for request in asked if not isinstance(request, Stepped)]
        terms = EvaluationTerms(every=every, most=1, peers=3)
        for t in range(ROUNDS):
            assert openings[terms.step_of(t)].round == t
            assert isinstance(openings[terms.step_of(t)], Update)
