import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from pdlrecover.errors import DataError, ModelError, RangeError
from pdlrecover.field import FixedPoint
from pdlrecover.learning import (
    FlatModel,
    LocalTraining,
    Updates,
    clip,
    data_weights,
    gradients,
    models,
)

PEERS, BATCH, CLASSES = 7, 6, 3


class Recurrent(nn.Module):
    """A module that torch cannot vectorise over peers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.sum()) > 1e9:
            x = -x
        return self.linear(x)


def case(name: str) -> tuple[FlatModel, np.ndarray, torch.Tensor, torch.Tensor]:
    shape = (4,) if name == "recurrent" else (1, 8, 8)
    module = Recurrent() if name == "recurrent" else models.build(name, shape, CLASSES, 0)
    model = FlatModel(module, shape)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(PEERS, BATCH, *shape, generator=generator)
    y = torch.randint(0, CLASSES, (PEERS, BATCH), generator=generator)
    return model, model.initial + 0.01, x, y


def plain(model: FlatModel, w: np.ndarray, x: torch.Tensor, y: torch.Tensor, local: LocalTraining):
    """The second truth: SGD on the module itself, by autograd."""
    module = model.module_with(w)
    for part_x, part_y in zip(
        x.tensor_split(local.steps), y.tensor_split(local.steps), strict=True
    ):
        module.zero_grad()
        loss = cross_entropy(module(part_x), part_y)
        for parameter in module.parameters():
            loss = loss + local.l2 / 2 * (parameter**2).sum()
        loss.backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= local.rate * parameter.grad
    moved = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    return (torch.from_numpy(w).float() - moved) / (local.rate * local.steps)


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn", "recurrent"])
@pytest.mark.parametrize(
    "local",
    [
        LocalTraining(rate=0.5),
        LocalTraining(rate=0.5, l2=0.1),
        LocalTraining(rate=0.5, steps=4, l2=0.01),
    ],
)
def test_the_updates_of_all_are_those_of_a_plain_loop(name: str, local: LocalTraining) -> None:
    model, w, x, y = case(name)
    assert model.vectorises == (name != "recurrent")
    expected = torch.stack([plain(model, w, x[i], y[i], local) for i in range(PEERS)])
    alone = torch.cat(
        [gradients(model, w, x[i : i + 1], y[i : i + 1], local=local) for i in range(PEERS)]
    )
    together = gradients(model, w, x, y, local=local)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, expected, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(alone, expected, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 3, PEERS, 100])
def test_chunks_buffers_and_weights_change_nothing_else(chunk: int) -> None:
    model, w, x, y = case("mlp")
    out = torch.full((PEERS, model.size), float("nan"))
    weights = torch.linspace(0.1, 1, PEERS, dtype=torch.float64)
    got = gradients(model, w, x, y, weights=weights, chunk=chunk, out=out)
    assert got is out
    expected = gradients(model, w, x, y) * weights[:, None].float()
    torch.testing.assert_close(got, expected, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_with_chunks_of_one_peer_everybody_computes_the_same_bits(name: str) -> None:
    model, w, x, y = case(name)
    together = gradients(model, w, x, y, chunk=1)
    for i in range(PEERS):
        assert torch.equal(together[i], gradients(model, w, x[i : i + 1], y[i : i + 1])[0])


@pytest.mark.parametrize("name", ["mlp-8", "recurrent"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("chunk", [1, None])
def test_soft_labels_are_the_teachers_mean_and_their_gradient_that_of_a_plain_loop(
    name: str, temperature: float, chunk: int | None
) -> None:
    model, w, x, _ = case(name)
    updates = Updates(model=model, weights=np.ones(PEERS), bound=1e9, chunk=chunk)
    teachers = [w + 0.5, w - 0.3]
    soft = updates.soft_labels(teachers, x, temperature)
    local = LocalTraining(temperature=temperature)
    found = gradients(model, w, x, soft, local=local, chunk=chunk)
    for peer in range(PEERS):
        probabilities = [
            (model.logits(torch.tensor(t, dtype=torch.float32), x[peer]) / temperature).softmax(1)
            for t in teachers
        ]
        target = sum(probabilities) / 2
        np.testing.assert_allclose(soft[peer], target.detach(), atol=1e-6)
        flat = torch.tensor(w, dtype=torch.float32, requires_grad=True)
        logs = (model.logits(flat, x[peer]) / temperature).log_softmax(1)
        (-(temperature**2) * (target.detach() * logs).sum(1).mean()).backward()
        np.testing.assert_allclose(found[peer], flat.grad, atol=1e-5)


def test_no_peers_have_no_updates() -> None:
    model, w, x, y = case("mlp")
    assert gradients(model, w, x[:0], y[:0]).shape == (0, model.size)


def test_batches_that_do_not_fit_the_model_are_refused() -> None:
    model, w, x, y = case("mlp")
    with pytest.raises(ModelError, match="as many labels"):
        gradients(model, w, x, y[:, 1:])
    with pytest.raises(ModelError, match=r"samples of shape \(1, 8, 8\)"):
        gradients(model, w, x.flatten(2), y)
    with pytest.raises(ModelError, match="each of the 7 local steps"):
        gradients(model, w, x, y, local=LocalTraining(steps=7))
    with pytest.raises(ModelError, match="steps=0"):
        LocalTraining(steps=0)


@given(
    lengths=st.lists(st.floats(0, 1e15), min_size=1, max_size=6),
    bound=st.floats(1e-2, 1e3),
    seed=st.integers(0, 1000),
)
def test_clipped_updates_fit_the_fixed_point_encoding(lengths, bound, seed) -> None:
    directions = torch.randn(len(lengths), 40, generator=torch.Generator().manual_seed(seed))
    updates = directions / directions.norm(dim=1, keepdim=True) * torch.tensor(lengths)[:, None]
    before = updates.clone()
    exact = before.double().norm(dim=1)
    got, clipped = clip(updates, bound)
    assert got is updates
    assert clipped == int((exact > bound).sum())
    assert torch.equal(got[exact <= bound], before[exact <= bound])
    torch.testing.assert_close(
        got[exact > bound].double().norm(dim=1),
        torch.full((clipped,), bound, dtype=torch.float64),
        rtol=1e-6,
        atol=0,
    )
    FixedPoint(peers=1, bound=bound, length=40).encode(got.numpy())


def test_a_norm_just_under_the_bound_is_left_alone_and_just_over_is_clipped() -> None:
    updates = torch.zeros(2, 10_000)
    updates[0] = 0.01 * (1 - 1e-6)
    updates[1] = 0.01 * (1 + 1e-6)
    before = updates[0].clone()
    assert clip(updates, 1.0)[1] == 1
    assert torch.equal(updates[0], before)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_refused(value: float) -> None:
    updates = torch.ones(3, 4)
    updates[2, 1] = value
    with pytest.raises(RangeError, match=r"row 2 is not finite.*lower the learning rate"):
        clip(updates, 1.0)


def test_updates_are_weighted_by_peer_and_clipped() -> None:
    model, w, x, y = case("mlp")
    weights = np.linspace(0.1, 1, 20)
    updates = Updates(model=model, weights=weights, bound=0.3)
    peers = np.array([3, 19, 0, 5, 6, 7, 8])
    expected = gradients(model, w, x, y) * torch.from_numpy(weights[peers]).float()[:, None]
    torch.testing.assert_close(updates.weighted(w, peers, x, y), expected)
    got, clipped = clip(updates.weighted(w, peers, x, y), updates.bound)
    assert 0 < clipped < PEERS
    torch.testing.assert_close(got, clip(expected, 0.3)[0])


def test_data_weights_are_sizes_over_the_public_bound() -> None:
    parts = [np.arange(4), np.arange(10), np.arange(1)]
    assert data_weights(parts).tolist() == [0.4, 1.0, 0.1]
    assert data_weights(parts, 20).tolist() == [0.2, 0.5, 0.05]
    with pytest.raises(DataError, match=r"1 to 9 samples.*raise the bound"):
        data_weights(parts, 9)
