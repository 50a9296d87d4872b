"""Real processes whose recovery lacks shares: it is said, and replaced."""

import json
import signal
from dataclasses import replace

import pytest
import whole_peers
from mishaps import write
from processes import Processes, same

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol.deadlines import Deadlines

pytestmark = pytest.mark.slow

HASTY = Deadlines(message=3.0, dealing=3.0, receipts=0.8, view=4.5, resend=0.5, behind=0.3)
TOLERANCE = Tolerance(colluders=1, dropouts=1)
KEPT, REMOVED = (0, 1, 2, 3), (4,)


@pytest.fixture
def settled(tmp_path, forked_peers):
    """Return a function that makes a federation of processes, which end with the test."""
    made = []

    def make(**recovery):
        write(tmp_path / "gate.json", {"training": 4})
        agreed = replace(whole_peers.RECOVERY, period=10, **recovery)
        place = Processes(
            tmp_path, forked_peers, deadlines=HASTY, recovery=agreed, tolerance=TOLERANCE
        )
        made.append(place)
        place.start(*place.everybody)
        return place

    yield make
    for each in made:
        each.end()


def miss_rounds(place, *absences):
    """Kill peers, each for rounds of its own, and let the training end with all of them.

    The others are killed after it, too, and with them what they had queued for it.
    """
    for me, first, end in absences:
        place.gate("training", first)
        assert place.held(place.everybody, after=first - 1) == first
        place.kill(me)
        place.gate("training", end)
        assert place.held(set(place.everybody) - {me}, after=first) == end
        for other in list(place.running):
            place.kill(other)
        place.start(*place.everybody)
        place.held(place.everybody, after=first)
    place.gate("training", 1000)
    place.wait(place.have(place.everybody, "trained.json"))


def removal(place, me, name):
    status = place.ask(me, do="status")
    run = status["runs"].get(name[:16], {"waits": "", "outcome": ""})
    return run, next(each for each in status["removals"] if each["removal"] == name)


def texts(place, me, level):
    lines = (place.place / f"{me}.log").read_text().splitlines()
    return [told["text"] for told in map(json.loads, lines) if told["level"] == level]


def test_a_recovery_whose_shares_were_missed_in_crashes_is_replaced_by_itself(settled):
    """Peers 1 and 2 were killed in different rounds of one block, and no sum can miss both."""
    place = settled(stalled_after=12.0)
    miss_rounds(place, (1, 4, 5), (2, 6, 7))
    name = place.remove(REMOVED, by=(0, 1, 2))
    place.wait(lambda: "without the shares" in removal(place, 0, name)[0]["waits"])
    assert "birch, cedar (here, without the shares)" in removal(place, 0, name)[0]["waits"]
    replaced = [place.wait(lambda me=me: removal(place, me, name)[1]["replaced_by"]) for me in KEPT]
    (by,) = set(replaced)
    place.wait(place.have(KEPT, f"recovered-{by[:16]}.json"))
    same([place.folder(me) / f"recovered-{by[:16]}.safetensors" for me in KEPT])
    run, _ = removal(place, 3, name)
    assert (run["outcome"], run["waits"]) == (f"stopped: replaced by removal {by[:16]}", "")
    assert any("waits for the shares of 3 peers" in text for text in texts(place, 3, "warning"))
    by_itself = [me for me in KEPT if any("by itself" in t for t in texts(place, me, "info"))]
    assert len(by_itself) >= 3, "more than half of five have approved"
    place.kill(3, signal.SIGTERM)
    place.start(3)
    place.wait((place.folder(3) / "control").exists)
    place.wait(lambda: len(place.ask(3, do="status")["removals"]) == 2)
    assert removal(place, 3, name)[1]["replaced_by"] == by, "also after a restart"
    assert name[:16] not in place.ask(3, do="status")["runs"], "it does not begin again"


def test_operators_replace_a_stalled_recovery_by_vote(settled):
    place = settled(fallback="none")
    miss_rounds(place, (1, 4, 5), (2, 6, 7))
    name = place.remove(REMOVED, by=(0, 1, 2))
    place.wait(lambda: "propose-removal FOLDER --replace" in removal(place, 0, name)[0]["waits"])
    by = place.ask(0, do="propose-removal", replace=name[:10])["removal"]
    for me in (2, 3):
        place.wait(lambda me=me: len(place.ask(me, do="status")["removals"]) == 2)
        assert "approved" in place.ask(me, do="approve", removal=by)
    place.wait(place.have(KEPT, f"recovered-{by[:16]}.json"))
    same([place.folder(me) / f"recovered-{by[:16]}.safetensors" for me in KEPT])
    told = json.loads((place.folder(1) / f"recovered-{by[:16]}.json").read_text())
    assert (told["replaces"], told["removed"]) == (name, ["fir"])
    refused = place.ask(0, do="propose-removal", replace=by)
    assert "is done here, and there is nothing to replace" in refused["error"]
