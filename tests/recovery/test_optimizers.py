import numpy as np
import pytest
import torch

from pdlrecover.errors import PlanError
from pdlrecover.recovery import optimizers
from pdlrecover.recovery.optimizers import SGD, Adam, Rate

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
    ours, stepper = np.zeros(5), optimizers.build(name, Rate(peak=0.1)).start()
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
    with pytest.raises(PlanError, match="learning rate"):
        Rate(**bad)


def test_an_unknown_optimizer_is_refused_with_the_known_ones():
    with pytest.raises(PlanError, match="there are sgd, momentum, adam"):
        optimizers.build("adamw", Rate(peak=0.1))


@pytest.mark.parametrize(
    "optimizer", [SGD(rate=Rate(peak=0.1), momentum=0.5), Adam(rate=Rate(peak=2.0))]
)
def test_records_bring_optimizers_back(optimizer):
    assert optimizers.from_record(optimizers.as_record(optimizer)) == optimizer
