"""Real processes that are killed at every step, frozen, slow, and started again and again.

The processes are forked (see `forked_peers`), run the same command as everywhere, and die
where a file tells them to (see `mishaps`).
"""

import json
import random
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from mishaps import (
    ARRIVING,
    BEFORE_DEALING,
    BEFORE_OPENING,
    BEFORE_OPENING_STORED,
    BEFORE_PROPOSING,
    BEFORE_RECEIPT,
    HALF_DEALT,
    HALF_PROPOSED,
    WRITING,
    WRITING_MODEL,
    WRITTEN,
    write,
)
from processes import Processes, same

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.startup import PeerFiles

pytestmark = pytest.mark.slow

PATIENT = Deadlines(message=20.0, dealing=60.0, receipts=30.0, view=60.0, resend=0.5, behind=1.0)
"""Nobody is left out, however busy the machine is."""
STORED = {BEFORE_DEALING: {0}, WRITING: {0}, WRITTEN: {1}}
"""How many entries of the step are stored by whoever died there.

Elsewhere it may be one: what the others say can be enough to open the step before this peer is
done with its own part in it.
"""
HASTY = Deadlines(message=3.0, dealing=3.0, receipts=0.8, view=4.5, resend=0.5, behind=0.3)


@pytest.fixture
def settled(tmp_path, forked_peers):
    """Return a function that makes a federation of processes, which end with the test."""
    made = []

    def make(**agreed):
        made.append(Processes(tmp_path, forked_peers, **agreed))
        made[0].start(*made[0].everybody)
        return made[0]

    yield make
    for each in made:
        each.end()


def model_of(place, peers, name="trained"):
    """Return the model that all these peers have written, having come to it by the same log."""
    told = [json.loads((place.folder(me) / f"{name}.json").read_text()) for me in peers]
    assert len({(each["log"], each["weights_sha256"]) for each in told}) == 1
    return same([place.folder(me) / f"{name}.safetensors" for me in peers])


def dealers(place, me, run=None):
    """Return whose dealings each step added up, by a stopped peer's history."""
    files = PeerFiles(place.federation, place.folder(me))
    archive = files.archive(files.storage_key())
    found = run or archive._training
    log = [archive.dealers(found, step) for step in range(len(archive.log(found)))]
    archive.close()
    return log


def stop(place):
    """End all peers in peace."""
    for me in list(place.running):
        assert place.kill(me, signal.SIGTERM).returncode == 0


def test_ten_peers_train_and_recover_to_the_bit_of_the_simulation(settled):
    tolerance, rounds = Tolerance(colluders=2, dropouts=3, liars=1), whole_peers.ROUNDS
    place = settled(
        peers=10,
        tolerance=tolerance,
        training=whole_peers.training(10, rounds),
        deadlines=PATIENT,
    )
    place.wait(place.have(place.everybody, "trained.json"))
    simulation = whole_peers.simulation(10, rounds, tolerance)
    expected = simulation.original.models[rounds].astype(np.float32)
    np.testing.assert_array_equal(model_of(place, place.everybody), expected)

    removed = (3, 8)
    kept = [me for me in place.everybody if me not in removed]
    name = place.remove(removed, by=kept[:6])
    place.wait(place.have(kept, "recovered-*.json"))
    recovered = model_of(place, kept, f"recovered-{name[:16]}")
    wanted = simulation.recover(
        removed, "pdlrecover", reason="malicious", settings=whole_peers.SETTINGS
    )
    np.testing.assert_array_equal(recovered, wanted.weights.astype(np.float32))
    assert not any(place.have([me], "recovered-*")() for me in removed)
    assert place.warnings() == []


def fall(place, run, mishaps):
    """Let peers die in the step that all are held at; the rest goes on, then they come back.

    `mishaps` is who dies where: a peer, or None for whoever comes there first. Returns the step,
    and who died in it.
    """
    step = place.held(place.running, run)
    for me, at in mishaps.items():
        place.mishap(at, run=run, step=step, me=me)
    place.gate(run, step + 1)
    fallen = place.deaths(len(mishaps))
    assert sorted(told["at"] for told in fallen.values()) == sorted(mishaps.values())
    after = place.held(place.running, run, after=step)
    for me, told in fallen.items():
        assert step <= told["step"] < after
        stored = place.stored(me, run)
        assert stored - told["step"] in STORED.get(told["at"], {0, 1})
        assert stored > max(place.committed(me, run), default=-1), "an acknowledged step is lost"
    place.start(*fallen)
    assert place.held(fallen, run, after=step) == after
    return step, set(fallen)


def test_a_training_survives_kills_at_every_step_of_a_round(settled, tmp_path):
    write(tmp_path / "gate.json", {"training": 1})
    place = settled(training=whole_peers.training(rounds=7), deadlines=HASTY)
    stages = [
        {4: BEFORE_DEALING, 2: BEFORE_RECEIPT},
        {3: HALF_DEALT, 0: BEFORE_OPENING},
        {None: BEFORE_PROPOSING, 0: WRITTEN},
        {None: HALF_PROPOSED, 1: WRITING},
    ]
    fell = [fall(place, "training", mishaps) for mishaps in stages]
    place.mishap(WRITING_MODEL, me=2)
    place.gate("training", 1000)
    assert list(place.deaths(1)) == [2]
    place.start(2)
    place.wait(place.have(place.everybody, "trained.json"))
    model_of(place, place.everybody)
    assert place.warnings() == []
    stop(place)
    for me in place.everybody:
        assert place.stored(me) == 7
    told = dealers(place, 0)
    assert told == dealers(place, 3)
    for (step, fallen), mishaps in zip(fell, stages, strict=True):
        late = {me for me, at in mishaps.items() if at in (BEFORE_DEALING, HALF_DEALT)}
        assert not late & set(told[step])
        assert fallen <= {*told[step + 1], *told[step + 2]}, "who came back takes part again"


SHARED_STAGES = [  # updates; masks, with dot products and directions after them; an update
    {2: WRITING},
    {4: WRITTEN, 2: BEFORE_OPENING},
    {None: BEFORE_PROPOSING, 1: BEFORE_OPENING_STORED},
    {None: HALF_PROPOSED, 2: BEFORE_OPENING},
]
OPENED_STAGES = [  # step 1, 2: updates; 3: many stored sums; 4: an update
    {2: BEFORE_OPENING},
    {1: BEFORE_OPENING_STORED},
    {None: HALF_PROPOSED, 2: WRITTEN},
]


@pytest.mark.parametrize(("open_pairs", "stages"), [(False, SHARED_STAGES), (True, OPENED_STAGES)])
def test_a_recovery_survives_kills_at_every_step(settled, tmp_path, open_pairs, stages):
    """Nobody is away in a whole update: a pair without somebody is not used, it would expose it."""
    place = settled(
        peers=6,
        tolerance=Tolerance(colluders=1, dropouts=3),
        training=whole_peers.training(6),
        recovery=replace(whole_peers.RECOVERY, open_pairs=open_pairs),
        deadlines=HASTY,
    )
    place.wait(place.have(place.everybody, "trained.json"))
    write(tmp_path / "gate.json", {"recovery": 1})
    name = place.remove((5,), by=(0, 1, 2, 3))
    place.kill(5, signal.SIGTERM)
    kept = range(5)
    for mishaps in stages:
        fall(place, "recovery", mishaps)
    place.mishap(WRITING_MODEL, run="recovery", me=2)
    place.gate("recovery", 1000)
    assert list(place.deaths(1)) == [2]
    place.start(2)
    place.wait(place.have(kept, "recovered-*.json"))
    model_of(place, kept, f"recovered-{name[:16]}")
    assert place.warnings() == []
    stop(place)
    steps = {place.stored(me, "recovery") for me in kept}
    assert len(steps) == 1
    assert {place.stored(me) for me in kept} == {whole_peers.ROUNDS}


def test_a_peer_that_freezes_with_large_shares_under_way_does_not_hold_up_the_others(settled):
    rounds, deadlines = 6, replace(HASTY, dealing=7.0)
    place = settled(
        model=Model(name="whole_peers:large", shape=(3,), classes=3),
        training=whole_peers.training(rounds=rounds),
        deadlines=deadlines,
    )
    lively = [0, 1, 2, 3]
    place.wait(lambda: min(len(place.committed(me)) for me in place.everybody) >= 1)
    place.mishap(ARRIVING, me=4, how=signal.SIGSTOP)
    place.wait(lambda: (place.folder(4) / "happened.json").exists())
    frozen = place.happened(4)["time"]
    place.wait(place.have(lively, "trained.json"))
    longest = deadlines.dealing + deadlines.receipts + deadlines.view
    for me in lively:
        times = [frozen, *(at for at in place.committed(me).values() if at > frozen)]
        waits = np.diff(times)
        assert len(waits) >= 2
        assert max(waits) < longest + 5.0, waits  # and a while to compute
        assert sum(wait >= deadlines.dealing for wait in waits) <= 1, "it is waited for only once"
    assert place.running[4].poll() is None
    assert not place.have([4], "trained.json")()
    place.send(4, signal.SIGCONT)
    place.wait(place.have([4], "trained.json"))
    model_of(place, place.everybody)
    assert place.warnings() == []


def test_a_slow_peer_within_the_deadlines_takes_part_in_everything(settled, tmp_path):
    rounds = 6
    (tmp_path / whole_peers.NAMES[2]).mkdir(mode=0o700)
    (tmp_path / whole_peers.NAMES[2] / "slow").write_text("0.1")
    place = settled(training=whole_peers.training(rounds=rounds), deadlines=PATIENT)
    place.wait(place.have(place.everybody, "trained.json"))
    simulation = whole_peers.simulation(rounds=rounds)
    expected = simulation.original.models[rounds].astype(np.float32)
    np.testing.assert_array_equal(model_of(place, place.everybody), expected)
    assert place.warnings() == []


def test_a_peer_that_is_killed_every_few_rounds_ends_with_the_same_model(settled, tmp_path):
    """At moments that have nothing to do with the protocol; it comes back each time."""
    moments = random.Random(1)
    write(tmp_path / "gate.json", {"training": 1})
    place = settled(training=whole_peers.training(rounds=12), deadlines=HASTY)
    lively = [0, 1, 2, 3]
    step = place.held(place.everybody)
    while step < 10:
        place.gate("training", step + 3)
        time.sleep(moments.uniform(0.0, 0.3))
        place.kill(4)
        assert place.stored(4) >= len(place.committed(4))
        step = place.held(lively, after=step)
        place.start(4)
        assert place.held([4], after=step - 1) == step
    place.gate("training", 1000)
    place.wait(place.have(place.everybody, "trained.json"))
    model_of(place, place.everybody)
    assert place.warnings() == []
    stop(place)
    assert {place.stored(me) for me in place.everybody} == {12}
    told = dealers(place, 0)
    assert any(4 in dealers for dealers in told[9:]), "it takes part to the end"
