"""Computes peers' weighted gradients and clips them, for one peer or many at once.

    g_i = α_i · (∇L_i(w) + λw),    L_i = mean cross-entropy over peer i's minibatch,

clipped to the public L2 bound. α_i ∈ (0, 1] is the peer's data size over a public bound. Labels are
class numbers, or a distribution over the classes for each sample, which `soft_labels` makes.

Rules:

- `gradients` computes all peers in one vectorised call per `chunk` of peers, and writes straight
  into one (peers, d) buffer. Peers computed together and one by one agree to float32 rounding,
  and to the bit only with chunk=1: a product of larger matrices may sum in another order.
- With E > 1 local steps a step of plain SGD with rate r is taken on each of E minibatches: the
  update is α_i·(w − w_E)/(r·E), the mean of the gradients on the way. So the bound and the server's
  rate mean the same for any E; FedAvg as published is a server's SGD with the rate r·E.
- A clipped vector has a norm of at most the bound when computed in float64, as the fixed-point
  encoding requires.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, softmax

from pdlrecover.errors import DataError, ModelError, RangeError
from pdlrecover.learning.flat_model import FlatModel, Weights, as_tensor
from pdlrecover.learning.partition import Partition

Parameters = dict[str, Tensor]

_CHUNK_NUMBERS = 1 << 22
_CHUNK_PEERS = 64
_BELOW = 1 - 2.0**-22
"""Clipping aims this far below the bound, to stay under it after rounding to float32."""
_SUSPECT = 1 - 1e-3
"""From this share of the bound on, a float32 norm is computed again in float64."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a peer comes from its minibatch to its update."""

    l2: float = 0.0
    """λ: the objective gets λ/2·‖w‖²."""
    steps: int = 1
    """E: how many steps of SGD, each on its own minibatch."""
    rate: float = 0.01
    """r: their learning rate; without effect if there is one step."""
    temperature: float = 1.0
    """τ: logits are divided by it, and the loss is multiplied by τ²; for soft labels."""

    def __post_init__(self) -> None:
        if not (self.l2 >= 0 and self.steps >= 1 and self.rate > 0 and self.temperature > 0):
            raise ModelError(
                "local training needs l2 ≥ 0, steps ≥ 1, rate > 0 and temperature > 0, got "
                f"l2={self.l2}, steps={self.steps}, rate={self.rate}, "
                f"temperature={self.temperature}"
            )


ONE_STEP = LocalTraining()


def gradients(
    model: FlatModel,
    w: Weights,
    x: Tensor,
    y: Tensor,
    *,
    weights: Tensor | None = None,
    local: LocalTraining = ONE_STEP,
    chunk: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the (n, d) updates of n peers at w, for samples x (n, E·b, *shape) and labels y.

    These are (n, E·b) class numbers or (n, E·b, classes) distributions.

    Row i is multiplied by weights[i] if they are given. `chunk` peers are computed at a time, by
    default as many as the processor's cache likes; `out` is a buffer to write to, since touching
    fresh memory every round costs as much as the gradients themselves.
    """
    _check_batch(x.shape[1:], y.shape[1:2], model, local)
    if out is None:
        out = torch.empty(len(x), model.size)
    scale = torch.ones(len(x)) if weights is None else weights.to(torch.float32)
    parameters = model.parameters(as_tensor(w))
    step = chunk or usual_call(model)
    if step == 1 and model.is_plain and torch.is_grad_enabled():  # else only `grad` knows how
        many = _looped(partial(_update, model, local, gradient_of=_by_autograd))
    else:
        one = partial(_update, model, local)
        many = vmap(one, in_dims=(None, 0, 0)) if model.vectorises else _looped(one)
    for i in range(0, len(x), step):
        pieces = many(parameters, x[i : i + step], y[i : i + step])
        rows, factors, start = out[i : i + step], scale[i : i + step, None], 0
        for piece in pieces.values():
            flat = piece.reshape(len(rows), -1)
            torch.mul(flat, factors, out=rows[:, start : start + flat.shape[1]])
            start += flat.shape[1]
    return out


def usual_call(model: FlatModel) -> int:
    """Return how many peers are computed in one vectorised call."""
    return min(_CHUNK_PEERS, max(1, _CHUNK_NUMBERS // model.size))


def clip(updates: Tensor, bound: float) -> tuple[Tensor, int]:
    """Scale the rows that are longer than `bound` down to it, in place; return how many were.

    Norms are taken in float32 first, and again in float64 for the rows near or above. That is
    done in numpy: many small calls are slow where torch's threads must wait for each other.
    """
    norms = torch.linalg.vector_norm(updates, dim=1).numpy()
    rows = updates.numpy()
    clipped = 0
    for i in np.flatnonzero(~(norms <= _SUSPECT * bound)):
        exact = rows[i].astype(np.float64)
        norm = float(np.sqrt(np.einsum("i,i->", exact, exact)))
        if not np.isfinite(norm):
            raise RangeError(
                f"the update in row {i} is not finite, so it cannot be dealt: the training has "
                "diverged; lower the learning rate"
            )
        if norm > bound:
            rows[i] *= bound / norm * _BELOW
            clipped += 1
    return updates, clipped


def data_weights(partition: Partition, size_bound: int | None = None) -> NDArray[np.float64]:
    """Return α_i = |D_i| / size_bound; the bound is public, by default the largest |D_i|."""
    sizes = np.array([len(part) for part in partition], dtype=np.float64)
    bound = sizes.max() if size_bound is None else size_bound
    if sizes.min() < 1 or sizes.max() > bound:
        raise DataError(
            f"every peer must hold 1 to {bound:g} samples (the size bound), got {sizes.min():g} "
            f"to {sizes.max():g}; raise the bound"
        )
    return sizes / bound


@dataclass(frozen=True, kw_only=True, eq=False)
class Updates:
    """The updates of any peers, `weighted`, to be clipped to `bound`.

    An attack on updates takes place before both: `plain`, corrupt, `weigh`, `clip`. With nothing
    corrupted that gives the same numbers to the last bit.
    """

    model: FlatModel
    weights: NDArray[np.float64]
    """α, by peer (see `data_weights`)."""
    bound: float
    """The largest L2 norm of an update."""
    local: LocalTraining = ONE_STEP
    chunk: int | None = None
    """How many peers are computed in one call; with 1, each to the bit as it computes alone."""

    def __post_init__(self) -> None:
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise RangeError(f"the L2 bound must be positive and finite, got {self.bound}")

    @property
    def call(self) -> int:
        """How many peers are computed in one call."""
        return self.chunk or usual_call(self.model)

    def weighted(
        self,
        w: Weights,
        peers: NDArray[np.int64],
        x: Tensor,
        y: Tensor,
        *,
        local: LocalTraining | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return the (n, d) updates of these n peers at w, for their minibatches."""
        weights, local = torch.from_numpy(self.weights[peers]), local or self.local
        return gradients(
            self.model, w, x, y, weights=weights, local=local, chunk=self.chunk, out=out
        )

    def plain(
        self,
        w: Weights,
        x: Tensor,
        y: Tensor,
        *,
        local: LocalTraining | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return n peers' updates at w before they are weighed."""
        return gradients(self.model, w, x, y, local=local or self.local, chunk=self.chunk, out=out)

    def soft_labels(self, teachers: Sequence[Weights], x: Tensor, temperature: float) -> Tensor:
        """Return the models' mean of softmax(z/τ) for samples (n, b, *shape): (n, b, classes)."""
        weights = [as_tensor(w) for w in teachers]
        parts = []
        with torch.no_grad():
            step = self.chunk or len(x)
            for some in (x[i : i + step] for i in range(0, len(x), step)):
                logits = [self.model.logits(w, some.flatten(0, 1)) for w in weights]
                mean = torch.stack([softmax(z / temperature, dim=1) for z in logits]).mean(dim=0)
                parts.append(mean.view(*some.shape[:2], -1))
        return torch.cat(parts)

    def weigh(self, updates: Tensor, peers: NDArray[np.int64]) -> Tensor:
        """Multiply each update by its peer's weight, in place."""
        return updates.mul_(torch.from_numpy(self.weights[peers]).to(torch.float32)[:, None])


def _by_autograd(loss: Callable[..., Tensor]) -> Callable[..., Parameters]:
    """Return what `grad` would, without torch's compiler, whose import takes over a second."""

    def gradient(w: Parameters, *sample: Tensor) -> Parameters:
        parts = {key: part.detach().requires_grad_() for key, part in w.items()}
        found = torch.autograd.grad(loss(parts, *sample), list(parts.values()))
        return dict(zip(parts, found, strict=True))

    return gradient


def _update(
    model: FlatModel,
    local: LocalTraining,
    w: Parameters,
    x: Tensor,
    y: Tensor,
    *,
    gradient_of: Callable[..., Callable[..., Parameters]] = grad,
) -> Parameters:
    """Return (w − w_E)/(r·E): the mean of the gradients along E steps of SGD."""

    def loss(w: Parameters, x: Tensor, y: Tensor) -> Tensor:
        logits = model.forward(w, x)
        if local.temperature == 1:
            mean = cross_entropy(logits, y)
        else:
            mean = local.temperature**2 * cross_entropy(logits / local.temperature, y)
        if local.l2:
            mean = mean + local.l2 / 2 * sum(part.square().sum() for part in w.values())
        return mean

    total: Parameters = {}
    parts = zip(x.tensor_split(local.steps), y.tensor_split(local.steps), strict=True)
    for part_x, part_y in parts:
        gradient = gradient_of(loss)(w, part_x, part_y)
        total = {k: total[k] + g for k, g in gradient.items()} if total else gradient
        if local.steps > 1:
            w = {k: w[k] - local.rate * g for k, g in gradient.items()}
    return total if local.steps == 1 else {k: g / local.steps for k, g in total.items()}


def _looped(
    one: Callable[[Parameters, Tensor, Tensor], Parameters],
) -> Callable[[Parameters, Tensor, Tensor], Parameters]:
    """Return what `vmap` would, for a module that torch cannot vectorise."""

    def many(w: Parameters, x: Tensor, y: Tensor) -> Parameters:
        pieces = [one(w, *sample) for sample in zip(x, y, strict=True)]
        return {k: torch.stack([piece[k] for piece in pieces]) for k in pieces[0]}

    return many


def _check_batch(
    x: tuple[int, ...], y: tuple[int, ...], model: FlatModel, local: LocalTraining
) -> None:
    if x[1:] != model.example_shape or x[:1] != y or x[0] < local.steps:
        raise ModelError(
            f"a minibatch must have samples of shape {model.example_shape}, as many labels, and "
            f"one for each of the {local.steps} local steps; got samples {tuple(x)} and labels "
            f"{tuple(y)}"
        )
