import json

import numpy as np
import pandas
import pytest
import small
import torch

from pdlrecover import Federation
from pdlrecover.errors import PlanError, Whom
from pdlrecover.federation.roster import Roster

NUMBERED, NAMED = Roster(count=4), Roster(count=4, names=("a", "b", "c", "d"))
MASK = [False, True, False, True]


@pytest.mark.parametrize(
    "given",
    [
        [1, 3],
        (1, 3),
        {1: None, 3: None}.keys(),
        range(1, 4, 2),
        [np.int64(1), np.uint8(3)],
        np.array([1, 3]),
        torch.tensor([1, 3]),
        pandas.Series([1, 3]),
        MASK,
        np.array(MASK),
        torch.tensor(MASK),
        pandas.Series(MASK),
        [np.bool_(each) for each in MASK],
    ],
)
def test_peers_are_meant_by_number_or_by_mask(given):
    assert NUMBERED.numbers(given, "remove") == (1, 3)
    assert NAMED.numbers(given, "remove") == (1, 3)


@pytest.mark.parametrize(
    "given", [["b", "d"], ["b", 3], np.array(["b", "d"]), {"b": 1, "d": 2}.keys()]
)
def test_peers_are_meant_by_name(given):
    assert NAMED.numbers(given, "remove") == (1, 3)


def test_peers_are_named_in_a_file_of_suspects(tmp_path):
    path = tmp_path / "suspects.json"
    suspects = [{"peer": "b", "score": 0.9}, {"peer": 3, "why": "pulls"}, {"peer": "b"}]
    path.write_text(json.dumps({"format": 1, "suspects": suspects, "made": "by hand"}))
    assert NAMED.numbers(path, "remove") == (1, 3)
    assert NAMED.numbers(f"@{path}", "remove") == (1, 3)


def test_a_mask_removes_the_peers_that_it_marks():
    """It used to remove peers 0 and 1: False and True, as numbers."""
    federation = small.trained(rounds=6)
    mask = np.zeros(small.PEERS, dtype=bool)
    mask[[3, 7]] = True
    by_mask = federation.recover(mask, "historical")
    assert by_mask.origin.removed == ("3", "7")
    np.testing.assert_array_equal(
        by_mask.weights, small.trained(rounds=6).recover([3, 7], "historical").weights
    )


def test_refusals_speak_of_peers_by_their_names():
    error = PlanError("the updates of ", Whom((2,)), ": ", Whom((0, 1)), " are kept")
    assert str(error) == "the updates of peer 2: peers [0, 1] are kept"
    assert "".join(error.naming(NAMED.said)) == "the updates of peer 'c': peers 'a', 'b' are kept"
    assert "".join(error.naming(NUMBERED.said)) == "the updates of peer 2: peers 0, 1 are kept"


def test_a_federation_by_names_recovers_what_one_by_numbers_does():
    datasets = [small.points(seed=peer, count=20 + peer) for peer in range(small.PEERS)]
    named = {f"site-{peer}": data for peer, data in enumerate(datasets)}
    made = Federation.simulate(small.module(), named, small.TOLERANCE, batch_size=8, seed=3)
    made.train(6, 0.3)
    assert made.peers == tuple(named)
    found = made.recover(["site-3", "site-7"], "historical")
    assert "peers site-3 and site-7; 6 of 8 are kept" in str(found)
    np.testing.assert_array_equal(
        found.weights, small.trained(rounds=6).recover([3, 7], "historical").weights
    )
