"""Real processes, one of which cheats: the others train on, name it or show it, and remove it.

What one peer deals, whom it leaves out, and from whom it withholds. What it fetches is at the end.
"""

import json

import pytest
import whole_peers
from mishaps import write
from processes import Processes, same

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.fetches import AGAIN, WHAT

pytestmark = pytest.mark.slow

PEERS, ROUNDS = 7, 16
HONEST, CHEAT = range(6), 6
NAME = whole_peers.TREES[CHEAT]
TOLERANCE = Tolerance(colluders=1, dropouts=2, liars=1)
HASTY = Deadlines(message=5.0, dealing=3.0, receipts=0.8, view=2.0, resend=0.5, behind=0.5)
PATIENT = Deadlines(message=20.0, dealing=60.0, receipts=30.0, view=2.0, resend=0.5, behind=1.0)
"""Nobody is left out, however busy the machine is."""


@pytest.fixture
def settled(tmp_path, forked_peers):
    """Return a function that makes a federation of processes, which end with the test."""
    made = []

    def make(cheats, *, rounds=ROUNDS, gate=1000, deadlines=PATIENT, **agreed):
        write(tmp_path / "gate.json", {"training": gate})
        training = whole_peers.training(PEERS, rounds)
        agreed |= {"peers": PEERS, "training": training, "deadlines": deadlines}
        place = Processes(tmp_path, forked_peers, tolerance=TOLERANCE, **agreed)
        made.append(place)
        for me in place.everybody:
            place.start(me, cheat=cheats.get(me))
        return place

    yield make
    for each in made:
        each.end()


def told(place, me, name="trained"):
    return json.loads((place.folder(me) / f"{name}.json").read_text())


def train(place):
    """Wait until all honest peers have the one trained model; return what one wrote of it."""
    place.wait(place.have(HONEST, "trained.json"))
    same([place.folder(me) / "trained.safetensors" for me in HONEST])
    assert len({told(place, me)["weights_sha256"] for me in HONEST}) == 1
    return told(place, 0)


def remove(place):
    """Remove the cheat by a method that opens stored shares of every round."""
    name = f"recovered-{place.remove((CHEAT,), by=(0, 1, 2, 3), method='historical')[:16]}"
    place.wait(place.have(HONEST, f"{name}.json"))
    same([place.folder(me) / f"{name}.safetensors" for me in HONEST])
    assert told(place, 0, name)["rounds"] > 0


def misdeeds(place, me, kind, whose=CHEAT):
    told = place.ask(me, do="status")[kind]
    return [each["what"] for each in told if each["peer"] == whole_peers.TREES[whose]]


def test_two_who_make_rounds_void_are_caught_one_after_the_other_and_the_training_goes_on(settled):
    """Both in the same rounds: a wrong weight is found first, and hides the other's update."""
    place = settled({5: "absurd-update", 6: "large-weight"}, gate=16, rounds=22)
    place.held(place.everybody)
    for me in range(5):
        place.wait(lambda me=me: misdeeds(place, me, "caught"))
        assert not misdeeds(place, me, "caught", 5)
    place.remove((CHEAT,), by=(0, 1, 2, 3), method="auto")
    for me in range(5):
        place.wait(lambda me=me: "goes on without larch" in (place.place / f"{me}.log").read_text())
    place.gate("training", 1000)
    trained = train(place)
    assert [void["round"] for void in trained["void"]] == [4, 9, 14, 19]
    assert trained["dealt"][NAME] == 16
    for me in range(5):
        place.wait(lambda me=me: misdeeds(place, me, "caught", 5))
    place.wait(place.have(range(6), "recovered-*.json"))


def test_a_leader_that_leaves_dealings_out_is_not_followed_and_can_be_removed(settled):
    place = settled({CHEAT: "small-set"})
    dealt = train(place)["dealt"]
    assert {dealt[whole_peers.TREES[me]] for me in HONEST} == {ROUNDS}
    remove(place)


def test_who_withholds_dealings_from_each_in_its_turn_is_shown_and_can_be_removed(settled):
    """Nobody holds all rounds of the cheat, and all hold what they got of the others."""
    place = settled({CHEAT: "withhold"}, deadlines=HASTY)
    assert train(place)["dealt"][NAME] > 0
    runs = [list(place.ask(me, do="status")["runs"].values()) for me in HONEST]
    withheld = [run["withheld"] for some in runs for run in some if run["kind"] == "training"]
    assert set().union(*withheld) >= {NAME}
    remove(place)


def test_who_fetches_the_log_again_and_again_is_named_and_sent_no_more_than_a_few_logs(settled):
    rounds = 8
    place = settled(
        {CHEAT: "greedy"},
        rounds=rounds,
        model=Model(name="whole_peers:large", shape=(3,), classes=3),
    )
    train(place)
    for me in HONEST:
        place.wait(lambda me=me: WHAT in misdeeds(place, me, "named"))
    size = 8 * sum(each.numel() for each in whole_peers.large().parameters())
    shares = 2 * rounds * size * (PEERS - 1)
    for me in HONEST:
        sent = place.ask(me, do="status")["network"]["sent_bytes"]
        assert sent < shares + (2 + AGAIN) * rounds * size
