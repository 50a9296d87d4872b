"""Class numbers of labels as they were written, by the names that a federation agreed on.

Rules, with C the number of the model's outputs:

- Without names, labels are whole numbers from 0 to C − 1.
- With names, a label is the class of that name: a whole number that of its decimal digits, a truth
  value that of `True` or `False`.
- Arrays and functions may give whole numbers from 0 to C − 1 although classes have names, unless
  these names are whole numbers themselves.
"""

import re

import numpy as np
import torch

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import Classes
from pdlrecover.learning.reading.reading import Reading
from pdlrecover.learning.reading.table import listed, spelled

_NUMERAL = re.compile(r"-?[0-9]+")


def class_numbers(reading: Reading, classes: tuple[str, ...] | None, outputs: int) -> torch.Tensor:
    """Return the class number of every sample."""
    labels, place = reading.labels, reading.place
    whose = f"the labels of {place}"
    if classes is None or (reading.by_number and not any(map(_NUMERAL.fullmatch, classes))):
        if isinstance(labels, np.ndarray):
            wrong = np.flatnonzero((labels < 0) | (labels >= outputs))
            if len(wrong):
                at = int(wrong[0])
                named = ", or name the classes in the plan" if classes is None else ""
                raise DataError(
                    f"{place}, {reading.where(at)} has the label {labels[at]}, and classes are "
                    f"numbered from 0 to {outputs - 1} (its labels are {labels.min()} to "
                    f"{labels.max()}); number them so{named}"
                )
            return Classes.numbered(outputs).numbers(labels, whose)
        if classes is None:
            raise DataError(
                f"{place}, {reading.where(0)} has the label {labels[0]!r}, and the federation "
                "names no classes; let the plan name them in the order of the model's outputs, "
                'under [data]: classes = ["…"], or number the labels from 0'
            )
    own = labels.tolist() if isinstance(labels, np.ndarray) else labels
    known = set(classes)
    names = {value: spelled(str(value)) for value in set(own)}
    for at, value in enumerate(own):
        if names[value] not in known:
            raise DataError(
                f"{place}, {reading.where(at)} has the label {names[value]!r}, and the "
                f"federation's classes are {listed(classes)}; write labels as there, or leave "
                "the sample out"
            )
    return Classes(names=classes).numbers([names[value] for value in own], whose)
