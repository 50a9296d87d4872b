import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad

from pdlrecover.errors import ModelError
from pdlrecover.learning import FlatModel


class Own(nn.Module):
    """A user's own module: tied weights, a constant buffer, a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.second(torch.relu(self.first(x))) + self.shift)


def test_a_module_with_other_weights_computes_what_the_flat_model_does() -> None:
    module = Own()
    model = FlatModel(module, (4,))
    assert model.size == 16 + 4 + 4
    w = np.random.default_rng(0).normal(size=model.size)
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    built = model.module_with(w)
    assert isinstance(built, Own)
    torch.testing.assert_close(built(x), model.logits(torch.from_numpy(w).float(), x))
    assert torch.equal(built.first.weight, built.second.weight)
    assert torch.equal(built.frozen.weight, module.frozen.weight)


def test_the_initial_weights_are_the_modules_own_and_the_module_stays_untouched() -> None:
    module = nn.Linear(3, 2)
    model = FlatModel(module, (3,))
    expected = torch.cat([module.weight.flatten(), module.bias]).detach().double().numpy()
    np.testing.assert_array_equal(model.initial, expected)
    assert model.initial.dtype == np.float64
    model.module_with(model.initial + 1)
    np.testing.assert_array_equal(module.bias.detach().numpy(), expected[6:].astype(np.float32))


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), r"layer 1 \(BatchNorm1d\).*GroupNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), r"layer 1 \(Dropout\).*set p=0"),
        (nn.ReLU(), "no trainable parameters"),
        (nn.Linear(5, 2), r"does not take samples of shape \(4,\)"),
        (nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2))), r"logits \(batch, classes\)"),
        (nn.Sequential(nn.Linear(4, 4), nn.RReLU()), "different logits for the same input"),
    ],
)
def test_a_module_that_is_no_fixed_function_of_its_weights_is_refused(module, complaint) -> None:
    with pytest.raises(ModelError, match=complaint):
        FlatModel(module, (4,))


def test_weights_that_are_not_finite_are_refused() -> None:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="not finite"):
        FlatModel(module, (3,))


def test_group_norm_and_switched_off_layers_are_accepted() -> None:
    grouped = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Dropout(0.0))
    assert FlatModel(grouped, (4,)).size == 28
    evaluated = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    assert FlatModel(evaluated, (4,)).size == 28


def test_weights_of_another_size_are_refused() -> None:
    model = FlatModel(nn.Linear(3, 2), (3,))
    with pytest.raises(ModelError, match=r"8 weights, got shape \(9,\)"):
        model.module_with(np.zeros(9))
    with pytest.raises(ModelError, match="8 weights"):
        model.logits(torch.zeros(2, 4), torch.zeros(1, 3))


def test_a_copy_is_made_while_another_thread_computes() -> None:
    class Asking(nn.Module):
        """Asks for a copy in the midst of a call, as another thread might."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.ask = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.ask:
                copies.append(model.module_with(model.initial))
            return self.layer(x)

    copies: list[nn.Module] = []
    model = FlatModel(Asking(), (2,))
    model._module.ask = True
    parameters = model.parameters(torch.zeros(model.size))
    grad(lambda w: model.forward(w, torch.ones(1, 2)).sum())(parameters)
    (copied,) = copies
    assert torch.equal(copied.layer.weight, model.module_with(model.initial).layer.weight)


class Mixed(nn.Module):
    """An embedding, a convolution, a norm, attention, and a head without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.conv(self.words(x.long().clamp(0, 4)).transpose(1, 2)))
        hidden = hidden.transpose(1, 2)
        return self.head(self.attention(hidden, hidden, hidden)[0].mean(dim=1))


def test_the_layers_of_any_module_cover_its_weights_once() -> None:
    model = FlatModel(Mixed(), (7,))
    covered = np.zeros(model.size, dtype=int)
    for layer in model.layers:
        covered[layer.start : layer.start + layer.rows * layer.columns] += 1
        if layer.bias is not None:
            covered[layer.bias : layer.bias + layer.rows] += 1
    assert (covered == 1).all()
    shapes = [(layer.rows, layer.columns, layer.by_row) for layer in model.layers]
    assert shapes == [
        (5, 4, True),  # words
        (6, 12, False),  # the convolution, with its bias
        (1, 6, False),  # the norm's scale
        (1, 6, False),  # the norm's shift
        (18, 6, False),  # query, key and value, with their bias
        (6, 6, False),  # what attention puts out, with its bias
        (3, 6, False),  # the head
    ]
