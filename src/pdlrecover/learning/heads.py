"""The last linear layer of a model, as a linear classifier on frozen features.

Rules:

- The layer is the `nn.Linear` that is called last, once for each input; what it returns must be
  the model's logits. Where that is not so, or its weights are frozen, shared with another layer or
  reparametrised, the model is refused.
- The features of a sample are the layer's input u, with a 1 appended where the layer has a bias,
  divided by their length: z = (u, 1)/‖(u, 1)‖. So ‖z‖ = 1 (or 0), as bounds on such classifiers
  ask for, and each score wᵀz is that of the layer divided by the same positive number: the class
  with the largest score stays what it was.
- *One against the rest*: class c has its own weights w_c and its own logistic loss, with y = 1 for
  the samples of that class and −1 for the others,

      ℓ = Σ ln(1 + exp(−y·wᵀz)),   ∇ℓ = Σ (s − [y = 1])·z,   ∇²ℓ = Σ s(1 − s)·zzᵀ,

  where s = 1/(1 + exp(−wᵀz)).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pdlrecover.errors import ModelError
from pdlrecover.learning.flat_model import FlatModel, Weights

Reals = NDArray[np.float64]


class LinearHead:
    """The last linear layer of a model."""

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._name = _last_linear(model)
        places = model.parameters(torch.arange(model.size))
        weight, bias = _named(self._name)
        self.biased = bias in places
        parts = [places[weight], places[bias][:, None]] if self.biased else [places[weight]]
        self.places: NDArray[np.int64] = torch.cat(parts, dim=1).numpy()
        """(classes, features): where each weight stands in the flat vector, the bias last."""

    def extractor(self, w: Weights) -> Callable[[torch.Tensor], Reals]:
        """Return what computes the features z of samples with the weights w."""
        module = self._model.module_with(w)
        seen: list[torch.Tensor] = []
        module.get_submodule(self._name).register_forward_pre_hook(
            lambda _, inputs: seen.append(inputs[0])
        )

        def features(x: torch.Tensor) -> Reals:
            with torch.no_grad():
                module(self._model.mapped(x))
            u = seen.pop().double().numpy()
            if not np.isfinite(u).all():
                raise ModelError(
                    "the inputs of this model's last layer are not finite: its training has "
                    "diverged, and nothing can be trained on them; lower the learning rate"
                )
            if self.biased:
                u = np.hstack([u, np.ones((len(u), 1))])
            length = np.linalg.norm(u, axis=1, keepdims=True)
            z: Reals = u / np.where(length > 0, length, 1.0)
            return z

        return features


def one_vs_rest(z: Reals, y: NDArray[np.int64], head: Reals) -> tuple[Reals, Reals, Reals]:
    """Return the losses (C,), gradients (C, f) and Hessians (C, f, f) of every class, summed up."""
    scores = z @ head.T
    mine = y[:, None] == np.arange(len(head))
    losses = np.logaddexp(0, np.where(mine, -scores, scores)).sum(axis=0)
    probability = (1 + np.tanh(scores / 2)) / 2
    gradient = (probability - mine).T @ z
    if not head.any():  # then s = 1/2 for all samples, and all classes have the same Hessian
        return losses, gradient, np.broadcast_to(z.T @ z / 4, (*gradient.shape, z.shape[1]))
    hessian = np.empty((*gradient.shape, z.shape[1]))
    for out, s in zip(hessian, probability.T, strict=True):
        scaled = np.sqrt(s * (1 - s))[:, None] * z
        np.matmul(scaled.T, scaled, out=out)
    return losses, gradient, hessian


def _last_linear(model: FlatModel) -> str:
    """Return the name of the layer whose output are the logits, or say why there is none."""
    module = model.module_with(model.initial)
    calls: list[tuple[str, torch.Tensor]] = []
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(
                lambda _, __, output, name=name: calls.append((name, output))
            )
    x = torch.linspace(-1, 1, 2 * math.prod(model.example_shape)).view(2, *model.example_shape)
    with torch.no_grad():
        logits = module(x)
    kind = type(module).__name__
    if not calls:
        raise ModelError(
            f"{kind} has no nn.Linear, and this method replaces the last one; choose another method"
        )
    name, output = calls[-1]
    if output.shape != logits.shape or not torch.equal(output, logits):
        raise ModelError(
            f"the logits of {kind} are not what its last nn.Linear ({name or kind}) returns, so "
            "that layer cannot be replaced alone; end the model in a linear layer"
        )
    once = [called for called, _ in calls].count(name) == 1
    if not once or not _is_trained_alone(model, module, name):
        raise ModelError(
            f"the last nn.Linear of {kind} ({name or kind}) is used twice, shares its weights, or "
            "is not trained as it stands, so it cannot be replaced alone; choose another method"
        )
    return name


def _is_trained_alone(model: FlatModel, module: nn.Module, name: str) -> bool:
    """Say whether a layer's weight and bias are in the flat vector, and no other layer's."""
    own = dict(module.get_submodule(name).named_parameters(prefix=name))
    flat = model.parameters(torch.zeros(model.size))
    ids = {id(parameter) for parameter in own.values()}
    everywhere = [id(p) for _, p in module.named_parameters(remove_duplicate=False)]
    return set(own) <= set(_named(name)) & set(flat) and sum(p in ids for p in everywhere) == len(
        own
    )


def _named(layer: str) -> tuple[str, str]:
    """Return what the weight and the bias of a layer are called."""
    prefix = f"{layer}." if layer else ""
    return f"{prefix}weight", f"{prefix}bias"
