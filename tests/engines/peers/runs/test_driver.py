import copy
from dataclasses import replace

import numpy as np
import pytest
from wire import FEDERATION, OPENED_PAIRS, SETTINGS, TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol.tasks import StoredSums
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.engines.peers.runs.dealt_sums import DealtSums
from pdlrecover.engines.peers.runs.driver import Driver, _digest, _teachers
from pdlrecover.errors import PlanError
from pdlrecover.field import F61
from pdlrecover.history import VaultLayout
from pdlrecover.recovery.requests import ONE_STEP, LocalSteps, Teacher, Update

ROUNDS = 14
TOLERANCE = Tolerance(colluders=1, dropouts=2)


@pytest.fixture(scope="module")
def setting():
    setup = Setup(6, TOLERANCE)
    assert setup.scheme.quorums.packing == 2
    return setup, setup.train(rounds=ROUNDS), setup.simulation(ROUNDS)


def test_peers_train_the_model_of_the_simulation_to_the_bit(setting):
    setup, network, simulation = setting
    np.testing.assert_array_equal(same_models(network), simulation.original.models[ROUNDS])
    for t, model in enumerate(setup.stores[3].models(TRAINING)):
        np.testing.assert_array_equal(model, simulation.original.models[t])
    assert not network.blames


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("pdlrecover", SETTINGS),
        ("pdlrecover:block=1", OPENED_PAIRS),
        ("pdlrecover:block=2", OPENED_PAIRS),
        ("pdlrecover:buffer=1", OPENED_PAIRS),
        ("retrain", SETTINGS),
        ("historical", SETTINGS),
        ("auto", SETTINGS),
        ("distillation", SETTINGS),
        ("rapid-retrain", SETTINGS),
    ],
)
def test_every_method_recovers_the_model_of_the_simulation_to_the_bit(setting, method, settings):
    setup, network, simulation = setting
    recovered = setup.recover(network, (1, 4), method=method, settings=settings)
    expected = simulation.recover((1, 4), method, reason="malicious", settings=settings)
    np.testing.assert_array_equal(same_models(recovered), expected.weights)
    assert not recovered.blames
    ours = recovered.sessions[0].driver.ledger.record()
    theirs = expected.ledger.record()
    assert {**ours, "seconds": None} == {**theirs, "seconds": None}


def test_a_recovery_that_too_few_have_the_shares_for_says_whom_it_waits_for(setting):
    setup, trained, _ = setting
    recovering = setup.recover(trained, (0, 5), method="historical", run=False)
    for peer, session in recovering.sessions.items():
        if peer in (2, 3):
            session.driver._dealt.stored_share = lambda *_: None
    recovering.run(until=20.0)
    assert not any(p.finished for p in recovering.sessions.values())
    for session in recovering.sessions.values():
        waiting = session.protocol.waiting(recovering.wire.now)
        assert (waiting.what, waiting.away, waiting.lacking) == ("shares", (), (2, 3))
        assert (waiting.step, waiting.round, waiting.needed) == (1, 1, 3)


def test_who_is_away_and_who_lacks_a_sum_of_several_is_told_apart(setting):
    """Peer 1 is away; peers 2 and 3 each lack another round, and answer for the rest."""
    setup, trained, _ = setting
    recovering = setup.recover(
        trained,
        (0, 5),
        method="pdlrecover:period=6",
        settings=OPENED_PAIRS,
        run=False,
    )
    for peer, lacked in ((2, 1), (3, 5)):
        driver = recovering.sessions[peer].driver
        driver._dealt.stored_share = without(driver._dealt.stored_share, lacked)
    stored = lambda: isinstance(recovering.sessions[4].task, StoredSums)  # noqa: E731
    recovering.run(done=stored)
    recovering.wire.cut = {1}
    recovering.run(until=recovering.wire.now + 60.0, done=lambda: False)
    waiting = recovering.sessions[4].protocol.waiting(recovering.wire.now)
    assert (waiting.what, waiting.away, waiting.lacking) == ("shares", (1,), (2, 3))
    recovering.wire.cut = set()
    recovering.run(until=500.0)
    same_models(recovering)
    assert recovering.sessions[4].protocol.waiting(recovering.wire.now) is None


def test_a_step_without_a_quorum_says_who_was_not_heard_from():
    setup = Setup(6, TOLERANCE)
    network = setup.train(Wire(cut={0, 2, 5}), run=False)
    network.run(until=3.0)
    assert network.sessions[1].protocol.waiting(network.wire.now) is None, "it is early"
    network.run(until=30.0)
    waiting = network.sessions[1].protocol.waiting(network.wire.now)
    assert (waiting.what, waiting.away, waiting.needed) == ("quorum", (0, 2, 5), 4)


def test_opened_pairs_take_one_step_besides_the_exact_rounds(setting):
    setup, network, _ = setting
    recovered = setup.recover(network, (1, 4), settings=OPENED_PAIRS, method="pdlrecover:final=3")
    driver, log = recovered.sessions[0].driver, setup.stores[0].log(named_run(recovered))
    dealt = [bool(entry.dealers) for entry in log]
    assert dealt.count(False) - driver.participation.from_history == 1
    assert dealt.count(True) == driver.ledger.exact_rounds - driver.participation.from_history
    opened = driver.participation.record(driver.ledger).opened["stored sums"]
    assert opened.openings == 5  # pairs of rounds 1, 2 and 7; blocks 3 to 6 and 8 to 10
    assert opened.of == "4 kept peers together"


@pytest.mark.parametrize("away", [None, 1, 2])
def test_sums_of_the_kept_follow_from_those_of_the_removed(away, monkeypatch):
    """Whichever are opened, also where a removed or a kept peer missed rounds of the training."""
    models, setup = [], Setup(6, TOLERANCE)
    wire = Wire()
    network = setup.train(wire, rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step >= 3)
    wire.cut = set() if away is None else {away}
    network.run(done=lambda: network.sessions[0].protocol.step >= 8)
    wire.cut.clear()
    network.run()
    for instead in (False, True):
        monkeypatch.setattr(DealtSums, "reads_removed", lambda _, instead=instead: instead)
        stores, setup.stores = setup.stores, copy.deepcopy(setup.stores)
        recovered = setup.recover(network, (1,), settings=OPENED_PAIRS)
        models.append(same_models(recovered))
        assert not recovered.blames
        assert recovered.sessions[0].driver.ledger.openings["stored sums"]
        setup.stores = stores
    np.testing.assert_array_equal(*models)


@pytest.mark.parametrize(("removed", "reads"), [((1, 4), False), ((1,), True)])
def test_the_shares_of_fewer_dealers_are_read(setting, removed, reads):
    setup, network, simulation = setting
    recovered = setup.recover(network, removed, settings=OPENED_PAIRS, method="pdlrecover:period=6")
    assert recovered.sessions[0].driver._dealt.reads_removed() is reads
    expected = simulation.recover(
        removed, "pdlrecover:period=6", reason="malicious", settings=OPENED_PAIRS
    )
    np.testing.assert_array_equal(same_models(recovered), expected.weights)


def named_run(network):
    return network.sessions[0].protocol.context.run


def test_peers_that_lack_shares_of_different_rounds_open_what_they_have(setting):
    """Peers 2 and 3 each lack a round, and no opening can do without two of four."""
    setup, network, simulation = setting
    recovering = setup.recover(
        network, (0, 5), method="pdlrecover:period=6", settings=OPENED_PAIRS, run=False
    )
    for peer, lacked in ((2, 1), (3, 5)):
        driver = recovering.sessions[peer].driver
        driver._dealt.stored_share = without(driver._dealt.stored_share, lacked)
    recovering.run(until=100.0)
    expected = simulation.recover(
        (0, 5), "pdlrecover:period=6", reason="malicious", settings=OPENED_PAIRS
    )
    np.testing.assert_array_equal(same_models(recovering), expected.weights)
    assert not recovering.blames


def without(stored_share, lacked):
    return lambda t, of: None if t == lacked else stored_share(t, of)


def test_with_a_peer_away_nothing_is_opened_that_leaves_it_out(setting):
    setup, network, _ = setting
    recovering = setup.recover(network, (5,), wire=Wire(cut={3}), settings=OPENED_PAIRS, run=False)
    recovering.run(done=lambda: all(recovering.sessions[p].finished for p in (0, 1, 2, 4)))
    same_models(recovering, [0, 1, 2, 4])
    driver = recovering.sessions[0].driver
    assert not {"directions", "dot products"} & set(driver.ledger.openings)
    alone = recovering.sessions[3].driver.model
    assert alone is None


class Absent:
    """A store in whose training only some peers dealt in one round."""

    def __init__(self, store, t, dealers):
        self._store, self._round, self._dealers = store, t, dealers

    def __getattr__(self, name):
        return getattr(self._store, name)

    def dealers(self, run, step):
        absent = run == TRAINING and step == self._round
        return self._dealers if absent else self._store.dealers(run, step)


def with_absences(t, dealers):
    setup = Setup(6, TOLERANCE)
    network = setup.train(rounds=ROUNDS)
    setup.stores = [Absent(store, t, dealers) for store in setup.stores]
    return setup, network


@pytest.mark.slow
def test_a_stored_sum_over_too_few_kept_peers_is_not_opened():
    setup, network = with_absences(5, (0, 1, 2, 4))
    with pytest.raises(PlanError, match="a single other"):
        setup.recover(network, (1, 4), method="historical")


@pytest.mark.slow
def test_a_pair_over_too_few_peers_is_not_opened_and_its_rounds_are_exact():
    setup, network = with_absences(2, (0, 1, 2, 4))
    recovered = setup.recover(network, (1, 4))
    assert np.isfinite(same_models(recovered)).all()
    asked = recovered.sessions[0].driver.ledger.record()
    whole = setup.simulation(ROUNDS).recover(
        (1, 4), "pdlrecover", reason="malicious", settings=SETTINGS
    )
    assert asked["exact_rounds"] > whole.ledger.record()["exact_rounds"]


def test_sums_over_some_of_the_kept_peers_are_refused(setting):
    setup, network, _ = setting
    with pytest.raises(PlanError, match="between peers all deal in every round"):
        setup.recoverer(0, network.sessions[0], (1, 4), method="sisa").start(0.0)


def test_updates_with_another_teacher_are_another_request():
    """Else peers that disagree about it would add up what does not belong together."""
    w = np.arange(3.0)
    teachers = [None, *(Teacher(models=(w + i,), temperature=t) for i in (0, 1) for t in (1, 2))]
    asked = [_teachers(Update(round=0, at=w, teacher=teacher)) for teacher in teachers]
    assert len({_digest("update", [0], w, *each) for each in asked}) == 5


def test_updates_that_the_training_opened_are_not_dealt_again(setting):
    setup, network, simulation = setting
    recovered = setup.recover(network, (1, 4), method="retrain-k")
    log = setup.stores[0].log(recovered.sessions[0].protocol.context.run)
    assert [len(entry.dealers) for entry in log[:3]] == [0, 4, 4]
    expected = simulation.recover((1, 4), "retrain-k", reason="malicious", settings=SETTINGS)
    np.testing.assert_array_equal(same_models(recovered), expected.weights)


@pytest.mark.parametrize("changed", [{"period": 4}, {"preparation": 4}, {"final": 4}])
@pytest.mark.slow
def test_a_recovery_is_not_gone_on_with_by_software_that_asks_otherwise(changed):
    """Another version of a method is another method: here its schedule differs."""
    setup = Setup(6, TOLERANCE)
    network = setup.train(rounds=ROUNDS)
    setup.recover(network, (1, 4))
    schedule = replace(SETTINGS.options.schedule, **changed)
    other = replace(SETTINGS, options=replace(SETTINGS.options, schedule=schedule))
    store, trained = setup.stores[0], network.sessions[0]
    again = setup.recoverer(0, trained, (1, 4))
    again.start(0.0)
    before = store.models(again.protocol.context.run)[-1].copy()
    with pytest.raises(PlanError, match="go on with the version that began it"):
        setup.recoverer(0, trained, (1, 4), settings=other).start(0.0)
    np.testing.assert_array_equal(store.models(again.protocol.context.run)[-1], before)
    np.testing.assert_array_equal(again.driver.model, before)


@pytest.mark.slow
def test_retraining_works_where_only_the_last_rounds_and_the_first_are_kept(tmp_path):
    setup, rounds = Setup(6, TOLERANCE), 5
    code = setup.contribution(0).code
    setup.stores = [
        Archive(
            tmp_path / str(peer),
            bytes(32),
            VaultLayout(
                federation=FEDERATION,
                run=TRAINING.hex(),
                peer=peer,
                parameters=code.length - 1,
                blocks=setup.scheme.quorums.blocks(code.length),
            ),
            peers=6,
            keep=2,
        )
        for peer in range(6)
    ]
    network = setup.train(rounds=rounds)
    assert {store.shares_from(TRAINING) for store in setup.stores} == {3}
    recovered = setup.recover(network, (1, 4), method="retrain")
    expected = setup.simulation(rounds).recover((1, 4), "retrain", reason="malicious")
    np.testing.assert_array_equal(same_models(recovered), expected.weights)
    replayed = setup.recover(network, (1, 4), method="historical", run=False)
    replayed.run(until=20.0)
    assert not any(p.finished for p in replayed.sessions.values())
    for store in setup.stores:
        store.close()


@pytest.mark.slow
def test_the_ledger_of_a_run_says_who_was_in_its_sums():
    setup = Setup(6, TOLERANCE)
    network = setup.train(rounds=ROUNDS, run=False)
    network.crash(5, setup.trainer(5, ROUNDS))
    network.run(done=lambda: network.sessions[0].protocol.step == 2)
    network.start(5)
    network.run()
    same_models(network)
    driver = network.sessions[0].driver
    told, dealt = driver.participation.record(driver.ledger), driver.participation.dealt
    assert [dealt[peer] for peer in range(5)] == [ROUNDS] * 5
    assert 0 < dealt[5] <= ROUNDS - 2
    assert told.gradient_evaluations == dealt.total()
    assert told.opened["fresh sums"].of == "5 to 6 kept peers together"
    assert driver.participation.last == frozenset(range(6))
    recovered = setup.recover(network, (1, 4))
    driver = recovered.sessions[0].driver
    told = driver.participation.record(driver.ledger)
    assert told.exact_rounds_from_history == 1, "both that go dealt in the first round"
    assert told.opened["fresh sums"].of == "3 to 4 kept peers together"
    assert told.opened["dot products"].of == "4 kept peers together", "a pair of 3 tells the other"
    assert told.gradient_evaluations == 4 * (told.exact_rounds - 1)


def bare(kind, **attributes):
    """Return one of this kind that has nothing but these."""
    made = kind.__new__(kind)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    ("training", "asked", "same"),
    [
        (ONE_STEP, None, True),
        (ONE_STEP, LocalSteps(steps=1, rate=0.3), True),
        (ONE_STEP, LocalSteps(steps=2, rate=0.3), False),
        (LocalSteps(steps=3, rate=0.1), LocalSteps(steps=3, rate=0.1), True),
        (LocalSteps(steps=3, rate=0.1), LocalSteps(steps=3, rate=0.2), False),
        (LocalSteps(steps=3, rate=0.1), LocalSteps(steps=1, rate=0.1), False),
    ],
)
def test_the_trainings_own_local_steps_are_known_as_such(training, asked, same):
    """Else updates that the training opened would be dealt and opened again, in another sum."""
    driver = bare(Driver, _local=training)
    update = Update(round=0, at=np.zeros(2), local=asked)
    assert (driver._differing(update) == []) == same
    assert driver._differing(replace(update, stream=7)) != []


def test_what_the_training_opened_is_added_up_in_the_field():
    """A removed peer may have dealt numbers that wrap around; they cancel only in the field."""
    near = F61.to_signed(np.array([F61.modulus // 2, F61.modulus // 2 + 1]))

    class Past:
        def opened(self, t):
            return near

    total = bare(DealtSums, _past=Past()).trained(range(5))
    assert [int(x) for x in total] == [5 * int(x) % F61.modulus for x in near]
