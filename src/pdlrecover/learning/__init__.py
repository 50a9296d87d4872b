"""Learning: data, who holds it, models as flat vectors, and the updates of one peer or of all."""

from typing import TYPE_CHECKING

from pdlrecover.later import later

if TYPE_CHECKING:
    from pdlrecover.learning.batches import Batches
    from pdlrecover.learning.datasets import Dataset, load
    from pdlrecover.learning.downloads import download
    from pdlrecover.learning.evaluation import (
        accuracy,
        confidences,
        correct_and_loss,
        mean_loss,
        predictions,
    )
    from pdlrecover.learning.flat_model import FlatModel, Weights
    from pdlrecover.learning.heads import LinearHead, one_vs_rest
    from pdlrecover.learning.held_out import hold_out, most_held_out
    from pdlrecover.learning.updates import LocalTraining, Updates, clip, data_weights, gradients

__all__ = [
    "Batches",
    "Dataset",
    "FlatModel",
    "LinearHead",
    "LocalTraining",
    "Updates",
    "Weights",
    "accuracy",
    "clip",
    "confidences",
    "correct_and_loss",
    "data_weights",
    "download",
    "gradients",
    "hold_out",
    "load",
    "mean_loss",
    "most_held_out",
    "one_vs_rest",
    "predictions",
]

__getattr__ = later(
    __name__,
    {
        "Batches": "batches",
        "Dataset": "datasets",
        "FlatModel": "flat_model",
        "LinearHead": "heads",
        "LocalTraining": "updates",
        "Updates": "updates",
        "Weights": "flat_model",
        "accuracy": "evaluation",
        "clip": "updates",
        "confidences": "evaluation",
        "correct_and_loss": "evaluation",
        "data_weights": "updates",
        "download": "downloads",
        "gradients": "updates",
        "hold_out": "held_out",
        "load": "datasets",
        "mean_loss": "evaluation",
        "most_held_out": "held_out",
        "one_vs_rest": "heads",
        "predictions": "evaluation",
    },
)


def __dir__() -> list[str]:
    return __all__
