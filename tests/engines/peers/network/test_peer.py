"""Whole peers with real sockets and files, in one process."""

import asyncio
import errno
import json
import os
import socket
import threading
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from loopback import free_addresses, until

from pdlrecover.cli.peer_status import _lines
from pdlrecover.engines.peers.federation.plan import EvaluationPlan
from pdlrecover.engines.peers.operator import misconduct
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.engines.peers.operator.metrics import METRICS
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Send
from pdlrecover.engines.peers.protocol.messages import NOTHING, Position
from pdlrecover.engines.peers.settings import History
from pdlrecover.engines.peers.transport.inbox import Inbox
from pdlrecover.engines.peers.transport.link import Limits
from pdlrecover.errors import HistoryError, PlanError

EVERYBODY = range(whole_peers.PEERS)


async def open_peers(tmp_path, agreed=None, **arguments):
    whole_peers.settle(tmp_path, **(agreed or {}))
    folders = [tmp_path / name for name in whole_peers.NAMES]
    peers = [whole_peers.peer(me, tmp_path, **arguments) for me in EVERYBODY]
    tasks = [asyncio.create_task(each.run()) for each in peers]
    return folders, peers, tasks


async def close(peers, tasks):
    for each in peers:
        each.stop()
    await asyncio.gather(*tasks)
    for each in peers:
        each.runs.store.close()


def all_have(folders, pattern):
    return lambda: all(list(folder.glob(pattern)) for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize("accepted", [False, True])
def test_peers_train_and_recover_to_the_bit_of_the_simulation(tmp_path, accepted):
    """Where differencing is accepted pairs stay shared, and else they are opened."""

    async def story():
        folders, peers, tasks = await open_peers(tmp_path)
        with pytest.raises(PlanError, match="no peer is running"):
            await ask(tmp_path / "nowhere", {"do": "status"})
        alone = {"do": "propose-removal", "removed": ["elm"], "method": "retrain"}
        early = await ask_when_up(folders[0], alone)
        assert "training has not ended" in early["error"]
        await until(all_have(folders, "trained.safetensors"))
        refused = await ask(folders[0] / "control", alone)
        assert "would reveal the updates of peer elm: " in refused["error"]
        removal = {**alone, "removed": ["elm", "birch"], "reason": "malicious"}
        removal |= {"method": "pdlrecover", "accept_differencing": accepted}
        proposed = await ask(folders[0] / "control", removal)
        assert proposed["outcome"] is None
        name = proposed["removal"]
        await until(lambda: len(peers[3].control.status().removals) == 1)
        voted = await ask(folders[3] / "control", {"do": "approve", "removal": "00"})
        assert "no removal '00' is known here; known are" in voted["error"]
        voted = await ask(folders[3] / "control", {"do": "approve", "removal": name[:12]})
        assert "has no vote" in voted["error"]
        for me in (2, 4):
            await until(lambda me=me: len(peers[me].control.status().removals) == 1)
            assert not list(folders[0].glob("recovered-*"))
            await ask(folders[me] / "control", {"do": "approve", "removal": name[:12]})
        kept = [folders[me] for me in (0, 2, 4)]
        await until(all_have(kept, "recovered-*.json"))
        again = await ask(folders[0] / "control", removal)
        assert again == {"removal": name, "outcome": "done"}
        await close(peers, tasks)
        return folders, kept, name

    folders, kept, name = asyncio.run(story())
    simulation = whole_peers.simulation()
    for folder in folders:
        trained = whole_peers.weights(folder / "trained.safetensors")
        expected = simulation.original.models[whole_peers.ROUNDS].astype(np.float32)
        np.testing.assert_array_equal(trained, expected)
        told = whole_peers.status(folder)
        assert not told["blames"]
    options = whole_peers.RECOVERY.options(whole_peers.ROUNDS, accept_differencing=accepted)
    settings = replace(whole_peers.SETTINGS, options=options)
    expected = simulation.recover((1, 3), "pdlrecover", reason="malicious", settings=settings)
    assert ("dot products" in expected.ledger.openings) is accepted
    logs = set()
    for folder in kept:
        recovered = whole_peers.weights(folder / f"recovered-{name[:16]}.safetensors")
        np.testing.assert_array_equal(recovered, expected.weights.astype(np.float32))
        told = json.loads((folder / f"recovered-{name[:16]}.json").read_text())
        assert told["removed"] == ["birch", "elm"]
        assert told["ledger"]["opened"] == expected.ledger.record()["opened"]
        logs.add(told["log"])
    assert len(logs) == 1
    assert not list(folders[1].glob("recovered-*"))


async def ask_when_up(folder, command):
    await until((folder / "control").exists)
    return await ask(folder / "control", command)


def test_metrics_and_status_are_told_on_this_machine_only(tmp_path):
    async def story():
        whole_peers.settle(tmp_path)
        port = int(free_addresses(1)[0].split(":")[1])
        lone = whole_peers.peer(0, tmp_path, founded=True, metrics_port=port)
        task = asyncio.create_task(lone.run())
        told = await ask_when_up(tmp_path / "ash", {"do": "status"})
        assert told["peer"] == "ash"
        assert told["last_heard_seconds"]["elm"] is None
        (run,) = told["runs"].values()
        assert (run["kind"], run["outcome"], run["step"]) == ("training", "running", 0)
        wrong = await ask(tmp_path / "ash" / "control", {"do": "dance"})
        assert "commands are" in wrong["error"]
        assert (tmp_path / "ash" / "control").stat().st_mode & 0o77 == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
        assert text.startswith("HTTP/1.0 200 OK")
        assert 'pdlrecover_step{run="' in text
        for name, (kind, _) in METRICS.items():
            assert f"\n# TYPE pdlrecover_{name} {kind}\npdlrecover_{name}" in text
        assert "\npdlrecover_blames_total 0.0\n" in text
        assert "\npdlrecover_network_refused_total 0.0\n" in text
        writer.close()
        await close([lone], [task])

    asyncio.run(story())
    assert whole_peers.status(tmp_path / "ash")["peer"] == "ash"


def test_what_keeps_a_peer_from_starting_is_said_in_a_sentence(tmp_path):
    async def story():
        whole_peers.settle(tmp_path)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            lone = whole_peers.peer(0, tmp_path, listen=where)
            with pytest.raises(PlanError, match=r"in use.*listen under .network."):
                await lone.run()
            lone.runs.store.close()
            lone = whole_peers.peer(0, tmp_path, listen=free_addresses(1)[0])
            lone._metrics_port = taken.getsockname()[1]
            with pytest.raises(PlanError, match=f"metrics cannot be .* {lone._metrics_port} of"):
                await lone.run()
            lone.runs.store.close()
        far = tmp_path / ("long" * 30)
        whole_peers.settle(far)
        lone = whole_peers.peer(0, far)
        with pytest.raises(PlanError, match="choose a folder with a shorter path"):
            await lone.run()
        lone.runs.store.close()

    asyncio.run(story())


@pytest.mark.slow
def test_a_peer_that_comes_late_is_not_waited_for_and_ends_with_the_same_model(tmp_path):
    async def story():
        whole_peers.settle(tmp_path)
        folders = [tmp_path / name for name in whole_peers.NAMES]
        peers = [whole_peers.peer(me, tmp_path) for me in EVERYBODY[:4]]
        tasks = [asyncio.create_task(each.run()) for each in peers]
        await until(all_have(folders[:4], "trained.safetensors"))
        peers.append(whole_peers.peer(4, tmp_path))
        tasks.append(asyncio.create_task(peers[4].run()))
        await until(all_have(folders, "trained.safetensors"))
        logs = {p.sessions[p.runs.training].protocol.log for p in peers}
        assert len(logs) == 1
        removal = {"do": "propose-removal", "reason": "malicious", "method": "pdlrecover"}
        removal["removed"] = ["ash", "birch"]
        refused = await ask(folders[2] / "control", removal)
        assert "a sum over 2 peers" in refused["error"]  # of the kept ones, two have dealt
        removal["removed"] = ["ash"]
        name = (await ask(folders[2] / "control", removal))["removal"]
        for me in (3, 4):
            await until(lambda me=me: peers[me].control.status().removals)
            await ask(folders[me] / "control", {"do": "approve", "removal": name})
        await until(all_have(folders[1:], "recovered-*.json"))
        await close(peers, tasks)
        return [whole_peers.weights(f / f"recovered-{name[:16]}.safetensors") for f in folders[1:]]

    models = asyncio.run(story())
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])


@pytest.mark.slow
def test_one_honest_peer_leaves_alone_while_the_training_is_under_way(tmp_path):
    async def story():
        long = whole_peers.training(whole_peers.PEERS, 150)
        folders, peers, tasks = await open_peers(tmp_path, {"training": long})
        runs = lambda: list(peers[0].control.status().runs.values())  # noqa: E731
        await until(lambda: runs() and runs()[0].round >= 2)
        removal = {"do": "propose-removal", "removed": ["elm"], "reason": "left"}
        name = (await ask(folders[0] / "control", removal))["removal"]
        for me in (2, 4):
            await until(lambda me=me: peers[me].control.status().removals)
            await ask(folders[me] / "control", {"do": "approve", "removal": name})
        kept = [folders[me] for me in (0, 1, 2, 4)]
        await until(all_have(kept, "recovered-*.json"), 120)
        await until(all_have(folders, "trained.json"), 120)
        training, recovery = runs()
        sets = peers[0].runs.dealers()
        await close(peers, tasks)
        return folders, kept, name, training, recovery, sets

    folders, kept, name, training, recovery, sets = asyncio.run(story())
    assert (training.outcome, training.round) == ("done", 150)
    assert 3 in sets[0]
    last = max(t for t, dealers in enumerate(sets) if 3 in dealers)
    assert last < 140, "who was removed must deal no more"
    assert all(len(dealers) == 4 for dealers in sets[last + 1 :])
    trained = [whole_peers.weights(folder / "trained.safetensors") for folder in folders]
    for model in trained[1:]:
        np.testing.assert_array_equal(model, trained[0])
    assert (recovery.outcome, recovery.rounds) == ("done", 25)
    models = [whole_peers.weights(each / f"recovered-{name[:16]}.safetensors") for each in kept]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    ledger = json.loads((kept[0] / f"recovered-{name[:16]}.json").read_text())["ledger"]
    assert set(ledger["opened"]) == {"fresh sums"}


@pytest.mark.slow
def test_a_late_peer_that_hears_of_a_removal_first_has_the_trained_model_too(tmp_path):
    """The others had finished the training when the removal passed."""

    async def story():
        whole_peers.settle(tmp_path)
        folders = [tmp_path / name for name in whole_peers.NAMES]
        peers = [whole_peers.peer(me, tmp_path) for me in EVERYBODY[:4]]
        tasks = [asyncio.create_task(each.run()) for each in peers]
        await until(all_have(folders[:4], "trained.json"))
        arguments = {"reason": "left", "method": "auto", "accept_differencing": False}
        proposal = replace(peers[0].removals.draft([3], **arguments), after=NOTHING)
        peers.append(late := whole_peers.peer(4, tmp_path))
        late.runs.join(peers[0].runs.training)
        late.removals.train(late.runs.training, late.runs.epoch_name)
        for me in (0, 1, 2):
            said = peers[me].removals.propose(proposal)
            for each in said:
                if isinstance(each, Send) and each.to == 4:
                    late.removals.receive(each.data, me)
            peers[me].say(said)
        assert late.removals.passed()
        tasks.append(asyncio.create_task(late.run()))
        kept = [folders[me] for me in (0, 1, 2, 4)]
        await until(all_have(kept, "recovered-*.json"), 60)
        await until(all_have(folders, "trained.json"), 60)
        training = late.control.status().runs[late.runs.training.hex()[:16]]
        await close(peers, tasks)
        return [whole_peers.weights(folder / "trained.safetensors") for folder in folders], training

    models, training = asyncio.run(story())
    assert training.outcome == "done"
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])


@pytest.mark.slow
def test_with_few_rounds_kept_replays_are_refused_and_retraining_recovers(tmp_path):
    async def story():
        whole_peers.settle(tmp_path)
        folders = [tmp_path / name for name in whole_peers.NAMES]
        for folder in folders:
            whole_peers.write(folder, History(key_file=f"../keys/{folder.name}.key", keep=2))
        peers = [whole_peers.peer(me, tmp_path) for me in EVERYBODY]
        tasks = [asyncio.create_task(each.run()) for each in peers]
        await until(all_have(folders, "trained.safetensors"))
        removal = {"do": "propose-removal", "removed": ["elm", "birch"], "reason": "malicious"}
        replay = {**removal, "method": "pdlrecover"}
        refused = await ask(folders[0] / "control", replay)
        assert "rounds 1 to 7, which this peer has dropped" in refused["error"]
        proposed = await ask(folders[0] / "control", {**removal, "method": "retrain"})
        for me in (2, 4):
            await until(lambda me=me: peers[me].control.status().removals)
            await ask(folders[me] / "control", {"do": "approve", "removal": proposed["removal"]})
        kept = [folders[me] for me in (0, 2, 4)]
        await until(all_have(kept, "recovered-*.json"))
        await close(peers, tasks)
        return [
            whole_peers.weights(next(folder.glob("recovered-*.safetensors"))) for folder in kept
        ]

    models = asyncio.run(story())
    expected = whole_peers.simulation().recover((1, 3), "retrain", reason="malicious")
    for model in models:
        np.testing.assert_array_equal(model, expected.weights.astype(np.float32))


def test_peers_evaluate_on_held_out_data_and_go_on_where_a_recovery_ends_too_low(tmp_path, caplog):
    caplog.set_level("INFO", "pdlrecover.peer")
    agreed = {"evaluation": EvaluationPlan(held_out=0.25, every=4)}

    async def story():
        folders, peers, tasks = await open_peers(tmp_path, agreed)
        await until(all_have(folders, "trained.json"))
        removal = {"do": "propose-removal", "removed": ["elm", "birch"], "reason": "malicious"}
        short = {**removal, "method": "accelerated-retrain:rounds=2+rate=0.001"}
        proposed = await ask(folders[0] / "control", short)
        for me in (2, 4):
            await until(lambda me=me: peers[me].control.status().removals)
            await ask(folders[me] / "control", {"do": "approve", "removal": proposed["removal"]})
        kept = [folders[me] for me in (0, 2, 4)]
        await until(all_have(kept, "recovered-*.json"))
        shown = _lines(peers[0].control.status(), running=True)
        await close(peers, tasks)
        return folders, kept, shown

    folders, kept, shown = asyncio.run(story())
    simulation = whole_peers.simulation(held_out=0.25, evaluate_every=4)
    told = [json.loads((folder / "trained.json").read_text()) for folder in folders]
    assert all(each["evaluations"] == told[0]["evaluations"] for each in told)
    assert [point["round"] for point in told[0]["evaluations"]] == [4, 8, 10]
    assert told[0]["evaluations"][-1]["accuracy"] == simulation._evaluated.accuracy
    assert told[0]["ledger"]["opened"]["evaluations"]["openings"] == 3
    after = [json.loads(next(folder.glob("recovered-*.json")).read_text()) for folder in kept]
    assert len({each["weights_sha256"] for each in after}) == 1
    assert all(each["evaluations"] == after[0]["evaluations"] for each in after)
    assert [point["original"] for point in after[0]["evaluations"]] == [True, False, False]
    assert "cycle 2 of at most 2 begins" in after[0]["continued"][0]
    assert after[0]["rounds"] == after[0]["ledger"]["exact_rounds"] == 4
    assert any("the original model: accuracy" in line for line in shown)
    assert any("training: round 4: accuracy" in message for message in caplog.messages)


def test_who_is_not_in_the_sums_is_said_once_and_shown(tmp_path, caplog):
    caplog.set_level("INFO", "pdlrecover.peer")

    async def story():
        whole_peers.settle(tmp_path)
        lone = whole_peers.peer(0, tmp_path, founded=True)
        task = asyncio.create_task(lone.run())
        await until(lambda: lone.runs.training in lone.sessions and not lone._starting)
        training = lone.sessions[lone.runs.training]
        for t, dealers in enumerate([EVERYBODY, (0, 1, 2), (0, 1, 2), EVERYBODY]):
            training.driver.participation.deal(t, dealers)
            lone._progress[lone.runs.training].say()
        status = lone.control.status().runs[lone.runs.training.hex()[:16]]
        await close([lone], [task])
        return status

    status = asyncio.run(story())
    assert (status.exact_rounds, status.dealt["ash"], status.dealt["elm"]) == (4, 4, 2)
    said = [line for line in caplog.messages if "round" in line and "with" in line]
    assert said == [
        "training: round 1 without elm, fir from here on",
        "training: round 3 with all peers again",
    ]


def test_no_message_ends_a_peer_and_a_bug_is_said_with_whose_message_it_was(tmp_path, caplog):
    log = bytes(range(32))

    async def story():
        whole_peers.settle(tmp_path)
        lone = whole_peers.peer(0, tmp_path, founded=True)
        other = whole_peers.peer(1, tmp_path)
        task = asyncio.create_task(lone.run())
        await until(lambda: lone.runs.training in lone.sessions and not lone._starting)
        lone.removals.training_ended(log, [EVERYBODY] * whole_peers.ROUNDS)
        context = other.runs.context(NOTHING, EVERYBODY)
        bad = lone.removals.draft(
            [3], reason="😀" * 250, method="pdlrecover", accept_differencing=False
        )
        place = context.place(0, log, NOTHING, 0)
        await lone._receive(1, context.send(place, bad, 0).data)
        good = context.send(place, Position(reply=False), 0).data
        await lone._receive(1, good)
        await until(lambda: lone.counts["messages"] == 2)
        assert "could not be dealt with" not in caplog.text
        lone.removals.receive = lambda *_: 1 / 0
        await lone._receive(1, good)
        await until(lambda: lone.counts["messages"] == 3)
        assert not task.done()
        told = await ask(tmp_path / "ash" / "control", {"do": "status"})
        assert told["peer"] == "ash"

        def full(*_):
            raise HistoryError("the disk is full")

        lone.removals.receive = full
        await lone._receive(1, good)
        with pytest.raises(HistoryError, match="the disk is full"):
            await task
        for each in (lone, other):
            each.runs.store.close()

    asyncio.run(story())
    (told,) = [record for record in caplog.records if "could not be dealt with" in record.message]
    assert "birch" in told.message
    assert told.exc_info[0] is ZeroDivisionError


def test_a_full_disk_stops_a_peer_before_a_round_and_says_so(tmp_path):
    async def story():
        whole_peers.settle(tmp_path)
        lone = whole_peers.peer(0, tmp_path, founded=True)
        lone.runs.store._vault(lone.runs.training)._journal._store.limit = 1 << 12
        with pytest.raises(HistoryError, match="are allowed; allow more"):
            await lone.run()
        lone.runs.store.close()

    asyncio.run(story())
    assert (
        "stopped: the history"
        in next(iter(whole_peers.status(tmp_path / "ash")["runs"].values()))["outcome"]
    )


def lone_story(tmp_path, spoil, condition):
    """Let one peer run, spoilt in some way, until a condition; return its training run's status."""

    async def story():
        whole_peers.settle(tmp_path)
        lone = whole_peers.peer(0, tmp_path, founded=True)
        spoil(lone)
        task = asyncio.create_task(lone.run())
        await until(lambda: condition(lone))
        assert not task.done()
        told = await ask(tmp_path / "ash" / "control", {"do": "status"})
        await close([lone], [task])
        return next(iter(told["runs"].values()))

    return asyncio.run(story())


def test_whatever_goes_wrong_in_an_update_ends_the_run_and_is_said(tmp_path, caplog):
    def broken(lone):
        original = lone.runs.trainer

        def trainer():
            session = original()
            session.driver._contribute = lambda *_, **__: 1 / 0
            return session

        lone.runs.trainer = trainer

    told = lone_story(tmp_path, broken, lambda lone: lone.ended)
    assert told["outcome"] == "stopped: ZeroDivisionError: division by zero"
    assert "Traceback" in caplog.text


def test_notes_on_a_peer_have_its_number_and_its_name_and_no_run_that_is_none(tmp_path, caplog):
    caplog.set_level("INFO")
    whole_peers.settle(tmp_path)
    lone = whole_peers.peer(0, tmp_path, founded=True)
    lone._carry(NOTHING, [Note(text="elm is here", facts={"peer": 3, "removal": "1a"})])
    lone.runs.store.close()
    assert caplog.records[-1].facts == {"peer": 3, "name": "elm", "removal": "1a"}
    assert lone.runs.context(NOTHING, EVERYBODY).name(3) == "elm"


def test_a_stopped_run_takes_no_messages(tmp_path):
    taken = []

    async def story():
        whole_peers.settle(tmp_path)
        lone = whole_peers.peer(0, tmp_path, founded=True)
        task = asyncio.create_task(lone.run())
        await until(lambda: lone.runs.training in lone.sessions and not lone._starting)
        lone.sessions[lone.runs.training].receive = lambda *_: taken.append(1) or []
        context = lone.runs.context(lone.runs.training, EVERYBODY)
        place = context.place(0, NOTHING, NOTHING, 0)
        message = context.send(place, Position(reply=False), 1).data
        lone._message(1, message, 0.0)
        lone._end(lone.runs.training, "stopped: for a reason")
        lone._message(1, message, 0.0)
        await close([lone], [task])

    asyncio.run(story())
    assert taken == [1]


def test_a_long_log_is_gone_through_while_the_peer_answers(tmp_path):
    going = threading.Event()

    def slow(lone):
        original = lone.runs.trainer

        def trainer():
            session = original()
            start = session.start

            def wait_and_start(now):
                assert going.wait(10)
                return start(now)

            session.start = wait_and_start
            return session

        lone.runs.trainer = trainer

    def answered(lone):
        if (tmp_path / "ash" / "control").exists():
            going.set()
        return going.is_set() and not lone._starting

    told = lone_story(tmp_path, slow, answered)
    assert told["outcome"] == "running"


def lone_peer(tmp_path):
    whole_peers.settle(tmp_path)
    return whole_peers.peer(0, tmp_path)


def test_a_cheat_cannot_fill_the_disk_with_evidence_or_the_log_with_blames(
    tmp_path, monkeypatch, caplog
):
    lone = lone_peer(tmp_path)
    for i in range(200):
        lone._carry(NOTHING, [Blame(peer=1, what="signed two", evidence=(bytes([i]) * 999,) * 2)])
    assert len(list((tmp_path / "ash" / "evidence").iterdir())) == 2
    assert len(caplog.records) == misconduct.LOGGED_BLAMES + 1
    monkeypatch.setattr(misconduct, "KEPT_EVIDENCE_BYTES", 10_000)
    for i in range(200):
        lone._carry(NOTHING, [Blame(peer=2, what=f"cheat {i}", evidence=(bytes(999),) * 2)])
    lone.runs.store.close()
    assert len(list((tmp_path / "ash" / "evidence").iterdir())) == 10


def test_who_sent_wrong_sub_secrets_is_still_named_after_a_restart(tmp_path):
    lone = lone_peer(tmp_path)
    for i in range(50):
        lone._carry(NOTHING, [Blame(peer=3, what="sent a wrong sub-secret")])
        lone._carry(NOTHING, [Blame(peer=1, what=f"sent garbage {i}")])
    lone.runs.store.close()
    lone = whole_peers.peer(0, tmp_path, founded=True)
    status = lone.control.status()
    lone.runs.store.close()
    named = [(each.peer, each.what) for each in status.named]
    assert ("elm", "sent a wrong sub-secret") in named
    assert len(named) == 1 + misconduct.KEPT_NAMES
    assert not status.caught
    assert any("elm (sent a wrong sub-secret)" in line for line in _lines(status, True))


def test_a_model_that_cannot_be_written_ends_the_peer_with_a_sentence(tmp_path, monkeypatch):
    lone = lone_peer(tmp_path)
    session = lone.runs.trainer()
    session.driver.model = lone.runs._flat.initial

    def full(path, content, **how):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pdlrecover.files.write_new", full)
    with pytest.raises(HistoryError, match="No space left on device; it is safe in the history"):
        lone.runs.results.write_trained(session)
    assert not list(lone.folder.glob("trained*"))
    lone.runs.store.close()


def test_messages_wait_outside_when_too_many_bytes_wait_inside():
    async def story():
        waiting = Inbox(Limits(waiting_messages=3, waiting_bytes=100))
        await waiting.enter(500)
        late = asyncio.create_task(waiting.enter(60))
        await asyncio.sleep(0)
        assert not late.done()
        waiting.leave(500)
        await late
        await waiting.enter(40)
        late = asyncio.create_task(waiting.enter(1))
        await asyncio.sleep(0)
        assert not late.done()
        waiting.leave(60)
        await late

    asyncio.run(story())
