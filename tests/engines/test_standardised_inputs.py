"""Inputs brought to one scale in a simulation, and in the models that come of it."""

import json

import numpy as np
import pytest
import safetensors.torch
import small
import torch

from pdlrecover import Federation, load_model
from pdlrecover.adversary import Backdoor
from pdlrecover.adversary.triggers import EveryNth
from pdlrecover.errors import DataError, HistoryError, ModelError, PlanError
from pdlrecover.learning.input_scale import MEAN, InputScale
from pdlrecover.recovery.requests import Moments
from pdlrecover.recovery.standardisation import Standardise

FACTOR = np.array([100, 1e-3, 1], dtype=np.float32)
SHIFT = np.array([50, 7, 5], dtype=np.float32)
ROUNDS = 24


def raw(peer):
    """Return a peer's samples, in units of which no two are of one size."""
    x, y = small.points(seed=peer, count=20 + peer)
    return x * FACTOR + SHIFT, y


DATASETS = [raw(peer) for peer in range(small.PEERS)]
X, Y = (np.concatenate(parts) for parts in zip(*DATASETS, strict=True))


def federation(datasets=DATASETS, standardise=True, **arguments):
    defaults = {"batch_size": 8, "seed": 3, "standardise": standardise}
    return Federation.simulate(
        small.module(), datasets, small.TOLERANCE, **{**defaults, **arguments}
    )


SHARED, CLEAR = federation(), federation(clear=True)
SHARED_MODEL, CLEAR_MODEL = (each.train(ROUNDS, 0.3) for each in (SHARED, CLEAR))


def test_the_scale_is_that_of_all_peers_samples_on_shares_as_in_the_clear():
    scale = SHARED_MODEL.inputs
    np.testing.assert_allclose(scale.mean, X.mean(axis=0, dtype=float), rtol=1e-7)
    np.testing.assert_allclose(scale.std, X.std(axis=0, dtype=float), rtol=1e-5)
    assert scale.digest == CLEAR_MODEL.inputs.digest
    np.testing.assert_array_equal(SHARED_MODEL.weights, CLEAR_MODEL.weights)
    one, two = (each.recover(small.REMOVED) for each in (SHARED, CLEAR))
    np.testing.assert_array_equal(one.weights, two.weights)


def test_training_is_that_on_samples_scaled_by_hand_and_works_where_raw_ones_do_not():
    scale = SHARED_MODEL.inputs
    mapped = [(scale(torch.from_numpy(x)).numpy(), y) for x, y in DATASETS]
    by_hand = federation(mapped, standardise=False).train(ROUNDS, 0.3)
    np.testing.assert_array_equal(by_hand.weights, SHARED_MODEL.weights)
    assert SHARED_MODEL.accuracy(X, Y) > 0.95
    assert federation(standardise=False).train(ROUNDS, 0.3).accuracy(X, Y) < 0.8
    assert SHARED.recover(small.REMOVED, "retrain", reason="malicious").accuracy(X, Y) > 0.95


def test_a_recovery_keeps_the_scale_and_opens_no_statistics():
    recovered = SHARED.recover(small.REMOVED, "auto")
    assert recovered.inputs is SHARED_MODEL.inputs
    assert "statistics" not in recovered.ledger.openings
    opened = SHARED_MODEL.ledger.totals().opened["statistics"]
    assert (opened.openings, opened.numbers) == (2, 8)
    assert opened.of == "8 kept peers together"
    assert "2 sums of inputs, for their scale" in str(SHARED_MODEL)


def test_a_recovery_that_needs_no_training_has_the_scale_of_all_peers():
    alone = federation(clear=True)
    alone.plan(ROUNDS, 0.3, optimizer="sgd")
    assert alone.recover(small.REMOVED, fresh_start=True).inputs.digest == CLEAR_MODEL.inputs.digest


def test_held_out_samples_are_in_no_statistic_and_on_the_same_scale():
    made = federation(held_out=0.3, clear=True)
    model = made.train(ROUNDS, 0.3)
    peers = made.simulated_peers
    x = peers.x[peers.batches.samples_of(range(small.PEERS))].double().numpy()
    np.testing.assert_allclose(model.inputs.mean, x.mean(axis=0), rtol=1e-9)
    rows = np.concatenate(peers.held_out)
    accuracy = model.accuracy(peers.x[rows], peers.y[rows])
    assert model.evaluations[-1].accuracy == pytest.approx(accuracy)


def test_attackers_stamp_samples_as_they_are_and_success_is_measured_on_such():
    attack = Backdoor(trigger=EveryNth(step=3, mean=torch.tensor([0.0, 0.0, -5000.0])), target=0)
    made = federation(clear=True, malicious=(0, 1, 2, 3), attack=attack)
    model = made.train(ROUNDS, 0.3)
    assert made.simulated_peers.x.abs().max() < 5000, "the trigger is on no sample by itself"
    assert model.attack_success(X, Y, attack) > 0.95
    assert CLEAR_MODEL.attack_success(X, Y, attack) < 0.5
    np.testing.assert_array_equal(model.inputs.mean, CLEAR_MODEL.inputs.mean)


def test_a_saved_model_predicts_samples_as_they_are(tmp_path):
    SHARED_MODEL.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", small.module(seed=9))
    assert again.inputs.digest == SHARED_MODEL.inputs.digest
    np.testing.assert_array_equal(again.predict(X), SHARED_MODEL.predict(X))
    assert again.accuracy(X, Y) == SHARED_MODEL.accuracy(X, Y) > 0.95
    assert "standardised" in str(again)
    again.save(tmp_path / "again.safetensors")
    third = load_model(tmp_path / "again.safetensors", small.module())
    np.testing.assert_array_equal(third.predict(X), again.predict(X))


def test_a_program_that_knows_of_no_scale_is_not_led_to_use_other_inputs(tmp_path):
    SHARED_MODEL.save(tmp_path / "model.safetensors")
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"Unexpected key.*input_mean"):
        small.module().load_state_dict(tensors)
    del tensors[MEAN]
    safetensors.torch.save_file(tensors, tmp_path / "half.safetensors")
    with pytest.raises(ModelError, match="damaged"):
        load_model(tmp_path / "half.safetensors", small.module())


def test_a_scale_without_spread_or_of_other_shapes_is_refused():
    for mean, std in (([0.0], [0.0]), ([0.0, 1.0], [1.0]), ([np.nan], [1.0])):
        with pytest.raises(ModelError, match="deviations above 0"):
            InputScale(mean=np.array(mean), std=np.array(std))


def test_a_saved_federation_goes_on_with_the_scale_it_had(tmp_path):
    made = federation(clear=True, folder=tmp_path)
    made.train(ROUNDS, 0.3)
    made.save(tmp_path)
    again = Federation.load(tmp_path, small.module(), DATASETS)
    assert again.standardise == Standardise()
    one, two = (each.recover(small.REMOVED) for each in (made, again))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert two.inputs.digest == CLEAR_MODEL.inputs.digest
    assert "statistics" not in two.ledger.openings
    assert json.loads((tmp_path / "federation.json").read_text())["inputs"]["std"][0] > 100


def test_a_history_of_inputs_as_they_were_is_not_taken_up(tmp_path):
    federation(standardise=False, clear=True, folder=tmp_path).train(ROUNDS, 0.001)
    with pytest.raises(HistoryError):
        federation(clear=True, folder=tmp_path, resume=True)


def test_an_interrupted_training_goes_on_on_the_same_scale(tmp_path):
    def interrupt(step):
        if step.round == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation(clear=True, folder=tmp_path).train(ROUNDS, 0.3, observer=interrupt)
    resumed = federation(clear=True, folder=tmp_path, resume=True).train(ROUNDS, 0.3)
    np.testing.assert_array_equal(resumed.weights, CLEAR_MODEL.weights)


def test_what_is_beyond_the_bound_is_warned_of():
    made = federation(clear=True, standardise=Standardise(bound=200.0))
    beyond = int((np.abs(X) > 200).sum())
    with pytest.warns(UserWarning, match=rf"{beyond} numbers of 8 peers, peer 0 first.*±200"):
        model = made.train(1, 0.3)
    clipped = np.clip(X, -200, 200).astype(float)
    np.testing.assert_allclose(model.inputs.mean, clipped.mean(axis=0), rtol=1e-7)


@pytest.mark.parametrize(("per", "shape"), [("feature", (3,)), ("all", (1,))])
def test_one_scale_may_be_for_all_features(per, shape):
    model = federation(clear=True, standardise=Standardise(per=per)).train(1, 0.3)
    assert model.inputs.mean.shape == shape


def test_images_may_be_scaled_by_channel_and_the_layers_see_them_so():
    rng = np.random.default_rng(0)
    scales = np.array([1, 50])[:, None, None]
    datasets = [
        ((scales * rng.normal(1, 1, (12, 2, 4, 4))).astype(np.float32), np.arange(12) % 3)
        for _ in range(small.PEERS)
    ]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(12, 3)
    )
    made = Federation.simulate(
        model, datasets, small.TOLERANCE, clear=True, standardise=Standardise(per="channel")
    )
    trained = made.train(2, 0.1)
    x = np.concatenate([x for x, _ in datasets])
    assert trained.inputs.std.shape == (2, 1, 1)
    np.testing.assert_allclose(trained.inputs.std.ravel(), x.std(axis=(0, 2, 3)), rtol=1e-5)
    mapped = trained.inputs(torch.from_numpy(x))
    expected = trained.model(mapped).argmax(dim=1).numpy()
    np.testing.assert_array_equal(trained.predict(x), expected)


def test_statistics_are_refused_where_nobody_agreed_on_them():
    made = federation(standardise=False, clear=True)

    def asking():
        yield Moments(order=1, at=np.zeros(3))

    with pytest.raises(PlanError, match="standardise=True"):
        made._simulation.drive(asking(), kept=range(small.PEERS))


def test_a_wrong_choice_is_refused_in_a_sentence():
    with pytest.raises(PlanError, match="standardise must be True, False or Standardise"):
        federation(standardise="yes")
    with pytest.raises(PlanError, match="no channels"):
        federation(standardise=Standardise(per="channel"))


def test_samples_of_another_shape_are_not_stretched_to_that_of_the_scale():
    scale = InputScale(mean=np.zeros(3), std=np.ones(3))
    assert scale(torch.ones(4, 3)).shape == (4, 3)
    for shape in ((4, 1), (1,), ()):
        with pytest.raises(DataError, match=r"means of shape \(3,\)"):
            scale(torch.ones(shape))
    channels = InputScale(mean=np.zeros((2, 1, 1)), std=np.ones((2, 1, 1)))
    assert channels(torch.ones(5, 2, 4, 4)).shape == (5, 2, 4, 4)
    with pytest.raises(DataError, match=r"got samples of shape \(1, 4, 4\)"):
        channels(torch.ones(5, 1, 4, 4))
