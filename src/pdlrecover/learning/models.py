"""Models by name: built in, or a user's own by import path.

Rules:

- A model takes (batch, *shape) and returns (batch, classes) logits.
- Initial weights are a function of the seed; the global random state of torch is left as it was.
- `package.module:factory` is imported and called: it is the user's own code, and runs as such.
"""

import importlib
import inspect
import math
import re
from collections.abc import Callable

import torch
from torch import nn

from pdlrecover.errors import ModelError

Shape = tuple[int, ...]

KNOWN = "logistic, mlp, mlp-<hidden units>, cnn, or package.module:factory"


def build(name: str, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Return the model of that name for samples of that shape, with initial weights by seed.

    - logistic: one linear layer
    - mlp, mlp-300: one hidden layer of 100, or of 300, and ReLU
    - cnn: two 3×3 convolutions of stride 2, with 16 and 32 channels, then a linear layer
    - package.module:factory: what factory(shape, classes), or else factory(), returns
    """
    make = _maker(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(shape, classes)


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Return multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(shape: Shape, classes: int, hidden: int = 100) -> nn.Module:
    """Return a perceptron with one hidden layer."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Return a small convolutional network.

    Its convolutions have strides instead of pooling: for many peers at once that is four times
    as fast.
    """
    if len(shape) != 3:
        raise ModelError(f"the cnn needs images (channels, height, width), got shape {shape}")
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * math.ceil(height / 4) * math.ceil(width / 4), classes),
    )


def _maker(name: str) -> Callable[[Shape, int], nn.Module]:
    if name == "logistic":
        return logistic
    if name == "cnn":
        return cnn
    if hidden := re.fullmatch(r"mlp(?:-([1-9][0-9]*))?", name):
        return lambda shape, classes: mlp(shape, classes, int(hidden[1] or 100))
    if ":" in name:
        return _imported(name)
    raise ModelError(f"no model is called {name!r}; known are {KNOWN}")


def _imported(path: str) -> Callable[[Shape, int], nn.Module]:
    module_name, _, attribute = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            f"cannot import the model {path!r} ({error}); it must name package.module:factory, "
            "with the package installed or on PYTHONPATH"
        ) from error

    def make(shape: Shape, classes: int) -> nn.Module:
        try:
            module = factory(shape, classes) if _takes_two(factory) else factory()
        except Exception as error:  # it is the user's own code
            raise ModelError(
                f"{path} did not return a module, but {type(error).__name__}: {error}; it is "
                "called as factory(shape, classes), or as factory() if it takes nothing"
            ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"{path} returned {type(module).__name__}, not a torch.nn.Module")
        return module

    return make


def _takes_two(factory: Callable[..., object]) -> bool:
    """Whether the factory asks for (shape, classes).

    Parameters that only have defaults do not ask: `resnet50(weights=None, progress=True)` wants
    to be called without arguments.
    """
    positional = [
        parameter
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [p for p in positional if p.default is p.empty]
    return bool(required) or [p.name for p in positional[:2]] == ["shape", "classes"]
