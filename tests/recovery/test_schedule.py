import numpy as np
import pytest

from pdlrecover.errors import PlanError
from pdlrecover.recovery.schedule import Guard, Schedule, usual_phase


def test_the_papers_schedule_has_81_exact_rounds_of_1000():
    assert Schedule().exact_rounds(1000) == 81


def test_exact_rounds_are_where_they_are_planned():
    schedule = Schedule(preparation=3, period=4, final=2)
    exact = [t for t in range(16) if schedule.is_exact(t, 16)]
    assert exact == [0, 1, 2, 6, 10, 14, 15]


def test_a_run_too_short_is_refused():
    with pytest.raises(
        PlanError, match="25 preparation and 25 final rounds do not fit a run of 40"
    ):
        Schedule().check(40)


@pytest.mark.parametrize("bad", [{"preparation": 1}, {"period": 0}, {"final": -1}, {"buffer": 0}])
def test_senseless_schedules_are_refused(bad):
    with pytest.raises(PlanError, match="must be at least"):
        Schedule(**bad)


def test_the_guard_refuses_what_exceeds_twice_the_median():
    guard = Guard()
    for size in (100.0, 1, 1, 1, 1, 2, 2, 2, 2):  # the first one is forgotten: median 1.5
        guard.learn(np.array([size, 0.0]))
    assert guard.accepts(np.array([0.0, 3.0]))
    assert not guard.accepts(np.array([0.0, 3.01]))
    assert not guard.accepts(np.array([np.nan, 0.0]))
    assert guard.trips == 2


def test_the_usual_phases_are_the_papers_in_long_runs_and_an_eighth_of_short_ones():
    found = {rounds: usual_phase(rounds) for rounds in (8, 60, 120, 200, 400, 800, 1000, 5000)}
    assert found == {8: 2, 60: 7, 120: 15, 200: 16, 400: 16, 800: 20, 1000: 25, 5000: 25}
