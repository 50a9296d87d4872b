"""Real peers bring their inputs to one scale before they train, and keep it through removals."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from loopback import until

from pdlrecover import Federation, load_model
from pdlrecover.cli.peer_status import _lines
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.recovery.standardisation import Standardise

pytestmark = pytest.mark.slow

FACTOR, SHIFT = np.array([300, 1e-3, 1], np.float32), np.array([50, 7, 5], np.float32)
DATASETS = [(x * FACTOR + SHIFT, y) for x, y in whole_peers.datasets()]
EVERYBODY = range(whole_peers.PEERS)
BOUND = 500.0


def settle(place):
    deadlines = replace(whole_peers.DEADLINES, dealing=2.0, view=1.5, receipts=0.5)
    whole_peers.settle(place, standardise=Standardise(bound=BOUND), deadlines=deadlines)
    folders = [place / name for name in whole_peers.NAMES]
    for folder, (x, y) in zip(folders, DATASETS, strict=True):
        np.savez(folder / "own.npz", x=x, y=y)
    return folders


def started(place, *who):
    peers = [whole_peers.peer(me, place) for me in who]
    return peers, [asyncio.create_task(each.run()) for each in peers]


async def stopped(peers, tasks):
    for each in peers:
        each.stop()
    await asyncio.gather(*tasks)
    for each in peers:
        each.runs.store.close()


def all_have(folders, pattern):
    return lambda: all(list(folder.glob(pattern)) for folder in folders)


def told(folder, name):
    return json.loads(next(folder.glob(name)).read_text())


def simulation():
    federation = Federation.simulate(
        whole_peers.model(),
        DATASETS,
        whole_peers.TOLERANCE,
        batch_size=4,
        seed=5,
        peer_by_peer=True,
        standardise=Standardise(bound=BOUND),
    )
    with pytest.warns(UserWarning, match="±500"):
        return federation, federation.train(
            whole_peers.ROUNDS, optimizer=whole_peers.TRAINING.steps()
        )


def test_peers_agree_on_one_scale_train_and_recover_on_it_as_the_simulation_does(tmp_path, caplog):
    caplog.set_level("INFO", "pdlrecover.peer")
    folders = settle(tmp_path)

    async def story():
        peers, tasks = started(tmp_path, *EVERYBODY)
        await until(all_have(folders, "trained.json"), 60)
        shown = _lines(peers[0].control.status(), running=True)
        numbers = peers[0].numbers.read()
        assert not [name for name, on in numbers.items() if on and name.startswith("failed")]
        removal = {"do": "propose-removal", "removed": ["elm"], "reason": "malicious"}
        name = (await ask(folders[0] / "control", {**removal, "method": "retrain"}))["removal"]
        for me in (2, 4):
            await until(lambda me=me: len(peers[me].control.status().removals) == 1)
            await ask(folders[me] / "control", {"do": "approve", "removal": name})
        kept = [folders[me] for me in (0, 1, 2, 4)]
        await until(all_have(kept, "recovered-*.json"), 60)
        await stopped(peers, tasks)
        return kept, shown

    kept, shown = asyncio.run(story())
    federation, model = simulation()
    scales = [told(folder, "standardisation.json") for folder in folders]
    assert {each["inputs_sha256"] for each in scales} == {model.inputs.digest}
    assert {each["ledger"]["opened"]["statistics"]["openings"] for each in scales} == {2}
    beyond = [int((np.abs(x) > BOUND).sum()) for x, _ in DATASETS]
    assert [each["clipped_here"] for each in scales] == beyond
    x, y = (np.concatenate(parts) for parts in zip(*DATASETS, strict=True))
    for folder in folders:
        assert told(folder, "trained.json")["inputs_sha256"] == model.inputs.digest
        saved = load_model(folder / "trained.safetensors", whole_peers.model())
        np.testing.assert_array_equal(saved.predict(x), model.predict(x))
        weights = whole_peers.weights(folder / "trained.safetensors")
        np.testing.assert_array_equal(weights, model.weights.astype(np.float32))
    expected = federation.recover((3,), "retrain", reason="malicious")
    for folder in kept:
        weights = whole_peers.weights(next(folder.glob("recovered-*.safetensors")))
        np.testing.assert_array_equal(weights, expected.weights.astype(np.float32))
        recovered = told(folder, "recovered-*.json")
        assert recovered["inputs_sha256"] == model.inputs.digest
        assert "statistics" not in recovered["ledger"]["opened"]
    assert saved.accuracy(x, y) == model.accuracy(x, y)
    assert any("standardisation: step 2 of 2, done" in line for line in shown)
    assert any(
        f"inputs: standardised, 3 per feature, digest {model.inputs.digest[:16]}" in line
        for line in shown
    )
    assert any("inputs: standardised" in message for message in caplog.messages)


def test_a_peer_killed_before_the_second_sum_and_one_that_comes_late_have_the_same_scale(tmp_path):
    folders = settle(tmp_path)

    async def story():
        peers, tasks = started(tmp_path, 0, 1, 2, 3)
        run = lambda each: each.sessions.get(each.runs.standardising)  # noqa: E731
        await until(lambda: run(peers[3]) and run(peers[3]).protocol.step >= 1, 60)
        await stopped(peers[3:], tasks[3:])
        await until(all_have(folders[:3], "standardisation.json"), 60)
        again, more = started(tmp_path, 3, 4)
        await until(all_have(folders, "trained.json"), 90)
        await stopped([*peers[:3], *again], [*tasks[:3], *more])

    asyncio.run(story())
    scales = [told(folder, "standardisation.json") for folder in folders]
    assert len({each["inputs_sha256"] for each in scales}) == 1
    assert scales[0]["ledger"]["opened"]["statistics"]["of"] in (
        "4 kept peers together",
        "3 to 4 kept peers together",
    )
    assert len({told(folder, "trained.json")["weights_sha256"] for folder in folders}) == 1
    clipped = np.clip(np.concatenate([x for x, _ in DATASETS[:4]]), -BOUND, BOUND)
    np.testing.assert_allclose(
        np.ravel(scales[4]["mean"]), clipped.mean(axis=0, dtype=float), rtol=1e-7
    )


def test_nothing_is_trained_on_void_statistics_and_everybody_says_why(tmp_path, caplog):
    folders = settle(tmp_path)
    removal = {"do": "propose-removal", "removed": ["cedar"], "reason": "malicious"}
    shown = []

    async def story():
        peers = [whole_peers.peer(me, tmp_path) for me in EVERYBODY]
        cheat = peers[2].runs._contribution
        honest = cheat.statistics
        cheat.statistics = lambda asked, terms: honest(asked, terms) * 1000
        tasks = [asyncio.create_task(each.run()) for each in peers]
        known = lambda: all(each.control.status().inputs for each in peers)  # noqa: E731
        await until(known, 60)
        failed = {
            each: {name for name, on in peer.numbers.read().items() if on and "failed{" in name}
            for each, peer in enumerate(peers)
        }
        assert all('kind="standardisation"' in "".join(names) for names in failed.values())
        shown.extend(_lines(each.control.status(), running=True) for each in peers)
        name = (await ask(folders[0] / "control", removal))["removal"]
        for me in (1, 4):
            await until(lambda me=me: len(peers[me].control.status().removals) == 1)
            await ask(folders[me] / "control", {"do": "approve", "removal": name})
        await until(lambda: len(peers[0].removals.passed()) == 1)
        assert not [run for run in peers[0].sessions if peers[0].kind(run) == "recovery"]
        await stopped(peers, tasks)
        peers, tasks = started(tmp_path, 1)
        await until(known, 60)
        shown.append(_lines(peers[0].control.status(), running=True))
        assert peers[0].runs.training not in peers[0].sessions
        await stopped(peers, tasks)

    asyncio.run(story())
    for lines in shown:
        assert any("the statistics of inputs are void (somebody lied: " in line for line in lines)
        assert any("is void: somebody lied" in line for line in lines)
    assert not all_have(folders[:1], "trained.json")()
    warned = [each for each in caplog.records if "nothing is trained" in each.getMessage()]
    assert len(warned) == len(shown)
