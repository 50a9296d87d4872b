"""The points of `whole_peers` in every form that a peer takes, and the same as images."""

import datasets
import numpy as np
import pandas
import whole_peers
from PIL import Image

from pdlrecover.engines.peers.settings import Data

COLUMNS = ("a", "b", "c")
CLASSES = ("north", "south", "west")
FUNCTION = "formats:own_table"
"""What the fourth peer's function is called."""
HEIGHT, WIDTH = 6, 5


def table(peer):
    """Return a peer's points as a table whose columns are in an order of their own."""
    x, y = whole_peers.datasets()[peer]
    frame = pandas.DataFrame(x.astype(float), columns=COLUMNS)
    frame["kind"] = [CLASSES[label] for label in y]
    return frame[[["c", "b", "kind", "a"], ["kind", "c", "a", "b"]][peer % 2]]


def own_table():
    """Return the fourth peer's samples and labels."""
    frame = table(3)
    return frame[["b", "c", "a"]], frame["kind"]


def write_table(folder, peer):
    """Write a peer's points in a form that is this peer's alone; return what its settings say."""
    frame, (x, y) = table(peer), whole_peers.datasets()[peer]
    match peer:
        case 0:
            frame.to_csv(folder / "own.csv", index=False)
            return Data(file="own.csv", label="kind")
        case 1:
            frame.assign(id=range(len(frame))).to_parquet(folder / "own.parquet")
            return Data(file="own.parquet", label="kind", drop=("id",))
        case 2:
            made = datasets.Dataset.from_pandas(frame)
            names = datasets.ClassLabel(names=list(CLASSES))
            parts = datasets.DatasetDict(train=made.cast_column("kind", names), test=made)
            datasets.disable_progress_bars()
            parts.save_to_disk(folder / "own")
            return Data(dataset="own", split="train", label="kind")
        case 3:
            return Data(function=FUNCTION)
        case _:
            np.savez(folder / "own.npz", x=x, y=y)
            return Data(source="own.npz")


def pictures(peer):
    """Return a peer's samples and labels as images: dark, medium and bright ones, sorted."""
    rng = np.random.default_rng(peer)
    labels = np.sort(rng.integers(0, 3, 12 + peer))
    noise = rng.integers(0, 60, (len(labels), 1, HEIGHT, WIDTH))
    return (noise + 80 * labels[:, None, None, None]).astype(np.uint8), labels


def write_pictures(folder, peer):
    """Write a peer's images as a folder, a dataset or arrays; return what its settings say."""
    pixels, labels = pictures(peer)
    images = [Image.fromarray(each[0]) for each in pixels]
    match peer:
        case 0:
            for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                path = folder / "own" / CLASSES[label] / f"{number:03}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path)
            return Data(folder="own")
        case 1:
            features = datasets.Features(
                {"image": datasets.Image(), "kind": datasets.ClassLabel(names=list(CLASSES))}
            )
            columns = {"image": images, "kind": labels.tolist()}
            datasets.disable_progress_bars()
            datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder / "own")
            return Data(dataset="own", image="image", label="kind")
        case _:
            np.savez(folder / "own.npz", x=as_arrays(peer)[0], y=labels)
            return Data(source="own.npz")


def as_arrays(peer):
    """Return a peer's images as numbers from 0 to 1, and their labels."""
    pixels, labels = pictures(peer)
    return np.divide(pixels, 255, dtype=np.float32), labels
