"""Reads back what was tracked, by the tools' own readers."""

import warnings

from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def tensorboard(folder):
    """Return TensorBoard's reader of a run."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    return reader


def curve(folder, tag):
    """Return a curve's points as TensorBoard has them."""
    return [(point.step, point.value) for point in tensorboard(folder).Scalars(tag)]


def curves(folder):
    """Return all curves of a run, but for what was timed."""
    reader = tensorboard(folder)
    return {
        tag: [(point.step, point.value) for point in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
        if "seconds" not in tag
    }


def text(folder, tag):
    """Return a text of a run."""
    (event,) = tensorboard(folder).Tensors(tag)
    return event.tensor_proto.string_val[0].decode()


def mlflow_client(folder):
    """Return MLflow's reader of a folder; it wants MLFLOW_ALLOW_FILE_STORE, or warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The filesystem ", FutureWarning)
        return MlflowClient(tracking_uri=folder.resolve().as_uri())
