from dataclasses import replace

import numpy as np
import pytest
import simulated

from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import (
    Estimate,
    Sureness,
    excess,
    held_out_weights,
    losses,
    ratio,
    with_forgetting,
)
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.experiment.world import build
from pdlrecover.learning import mean_loss


def drawn(seed, knows=0.0, quality=0.0, samples=4000):
    """Return how sure a model is: x's own ease, some noise of its own, and what it knows of P."""
    ease = np.random.default_rng(0).uniform(0.2, 0.8, size=2 * samples)
    noise = np.random.default_rng(seed).normal(scale=0.05, size=2 * samples)
    sure = quality + (1 - quality) * ease + noise
    return Sureness(removed=sure[:samples] + knows, held_out=sure[samples:])


EVEN = np.full(4000, 1 / 4000)


def found(model, seed=0, references=2):
    known = Sureness.mean([drawn(1000 * (1 + seed) + r) for r in range(references)])
    return excess(model, known, EVEN)


def test_models_that_never_saw_the_data_score_zero_within_two_errors_however_good_they_are():
    scores = [found(drawn(seed, quality=0.2 * (seed % 4)), seed) for seed in range(1, 201)]
    ratios = [each.value / each.error for each in scores]
    assert sum(abs(each) > 2 for each in ratios) < 22  # 4.6% are expected; false alarm below 1e-3
    assert 0.8 < np.std(ratios) < 1.2
    assert abs(np.mean(ratios)) < 0.3


def test_what_a_model_knows_of_the_removed_samples_is_its_excess():
    score = found(drawn(1, knows=0.01))
    assert score.value == pytest.approx(0.01, abs=3 * score.error)
    assert score.value > 5 * score.error


def test_held_out_samples_count_by_their_weights():
    model, known = drawn(1), drawn(2)
    half = np.where(np.arange(4000) < 2000, 1 / 2000, 0.0)
    first = Sureness(removed=model.removed, held_out=model.held_out[:2000])
    second = Sureness(removed=known.removed, held_out=known.held_out[:2000])
    weighted, cut = excess(model, known, half), excess(first, second, half[:2000])
    assert weighted.value == pytest.approx(cut.value)
    assert weighted.error == pytest.approx(cut.error)


def test_a_model_that_has_diverged_has_no_excess():
    model = drawn(1)
    lost = np.full_like(model.removed, np.nan)
    assert found(Sureness(removed=lost, held_out=model.held_out)) is None
    assert found(Sureness(removed=model.removed, held_out=lost)) is None


def estimate(value, error):
    return Estimate(value=value, error=error)


def test_the_share_that_is_remembered_carries_both_errors():
    share = ratio(estimate(0.2, 0.03), estimate(0.4, 0.04))
    assert share.value == pytest.approx(0.5)
    assert share.error == pytest.approx(np.hypot(0.03, 0.5 * 0.04) / 0.4)
    assert str(share) == "0.50 ± 0.09"
    assert str(ratio(estimate(-0.001, 0.03), estimate(0.4, 0.04))) == "0.00 ± 0.08"


def test_no_share_is_given_where_the_original_may_remember_nothing():
    assert ratio(estimate(0.1, 0.1), estimate(0.4, 0.21)) is None
    assert ratio(estimate(0.1, 0.1), estimate(-0.4, 0.01)) is None


def test_the_original_is_one_and_what_is_not_scored_has_no_share():
    names = ("poisoned", "retrain", "certified-removal")
    methods = {name: simulated.entry(0.9) for name in names}
    scores = {name: estimate(0.4, 0.04) for name in names}
    scored = with_forgetting(methods, scores)
    assert (scored["poisoned"].remembered, scored["poisoned"].remembered_error) == (1, 0)
    assert (scored["retrain"].excess, scored["retrain"].remembered) == (0.4, 1)
    assert scored["retrain"].remembered_error > 0.1
    assert scored["certified-removal"].excess is scored["certified-removal"].remembered is None
    assert with_forgetting(methods, {})["retrain"].remembered is None


def test_success_is_given_above_that_of_retraining():
    methods = {
        name: simulated.entry(0.9, success)
        for name, success in {"poisoned": 0.9, "retrain": 0.25, "x": 0.5}.items()
    }
    assert with_forgetting(methods, {})["x"].attack_success_above_retrain == 0.25
    del methods["retrain"]
    assert with_forgetting(methods, {})["x"].attack_success_above_retrain is None


@pytest.mark.slow
def test_fine_tuning_remembers_the_leavers_and_retraining_does_not(tmp_path):
    config = Config(
        leavers=4,
        rounds=100,
        optimizer="adam",
        learning_rate=0.01,
        clear=True,
        methods=("retrain", "fine-tune-k:rounds=10", "accelerated-retrain"),
    )
    methods = run(config, tmp_path).methods
    tuned = methods["fine-tune-k:rounds=10"]
    assert tuned.remembered - 2 * tuned.remembered_error > 0
    for name in ("retrain", "accelerated-retrain"):
        assert abs(methods[name].remembered) < 2 * methods[name].remembered_error
    assert len(list((tmp_path / "models").glob("reference-*.safetensors"))) == config.references


def test_nothing_is_measured_without_references_leavers_or_retraining(tmp_path):
    plain = Config(peers=6, leavers=2, rounds=4, model="mlp-8", clear=True, methods=("retrain",))
    for place, changes in enumerate(
        ({"references": 0}, {"leavers": 0, "malicious": 2}, {"methods": ("accelerated-retrain",)})
    ):
        out = tmp_path / str(place)
        found = run(replace(plain, **changes), out).methods
        assert all(one.excess is one.remembered is None for one in found.values())
        assert not list((out / "models").glob("reference-*"))


def test_undetected_attackers_stay_and_accused_honest_ones_go():
    config = Config(malicious=3, undetected=2, accused=3, methods=("retrain",), rounds=20)
    world = build(config)
    assert world.removed == (0, 1, 2, 3, 4, 5)
    assert world.federation.simulated_peers.malicious == (0, 1, 2, 6, 7)
    held = world.federation.simulated_peers.batches.samples_of(world.removed)
    assert len(held) == world.federation.simulated_peers.batches.sizes[:6].sum()
    assert len(np.unique(held)) == len(held)


def test_held_out_data_is_weighted_to_the_removed_peers_classes():
    world = build(Config(leavers=4, degree=0.9, methods=("retrain",), rounds=20))
    simulated_peers, dataset = world.federation.simulated_peers, world.dataset
    weights = np.random.default_rng(0).normal(size=simulated_peers.updates.model.size)
    found = losses(simulated_peers, dataset, world.removed, weights)
    labels = simulated_peers.y[simulated_peers.batches.samples_of(world.removed)].numpy()
    each = [
        mean_loss(
            simulated_peers.updates.model,
            weights,
            dataset.test_x[i : i + 1],
            dataset.test_y[i : i + 1],
        )
        for i in range(len(dataset.test_y))
    ]
    by_class = [np.mean(np.array(each)[dataset.test_y.numpy() == c]) for c in range(10)]
    assert found.held_out_loss == pytest.approx(np.mean(np.array(by_class)[labels]), rel=1e-4)
    even = held_out_weights(simulated_peers, dataset, world.removed)
    assert found.held_out_loss == pytest.approx(even @ np.array(each), rel=1e-4)
    plain = mean_loss(simulated_peers.updates.model, weights, dataset.test_x, dataset.test_y)
    assert found.held_out_loss != pytest.approx(plain, rel=1e-3)
