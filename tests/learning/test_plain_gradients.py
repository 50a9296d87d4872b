"""One peer's gradient by itself: without torch's compiler, and the same bits as with `vmap`."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from pdlrecover.learning import FlatModel, LocalTraining, gradients, models
from pdlrecover.learning.flat_model import PLAIN

SHAPE, CLASSES, PEERS, BATCH = (1, 8, 8), 10, 12, 24


def bits(model, local, monkeypatch, *, plain):
    with monkeypatch.context() as patch:
        patch.setattr(FlatModel, "is_plain", plain)
        random = torch.Generator().manual_seed(3)
        x = torch.rand((PEERS, BATCH, *SHAPE), generator=random)
        y = torch.randint(CLASSES, (PEERS, BATCH), generator=random)
        w = model.initial + np.random.default_rng(3).normal(size=model.size) / 10
        return gradients(model, w, x, y, local=local, chunk=1)


@pytest.mark.parametrize("function", [kind for kind in PLAIN if kind not in (nn.Linear,)])
@pytest.mark.parametrize("hidden", [3, 32, 100])
def test_vmap_over_one_peer_changes_no_bit_of_a_plain_model(function, hidden, monkeypatch):
    torch.manual_seed(5)
    layers = [nn.Flatten(), nn.Linear(64, hidden), function(), nn.Linear(hidden, CLASSES)]
    model = FlatModel(nn.Sequential(*layers), SHAPE)
    assert model.is_plain
    for local in (LocalTraining(), LocalTraining(l2=0.01, steps=3, rate=0.2, temperature=2.0)):
        pair = [bits(model, local, monkeypatch, plain=plain) for plain in (True, False)]
        assert torch.equal(*pair)


@pytest.mark.parametrize(("name", "plain"), [("logistic", True), ("mlp-8", True), ("cnn", False)])
def test_which_models_are_plain(name, plain):
    assert FlatModel(models.build(name, SHAPE, CLASSES, seed=0), SHAPE).is_plain is plain


def test_what_forwards_in_its_own_way_or_has_frozen_weights_is_not_plain():
    class Own(nn.Sequential):
        def forward(self, x):
            return super().forward(x).cumsum(1)

    def layers():
        return nn.Flatten(), nn.Linear(64, CLASSES)

    assert not FlatModel(Own(*layers()), SHAPE).is_plain
    frozen = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, CLASSES))
    frozen[1].requires_grad_(False)
    assert not FlatModel(frozen, SHAPE).is_plain


def test_a_peer_by_itself_does_not_import_torchs_compiler():
    text = (
        "import sys, torch\n"
        "from pdlrecover.learning import FlatModel, gradients, models\n"
        "model = FlatModel(models.build('mlp-8', (1, 8, 8), 10, seed=0), (1, 8, 8))\n"
        "x, y = torch.zeros(1, 4, 1, 8, 8), torch.zeros(1, 4, dtype=torch.int64)\n"
        "gradients(model, model.initial, x, y, chunk=1)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0


@pytest.mark.parametrize("within", [torch.no_grad, torch.inference_mode])
def test_gradients_are_the_same_where_the_caller_has_switched_them_off(within):
    model = FlatModel(models.build("mlp-8", SHAPE, CLASSES, seed=0), SHAPE)
    x, y = torch.rand(2, 4, *SHAPE), torch.arange(8).view(2, 4)
    found = gradients(model, model.initial, x, y, chunk=1)
    with within():
        assert torch.equal(gradients(model, model.initial, x, y, chunk=1), found)
