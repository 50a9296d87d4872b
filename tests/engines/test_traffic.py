import pytest

from pdlrecover.engines.traffic import Traffic
from pdlrecover.errors import PlanError
from pdlrecover.sharing import Tolerance

QUORUMS = Tolerance(colluders=1).quorums(5)  # packing 2
TRAFFIC = Traffic(quorums=QUORUMS, parameters=9, rounds=3, buffer=2)


def test_costs_are_what_counting_messages_by_hand_gives():
    share = 5 * 8  # 9 parameters and a weight, two to a polynomial
    assert TRAFFIC.share_bytes == share
    assert TRAFFIC.exact_round_bytes == 4 * share + 4 * share
    assert TRAFFIC.estimated_round_bytes == 4 * share + 4 * 2 * 8 + 4 * 2 * 8
    assert TRAFFIC.pair_bytes == 2 * 4 * 3 * 8
    assert TRAFFIC.history_bytes == 3 * (5 * share + 9 * 8)


def test_at_the_papers_size_an_estimated_round_costs_about_half_an_exact_one():
    quorums = Tolerance(colluders=66, dropouts=60, liars=5).quorums(200)
    traffic = Traffic(quorums=quorums, parameters=79_510, rounds=1000)
    assert traffic.estimated_round_bytes < 0.51 * traffic.exact_round_bytes


@pytest.mark.parametrize("bad", [{"parameters": 0}, {"rounds": -1}, {"buffer": 0}])
def test_senseless_sizes_are_refused(bad):
    with pytest.raises(PlanError, match="must be at least 1"):
        Traffic(**{"quorums": QUORUMS, "parameters": 1, "rounds": 1} | bad)
