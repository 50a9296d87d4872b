"""A member that fetches the same again and again, from whole peers over TLS."""

import asyncio
import json

import pytest
import whole_peers
from loopback import until

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.fetches import WHAT

pytestmark = pytest.mark.slow

ROUNDS, CHEAT, ASKED = 5, 3, 200
DEADLINES = Deadlines(message=60.0, dealing=60.0, receipts=20.0, view=60.0, behind=5.0)
"""Nobody is left out, and nothing is taken for lost, however busy the machine is."""


def test_a_member_that_asks_for_the_same_without_end_gets_it_once_and_is_named(tmp_path):
    async def story():
        whole_peers.settle(
            tmp_path,
            tolerance=Tolerance(colluders=1, dropouts=1, liars=1),
            model=Model(name="whole_peers:large", shape=(3,), classes=3),
            training=whole_peers.training(rounds=ROUNDS),
            deadlines=DEADLINES,
        )
        peers = [whole_peers.peer(me, tmp_path) for me in range(whole_peers.PEERS)]
        answers = []
        send = peers[0].network.send

        def counted(to, data):
            if to == CHEAT and codec.decode_header(data)[1] is m.Answers:
                answers.append(len(data))
            send(to, data)

        peers[0].network.send = counted
        tasks = [asyncio.create_task(each.run()) for each in peers]
        try:
            founded = [peers[0].runs, peers[CHEAT].runs]
            await until(lambda: all(runs.founded for runs in founded), 60)
            run = peers[0].runs.training
            await until(lambda: run in peers[0].sessions and run in peers[CHEAT].sessions, 60)
            protocol = peers[0].sessions[run].protocol
            await until(lambda: protocol.step >= 1, 120)
            mine = peers[CHEAT].sessions[run].protocol
            place = mine.context.place(mine.step, mine.log, m.NOTHING, 0)
            request = mine.context.send(place, m.Fetch(first=0), 0).data
            for _ in range(ASKED):
                peers[CHEAT].network.send(0, request)
            files = [tmp_path / name / "trained.json" for name in whole_peers.NAMES]
            await until(lambda: all(file.exists() for file in files), 120)
            await until(lambda: (CHEAT, WHAT) in peers[0].misconduct.named, 60)
        finally:
            for each in peers:
                each.stop()
            await asyncio.gather(*tasks)
        return [json.loads(file.read_text())["log"] for file in files], answers, peers

    logs, answers, peers = asyncio.run(story())
    assert len(set(logs)) == 1
    size = 8 * (peers[0].runs.store.models(peers[0].runs.training)[0].size + 1)
    assert len(answers) == 1
    assert size <= answers[0] < (ROUNDS + 1) * size
    assert {peer for each in peers for peer, _ in each.misconduct.named} == {CHEAT}
