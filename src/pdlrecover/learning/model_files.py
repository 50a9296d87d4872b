"""A model's weights as a safetensors file, by the names of the module's own tensors.

`module.load_state_dict(safetensors.torch.load_file(path))` puts one into the module again, unless
inputs are standardised: then their scale is in the file, too, and `pdlrecover.load_model` knows it.
"""

import json
from collections.abc import Mapping

import safetensors
import safetensors.torch
import torch

from pdlrecover.errors import ModelError
from pdlrecover.learning.flat_model import FlatModel, Weights


def to_safetensors(
    model: FlatModel, weights: Weights, metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return the file of a model with these weights: float32, with what is not trained, too.

    It has the same bytes wherever it is made.
    """
    state = model.module_with(weights).state_dict()
    state |= model.inputs.tensors if model.inputs else {}
    content = safetensors.torch.save({key: value.clone() for key, value in state.items()})
    return _with_metadata(content, metadata) if metadata else content


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Put metadata into a file's header; safetensors would put it there in any order."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = {"__metadata__": dict(sorted(metadata.items())), **json.loads(content[8:start])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def from_safetensors(model: FlatModel, content: bytes) -> Weights:
    """Return the weights in a file; raise ModelError if it is of another model, or no such file."""
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError) as error:
        raise ModelError(f"this is no safetensors file: {error}") from error
    wanted = {key: part.shape for key, part in model.parameters(torch.zeros(model.size)).items()}
    for key, shape in wanted.items():
        if key not in tensors or tensors[key].shape != shape:
            found = tuple(tensors[key].shape) if key in tensors else "missing"
            raise ModelError(f"the tensor {key} must have shape {tuple(shape)}, and is {found}")
    weights: Weights = torch.cat([tensors[key].flatten() for key in wanted]).double().numpy()
    return weights
