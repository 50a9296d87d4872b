"""A round whose sum nobody honest can have dealt changes nothing, and its dealer is found."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cheats import CHEAT, HONEST, PEERS, TOLERANCE
from wire import (
    KEYS,
    OPENED_PAIRS,
    SETTINGS,
    TRAINING,
    Network,
    Setup,
    Wire,
    same_models,
)

from pdlrecover.engines.peers.identity.keyring import Signers
from pdlrecover.engines.peers.protocol import codec, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.single_dealings import SKETCHES, vectors_of
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.engines.peers.runs.void_rounds import VoidRound, looked_into
from pdlrecover.errors import MessageError
from pdlrecover.field import F61
from pdlrecover.recovery.requests import Update

ROUNDS, BAD = 5, 2
ONE = 1 << 20
HALF = (F61.modulus + 1) // 2


def weighing(weight):
    """Return a lie: another weight than one's own."""

    def lie(own, others):
        own[-1] = weight(others)
        return own

    return lie


def with_values(change):
    """Return a lie: another update than one's own."""

    def lie(own, others):
        own[:-1] = change(own[:-1])
        return own

    return lie


def signed_halves(values):
    """Return what looks small to every vector of signs: (q + 1)/2 twice, modulo q."""
    return np.array([HALF - F61.modulus, HALF - F61.modulus] + [0] * (len(values) - 2))


LIES = {
    "sum of weights is 0": weighing(lambda others: -others),
    "sum of weights is far too large": weighing(lambda others: 1000 * ONE),
    "sum of weights is negative": weighing(lambda others: -others - 1),
    "huge update": with_values(lambda own: np.full_like(own, 1 << 40)),
    "one huge number": with_values(lambda own: np.eye(1, len(own), 3, dtype=np.int64)[0] << 58),
    "halves of the modulus": with_values(signed_halves),
}


def lying(network, lie, rounds=(BAD,), cheat=CHEAT):
    """Let a peer of a network that has not begun deal otherwise in some rounds."""
    deals = {p: session.driver._contribute for p, session in network.sessions.items()}

    def crooked(request):
        if request.round not in rounds:
            return deals[cheat](request)
        others = sum(int(deals[p](request)[-1]) for p in deals if p != cheat)
        return lie(deals[cheat](request).copy(), others)

    network.sessions[cheat].driver._contribute = crooked


def trained(lie, rounds=(BAD,), wire=None, length=ROUNDS):
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(wire, rounds=length, run=False)
    lying(network, lie, rounds)
    network.run(until=500)
    return setup, network


def proven(setup, parts):
    verify = Signers(KEYS[0]._keys).verify
    return evidence.proven(setup.scheme, verify, parts, setup.bounds())


@pytest.mark.parametrize("name", LIES)
def test_a_lie_makes_its_round_void_and_its_dealer_is_named_with_evidence(name):
    setup, network = trained(LIES[name])
    same_models(network)
    assert not network.halts
    models = setup.stores[0].models(TRAINING)
    np.testing.assert_array_equal(models[BAD], models[BAD + 1])
    assert all(np.isfinite(model).all() for model in models)
    for session in network.sessions.values():
        assert [each.round for each in session.driver.void] == [BAD]
        assert "somebody lied" in session.driver.void[0].why
    naming = setup.name(network, until=500)
    for peer in HONEST:
        assert naming.sessions[peer].named == {CHEAT}
        (blame,) = naming.blames[peer]
        assert blame.peer == CHEAT
        assert proven(setup, blame.evidence) == (CHEAT, blame.what)


def test_the_other_rounds_are_those_of_a_training_without_the_void_one():
    """The optimiser's state stays, too: with SGD, the round is as if it had not been."""
    setup, network = trained(LIES["sum of weights is 0"])
    model = setup.model.initial
    for t in range(ROUNDS):
        entry = setup.stores[0].log(TRAINING)[t]
        np.testing.assert_array_equal(setup.stores[0].models(TRAINING)[t], model)
        if t != BAD:
            model = model - 0.3 * (entry.values[:-1] / ONE / (entry.values[-1] / ONE))
    np.testing.assert_array_equal(same_models(network), model)


def test_honest_rounds_are_not_void_and_name_nobody():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(rounds=ROUNDS)
    assert all(not s.driver.void and not s.driver.void_rounds for s in network.sessions.values())


def test_naming_opens_weights_and_only_if_these_are_right_sketches():
    kinds = {}
    for name in ("sum of weights is 0", "huge update"):
        setup, network = trained(LIES[name])
        kinds[name] = setup.name(network).sessions[0].driver.ledger.totals().opened
    assert set(kinds["sum of weights is 0"]) == {"single weights"}
    assert set(kinds["huge update"]) == {"single weights", "sketches"}
    assert kinds["huge update"]["sketches"].numbers == SKETCHES * PEERS
    assert kinds["huge update"]["sketches"].of == "one peer"


def test_the_opened_weights_are_those_that_were_dealt():
    setup, network = trained(LIES["huge update"])
    naming = setup.name(network)
    void = network.sessions[0].driver.void_rounds[0]
    opened = setup.stores[0].log(void.naming)[0].values
    request = Update(round=BAD, at=setup.model.initial)
    dealt = [int(setup.contribution(p)(request)[-1]) for p in range(PEERS)]
    assert opened.tolist() == dealt
    same_models(naming)


@pytest.fixture(scope="module")
def found():
    setup, network = trained(LIES["sum of weights is 0"])
    naming = setup.name(network)
    return setup, naming.blames[HONEST[0]][0].evidence


def test_fewer_sub_secrets_than_liars_could_make_up_prove_nothing(found):
    setup, parts = found
    least = setup.scheme.quorums.dot_degree + 1 + TOLERANCE.liars
    assert len(parts) >= least
    for some in combinations(parts, least - 1):
        with pytest.raises(MessageError, match="proves nothing"):
            proven(setup, some)


def test_a_liar_among_the_signers_cannot_frame_an_honest_dealer(found):
    """It changes its own sub-secret, signs it, and adds it to those of honest peers."""
    setup, parts = found
    least = setup.scheme.quorums.dot_degree + 1 + TOLERANCE.liars
    liar = codec.decode(parts[0])
    values = liar.body.values.copy()
    values[HONEST[-1]] = (int(values[HONEST[-1]]) + 5) % F61.modulus
    changed = codec.encode(
        liar.header, replace(liar.body, values=values), KEYS[liar.header.sender].sign
    )
    with pytest.raises(MessageError, match="proves nothing"):
        proven(setup, (changed, *parts[1:least]))


def test_sub_secrets_of_other_requests_prove_nothing(found):
    """Signed for another step, they mean something else."""
    setup, parts = found
    for fields in ({"round": BAD + 1}, {"asked": bytes(32)}):
        forged = []
        for part in parts:
            each = codec.decode(part)
            sender = each.header.sender
            forged.append(
                codec.encode(replace(each.header, **fields), each.body, KEYS[sender].sign)
            )
        with pytest.raises(MessageError, match="proves nothing"):
            proven(setup, forged)


def test_one_signer_counts_once(found):
    setup, parts = found
    with pytest.raises(MessageError, match="proves nothing"):
        proven(setup, [parts[0]] * len(parts))


def test_a_wrong_sub_secret_in_a_naming_is_left_out_of_the_evidence():
    setup, network = trained(LIES["sum of weights is 0"])
    liar = HONEST[-1]

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        if sender != liar or not isinstance(envelope.body, m.SubSecret):
            return [(sender, data)]
        values = F61.add(envelope.body.values, np.ones_like(envelope.body.values))
        body = replace(envelope.body, values=values)
        return [(sender, codec.encode(envelope.header, body, KEYS[liar].sign))]

    naming = setup.name(network, wire=Wire(tamper=tamper), until=500)
    for peer in (p for p in HONEST if p != liar):
        blames = [b for b in naming.blames[peer] if b.evidence]
        assert [b.peer for b in blames] == [CHEAT]
        assert proven(setup, blames[0].evidence)[0] == CHEAT


def test_a_peer_that_was_away_names_without_proof_what_the_others_found():
    setup, network = trained(LIES["huge update"])
    away = HONEST[0]
    rest = {p: setup.namer(p, s) for p, s in network.sessions.items() if p != away}
    wire = Wire()
    naming = Network(wire, rest).run(until=500)
    naming.sessions[away] = setup.namer(away, network.sessions[away])
    naming.start(away)
    naming.run(until=1000)
    assert naming.sessions[away].named == {CHEAT}
    assert {b.peer for b in naming.blames[away]} == {CHEAT}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("pdlrecover", SETTINGS),
        ("pdlrecover", OPENED_PAIRS),
        ("historical", SETTINGS),
        ("retrain", SETTINGS),
        ("delta-grad", SETTINGS),
        ("fedrecovery", SETTINGS),
        ("distillation", SETTINGS),
    ],
)
def test_void_rounds_of_the_training_are_not_replayed(method, settings, monkeypatch):
    """The stored sums of a void round are never opened, though the cheat is removed."""
    rounds, asked, read = (1, 4, 8), set(), TrainingRounds.shares
    setup, network = trained(LIES["sum of weights is 0"], rounds, length=14)

    def shares(history, t, dealers):
        asked.add(t)
        return read(history, t, dealers)

    monkeypatch.setattr(TrainingRounds, "shares", shares)
    recovery = setup.recover(network, (CHEAT,), method=method, settings=settings, until=2000)
    assert np.isfinite(same_models(recovery, HONEST)).all()
    assert 0 in asked
    assert not asked.intersection(rounds)


def test_a_void_round_of_a_recovery_is_passed_over_and_its_dealer_named():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(rounds=14)
    recovery = setup.recover(network, (0,), run=False)
    lying(recovery, LIES["sum of weights is 0"], rounds=(3, 13))
    recovery.run(until=2000)
    assert np.isfinite(same_models(recovery)).all()
    assert {v.round for v in recovery.sessions[1].driver.void} <= {3, 13}
    assert 13 in {v.round for v in recovery.sessions[1].driver.void}
    naming = setup.name(recovery, until=500)
    assert all(naming.sessions[p].named == {CHEAT} for p in recovery.sessions)


def test_a_stored_sum_that_is_void_without_its_removed_accomplice_is_not_used():
    """Two cheats deal weights that cancel out; with one of them gone, the other's is left."""
    setup, other = Setup(PEERS, TOLERANCE), 0
    network = setup.train(rounds=14, run=False)
    lying(network, weighing(lambda others: 100 * ONE), rounds=range(1, 14))
    lying(network, weighing(lambda others: ONE - 100 * ONE), rounds=range(1, 14), cheat=other)
    network.run(until=500)
    assert not network.sessions[1].driver.void
    recovery = setup.recover(network, (other,), run=False)
    recovery.run(until=2000)
    assert np.isfinite(same_models(recovery)).all()
    assert recovery.sessions[1].driver.void


def test_sketches_are_of_zeros_and_signs_and_follow_from_the_seed():
    first, again = (vectors_of("sketches", 4001, b"seed") for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, vectors_of("sketches", 4001, b"other"))
    assert not first[:, -1].any()
    counts = {value: int((first[:, :-1] == value).sum()) for value in (-1, 0, 1)}
    assert sum(counts.values()) == SKETCHES * 4000
    # Each count is binomial; 5 standard deviations are exceeded with a chance of 6·10⁻⁷.
    assert abs(counts[0] - 16000) < 5 * 90
    assert abs(counts[1] - 8000) < 5 * 78


def test_the_run_of_a_naming_is_named_by_the_run_and_the_step():
    setup, network = trained(LIES["sum of weights is 0"], rounds=(1, 2))
    first, second = network.sessions[0].driver.void_rounds
    assert first.naming != second.naming
    assert {s.driver.void_rounds[0].naming for s in network.sessions.values()} == {first.naming}
    assert setup.name(network, which=1).sessions[0].named == {CHEAT}


def test_a_naming_goes_on_after_all_were_killed_in_its_midst():
    """They had dealt masks, and perhaps voted: nobody contradicts itself."""
    setup, network = trained(LIES["huge update"])
    for stop_at in (0.06, 0.1, 0.2):
        sessions = {p: setup.namer(p, each) for p, each in network.sessions.items()}
        Network(Wire(seed=7), sessions).run(until=stop_at)
    naming = setup.name(network, until=500)
    assert all(naming.sessions[p].named == {CHEAT} for p in HONEST)
    assert naming.blamed() == {CHEAT}


def test_somebody_is_looked_for_again_once_who_was_found_is_removed():
    """A cheat whose wrong weight hid another's update is not in these rounds any more."""
    everybody = frozenset(range(PEERS))
    voids = [
        VoidRound(run=TRAINING, step=t, round=t, dealers=dealers, seed=bytes(32))
        for t, dealers in enumerate([everybody] * 5 + [everybody - {CHEAT}] * 5)
    ]

    def rounds(*removals):
        return [each.round for each in looked_into(voids, map(frozenset, removals))]

    assert rounds() == [0, 1, 2]
    assert rounds({CHEAT}) == [0, 1, 2, 5, 6, 7]
    assert rounds({CHEAT}, {CHEAT}, {0}) == [0, 1, 2, 5, 6, 7]
