import pytest

from pdlrecover.errors import PlanError
from pdlrecover.experiments.chaos.campaign import named_cheats
from pdlrecover.experiments.chaos.cheats import CHEATS
from pdlrecover.experiments.chaos.faults import BEYOND, LONGEST, WITHIN, Faults
from pdlrecover.experiments.chaos.scenario import TREES, Scenario

NAMES = TREES[:7]


def drawn(count=300, *, seed="1", most=2, beyond=False, away=()):
    faults = Faults(seed, most=most, beyond=beyond)
    found = [
        faults.draw(NAMES, away=away, leader=NAMES[0], quorum=4, losable=NAMES[:6])
        for _ in range(count)
    ]
    return [fault for fault in found if fault is not None]


def test_the_same_seed_draws_the_same_faults():
    assert drawn() == drawn()
    assert drawn() != drawn(seed="2")


def test_within_the_tolerance_faults_take_one_peer_for_a_limited_time():
    found = drawn()
    assert {fault.kind for fault in found} == set(WITHIN)
    assert {len(fault.peers) for fault in found} == {1}
    assert max(fault.seconds for fault in found) <= LONGEST


def test_nobody_else_goes_when_as_many_are_away_as_may_be():
    away = NAMES[1:3]
    assert drawn(most=2, away=away) == []
    one_more = drawn(most=3, away=away)
    assert one_more
    assert not {name for fault in one_more for name in fault.peers} & set(away)


def test_beyond_the_tolerance_too_few_are_left_to_go_on():
    found = drawn(beyond=True)
    assert {fault.kind for fault in found} == set(BEYOND)
    assert all(len(NAMES) - len(f.peers) < 4 for f in found if f.kind == "outage")
    assert all(f.peers[0] != NAMES[6] for f in found if f.kind == "loss")


@pytest.mark.parametrize("cheating", [False, True])
@pytest.mark.parametrize("peers", range(5, len(TREES) + 1))
def test_a_quorum_is_left_whatever_is_away_within_the_tolerance(peers, cheating):
    scenario = Scenario(peers=peers, cheating=cheating)
    removed = len(scenario.removed)
    assert scenario.most_away >= 0
    assert scenario.quorum(peers) <= peers - scenario.tolerance.dropouts
    assert scenario.quorum(peers - removed) <= peers - removed - scenario.most_away
    assert removed >= scenario.liars
    colluders = scenario.tolerance.colluders
    assert peers - removed - scenario.most_away >= colluders + 2, "too few to remove anybody"


@pytest.mark.parametrize("bad", [{"peers": 4}, {"peers": 99}, {"rounds": 10}])
def test_what_cannot_be_run_is_refused(bad):
    with pytest.raises(PlanError, match="got"):
        Scenario(**bad)


def test_cheats_are_known_by_name():
    assert named_cheats("") == ()
    assert named_cheats("all") == tuple(CHEATS)
    assert named_cheats("withhold,greedy") == ("withhold", "greedy")
    with pytest.raises(PlanError, match="got nonsense"):
        named_cheats("withhold,nonsense")
