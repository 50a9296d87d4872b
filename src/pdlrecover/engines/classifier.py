"""A model that answers in the user's own labels, and its file.

The file is a safetensors file of the module's `state_dict`, as real peers write theirs, with this
metadata, all as text (and, where inputs are standardised, their scale as two more tensors):

    format            pdlrecover 1
    tensors_sha256    digest of the tensors, checked when the file is loaded
    classes           the labels in the order of the model's outputs, as a JSON list
    shape             the shape of a sample, as a JSON list
    columns           the columns of the tables it was trained on, as a JSON list, if they are texts

A trained model adds `weights_sha256`, the digest of the weights in float64 that real peers write to
their result files, and `made_by`, one line on how it came about. A peer's file has of all this only
the names that its federation agreed on: its digest is in the JSON file beside it, and is checked
where that is there.
"""

import copy
import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray

from pdlrecover.engines.summary import Summary
from pdlrecover.errors import DataError, ModelError
from pdlrecover.files import read_bytes, read_json, write_whole
from pdlrecover.learning.classes import Classes
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.intake import (
    Columns,
    check_columns,
    columns_of,
    samples_and_labels,
    samples_of,
)

FORMAT = "pdlrecover 1"
SUFFIX = ".safetensors"
_BATCH = 2048
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A torch module and the classes that its outputs stand for."""

    model: torch.nn.Module
    """The module, with its weights; it takes samples on the scale of `inputs`, if there is one."""
    known: Classes | None = None
    """The classes; None: the numbers of the outputs, however many there are."""
    shape: tuple[int, ...] | None = None
    """The shape of a sample; None if it is not known."""
    made_by: str = ""
    """How it came about, in one line, if the file says so."""
    columns: Columns | None = None
    """The columns of the tables that it was trained on, if these were tables."""
    inputs: InputScale | None = None
    """The scale that samples are brought to, if inputs are standardised."""

    @property
    def classes(self) -> tuple[Hashable, ...] | None:
        """The labels, in the order of the model's outputs; None: the numbers of the outputs."""
        return None if self.known is None else self.known.names

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the label that the model gives to each sample, of the kind it was trained with.

        `x` is a tensor, an array, a list or a table of pandas, with one row for each sample.
        """
        check_columns(columns_of(x), self.columns, "the samples")
        logits = self._logits(samples_of(x))
        return self._names_of(logits).named(logits.argmax(dim=1))

    def accuracy(self, x: Any, y: Any) -> float:
        """Return the share of these samples, from 0 to 1, that get their own label."""
        check_columns(columns_of(x), self.columns, "the samples")
        samples, labels = samples_and_labels(x, y)
        logits = self._logits(samples)
        own = self._names_of(logits).numbers(labels, "the labels")
        return int((logits.argmax(dim=1) == own).sum()) / len(own)

    def save(self, path: Path | str) -> None:
        """Write the model to a `.safetensors` file; `pdlrecover.load_model` reads it."""
        write_model(path, self, {})

    def _names_of(self, logits: torch.Tensor) -> Classes:
        return self.known or Classes.numbered(logits.shape[1])

    def _logits(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the model's outputs (N, classes)."""
        if self.shape is not None and tuple(samples.shape[1:]) != self.shape:
            raise DataError(
                f"the model takes samples of shape {self.shape}, got {tuple(samples.shape[1:])}; "
                "prepare them as in the training"
            )
        if not len(samples):
            raise DataError("there are no samples to classify; give at least one")
        scale = self.inputs or (lambda piece: piece)
        try:
            with torch.no_grad():
                pieces = torch.split(samples, _BATCH)
                logits = torch.cat([self.model(scale(piece)) for piece in pieces])
        except Exception as error:  # it is the user's code, and may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"the model does not take samples of shape {tuple(samples.shape[1:])}: {reason}"
            ) from error
        width = len(self.classes) if self.classes else logits.shape[-1]
        if logits.shape != (len(samples), width):
            raise ModelError(
                f"the model must return {width} numbers for each sample, one for each class; for "
                f"{len(samples)} samples it returned the shape {tuple(logits.shape)}"
            )
        return logits

    def summary(self) -> Summary:
        """Return what there is to say in a few lines."""
        kind = type(self.model).__name__
        weights = sum(p.numel() for p in self.model.parameters())
        rows = [("module", f"{kind} with {weights} weights"), ("classes", classes_text(self.known))]
        rows += [("inputs", "standardised")] if self.inputs else []
        rows += [("made by", self.made_by)] if self.made_by else []
        return Summary(title="Model", rows=tuple(rows))

    def __repr__(self) -> str:
        return f"<Classifier: {type(self.model).__name__}, classes {classes_text(self.known)}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().html()


def classes_text(known: Classes | None) -> str:
    """Return the classes in a few words."""
    if known is None:
        return "the numbers of the outputs"
    names = [str(name) for name in known.names]
    if known.are_plain and len(names) > 2:
        return f"0 to {len(names) - 1}"
    return ", ".join(names[:5]) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


def write_model(path: Path | str, classifier: Classifier, more: Mapping[str, str]) -> None:
    """Write a classifier to a safetensors file, with more metadata."""
    place = _place(path)
    if place.suffix != SUFFIX:
        raise ModelError(f"models are saved as {SUFFIX} files, got {place.name!r}; name it so")
    tensors = _tensors(classifier.model)
    tensors |= classifier.inputs.tensors if classifier.inputs else {}
    metadata = {
        "format": FORMAT,
        "tensors_sha256": _digest(tensors),
        **more,
    }
    if classifier.classes is not None:
        metadata["classes"] = _written(classifier.classes)
    if classifier.shape is not None:
        metadata["shape"] = json.dumps(classifier.shape)
    if classifier.columns and all(isinstance(name, str) for name in classifier.columns):
        metadata["columns"] = json.dumps(classifier.columns)
    write_whole(place, safetensors.torch.save(tensors, metadata), ModelError)


def load_model(
    path: Path | str, module: torch.nn.Module, *, classes: Iterable[Hashable] | None = None
) -> Classifier:
    """Return a saved model: your module with the weights of a `.safetensors` file.

    It takes what `save` of a trained or recovered model wrote, and the files `trained.safetensors`
    and `recovered-….safetensors` of a real peer. Your module is copied, and its own weights do not
    matter; it must have the layers that the model was trained with. `classes` names the labels in
    the order of the model's outputs where the file does not; else labels are the outputs' numbers.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"load_model needs a torch module to put the weights in, got {type(module).__name__}; "
            "build it as for the training"
        )
    if isinstance(classes, str) or not isinstance(classes, Iterable | None):
        raise ModelError(f"classes must be a list, one for each output, got {classes!r:.60}")
    place = _place(path)
    content = read_bytes(place, ModelError, missing="name a .safetensors file")
    tensors, metadata = _parsed(content, place)
    _check_digest(tensors, metadata, content, place)
    inputs = InputScale.taken_from(tensors)
    model = copy.deepcopy(module).float().eval()
    put_weights(model, tensors, str(place))
    try:
        known = json.loads(metadata["classes"]) if "classes" in metadata else None
        shape = tuple(json.loads(metadata["shape"])) if "shape" in metadata else None
        columns = tuple(json.loads(metadata["columns"])) if "columns" in metadata else None
    except (ValueError, TypeError) as error:
        raise ModelError(f"{place} is damaged: its metadata are {error}; save it again") from error
    given = known if classes is None else list(classes)
    if known and given and sorted(map(str, given)) != sorted(map(str, known)):
        raise ModelError(
            f"{place} says that its classes are {known}, and classes={given} are given; leave them "
            "out, or save the model again with others"
        )
    names = None if given is None else Classes(names=tuple(given))
    made_by = metadata.get("made_by", "")
    return Classifier(
        model=model, known=names, shape=shape, made_by=made_by, columns=columns, inputs=inputs
    )


def put_weights(module: torch.nn.Module, tensors: Tensors, source: str) -> None:
    """Give a module these weights, or say how its layers differ from those in the source."""
    own = module.state_dict()
    lacks, extra = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if lacks or extra:
        parts = [f"it has {lacks[0]}, which is not there"] if lacks else []
        parts += [f"{extra[0]} is there, which it does not have"] if extra else []
        raise ModelError(
            f"the module is another one than that in {source}: {' and '.join(parts)}; "
            "build it as for the training"
        )
    for name, mine in own.items():
        if mine.shape != tensors[name].shape:
            raise ModelError(
                f"the module is another one than that in {source}: its {name} has the shape "
                f"{tuple(mine.shape)}, and there it has {tuple(tensors[name].shape)}; "
                "build it as for the training"
            )
    module.load_state_dict(tensors)


def weights_digest(weights: NDArray[np.float64]) -> str:
    """Return the digest of a flat vector of weights, as real peers write it."""
    return hashlib.sha256(weights.astype("<f8").tobytes()).hexdigest()


def _tensors(module: torch.nn.Module) -> Tensors:
    return {name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()}


def state_bytes(module: torch.nn.Module) -> bytes:
    """Return a module's state as the content of a safetensors file."""
    return safetensors.torch.save(_tensors(module))


def state_of(content: bytes, path: Path) -> Tensors:
    """Return the state in the content of a safetensors file."""
    return _parsed(content, path)[0]


def _parsed(content: bytes, path: Path) -> tuple[Tensors, dict[str, str]]:
    try:
        tensors = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except (safetensors.SafetensorError, ValueError) as error:
        raise ModelError(
            f"{path} is no safetensors file, or it is damaged ({error}); give one that `save` or "
            "a peer has written"
        ) from error
    return tensors, metadata


def _check_digest(
    tensors: Tensors, metadata: Mapping[str, str], content: bytes, path: Path
) -> None:
    """Raise if a file does not hold what was written."""
    beside = path.with_suffix(".json")
    expected = metadata.get("tensors_sha256")
    got = _digest(tensors)
    if expected is None and beside.exists():
        facts = read_json(beside, ModelError)
        expected = str(facts.get("file_sha256", "")) if isinstance(facts, dict) else ""
        got = hashlib.sha256(content).hexdigest()
    if expected and expected != got:
        raise ModelError(
            f"{path} is damaged: the digest of its weights is {got[:16]}…, not {expected[:16]}…; "
            "get it again from where it was saved"
        )


def _digest(tensors: Tensors) -> str:
    """Return a digest of tensors with their names, kinds and shapes."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        hashed.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _place(path: Path | str) -> Path:
    if not isinstance(path, str | Path):
        raise ModelError(f"a model's file must be given by its path, got {path!r:.60}")
    return Path(path)


def _written(classes: tuple[Hashable, ...]) -> str:
    """Return classes as JSON; what JSON does not have is written as text."""
    plain = (str, int, float, bool)
    return json.dumps([name if isinstance(name, plain) else str(name) for name in classes])
