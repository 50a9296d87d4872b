"""A model of which only the arrays are known: their names, shapes and kinds, in their order.

It is the model of peers that somebody else's program computes: what that makes of the arrays is not
asked. The vector holds all of them, each flattened, in the order given. All are floating-point:
what counts (BatchNorm's `num_batches_tracked`) or marks cannot be averaged.

With a torch module, the arrays are its `state_dict`, and trained weights are put back into it.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pdlrecover.errors import ModelError
from pdlrecover.layers import Layer
from pdlrecover.learning.flat_model import FlatModel, Weights, layers_of, redrawn
from pdlrecover.learning.input_scale import InputScale

Arrays = Mapping[str, NDArray[Any]]


class ArrayModel:
    """Named arrays as one flat vector."""

    def __init__(self, given: nn.Module | Arrays | Sequence[NDArray[Any]]) -> None:
        """Take a module, arrays by name, or arrays in a row, which are named 0, 1 and so on."""
        self.inputs: InputScale | None = None
        self.classes: int | None = None
        """How many outputs it has is not known."""
        self.module = copy.deepcopy(given) if isinstance(given, nn.Module) else None
        first = _named(given)
        self._kinds = {name: array.dtype for name, array in first.items()}
        self.shapes = {name: array.shape for name, array in first.items()}
        self.size = sum(array.size for array in first.values())
        """d: how many numbers the vector has."""
        if not self.size:
            raise ModelError("the model has no weights; give a module or arrays that have some")
        if wrong := [name for name, kind in self._kinds.items() if kind.kind != "f"]:
            raise ModelError(
                f"{wrong[0]} has the type {self._kinds[wrong[0]]}, and only floating-point arrays "
                "can be averaged; leave layers out that count or keep statistics (GroupNorm "
                "instead of BatchNorm)"
            )
        self.initial: Weights = self.flat(first)
        """The weights when it was given."""
        if not np.isfinite(self.initial).all():
            raise ModelError("the model starts with weights that are not finite; initialise them")

    def arrays(self, w: Weights) -> dict[str, NDArray[Any]]:
        """Return the parts of a flat vector, each of its own type."""
        if w.shape != (self.size,):
            raise ModelError(
                f"this model is a vector of {self.size} weights, got shape {tuple(w.shape)}"
            )
        parts, start = {}, 0
        for name, shape in self.shapes.items():
            end = start + int(np.prod(shape, dtype=np.int64))
            parts[name] = w[start:end].astype(self._kinds[name]).reshape(shape)
            start = end
        return parts

    def flat(self, arrays: Arrays) -> Weights:
        """Return arrays as a flat vector; they must be those of this model, in their order."""
        if (names := list(arrays)) != list(self.shapes):
            raise ModelError(_other_names(names, list(self.shapes)))
        for name, array in arrays.items():
            if array.shape != self.shapes[name] or array.dtype.kind != "f":
                raise ModelError(
                    f"{name} has the shape {array.shape} and the type {array.dtype}, where the "
                    f"model's is {self.shapes[name]} of {self._kinds[name]}"
                )
        return np.concatenate([array.astype(np.float64).ravel() for array in arrays.values()])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The arrays as matrices; see `layers_of`."""
        return layers_of(list(self.shapes.items()))

    def redrawn(self, seed: int) -> Weights:
        """Return new first weights, drawn from this seed by the module's own layers."""
        if self.module is None:
            raise ModelError(
                "new first weights of bare arrays cannot be drawn; say how they are made from a "
                "seed (new_model=…), or do not start afresh"
            )
        return self.first_of(redrawn(self.module, seed))

    def first_of(self, given: Any) -> Weights:
        """Return the first weights of another module, or of arrays."""
        return ArrayModel(given).initial

    def module_with(self, w: Weights) -> nn.Module:
        """Return a copy of the module with the weights w, for use (`eval`)."""
        if self.module is None:
            raise ModelError(
                "the model was given as arrays, so there is no module; take its `arrays`"
            )
        module = copy.deepcopy(self.module).eval()
        module.load_state_dict(
            {name: torch.from_numpy(part.copy()) for name, part in self.arrays(w).items()}
        )
        return module

    def classifying(self, shape: tuple[int, ...]) -> FlatModel:
        """Return the module as one that classifies samples of this shape."""
        return FlatModel(self.module_with(self.initial), shape)


def _named(given: Any) -> dict[str, NDArray[Any]]:
    """Return what was given as arrays by name."""
    if isinstance(given, nn.Module):
        return {name: each.detach().cpu().numpy() for name, each in given.state_dict().items()}
    arrays = given if isinstance(given, Mapping) else None
    if arrays is None and isinstance(given, list | tuple):
        arrays = {str(place): each for place, each in enumerate(given)}
    if arrays is None or not all(
        isinstance(name, str) and isinstance(each, np.ndarray) for name, each in arrays.items()
    ):
        raise ModelError(
            "the model must be a torch module, or arrays of numpy by name or in a list, got "
            f"a {type(given).__name__}"
        )
    return dict(arrays)


def _other_names(got: list[str], own: list[str]) -> str:
    if sorted(got) == sorted(own):
        place = next(i for i, (a, b) in enumerate(zip(got, own, strict=True)) if a != b)
        return f"its arrays stand in another order: {got[place]} where {own[place]} is expected"
    if lacks := [name for name in own if name not in got]:
        return f"it has no array {lacks[0]}; it has {', '.join(got) or 'none'}"
    more = next(name for name in got if name not in own)
    return f"it has an array {more}, which the model has not"
