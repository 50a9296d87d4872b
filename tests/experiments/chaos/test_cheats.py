import re
from pathlib import Path

import numpy as np
import pytest

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.experiments.chaos.cheats import CHEATS, EVERY, Spoken
from pdlrecover.experiments.chaos.faults import BEYOND
from pdlrecover.field import Q

PAGE = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text()
PEERS = tuple(range(7))
DEALING = m.Dealing(commitments=b"", proof=np.zeros(1, np.int64), statement=bytes(64), sealed=b"s")
SUB_SECRET = m.SubSecret(choice=m.NOTHING, values=np.array([0, Q - 1]))
VOTE = m.Vote(view=0, final=True, choice=b"c" * 32)
RECEIPT = m.Receipt(view=0, held=(), statements=())
OTHER = m.Position(reply=True)
NUMBERS = np.array([5, -6, 100])


def said(cheat, body, *, step=0, to=1):
    return CHEATS[cheat].says(Spoken(body=body, step=step, to=to, peers=PEERS))


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_honest_but_for_its_cheat(cheat):
    assert said(cheat, OTHER) == [OTHER]
    np.testing.assert_array_equal(CHEATS[cheat].deals(NUMBERS, 0), NUMBERS)


@pytest.mark.parametrize("cheat", ["large-weight", "negative-weight", "absurd-update"])
def test_absurd_numbers_are_dealt_in_one_round_of_several_and_the_same_each_time(cheat):
    deals = CHEATS[cheat].deals
    changed = [not np.array_equal(deals(NUMBERS, t), NUMBERS) for t in range(2 * EVERY)]
    assert sum(changed) == 2
    spoilt = deals(NUMBERS, EVERY - 1)
    np.testing.assert_array_equal(spoilt, deals(NUMBERS, EVERY - 1))
    assert (spoilt[-1] == NUMBERS[-1]) == (cheat == "absurd-update")
    assert (spoilt[-1] < 0) == (cheat == "negative-weight")


def test_a_small_set_has_the_cheat_and_as_few_others_as_may_be_in_order():
    held = [m.Held(dealer=peer, digest=bytes(32)) for peer in PEERS]
    assert [each.dealer for each in CHEATS["small-set"].proposes(held, 6, 4)] == [0, 1, 2, 6]
    assert [each.dealer for each in CHEATS["small-set"].proposes(held, 0, 3)] == [0, 1, 2]


def test_dealings_are_withheld_from_two_others_in_each_step():
    missed = {
        step: [to for to in PEERS if said("withhold", DEALING, step=step, to=to) != [DEALING]]
        for step in PEERS
    }
    assert {len(each) for each in missed.values()} == {2}
    assert {peer for each in missed.values() for peer in each} == set(PEERS)


def test_what_is_said_otherwise():
    (wrong,) = said("wrong-sub-secret", SUB_SECRET)
    np.testing.assert_array_equal(wrong.values, [1, 0])
    assert [vote.choice for vote in said("two-votes", VOTE)] == [b"c" * 32, m.NOTHING]
    receipt, *fetches = said("greedy", RECEIPT)
    assert receipt is RECEIPT
    assert set(fetches) == {m.Fetch(first=0)}


def test_the_page_lists_every_cheat_and_every_fault():
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert sorted(listed) == sorted([*CHEATS, *BEYOND])
