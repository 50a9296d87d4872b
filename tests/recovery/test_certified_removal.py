"""Certified removal against a second computation of the same, in plain loops over the samples."""

import math
from dataclasses import replace

import numpy as np
import pytest
import small
import torch
from torch import nn

from pdlrecover.adversary import LabelFlip
from pdlrecover.errors import ModelError, PlanError
from pdlrecover.federation import Federation
from pdlrecover.field import Seeded
from pdlrecover.learning import LinearHead
from pdlrecover.recovery import certified_removal as module
from pdlrecover.recovery.certified_removal import RemovalOptions, certified_removal
from pdlrecover.recovery.methods import Settings
from pdlrecover.recovery.noise import gaussian

L2 = 1e-2
CLASSES, FEATURES = 3, 4


def logistic(**arguments):
    """Return a trained federation of 8 peers whose model is one linear layer."""
    datasets = [small.points(seed=peer, count=20 + peer) for peer in range(small.PEERS)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(3, CLASSES)
    made = Federation.simulate(
        layer, datasets, small.TOLERANCE, batch_size=8, seed=3, clear=True, **arguments
    )
    made.train(5, 0.3)
    return made


def samples_of(peers, flipped=()):
    """Return (z, y) of all samples of these peers: inputs and a 1, divided by their length."""
    out = []
    for peer in peers:
        for x, y in zip(*small.points(seed=peer, count=20 + peer), strict=True):
            u = np.array([*x.astype(float), 1.0])
            label = CLASSES - 1 - int(y) if peer in flipped else int(y)
            out.append((u / math.sqrt(sum(v * v for v in u)), label))
    return out


def slopes(samples, c, w, b):
    """Return gradient and Hessian of class c's objective at w, one sample after the other."""
    gradient = L2 * len(samples) * w + b
    hessian = L2 * len(samples) * np.eye(FEATURES)
    for z, y in samples:
        sign = 1.0 if y == c else -1.0
        wrong = 1 / (1 + math.exp(sign * float(w @ z)))
        gradient = gradient - sign * wrong * z
        hessian = hessian + wrong * (1 - wrong) * np.outer(z, z)
    return gradient, hessian


def minimum(samples, b):
    """Return where every class's gradient vanishes."""
    head = np.zeros((CLASSES, FEATURES))
    for c in range(CLASSES):
        for _ in range(30):
            gradient, hessian = slopes(samples, c, head[c], b[c])
            step = np.linalg.inv(hessian) @ gradient
            head[c] -= step / max(1.0, np.linalg.norm(step))
        assert np.linalg.norm(slopes(samples, c, head[c], b[c])[0]) < 1e-9
    return head


def removed_by_hand(everybody, kept, removed, b):
    """Return w* and w⁻."""
    zero = np.zeros(FEATURES)
    first = minimum(everybody, b)
    after = first.copy()
    for c in range(CLASSES):
        gradient, _ = slopes(removed, c, first[c], zero)
        _, hessian = slopes(kept, c, first[c], zero)
        after[c] += np.linalg.inv(hessian) @ gradient
    return first, after


def removal(federation, options):
    """Return the head that the simulation comes to with noise of seed 7, and its ledger."""
    method = certified_removal(federation.original, options, Seeded(7))
    outcome = federation._simulation.drive(method, kept=range(2, 8))
    places = LinearHead(federation.simulated_peers.updates.model).places
    return outcome.model[places], outcome.ledger


ONE_STEP = RemovalOptions(l2=L2, perturbation=0.0, budget=math.inf)
NOTHING = np.zeros((CLASSES, FEATURES))
EVERYBODY, KEPT, REMOVED = (samples_of(p) for p in (range(8), range(2, 8), range(2)))


def test_the_newton_step_equals_the_one_by_hand_and_comes_close_to_retraining():
    found, _ = removal(logistic(), ONE_STEP)
    first, after = removed_by_hand(EVERYBODY, KEPT, REMOVED, NOTHING)
    np.testing.assert_allclose(found, after, atol=1e-6)
    retrained = minimum(KEPT, NOTHING)
    assert np.linalg.norm(found - retrained) < 0.1 * np.linalg.norm(first - retrained)


def test_the_objective_is_perturbed_by_the_noise():
    found, _ = removal(logistic(), replace(ONE_STEP, perturbation=2.0))
    b = 2.0 * gaussian(Seeded(7), CLASSES, FEATURES)
    _, after = removed_by_hand(EVERYBODY, KEPT, REMOVED, b)
    np.testing.assert_allclose(found, after, atol=1e-6)
    _, without = removed_by_hand(EVERYBODY, KEPT, REMOVED, NOTHING)
    assert np.linalg.norm(after - without) > 0.1


def bounds_by_hand(first, after):
    """Return ‖Δ‖·‖XΔ‖·‖X‖₂/4 of every class."""
    x = np.array([z for z, _ in KEPT])
    largest = np.linalg.svd(x)[1][0]
    changes = after - first
    return [np.linalg.norm(d) * np.linalg.norm(x @ d) * largest / 4 for d in changes]


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_what_is_left_of_the_gradient_keeps_to_its_bound(scale):
    b = scale * gaussian(Seeded(7), CLASSES, FEATURES)
    first, after = removed_by_hand(EVERYBODY, KEPT, REMOVED, b)
    for c, bound in enumerate(bounds_by_hand(first, after)):
        left = np.linalg.norm(slopes(KEPT, c, after[c], b[c])[0])
        before = np.linalg.norm(slopes(KEPT, c, first[c], b[c])[0])
        assert 0 < left <= bound
        assert left < 0.2 * before


@pytest.mark.parametrize("beyond", [False, True])
def test_past_the_budget_it_trains_again_without_the_removed(beyond):
    """The budget is set a millionth above, or below, what is left: so that sum is checked too."""
    federation = logistic()
    source = Seeded(7)
    b, again = (gaussian(source, CLASSES, FEATURES) for _ in range(2))
    first, after = removed_by_hand(EVERYBODY, KEPT, REMOVED, b)
    left = sum(bounds_by_hand(first, after))
    budget = left * (1 - 1e-6 if beyond else 1 + 1e-6)
    found, ledger = removal(federation, RemovalOptions(l2=L2, perturbation=1.0, budget=budget))
    expected = minimum(KEPT, again) if beyond else after
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (ledger.openings["head sums (kept)"] > 2) == beyond
    assert ledger.openings["head sums (removed)"] == 1


def test_the_budget_follows_from_epsilon_and_delta():
    options = RemovalOptions(perturbation=4.0, epsilon=0.5, delta=1e-3)
    c = 4.0 * 0.5 / options.allowed
    assert 1.5 * math.exp(-(c**2) / 2) == pytest.approx(1e-3)
    assert RemovalOptions(budget=0.0).allowed == 0
    defaults = RemovalOptions()
    assert (defaults.l2, defaults.perturbation) == (1e-3, 10.0)


def test_poisoned_data_is_trained_on_and_taken_out():
    federation = logistic(malicious=small.REMOVED, attack=LabelFlip(classes=CLASSES))
    found, _ = removal(federation, ONE_STEP)
    everybody, removed = (samples_of(p, flipped=small.REMOVED) for p in (range(8), range(2)))
    first, after = removed_by_hand(everybody, KEPT, removed, NOTHING)
    np.testing.assert_allclose(found, after, atol=1e-6)
    retrained = minimum(KEPT, NOTHING)
    assert np.linalg.norm(found - retrained) < 0.5 * np.linalg.norm(first - retrained)


def test_of_a_network_only_the_last_layer_changes():
    federation = small.trained(clear=True)
    state = federation.recover(
        small.REMOVED, "certified-removal", reason="malicious", settings=small.SETTINGS
    )
    original = federation.original.models[-1]
    places = LinearHead(federation.simulated_peers.updates.model).places
    changed = np.flatnonzero(state.weights != original)
    assert set(changed) == set(places.ravel().tolist())
    assert np.isfinite(state.weights).all()


def test_the_replaced_layer_names_the_right_classes():
    federation = small.trained(clear=True, malicious=small.REMOVED, attack=LabelFlip(classes=3))
    settings = Settings(own=(RemovalOptions(perturbation=0.0),))
    state = federation.recover(
        small.REMOVED, "certified-removal", reason="malicious", settings=settings
    )
    assert state.accuracy(*small.points(seed=99, count=200)) > 0.95


def test_the_ledger_says_whose_data_was_looked_at():
    _, ledger = removal(logistic(), ONE_STEP)
    record = ledger.record()
    assert set(record["opened"]) == {f"head sums ({of})" for of in ("all", "kept", "removed")}
    assert record["opened"]["head sums (all)"]["of"] == "all 8 peers together"
    assert record["opened"]["head sums (removed)"]["of"] == "the removed peers together"
    trained = ledger.openings["head sums (all)"]
    assert ledger.openings["head sums (kept)"] == 2
    assert ledger.gradient_evaluations == 8 * trained + 2 * 6 + 2
    assert ledger.exact_rounds == 0
    assert ledger.numbers["head sums (removed)"] == 3 * (1 + 4 + 10) + 1
    assert ledger.seconds["gradient"] > 0


def test_noise_is_the_systems_unless_a_seed_is_set():
    federation = logistic()

    def twice(settings):
        return [
            federation.recover(
                small.REMOVED, "certified-removal", reason="malicious", settings=settings
            ).weights
            for _ in range(2)
        ]

    first, second = twice(Settings())
    assert not np.array_equal(first, second)
    first, second = twice(Settings(noise_seed=3))
    np.testing.assert_array_equal(first, second)


HARD = RemovalOptions(l2=1e-4, perturbation=20.0, budget=0.0)
"""Little regularisation and a strong push: whole Newton steps overshoot."""


def test_the_optimum_is_found_where_whole_newton_steps_overshoot():
    federation = logistic()
    found, _ = removal(federation, HARD)
    source = Seeded(7)
    b = [20.0 * gaussian(source, CLASSES, FEATURES) for _ in range(2)][1]
    sums = federation.simulated_peers.head_sums(federation.original.models[-1], found, range(2, 8))
    left = sums.gradient + HARD.l2 * sums.samples * found + b
    assert np.linalg.norm(left) <= 1e-10 * sums.samples


def test_an_optimum_that_is_not_found_is_no_result(monkeypatch):
    monkeypatch.setattr(module, "_HALVINGS", 1)
    with pytest.raises(PlanError, match="did not come to its optimum in 100 steps"):
        removal(logistic(), HARD)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"l2": 0.0}, "needs l2 > 0"),
        ({"perturbation": -1.0}, "a perturbation of at least 0"),
        ({"delta": 0.0}, "0 < delta < 1, got 1.0 and 0.0"),
        ({"budget": math.nan}, "must be at least 0, got nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(values, message):
    with pytest.raises(PlanError, match=message):
        RemovalOptions(**values)


def test_a_model_without_a_linear_layer_is_refused():
    datasets = [small.points(seed=peer) for peer in range(small.PEERS)]
    convolution = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 3), nn.Flatten())
    federation = Federation.simulate(
        convolution, datasets, small.TOLERANCE, batch_size=8, clear=True
    )
    federation.train(2, 0.1)
    with pytest.raises(ModelError, match=r"has no nn\.Linear"):
        federation.recover(small.REMOVED, "certified-removal")


def test_a_model_that_diverged_is_refused():
    network = small.trained(clear=True, rounds=2)
    run = replace(network.original, models=[np.full(38, np.nan)] * 2)
    with pytest.raises(ModelError, match="its training has diverged"):
        network._simulation.drive(certified_removal(run), kept=range(2, 8))


def test_on_shares_it_is_refused_before_anything_is_computed(monkeypatch):
    federation = small.trained(rounds=2)
    monkeypatch.setattr(federation._simulation, "drive", lambda *a, **k: pytest.fail("driven"))
    with pytest.raises(PlanError, match="Hessians over peers' whole data, which are never opened"):
        federation.recover(small.REMOVED, "certified-removal")
