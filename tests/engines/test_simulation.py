import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small
import torch

from pdlrecover.adversary import Backdoor, BadUnlearn, LabelFlip, MinMax, SignFlip, Trim
from pdlrecover.engines.simulated_peers import simulate_peers
from pdlrecover.engines.simulation import Simulation
from pdlrecover.engines.sum_store import ClearSums, Faults, SharedSums
from pdlrecover.errors import HistoryError, PlanError, ToleranceError
from pdlrecover.field import F61, Seeded
from pdlrecover.learning import mean_loss
from pdlrecover.recovery.methods import METHODS, Settings
from pdlrecover.recovery.pdlrecover import SGD_BLOCK, Options
from pdlrecover.recovery.requests import (
    Direction,
    Dots,
    Head,
    Individual,
    LastLayer,
    Loss,
    Past,
    PastBlocks,
    Removed,
    Teacher,
    Update,
)
from pdlrecover.sharing import Scheme

SHARED = small.trained()
CLEAR = small.trained(clear=True)


def recovered(federation, method="pdlrecover", settings=small.SETTINGS, **arguments):
    return federation.recover(
        small.REMOVED, method, reason="malicious", settings=settings, **arguments
    )


def test_training_on_shares_and_in_the_clear_is_the_same_to_the_bit():
    assert len(SHARED.history.models) == 41
    for shared, clear in zip(SHARED.original.models, CLEAR.original.models, strict=True):
        np.testing.assert_array_equal(shared, clear)


@pytest.mark.parametrize("method", small.PRIVATE)
def test_every_private_method_on_shares_and_in_the_clear_is_the_same_to_the_bit(method):
    np.testing.assert_array_equal(
        recovered(SHARED, method).weights, recovered(CLEAR, method).weights
    )


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "muon"])
def test_other_optimizers_are_the_same_on_shares_and_in_the_clear(optimizer):
    pair = [small.trained(optimizer=optimizer, rate=0.05, clear=clear) for clear in (True, False)]
    np.testing.assert_array_equal(recovered(pair[0]).weights, recovered(pair[1]).weights)


def test_one_dealing_of_the_sum_opens_to_the_same_as_a_dealing_by_every_peer():
    people, scheme = SHARED.simulated_peers, SHARED.scheme
    w = people.updates.model.initial
    each = people.sums(0, w, [[peer] for peer in range(small.PEERS)])
    sum_store = SharedSums(scheme=scheme, length=people.code.length, responders=tuple(range(8)))
    separate = sum_store.total(sum_store.read(sum_store.deal(each), range(8)))
    (at_once,) = sum_store.read(sum_store.deal(each.sum(axis=0)[None]), [0])
    assert not np.array_equal(separate.values, at_once.values)  # other randomness, other shares
    np.testing.assert_array_equal(sum_store.open(separate), sum_store.open(at_once))
    np.testing.assert_array_equal(sum_store.open(separate), people.sums(0, w, [range(8)])[0])


@pytest.mark.parametrize(
    "faults", [Faults(absent=(5,)), Faults(liars=(3,)), Faults(absent=(7,), liars=(4,))]
)
def test_absent_and_lying_peers_change_nothing(faults):
    plain = recovered(SHARED).weights
    np.testing.assert_array_equal(recovered(SHARED, faults=faults).weights, plain)


def test_liars_are_caught():
    people = SHARED.simulated_peers
    sum_store = SharedSums(
        scheme=SHARED.scheme,
        length=people.code.length,
        responders=tuple(range(8)),
        faults=Faults(liars=(6,)),
    )
    sums = people.sums(0, people.updates.model.initial, [range(8)])
    (held,) = sum_store.read(sum_store.deal(sums), [0])
    np.testing.assert_array_equal(sum_store.open(held), sums[0])
    assert sum_store.caught == {6}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_opened_pairs_without_blocks_agree_to_the_fixed_point_step(optimizer):
    federation = small.trained(optimizer=optimizer, rate=0.3 if optimizer == "sgd" else 0.03)
    options = Options(schedule=small.SETTINGS.options.schedule, block=1)
    shared = recovered(federation, settings=Settings(options=options))
    opened = recovered(federation, settings=Settings(options=replace(options, open_pairs=True)))
    # One step of 2^−20 in each of 40 rounds' updates, through a rate below 1.
    np.testing.assert_allclose(opened.weights, shared.weights, atol=40 * 2.0**-20)
    assert not np.array_equal(opened.weights, federation.original.models[-1])


def test_with_nobody_removed_recovery_is_training():
    state = SHARED.run_method([], "pdlrecover", settings=small.SETTINGS)
    np.testing.assert_array_equal(state.weights, SHARED.original.models[-1])


def test_the_ledger_counts_what_was_opened():
    ledger = recovered(SHARED).ledger
    exact = small.SETTINGS.options.schedule.exact_rounds(40)
    assert ledger.exact_rounds == exact
    assert ledger.gradient_evaluations == 6 * exact
    assert ledger.openings["fresh sums"] == exact
    blocks = ledger.openings["directions"]
    assert (40 - exact) / SGD_BLOCK <= blocks < 40 - exact
    d = SHARED.simulated_peers.updates.model.size
    assert ledger.numbers["directions"] == blocks * (d + 1)
    assert set(ledger.openings) == {"fresh sums", "directions", "dot products"}
    record = ledger.record()
    assert record["opened"]["directions"]["of"] == "6 kept peers together"
    seconds = record["seconds"]
    assert seconds["total"] == pytest.approx(
        sum(seconds[part] for part in ("gradient", "dealing", "opening", "estimation"))
    )


def test_every_local_step_counts_as_a_gradient():
    federation = small.federation(local_steps=3)
    federation.train(4, 0.1)
    for method, steps in (("retrain", 3), ("accelerated-retrain:rounds=4+local_steps=2", 2)):
        ledger = federation.recover(small.REMOVED, method, reason="malicious").ledger
        assert ledger.gradient_evaluations == 4 * steps * ledger.kept


def test_bytes_in_the_ledger_are_counted_per_message():
    ledger = recovered(SHARED, "historical").ledger
    blocks = SHARED.scheme.quorums.blocks(SHARED.simulated_peers.code.length)
    assert ledger.bytes_per_peer == 40 * 5 * 8 * blocks  # to the five other kept peers


def one_request(request):
    yield request
    return np.zeros(1)


def two_requests(first, second):
    yield first
    yield second
    return np.zeros(1)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Update(round=0, at=np.zeros(38), of=(0, 1)), "1 colluders .* out of a sum over 2 peers"),
        (Individual(round=0), "single peers' updates, which are never opened on shares"),
        (Loss(round=0), "training losses, which peers that share updates keep to themselves"),
        (
            Head(at=np.zeros(38), head=np.zeros((3, 6)), of="all"),
            "Hessians over peers' whole data, which are never opened on shares",
        ),
        (Past(rounds=(99,)), "round 99 was asked for"),
        (Dots(pairs=(1,), vectors=np.ones((1, 38))), "no pair of round 1"),
        (Direction(rounds=(0,), pairs=(1,), coefficients=(1.0,)), "no pair of round 1"),
        (Direction(rounds=(0,), pairs=(), coefficients=(1e9,)), "do not fit the encoding"),
    ],
)
def test_requests_that_cannot_be_answered_say_why(request_, message):
    engine = SHARED._simulation
    with pytest.raises(PlanError, match=message):
        engine.drive(one_request(request_), kept=range(2, 8))


def answer_of(request, **arguments):
    """Return what the engine in the clear answers, and the ledger."""
    answers = []

    def ask():
        answers.append((yield request))
        return np.zeros(1)

    federation = small.trained(clear=True, cohorts=[[0, 1], range(2, 8)], **arguments)
    ledger = federation._simulation.drive(ask(), kept=range(2, 8)).ledger
    return federation, answers[0], ledger


def test_stored_individual_updates_add_up_to_the_stored_sum():
    federation, found, ledger = answer_of(Individual(round=7))
    _, total, _ = answer_of(Past(rounds=(7,)))
    assert found.values.shape == (6, federation.simulated_peers.updates.model.size)
    np.testing.assert_allclose(found.total.values, total.values, atol=6 * 2.0**-20)
    assert found.total.weight == pytest.approx(total.weight, abs=1e-5)
    assert ledger.openings["individual"] == 6
    assert ledger.gradient_evaluations == ledger.exact_rounds == 0
    assert ledger.record()["individual_storage_bytes"] == 6 * 4 * found.values.shape[1]
    assert ledger.seconds["gradient"] == 0


def test_fresh_individual_updates_cost_gradients_of_those_asked():
    w = np.zeros(38)
    federation, found, ledger = answer_of(Individual(round=7, at=w, of=(0, 3)))
    expected = federation.simulated_peers.dealt(7, w, [2, 5], "recovery").numpy()
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    assert (ledger.gradient_evaluations, ledger.exact_rounds) == (2, 0)
    _, _, whole = answer_of(Individual(round=7, at=w))
    assert (whole.gradient_evaluations, whole.exact_rounds) == (6, 1)


def test_a_sum_over_some_of_the_kept_peers_is_theirs_and_counted_apart():
    w = np.zeros(38)
    federation, found, ledger = answer_of(Update(round=7, at=w, of=(0, 3)))
    expected = federation.simulated_peers.dealt(7, w, [2, 5], "recovery").numpy().sum(axis=0)
    np.testing.assert_allclose(found.values, expected, atol=2 * 2.0**-20)
    assert dict(ledger.openings) == {"group sums": 1}
    assert (ledger.gradient_evaluations, ledger.exact_rounds) == (2, 0)
    assert ledger.totals().opened["group sums"].of == "at least 2 kept peers together"
    whole = answer_of(Update(round=7, at=w))[2].bytes_per_peer
    assert ledger.bytes_per_peer == whole // 2 + whole // 2 // 3  # all open, a third of them deal


def test_what_a_training_in_groups_would_have_opened_costs_nothing():
    _, found, ledger = answer_of(Update(round=7, at=np.zeros(38), of=(0, 3), before=True))
    assert found.values.any()
    assert dict(ledger.openings) == {"group sums (training)": 1}
    assert ledger.gradient_evaluations == ledger.bytes_per_peer == ledger.seconds["gradient"] == 0


def test_with_a_teacher_its_predictions_take_the_place_of_the_labels():
    """At the teacher itself, at temperature 1, the predictions are right and nothing changes."""
    teacher = CLEAR.original.models[-1]
    for other, still in ((teacher, True), (np.zeros(38), False)):
        asked = Update(round=7, at=teacher, teacher=Teacher(models=(other,)))
        _, found, ledger = answer_of(asked)
        assert (np.abs(found.values).max() < 1e-5) == still
        assert dict(ledger.openings) == {"fresh sums": 1}
    method = two_requests(asked, Dots(pairs=(7,), vectors=np.ones((1, 38))))
    with pytest.raises(PlanError, match="no pair of round 7"):
        CLEAR._simulation.drive(method, kept=range(2, 8))


def test_everybodys_stored_updates_are_the_removed_peers_too():
    federation, found, ledger = answer_of(Individual(round=0, everybody=True))
    at = federation.history.models[0]
    expected = federation.simulated_peers.dealt(0, at, range(8), "training").numpy()
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    assert (ledger.openings["individual"], ledger.gradient_evaluations) == (8, 0)


def test_an_attacker_among_the_kept_sees_everybodys_updates():
    federation, found, _ = answer_of(
        Individual(round=3, of=(4,)), malicious=(6,), attack=Backdoor(trigger=lambda x: -x)
    )
    at = federation.history.models[3]
    everybody = federation.simulated_peers.dealt(3, at, range(8), "training").numpy()
    np.testing.assert_allclose(found.values[0], everybody[6], atol=1e-6)


@pytest.mark.parametrize(
    "then", [SignFlip(scale=3.0), Trim(), MinMax(), Backdoor(trigger=lambda x: -x, target=1)]
)
def test_attackers_who_wait_train_honestly_to_the_last_bit_and_spoil_the_recovery(then):
    honest = small.trained(clear=True)
    waiting = small.trained(clear=True, malicious=(3, 6), attack=BadUnlearn(then=then))
    for ours, theirs in zip(honest.original.models, waiting.original.models, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(
        recovered(honest, "historical").weights, recovered(waiting, "historical").weights
    )
    for method in ("retrain", "pdlrecover"):
        ours, theirs = recovered(honest, method), recovered(waiting, method)
        assert np.linalg.norm(ours.weights - theirs.weights) > 0.01


def test_several_blocks_at_once_are_the_same_numbers_as_one_by_one():
    _, found, ledger = answer_of(PastBlocks(blocks=((5, 6), (8,))))
    for blocks, total in zip(((5, 6), (8,)), found, strict=True):
        _, alone, each = answer_of(Past(rounds=blocks))
        np.testing.assert_array_equal(total.values, alone.values)
        assert total.weight == alone.weight
    assert ledger.openings["stored sums"] == 2 * each.openings["stored sums"] == 2
    assert ledger.numbers["stored sums"] == 2 * each.numbers["stored sums"]
    assert ledger.bytes_per_peer == 2 * each.bytes_per_peer


def test_the_removed_peers_sum_is_the_rest():
    _, removed, ledger = answer_of(Removed(rounds=(5, 6)))
    _, kept, _ = answer_of(Past(rounds=(5, 6)))
    federation = small.trained(clear=True)
    with_all = federation._simulation
    answers = []

    def ask():
        answers.append((yield Past(rounds=(5, 6))))
        return np.zeros(1)

    with_all.drive(ask(), kept=range(8))
    np.testing.assert_allclose(removed.values + kept.values, answers[0].values, atol=1e-9)
    assert ledger.record()["opened"]["removed sums"]["of"] == "the removed peers together"


def test_a_training_loss_is_the_weighted_mean_over_the_kept_peers_minibatches():
    federation, found, ledger = answer_of(Loss(round=9), l2=0.1)
    people, w = federation.simulated_peers, federation.history.models[9]
    flat, total = people.updates.model, 0.0
    for peer in range(2, 8):
        x, y = people.batches.take(people.x, people.y, [peer], 9)
        total += people.updates.weights[peer] * mean_loss(flat, w, x[0], y[0])
    expected = total / people.updates.weights[2:].sum() + 0.05 * w @ w
    assert found == pytest.approx(expected, rel=1e-6)
    assert ledger.record()["opened"] == {
        "losses": {"openings": 1, "numbers": 1, "of": "6 kept peers together"}
    }
    assert ledger.bytes_per_peer == ledger.gradient_evaluations == 0


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if not entry.private])
def test_shares_refuse_methods_that_need_single_updates_before_computing(method):
    with pytest.raises(PlanError, match=f"{method} needs {METHODS[method].needs}, which are never"):
        recovered(SHARED, method)


def test_asking_for_the_removed_where_nobody_is_says_so():
    with pytest.raises(PlanError, match="sums of the removed peers, and no peer is"):
        SHARED._simulation.drive(one_request(Removed(rounds=(0,))), kept=range(8))


def test_liars_that_were_found_out_are_in_the_ledger():
    assert recovered(SHARED, faults=Faults(liars=(6,))).ledger.record()["liars"] == [6]


def test_nobody_can_lie_in_the_clear():
    with pytest.raises(PlanError, match="none can be absent or lie; leave the faults out"):
        recovered(small.trained(clear=True, rounds=12), faults=Faults(absent=(6,)))


def test_everybody_knows_where_the_last_layer_stands():
    _, places, ledger = answer_of(LastLayer())
    assert places.tolist() == [[*range(20 + 5 * c, 25 + 5 * c), 35 + c] for c in range(3)]
    assert not ledger.openings


@pytest.mark.parametrize(
    ("of", "peers", "told"),
    [
        ("kept", range(2, 8), "6 kept peers together"),
        ("removed", range(2), "the removed peers together"),
        ("all", range(8), "all 8 peers together"),
    ],
)
def test_head_sums_are_over_all_that_these_peers_hold(of, peers, told):
    head = np.linspace(-1, 1, 18).reshape(3, 6)
    _, found, ledger = answer_of(Head(at=np.zeros(38), head=head, of=of))
    assert found.samples == sum(20 + peer for peer in peers)
    # At zero weights the features are (0, …, 0, 1) for every sample, whatever its class.
    labels = np.concatenate([small.points(seed=p, count=20 + p)[1] for p in peers])
    for c, score in enumerate(head[:, -1]):
        s, own = 1 / (1 + np.exp(-score)), int((labels == c).sum())
        assert found.losses[c] == pytest.approx(
            -own * np.log(s) - (found.samples - own) * np.log(1 - s)
        )
        assert found.gradient[c] == pytest.approx([0] * 5 + [found.samples * s - own])
        assert found.hessian[c, -1, -1] == pytest.approx(found.samples * s * (1 - s))
        assert np.count_nonzero(found.hessian[c]) == 1
    entry = ledger.record()["opened"][f"head sums ({of})"]
    assert entry == {"openings": 1, "numbers": 3 * (1 + 6 + 21) + 1, "of": told}
    assert ledger.gradient_evaluations == len(peers)
    assert ledger.exact_rounds == 0


def test_malicious_peers_poison_all_they_hold_for_the_head():
    flipped = LabelFlip(classes=3)
    head = np.linspace(-1, 1, 18).reshape(3, 6)
    w = np.linspace(-2, 2, 38)
    sums = {}
    for name, arguments in {
        "clean": {},
        "poisoned": {"malicious": (0,), "attack": flipped},
    }.items():
        people = small.federation(clear=True, **arguments).simulated_peers
        sums[name] = [people.head_sums(w, head, group) for group in ((0,), (1,), (0, 1))]
    x, labels = small.points(seed=0, count=20)
    alone = simulate_peers(
        small.module(),
        torch.from_numpy(x),
        torch.from_numpy(2 - labels),
        [np.arange(20)],
        batch_size=8,
    )
    expected = alone.head_sums(w, head, (0,))
    np.testing.assert_allclose(sums["poisoned"][0].gradient, expected.gradient)
    assert not np.allclose(sums["clean"][0].gradient, expected.gradient)
    np.testing.assert_array_equal(sums["poisoned"][1].gradient, sums["clean"][1].gradient)
    np.testing.assert_allclose(
        sums["poisoned"][2].hessian, sums["poisoned"][0].hessian + sums["poisoned"][1].hessian
    )


def test_asking_for_the_data_of_the_removed_where_nobody_is_says_so():
    request = Head(at=np.zeros(38), head=np.zeros((3, 6)), of="all")
    with pytest.raises(PlanError, match="data of the removed peers, and no peer is"):
        CLEAR._simulation.drive(one_request(request), kept=range(8))


def test_too_few_peers_to_answer_is_refused():
    with pytest.raises(ToleranceError, match="openings need"):
        recovered(SHARED, faults=Faults(absent=(4, 5, 6)))


def test_training_goes_on_where_it_was_interrupted(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(step):
        if step.round == 17:
            raise EnoughError

    first = small.federation(folder=tmp_path)
    with pytest.raises(EnoughError):
        first.train(40, 0.3, observer=stop)
    assert len(first.history.sums) == 18
    second = small.federation(folder=tmp_path)
    second.train(40, 0.3)
    np.testing.assert_array_equal(second.original.models[-1], SHARED.original.models[-1])


def test_a_history_of_another_training_is_not_continued(tmp_path):
    first = small.federation(folder=tmp_path)
    first.train(5, 0.3)
    (tmp_path / "models.bin").write_bytes((tmp_path / "models.bin").read_bytes()[: 5 * 38 * 8])
    second = small.federation(folder=tmp_path)
    with pytest.raises(HistoryError, match="not the one that training came to"):
        second.train(8, 0.2)


def test_clear_dot_products_cannot_overflow():
    held = np.array([[2**40, -(2**40)], [2**39, 2**39]])
    found = ClearSums().dots(list(held), np.array([[2**19, -(2**19)]]))
    assert found.tolist() == [[2**60, 0]]


def test_shares_can_be_seeded():
    people = SHARED.simulated_peers
    sums = people.sums(0, people.updates.model.initial, [range(8)])
    dealt = [
        SharedSums(
            scheme=SHARED.scheme, length=38 + 1, responders=tuple(range(8)), source=Seeded(1)
        ).deal(sums)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(dealt[0].values, dealt[1].values)
    assert F61.elements(dealt[0].values).shape == (1, 8, SHARED.scheme.quorums.blocks(39))


@pytest.mark.slow
def test_the_public_path_has_the_same_bits_with_one_and_with_two_threads():
    """Gradients are each peer's own; what all must agree on is computed from what was opened."""
    script = (
        "import hashlib, numpy as np, torch, sys; sys.path.insert(0, sys.argv[1])\n"
        "torch.set_num_threads(int(sys.argv[2]))\n"
        "from public_path import digest; print(digest())"
    )
    folder = Path(__file__).parent
    digests = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "PDLRECOVER_THREADS": threads, "OMP_NUM_THREADS": threads}
        environment["OPENBLAS_NUM_THREADS"] = threads
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder), threads],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_an_engine_without_history_is_refused():
    fresh = small.federation()
    with pytest.raises(PlanError, match="train the federation first"):
        fresh.recover([0, 1], "retrain")
    assert isinstance(fresh._simulation, Simulation)
    assert isinstance(fresh.scheme, Scheme)


def with_a_lie(monkeypatch, federation, rounds, phase):
    """Let somebody's weight make the sum of weights zero, in some rounds of a phase."""
    people = federation.simulated_peers
    honest = people.sums

    def sums(t, at, groups, now="training", **arguments):
        found = honest(t, at, groups, now, **arguments)
        if t in rounds and now == phase:
            found[0, -1] -= found[:, -1].sum()
        return found

    monkeypatch.setattr(people, "sums", sums)


@pytest.mark.parametrize("clear", [True, False])
def test_a_round_that_somebody_makes_void_leaves_the_model_as_it_was(monkeypatch, clear):
    federation = small.federation(clear=clear)
    with_a_lie(monkeypatch, federation, {3, 9}, "training")
    said = []
    federation.train(12, 0.3, observer=said.append)
    models = federation.history.models
    same = [t for t in range(12) if np.array_equal(models[t], models[t + 1])]
    assert same == [step.round for step in said if step.void] == [3, 9]
    assert np.isfinite(models[12]).all()


@pytest.mark.parametrize("method", small.PRIVATE)
def test_a_void_round_ends_no_recovery(monkeypatch, method):
    federation = small.trained()
    with_a_lie(monkeypatch, federation, {2, 5, 30, 39}, "recovery")
    assert np.isfinite(recovered(federation, method).weights).all()
