"""Real peers that start over with the same federation file, and those that do not."""

import asyncio

import numpy as np
import pytest
import whole_peers
from loopback import until

from pdlrecover.cli.peer_status import _lines
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.engines.peers.runs.run_factory import training_run

pytestmark = pytest.mark.slow

EVERYBODY = range(whole_peers.PEERS)


async def live(place, prepare=lambda _: None, done=None, peers=EVERYBODY):
    """Let peers run until all of them have trained, or until something else is done."""
    made = [whole_peers.peer(me, place) for me in peers]
    prepare(made)
    tasks = [asyncio.create_task(each.run()) for each in made]
    trained = lambda: all((each.folder / "trained.json").exists() for each in made)  # noqa: E731
    await until(lambda: done(made) if done else trained(), 120)
    for each in made:
        each.stop()
    await asyncio.gather(*tasks)
    for each in made:
        each.runs.store.close()
    return made


def models(place):
    return [whole_peers.weights(place / name / "trained.safetensors") for name in whole_peers.NAMES]


def test_peers_that_start_over_train_again_and_tell_who_has_not(tmp_path):
    whole_peers.settle(tmp_path)
    first = asyncio.run(live(tmp_path))
    for name in whole_peers.NAMES[1:]:
        (tmp_path / name / "history").rename(tmp_path / name / "history-before")
        (tmp_path / name / "trained.json").unlink()

    def told_and_trained(peers):
        again = all((each.folder / "trained.json").exists() for each in peers[1:])
        return again and peers[0].lives.started_over

    second = asyncio.run(live(tmp_path, done=told_and_trained))
    assert len({each.runs.training for each in first}) == 1
    assert second[0].runs.training == first[0].runs.training
    (new,) = {each.runs.training for each in second[1:]}
    assert new != first[0].runs.training
    said = "\n".join(_lines(second[0].control.status(), True))
    assert "birch, cedar, elm, fir train in run" in said
    assert "one side has started over" in said
    assert not any(each.misconduct.caught for each in second)
    assert not any(each.lives.started_over for each in second[1:])


def test_a_training_of_before_there_were_epochs_takes_back_a_peer_that_lost_its_disk(tmp_path):
    whole_peers.settle(tmp_path)

    def begin_as_before(peers):
        for each in peers[:4]:
            each.runs.join(training_run(each.runs.membership, each.runs._flat))

    peers = asyncio.run(live(tmp_path, begin_as_before))
    assert len({each.runs.training for each in peers}) == 1
    assert {each.runs.epoch_name for each in peers} == {NOTHING}
    for model in models(tmp_path)[1:]:
        np.testing.assert_array_equal(model, models(tmp_path)[0])
