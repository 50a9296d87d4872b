"""Any `torch.nn.Module` as a function of one flat vector of weights.

Rules:

- The vector holds the module's trainable parameters, each flattened, in the order of
  `named_parameters`. Frozen ones (`requires_grad=False`) stay as they are.
- The module is copied, taken to float32, and used in the mode (train or eval) it came in.
- If inputs are standardised, samples are mapped before the module sees them, and never elsewhere:
  whoever computes with this model gives samples as they are.
- It must be a fixed function of weights and input, or peers could not compute the same model and
  a round could not be repeated. So a module is refused that keeps running statistics
  (BatchNorm: use GroupNorm), that draws random numbers (Dropout), or that has nothing to train.
"""

import copy
import math
from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from pdlrecover.errors import ModelError
from pdlrecover.layers import Layer
from pdlrecover.learning.input_scale import InputScale

Weights = NDArray[np.float64]
"""A flat vector of weights, as all peers hold it."""


PLAIN = (nn.Linear, nn.Flatten, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)
"""Layers of which a test holds that `vmap` over one peer changes no bit."""


class FlatModel:
    """A module whose weights are given with each call."""

    def __init__(self, module: nn.Module, example_shape: tuple[int, ...]) -> None:
        self.example_shape = tuple(example_shape)
        self.inputs: InputScale | None = None
        """The scale that samples are brought to, once it is agreed on, if it is."""
        self._module = copy.deepcopy(module).float()
        self._untouched = copy.deepcopy(self._module)
        """For copies: while a call is under way in another thread, the module's parameters are
        replaced by what the call was given."""
        trainable = [(k, p) for k, p in self._module.named_parameters() if p.requires_grad]
        self.shapes = [(name, parameter.shape) for name, parameter in trainable]
        """The parameters' names and shapes, in their order in the vector."""
        self.size = sum(parameter.numel() for _, parameter in trainable)
        """d: how many numbers the vector has."""
        if not self.size:
            raise ModelError(f"{type(module).__name__} has no trainable parameters")
        weights = torch.cat([parameter.detach().flatten() for _, parameter in trainable])
        self.initial: Weights = weights.double().numpy()
        """The module's own weights when it was given."""
        if not np.isfinite(self.initial).all():
            raise ModelError(
                f"{type(module).__name__} starts with weights that are not finite; initialise them"
            )
        self._refuse_what_is_not_fixed()

    def parameters(self, w: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts of a flat vector by the names of the parameters, as views."""
        self._check(w.shape)
        parts, start = {}, 0
        for name, shape in self.shapes:
            end = start + shape.numel()
            parts[name] = w[start:end].view(shape)
            start = end
        return parts

    def forward(self, parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Return the logits (b, classes) of samples (b, *shape)."""
        logits: torch.Tensor = functional_call(self._module, parameters, (self.mapped(x),))
        return logits

    def mapped(self, x: torch.Tensor) -> torch.Tensor:
        """Return samples as the module sees them."""
        return x if self.inputs is None else self.inputs(x)

    def logits(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (b, classes) of samples (b, *shape) with the flat weights w."""
        return self.forward(self.parameters(w), x)

    def module_with(self, w: Weights) -> nn.Module:
        """Return a copy of the module that was given, with the weights w; it takes `mapped`."""
        module = copy.deepcopy(self._untouched)
        parts = self.parameters(as_tensor(w))
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name in parts:
                    parameter.copy_(parts[name])
        return module

    def redrawn(self, seed: int) -> Weights:
        """Return new first weights: every layer's own way of drawing them, from this seed.

        Layers of torch have one (`reset_parameters`). Frozen parameters stay as they are.
        """
        return FlatModel(redrawn(self._untouched, seed), self.example_shape).initial

    def first_of(self, module: Any) -> Weights:
        """Return the first weights of another module, which must be the same but for these."""
        return FlatModel(module, self.example_shape).initial

    def arrays(self, w: Weights) -> dict[str, NDArray[np.float32]]:
        """Return the weights as arrays, by the names of the parameters."""
        return {name: part.numpy() for name, part in self.parameters(as_tensor(w)).items()}

    @cached_property
    def classes(self) -> int:
        """How many classes the module tells apart."""
        with torch.no_grad():
            logits = self.logits(as_tensor(self.initial), torch.zeros(1, *self.example_shape))
        return logits.shape[-1]

    @cached_property
    def vectorises(self) -> bool:
        """Whether torch can compute many peers' gradients of this module in one call."""
        parameters = self.parameters(as_tensor(self.initial))
        x = torch.zeros(2, 1, *self.example_shape)

        def total(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return self.forward(parameters, x).sum()

        try:
            vmap(grad(total), in_dims=(None, 0))(parameters, x)
        except RuntimeError:
            return False
        return True

    @property
    def is_plain(self) -> bool:
        """Whether one peer's gradient is to the bit the same with and without `vmap`.

        It is for linear layers with these functions between them, and not for convolutions.
        """
        kind = type(self._module)
        within = list(self._module.children()) if kind is nn.Sequential else [self._module]
        trained = len(self.shapes) == len(list(self._module.parameters()))
        return trained and all(type(layer) in PLAIN for layer in within)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The parameters as matrices; see `layers_of`."""
        embeddings = {
            f"{name}.weight" if name else "weight"
            for name, layer in self._module.named_modules()
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        }
        return layers_of(self.shapes, embeddings)

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape != (self.size,):
            raise ModelError(
                f"this model is a vector of {self.size} weights, got shape {tuple(shape)}"
            )

    def _refuse_what_is_not_fixed(self) -> None:
        """Run a copy twice on the same input, and see whether it or its output has changed."""
        for name, layer in self._module.named_modules():
            if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.training and layer.p > 0:
                raise ModelError(
                    f"the layer {name or type(layer).__name__} ({type(layer).__name__}) draws "
                    "random numbers, so its round could not be repeated; remove it or set p=0"
                )
        probe = copy.deepcopy(self._module)
        before = {name: buffer.clone() for name, buffer in probe.named_buffers()}
        x = torch.linspace(-1, 1, 2 * math.prod(self.example_shape)).view(2, *self.example_shape)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                first, second = probe(x), probe(x)
        except Exception as error:  # it is the user's code, and may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"{type(probe).__name__} does not take samples of shape {self.example_shape}: "
                f"{reason}"
            ) from error
        for name, buffer in probe.named_buffers():
            if not torch.equal(buffer, before[name]):
                layer_name = name.rpartition(".")[0]
                kind = type(probe.get_submodule(layer_name)).__name__
                raise ModelError(
                    f"the layer {layer_name or kind} ({kind}) keeps statistics of its inputs "
                    "which no update carries to the other peers; use GroupNorm instead"
                )
        if not isinstance(first, torch.Tensor) or first.ndim != 2 or len(first) != 2:
            got = tuple(first.shape) if isinstance(first, torch.Tensor) else type(first).__name__
            raise ModelError(
                f"a model must return logits (batch, classes), got {got} for a batch of 2"
            )
        if not torch.equal(first, second):
            raise ModelError(
                f"{type(probe).__name__} returns different logits for the same input; "
                "take out what draws random numbers or keeps a state"
            )


def redrawn(module: nn.Module, seed: int) -> nn.Module:
    """Return a copy with new first weights: every layer's own way of drawing them, from this seed.

    Layers of torch have one (`reset_parameters`). Frozen parameters stay as they are.
    """
    module = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, layer in module.named_modules():
            if not any(p.requires_grad for p in layer.parameters(recurse=False)):
                continue
            reset = getattr(layer, "reset_parameters", None)
            reset = reset or getattr(layer, "_reset_parameters", None)  # of attention layers
            if reset is None:
                raise ModelError(
                    f"{name or 'the module'} ({type(layer).__name__}) has no reset_parameters, "
                    "so new first weights cannot be drawn: give it one, or say how the module "
                    "is made from a seed (new_model=…)"
                )
            reset()
    return module


def layers_of(
    named: Sequence[tuple[str, Sequence[int]]], embeddings: Container[str] = ()
) -> tuple[Layer, ...]:
    """Return parameters, by name and shape in their order in the vector, as matrices.

    A kernel is out × the rest. A bias goes with the weight of the same length beside it, as
    `x.weight` and `x.bias` or `x_weight` and `x_bias`. What has one dimension and is no such bias
    (a norm's scale) is one row, and so is every row of an embedding by itself.
    """
    shapes = {name: tuple(shape) for name, shape in named}
    starts, place = {}, 0
    for name, shape in shapes.items():
        starts[name], place = place, place + math.prod(shape)
    biases = {
        name: bias
        for name, shape in shapes.items()
        if len(shape) > 1 and name not in embeddings
        for bias in [_bias_beside(name)]
        if bias in shapes and shapes[bias] == shape[:1]
    }
    found = []
    for name, shape in shapes.items():
        if name in biases.values():
            continue
        rows = shape[0] if len(shape) > 1 else 1
        layer = Layer(
            start=starts[name],
            rows=rows,
            columns=math.prod(shape) // rows,
            bias=starts[biases[name]] if name in biases else None,
            by_row=name in embeddings,
        )
        found.append(layer)
    return tuple(found)


def _bias_beside(name: str) -> str:
    """Return what the bias of a weight would be called."""
    before, _, after = name.rpartition("weight")
    return f"{before}bias{after}"


def as_tensor(w: Weights) -> torch.Tensor:
    """Return the weights as the float32 tensor that gradients are computed at."""
    return torch.from_numpy(np.asarray(w, dtype=np.float32))
