import numpy as np
import pytest
import torch
from torch import nn

from pdlrecover.errors import ModelError
from pdlrecover.learning import FlatModel, LinearHead, one_vs_rest, predictions
from pdlrecover.learning.models import build


def weights(model, seed=0):
    return np.random.default_rng(seed).normal(size=model.size)


def samples(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_the_features_of_logistic_regression_are_its_inputs():
    model = FlatModel(build("logistic", (2, 2), 3, 0), (2, 2))
    head = LinearHead(model)
    assert head.places.tolist() == [
        [0, 1, 2, 3, 12],
        [4, 5, 6, 7, 13],
        [8, 9, 10, 11, 14],
    ]
    x = samples(6, 2, 2)
    found = head.extractor(weights(model))(x)
    for row, sample in zip(found, x, strict=True):
        u = [*sample.flatten().tolist(), 1.0]
        np.testing.assert_allclose(row, np.array(u) / np.sqrt(sum(v * v for v in u)), rtol=1e-12)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 3), (4,)),
        (build("mlp-7", (4,), 3, 0), (4,)),
        (build("cnn", (1, 8, 8), 3, 0), (1, 8, 8)),
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)), (4,)),
    ],
)
def test_scores_of_the_head_name_the_class_that_the_layer_names(module, shape):
    model = FlatModel(module, shape)
    w, x = weights(model), samples(50, *shape)
    head = LinearHead(model)
    z = head.extractor(w)(x)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, rtol=1e-12)
    assert (z @ w[head.places].T).argmax(axis=1).tolist() == predictions(model, w, x).tolist()


def test_features_that_vanish_stay_zero():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))
    model = FlatModel(module, (4,))
    assert not LinearHead(model).extractor(np.zeros(model.size))(samples(2, 4)).any()


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def tied():
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    return module


def frozen_bias():
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    module[2].bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 1, 1), nn.Flatten()), "no nn.Linear"),
        (nn.Sequential(nn.Linear(3, 3), nn.LogSoftmax(dim=1)), r"nn.Linear \(0\) returns"),
        (
            nn.Sequential(
                nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 1, 2), nn.Flatten()
            ),
            r"nn.Linear \(0\) returns",
        ),
        (Twice(), r"\(layer\) is used twice"),
        (tied(), r"\(2\) is used twice, shares its weights"),
        (frozen_bias(), "not trained as it stands"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "not trained as it stands"),
    ],
)
def test_a_layer_that_cannot_be_replaced_alone_is_refused(module, message):
    with pytest.raises(ModelError, match=message):
        LinearHead(FlatModel(module, (3,)))


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_one_vs_rest_is_what_autograd_computes(scale):
    rng = np.random.default_rng(2)
    z, y = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    head = scale * rng.normal(size=(3, 4))
    losses, gradient, hessian = one_vs_rest(z, y, head)

    for c in range(3):
        sign = torch.from_numpy(np.where(y == c, 1.0, -1.0))

        def loss(w, sign=sign):
            return -torch.nn.functional.logsigmoid(sign * (torch.from_numpy(z) @ w)).sum()

        w = torch.from_numpy(head[c]).requires_grad_()
        value = loss(w)
        assert losses[c] == pytest.approx(value.item())
        np.testing.assert_allclose(gradient[c], torch.autograd.grad(value, w)[0], atol=1e-10)
        expected = torch.autograd.functional.hessian(loss, w.detach())
        np.testing.assert_allclose(hessian[c], expected, atol=1e-10)


def test_huge_scores_do_not_overflow():
    losses, gradient, hessian = one_vs_rest(np.ones((1, 1)), np.array([0]), np.array([[-1e4]]))
    assert losses[0] == 1e4
    assert gradient[0, 0] == -1
    assert hessian[0, 0, 0] == 0
