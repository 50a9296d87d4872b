import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from pdlrecover.errors import DataError
from pdlrecover.learning import FlatModel, accuracy, mean_loss, models, predictions


@pytest.mark.parametrize("samples", [1, 2048, 5000])
def test_accuracy_and_loss_are_those_of_all_samples_at_once(samples: int) -> None:
    model = FlatModel(models.build("mlp-5", (3,), 4, 0), (3,))
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, 3, generator=generator)
    y = torch.randint(0, 4, (samples,), generator=generator)
    logits = model.module_with(model.initial)(x)
    assert torch.equal(predictions(model, model.initial, x), logits.argmax(1))
    expected = float((logits.argmax(1) == y).double().mean())
    assert accuracy(model, model.initial, x, y) == pytest.approx(expected)
    loss = float(cross_entropy(logits, y).detach())
    assert mean_loss(model, model.initial, x, y) == pytest.approx(loss, rel=1e-5)


def test_a_diverged_model_has_an_accuracy_and_no_finite_loss() -> None:
    model = FlatModel(models.build("logistic", (3,), 4, 0), (3,))
    w = np.full(model.size, np.nan)
    x, y = torch.ones(8, 3), torch.arange(8) % 4
    assert accuracy(model, w, x, y) == 0.25
    assert np.isnan(mean_loss(model, w, x, y))


def test_no_samples_are_refused() -> None:
    model = FlatModel(models.build("logistic", (3,), 4, 0), (3,))
    with pytest.raises(DataError, match="no samples"):
        accuracy(model, model.initial, torch.ones(0, 3), torch.ones(0))
