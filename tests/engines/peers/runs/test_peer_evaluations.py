"""Evaluations between peers on a fake wire: those of the simulation, whoever is away or lies."""

from fractions import Fraction

import numpy as np
import pytest
from wire import FEDERATION, SETTINGS, TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.messages import SubSecret
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.field import F61
from pdlrecover.history import VaultLayout
from pdlrecover.recovery.evaluation import encode_tally
from pdlrecover.recovery.requests import Evaluation

ROUNDS, EVERY, HELD_OUT = 14, 4, 0.25
TOLERANCE = Tolerance(colluders=1, dropouts=2)
LIAR = 3


def new_setup(tolerance=TOLERANCE, peers=6):
    return Setup(peers, tolerance, held_out=HELD_OUT, every=EVERY)


@pytest.fixture(scope="module")
def setting():
    setup = new_setup()
    return setup, setup.train(rounds=ROUNDS), setup.simulation(ROUNDS)


def points(network, peer=0):
    return network.sessions[peer].driver.evaluations.points


def same_points(network, peers=None):
    """Check that these peers came to one curve, and return it."""
    curves = [points(network, p) for p in peers or sorted(network.alive)]
    assert all(curve == curves[0] for curve in curves)
    return curves[0]


def test_peers_evaluate_their_training_as_the_simulation_does(setting):
    setup, network, simulation = setting
    np.testing.assert_array_equal(same_models(network), simulation.original.models[ROUNDS])
    curve = same_points(network)
    assert [point.round for point in curve] == [4, 8, 12, 14]
    assert all(point.peers == 6 for point in curve)
    assert curve[-1].accuracy == simulation._evaluated.accuracy
    for t, model in enumerate(setup.history(2, ROUNDS).models):
        np.testing.assert_array_equal(model, simulation.original.models[t])
    assert not network.blames


@pytest.mark.parametrize("method", ["pdlrecover", "retrain", "historical", "auto"])
def test_every_recovery_has_the_model_curve_and_ledger_of_the_simulation(setting, method):
    setup, network, simulation = setting
    recovered = setup.recover(network, (1, 4), method=method)
    expected = simulation.recover((1, 4), method, reason="malicious", settings=SETTINGS)
    np.testing.assert_array_equal(same_models(recovered), expected.weights)
    assert tuple(same_points(recovered)) == expected.evaluations
    driver = recovered.sessions[0].driver
    assert tuple(driver.evaluations.continued) == expected.continued
    ours, theirs = driver.ledger.record(), expected.ledger.record()
    assert {**ours, "seconds": None} == {**theirs, "seconds": None}
    assert driver.participation.record(driver.ledger).opened["evaluations"].numbers % 3 == 0


def test_a_recovery_that_ends_too_low_goes_on_at_every_peer(setting):
    setup, network, _ = setting
    name = "accelerated-retrain:rounds=2+rate=0.001"
    recovered = setup.recover(network, (1, 4), method=name)
    driver = recovered.sessions[0].driver
    assert same_points(recovered)[0].original
    (why,) = driver.evaluations.continued
    assert "cycle 2 of at most 2" in why
    assert (driver.round, driver.rounds, driver.ledger.exact_rounds) == (4, 4, 4)
    same_models(recovered)


def test_who_is_away_is_not_in_the_evaluation_and_nobody_waits_for_long():
    setup = new_setup()
    network = setup.train(rounds=6, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step == 2)
    network.wire.cut.add(5)
    present = range(5)
    network.run(done=lambda: all(network.sessions[p].finished for p in present))
    same_models(network, present)
    curve = same_points(network, present)
    assert [point.peers for point in curve] == [5, 5]
    network.wire.cut.clear()
    network.run(until=network.wire.now + 500)
    same_models(network)
    assert same_points(network) == curve


def test_a_model_that_the_training_had_is_not_evaluated_a_second_time():
    """Who is removed dealt in no round up to then, and may have been in the evaluation."""
    setup = new_setup()
    wire = Wire(cut={1, 4})
    network = setup.train(wire, rounds=10, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step == EVERY + 2)
    wire.cut.clear()
    network.run()
    same_models(network)
    recovered = setup.recover(network, (1, 4), method="retrain")
    same_models(recovered)
    first, *others = same_points(recovered)
    assert (first.round, first.accuracy) == (EVERY, None)
    assert "a model of the training" in first.void
    assert all(point.peers == 4 for point in others)
    assert recovered.sessions[0].driver.ledger.openings["evaluations"] == len(others)


def test_a_wrong_sub_secret_is_named_and_changes_no_evaluation():
    setup = new_setup(Tolerance(colluders=1, dropouts=1, liars=1), peers=7)
    network = setup.train(rounds=4, run=False)
    liar = network.sessions[LIAR]

    def lying(rows):
        return F61.elements(np.zeros_like(next(iter(rows.values()))))

    answer = liar.driver.answer

    def answered(entry):
        task = answer(entry)
        if task is not None and task.length == 3:
            object.__setattr__(task, "sub_secret", lying)
        return task

    liar.driver.answer = answered
    others = [p for p in range(7) if p != LIAR]
    network.run(done=lambda: all(network.sessions[p].finished for p in others), until=500)
    assert network.blamed(by=0) == {LIAR}
    expected = setup.simulation(4)
    (point,) = same_points(network, others)
    assert point.accuracy == expected._evaluated.accuracy


def claiming(setup, claim, rounds=4):
    """Train with a peer that deals this claim in evaluations; return the one evaluation."""
    network = setup.train(rounds=rounds, run=False)
    network.sessions[LIAR].driver._evaluate = lambda request: np.array(claim)
    network.run()
    same_models(network)
    (point,) = same_points(network)
    assert not network.blames
    return point


@pytest.mark.parametrize("right", [0, 1])
def test_a_peer_that_lies_about_its_answers_moves_the_accuracy_by_at_most_its_share(right):
    setup = new_setup()
    asked = Evaluation(round=4, at=same_models(setup.train(rounds=4)))
    honest = [setup.contribution(p).evaluate(asked) for p in range(6) if p != LIAR]
    most = setup.most
    correct, _, count = np.sum(honest, axis=0)
    truth, bound = Fraction(int(correct), int(count)), Fraction(most, int(count) + most)
    found = claiming(new_setup(), encode_tally(right * most, 0.0, most)).accuracy
    assert abs(found - truth) <= bound
    assert found != float(truth)


@pytest.mark.parametrize("claim", [(100, 0, 4), (-100, 0, 0), (0, 0, 1000), (0, -(1 << 40), 4)])
def test_what_cannot_be_true_makes_the_evaluation_void_and_the_run_goes_on(claim):
    point = claiming(new_setup(), claim)
    assert point.accuracy is None
    assert "somebody lied" in point.void


def test_a_peer_restarted_in_an_evaluation_deals_and_says_the_same_again():
    setup, held = new_setup(), [True]

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        late = isinstance(envelope.body, SubSecret) and envelope.header.step == EVERY
        return [] if held and late else [(sender, data)]

    wire = Wire(tamper=tamper)
    network = setup.train(wire, rounds=6, run=False)
    network.run(done=lambda: sum(s[2] == "SubSecret" and is_step(s[3]) for s in wire.sent) >= 30)
    before = {
        sender: codec.decode(data).body.values.tolist()
        for sender, _, kind, data in wire.sent
        if kind == "SubSecret" and is_step(data)
    }
    wire.queue.clear()
    wire.sent.clear()
    held.clear()
    for peer in (0, 1, 2):
        network.crash(peer, setup.trainer(peer, 6))
        network.start(peer)
    network.run()
    same_models(network)
    assert [point.peers for point in same_points(network)] == [6, 6]
    for sender, _, kind, data in wire.sent:
        if kind == "SubSecret" and is_step(data):
            assert codec.decode(data).body.values.tolist() == before[sender]
    assert not network.blames


def is_step(data):
    return codec.decode(data).header.step == EVERY


def test_a_peer_a_step_ahead_says_its_part_of_an_evaluation_again_after_a_crash():
    setup = new_setup()
    network = setup.train(rounds=6, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step == EVERY + 1)
    first = network.sessions[0].protocol.previous.sub_secret.values
    again = setup.trainer(0, 6)
    again.start(network.wire.now)
    np.testing.assert_array_equal(again.protocol.previous.sub_secret.values, first)


def test_in_sealed_histories_rounds_and_evaluations_are_told_apart(tmp_path):
    setup, rounds = new_setup(), 10
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
        )
        for peer in range(6)
    ]
    network = setup.train(rounds=rounds)
    simulation = setup.simulation(rounds)
    history = setup.history(1, rounds)
    assert (len(history), len(history.models), history.finished) == (rounds, rounds + 1, True)
    for t, model in enumerate(history.models):
        np.testing.assert_array_equal(model, simulation.original.models[t])
    assert all(history.shares(t, history.dealers(t)) is not None for t in range(rounds))
    again = setup.trainer(0, rounds)
    again.start(0.0)
    assert again.driver.evaluations.points == points(network)
    np.testing.assert_array_equal(again.driver.model, same_models(network))
    recovered = setup.recover(network, (1, 4), method="historical")
    expected = simulation.recover((1, 4), "historical", reason="malicious")
    np.testing.assert_array_equal(same_models(recovered), expected.weights)
    assert tuple(same_points(recovered)) == expected.evaluations
    for store in setup.stores:
        store.close()


def test_nothing_is_stored_of_an_evaluation_but_what_was_opened_and_who_dealt(setting):
    setup, _, _ = setting
    entry = setup.stores[0].log(TRAINING)[EVERY]
    assert len(entry.values) == 3
    assert [held.dealer for held in entry.dealers] == list(range(6))
    assert setup.stores[0].shares(TRAINING, EVERY, range(6)) is None
