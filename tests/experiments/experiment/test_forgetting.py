import numpy as np
import pytest
import simulated

from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import losses, remembered, with_forgetting
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.experiment.world import build
from pdlrecover.learning import mean_loss


def entry(held_out, removed, success=None):
    return simulated.entry(0.9, success, held_out_loss=held_out, removed_loss=removed)


def test_the_original_is_one_and_retraining_is_zero():
    original, retrain, half = entry(0.5, 0.1), entry(0.5, 0.5), entry(0.5, 0.3)
    assert remembered(original, original, retrain) == pytest.approx(1)
    assert remembered(retrain, original, retrain) == pytest.approx(0)
    assert remembered(half, original, retrain) == pytest.approx(0.5)


def test_what_cannot_be_told_from_chance_is_not_given():
    same = entry(0.5, 0.5)
    assert remembered(same, entry(0.5, 0.499), same) is None
    assert remembered(same, entry(0.5, None), entry(0.5, None)) is None


def test_success_is_given_above_that_of_retraining():
    methods = {"poisoned": entry(1, 0, 0.9), "retrain": entry(1, 1, 0.25), "x": entry(1, 1, 0.5)}
    assert with_forgetting(methods)["x"].attack_success_above_retrain == 0.25
    del methods["retrain"]
    found = with_forgetting(methods)["x"]
    assert found.attack_success_above_retrain is found.remembered is None


@pytest.mark.slow
def test_fine_tuning_remembers_the_leavers_and_retraining_does_not(tmp_path):
    config = Config(
        peers=10,
        leavers=3,
        rounds=60,
        batch_size=64,
        optimizer="adam",
        learning_rate=0.01,
        degree=0.8,
        model="mlp-64",
        clear=True,
        methods=("retrain", "fine-tune-k"),
    )
    methods = run(config, tmp_path).methods
    assert methods["poisoned"].removed_loss < methods["poisoned"].held_out_loss
    assert methods["retrain"].removed_loss > methods["retrain"].held_out_loss
    assert methods["fine-tune-k"].remembered > 0.4
    assert methods["retrain"].remembered == 0


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
    plain = mean_loss(simulated_peers.updates.model, weights, dataset.test_x, dataset.test_y)
    assert found.held_out_loss != pytest.approx(plain, rel=1e-3)
