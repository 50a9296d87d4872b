"""One dealt number between whole peers: real sockets, certificates and files, one of five crooked.

Training ends with one model, the round is void, and its dealer is caught with evidence that whoever
has the federation file can check.
"""

import asyncio
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from loopback import until

from pdlrecover import Tolerance
from pdlrecover.cli.evidence import check_evidence
from pdlrecover.cli.peer_status import _lines
from pdlrecover.engines.peers.protocol import dealing
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.field import F61

pytestmark = pytest.mark.slow

PEERS, ROUNDS, CHEAT, BAD = 5, 6, 3, 2
NAME = whole_peers.NAMES[CHEAT]
HONEST = [p for p in range(PEERS) if p != CHEAT]
TOLERANCE = Tolerance(colluders=1, dropouts=1, liars=1)
DEADLINES = Deadlines(message=10.0, dealing=30.0, receipts=5.0, view=5.0, resend=1.0, behind=0.5)
ONE = 1 << 20
OTHERS = sum(round(ONE * ((12 + p) / (11 + PEERS))) for p in HONEST)
"""What the honest peers' weights add up to; a cheat knows it from any round's sum and its own."""


def weighing(weight):
    def lie(values):
        values[-1] = weight
        return values

    return lie


LIES = {
    "no weight": weighing(-OTHERS),
    "hardly any weight": weighing(1 - OTHERS),
    "much weight": weighing(1000 * ONE),
    "huge update": lambda values: np.append(np.full(len(values) - 1, 1 << 45), values[-1]),
}


def corrupt(cheat, lie, rounds):
    """Let a peer deal otherwise in some rounds, with a dealing that is good in itself."""
    compute = cheat._compute

    def crooked(run, job):
        task = cheat.sessions[run].task

        def deal(binding, seed):
            if run != cheat.runs.training or task.round not in rounds:
                return job.deal(binding, seed)
            dealt = F61.from_signed(lie(task.compute().copy()))
            return dealing.deal_vector(task.kind, dealt, binding, seed)

        compute(run, replace(job, deal=deal))

    cheat._compute = crooked


async def statuses(peers, *conditions):
    """Let peers run until these hold, one after the other; return what the honest ones say then."""
    tasks = [asyncio.create_task(each.run()) for each in peers]
    try:
        for condition in conditions:
            await until(condition)
    finally:
        for each in peers:
            each.stop()
        await asyncio.gather(*tasks)
    told = [peers[me].control.status() for me in HONEST]
    for each in peers:
        each.runs.store.close()
    return told


def lived(place, lie, rounds=(BAD,), namings=1):
    """Let five peers train, one of them lying; return the statuses of the honest ones."""

    async def story():
        whole_peers.settle(
            place,
            tolerance=TOLERANCE,
            training=whole_peers.training(rounds=ROUNDS),
            deadlines=DEADLINES,
        )
        peers = [whole_peers.peer(me, place) for me in range(PEERS)]
        corrupt(peers[CHEAT], lie, rounds)
        trained = [folder(place, me) / "trained.json" for me in HONEST]
        return await statuses(
            peers,
            lambda: all(file.exists() for file in trained),
            lambda: all(len(named(place, me)) == namings for me in HONEST),
        )

    return asyncio.run(story())


def folder(place, me):
    return place / whole_peers.NAMES[me]


def named(place, me):
    return [json.loads(path.read_text()) for path in folder(place, me).glob("naming-*.json")]


@pytest.mark.parametrize("name", LIES)
def test_one_dealt_number_ends_no_training_and_its_dealer_is_caught(name, tmp_path, capsys):
    statuses = lived(tmp_path, LIES[name])
    hashes = set()
    for me, status in zip(HONEST, statuses, strict=True):
        trained = json.loads((folder(tmp_path, me) / "trained.json").read_text())
        hashes.add(trained["weights_sha256"])
        assert [void["round"] for void in trained["void"]] == [BAD]
        assert {m.peer for m in status.caught} == {NAME}
        lines = "\n".join(_lines(status, True))
        assert f"round {BAD} is void: somebody lied" in lines
        assert f"named: {NAME}" in lines
        (found,) = named(tmp_path, me)
        assert (found["round"], found["named"]) == (BAD, [NAME])
        assert "single weights" in found["ledger"]["opened"]
        files = sorted((folder(tmp_path, me) / "evidence").iterdir())
        for _, parts in itertools.groupby(files, lambda path: path.name.rsplit("-", 1)[0]):
            check_evidence(tmp_path / "federation.toml", list(parts))
            assert capsys.readouterr().out.startswith(f"{NAME} dealt ")
    assert len(hashes) == 1


def test_somebody_is_looked_for_after_a_few_void_rounds_and_not_after_more(tmp_path):
    statuses = lived(tmp_path, LIES["much weight"], rounds=range(1, ROUNDS), namings=3)
    for status in statuses:
        training = next(run for run in status.runs.values() if run.kind == "training")
        assert [void.round for void in training.void] == list(range(1, ROUNDS))
        namings = [run for run in status.runs.values() if run.kind == "naming"]
        assert sorted(run.round for run in namings) == [1, 2, 3]


def test_a_naming_survives_a_restart_of_all(tmp_path):
    before = lived(tmp_path, LIES["huge update"])

    async def again():
        def done(each):
            runs = each.control.status().runs.values()
            ended = all(run.outcome == "done" for run in runs)
            return ended and "naming" in [run.kind for run in runs]

        peers = [whole_peers.peer(me, tmp_path) for me in range(PEERS)]
        return await statuses(peers, lambda: all(done(each) for each in peers))

    after = asyncio.run(again())
    for old, new in zip(before, after, strict=True):
        assert {name: run.log for name, run in old.runs.items()} == {
            name: run.log for name, run in new.runs.items()
        }
        assert all(run.named == (NAME,) for run in new.runs.values() if run.kind == "naming")
