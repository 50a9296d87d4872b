import json

import numpy as np
import pytest
import torch

from pdlrecover.errors import PlanError
from pdlrecover.layers import Layer
from pdlrecover.recovery import optimizers
from pdlrecover.recovery.optimizers import SGD, Adam, Muon, Rate

TORCH = {
    "sgd": lambda w: torch.optim.SGD([w], lr=0.1),
    "momentum": lambda w: torch.optim.SGD([w], lr=0.1, momentum=0.9),
    "adam": lambda w: torch.optim.Adam([w], lr=0.1),
}


@pytest.mark.parametrize("name", TORCH)
def test_steps_agree_with_torch(name):
    gradients = np.random.default_rng(0).normal(size=(20, 5))
    theirs = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = TORCH[name](theirs)
    ours, stepper = np.zeros(5), optimizers.build(name, 0.1, rounds=20).start()
    for gradient in gradients:
        theirs.grad = torch.from_numpy(gradient)
        optimizer.step()
        ours = stepper.step(ours, gradient)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-9)


def test_the_metric_is_what_adam_divides_by():
    stepper = Adam(rate=Rate(peak=1.0), beta1=0.0, beta2=0.5, epsilon=0.0).start()
    assert stepper.metric(0.1) is None
    stepper.step(np.zeros(2), np.array([3.0, -4.0]))
    np.testing.assert_allclose(stepper.metric(0.1), [3.1, 4.1])
    assert SGD(rate=Rate(peak=1.0)).start().metric(0.1) is None


def test_a_rate_warms_up_holds_and_falls_to_zero():
    rate = Rate(peak=1.0, warmup=4, hold=0.5, rounds=20)
    assert [rate.at(t) for t in (0, 1, 3, 4, 10)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert rate.at(15) == pytest.approx(0.5)
    assert rate.at(20) == 0.0


@pytest.mark.parametrize("bad", [{"peak": 0.0}, {"peak": float("nan")}, {"peak": 1.0, "hold": 0.5}])
def test_senseless_rates_are_refused(bad):
    with pytest.raises(PlanError, match=r"learning.rate"):
        Rate(**bad)


def test_an_unknown_optimizer_is_refused_with_the_known_ones():
    with pytest.raises(PlanError, match="there are sgd, momentum, adam, muon"):
        optimizers.build("adamw", 0.1, rounds=1)


LAYERS = (Layer(start=0, rows=2, columns=3, bias=6), Layer(start=8, rows=1, columns=4))


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(rate=Rate(peak=0.1), momentum=0.5),
        Adam(rate=Rate(peak=2.0)),
        Muon(rate=Rate(peak=0.04, hold=0.0, rounds=25), layers=LAYERS),
        Muon(rate=Rate(peak=0.04), layers=LAYERS, gain=60.0),
    ],
)
def test_records_bring_optimizers_back(optimizer):
    record = json.loads(json.dumps(optimizers.as_record(optimizer)))
    assert optimizers.from_record(record) == optimizer


def test_muon_looks_ahead_and_falls_to_zero():
    rows = (Layer(start=0, rows=1, columns=2),)
    stepper = Muon(rate=Rate(peak=1.0), layers=rows, momentum=0.5).start()
    first = stepper.step(np.zeros(2), np.array([2.0, 0.0]))
    np.testing.assert_allclose(first, [-np.sqrt(2), 0], atol=1e-5)
    second = stepper.step(np.zeros(2), np.array([0.0, 2.0]))
    ahead = np.array([0.25, 1.5])  # m = (0.5, 1), N = (m + g)/2 with g = (0, 2)
    np.testing.assert_allclose(second, -np.sqrt(2) * ahead / np.linalg.norm(ahead), atol=1e-5)
    built = optimizers.build("muon", None, rounds=25, layers=rows)
    assert [built.rate.at(t) for t in (0, 5, 25)] == pytest.approx([0.04, 0.032, 0.0])


def test_muon_without_layers_is_refused():
    with pytest.raises(PlanError, match="layers"):
        optimizers.build("muon", 0.1, rounds=5).start()


def test_records_of_muon_from_before_it_had_a_gain_are_read():
    record = optimizers.as_record(Muon(rate=Rate(peak=0.04), layers=LAYERS))
    del record["gain"]
    assert optimizers.from_record(record).gain is None


@pytest.mark.parametrize("gain", [0.5, float("inf"), float("nan")])
def test_a_senseless_gain_is_refused(gain):
    with pytest.raises(PlanError, match="gain of muon"):
        Muon(rate=Rate(peak=0.04), layers=LAYERS, gain=gain)
