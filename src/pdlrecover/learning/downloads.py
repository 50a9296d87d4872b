"""Getting a dataset's files from where they are published.

Rules:

- A file is written under a temporary name, and takes its own only after its SHA-256 was checked:
  whatever happens, no half file is left behind. So one address may be plain HTTP.
- What is there already and undamaged is not fetched again.
- HAR comes as an archive inside an archive. The inner one has the known digest; of it only the
  files that are read are unpacked, into har/UCI HAR Dataset/, which appears whole or not at all.
"""

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from pdlrecover.errors import DataError
from pdlrecover.learning import files, har

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far of one file, and its length (0 if unknown)."""

ADDRESSES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "har": (
        "https://archive.ics.uci.edu/static/public/240/"
        "human+activity+recognition+using+smartphones.zip"
    ),
}

HAR_ARCHIVE = "UCI HAR Dataset.zip"
HAR_DIGEST = "2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0"
"""SHA-256 of the inner archive, which has stayed the same while its wrapping changed."""

_PIECE = 1 << 18
_PATIENCE = 60.0
"""Seconds without a byte after which a download is given up."""


def download(
    name: str, data_dir: Path | str | None = None, progress: Progress | None = None
) -> None:
    """Fetch the files of mnist, fashion-mnist or har (both its forms) into the data folder."""
    folder = files.data_folder(data_dir)
    match name:
        case "mnist" | "fashion-mnist":
            for path in files.idx_paths(name):
                _fetch_known(path, ADDRESSES[name] + path.split("/")[1], folder, progress)
        case "har" | "har-inertial":
            _fetch_har(folder / "har", progress)
        case "digits":
            pass  # they come with this package
        case _:
            raise DataError(
                f"no dataset called {name!r} can be downloaded; known are {', '.join(ADDRESSES)}"
            )


def _fetch_known(path: str, address: str, folder: Path, progress: Progress | None) -> None:
    place = folder / path
    if place.is_file() and files.digest(place) == files.DIGESTS[path]:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".part-") as room:
        part = Path(room) / place.name
        _require(_fetch(address, part, progress), files.DIGESTS[path], address)
        part.replace(place)


def _fetch_har(folder: Path, progress: Progress | None) -> None:
    home = folder / HAR_ARCHIVE.removesuffix(".zip")
    if all((home / name).is_file() for name in har.member_names()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as room:
        outer, inner, unpacked = (Path(room) / name for name in ("outer", "inner", "unpacked"))
        _fetch(ADDRESSES["har"], outer, progress)
        try:
            with zipfile.ZipFile(outer) as archive:
                _unpack(archive, HAR_ARCHIVE, inner)
            _require(files.digest(inner), HAR_DIGEST, ADDRESSES["har"])
            with zipfile.ZipFile(inner) as archive:
                for name in har.member_names():
                    _unpack(archive, f"{home.name}/{name}", unpacked / name)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(
                f"what {ADDRESSES['har']} sent is not HAR's archive ({error}); try again later"
            ) from error
        if home.exists():
            os.replace(home, Path(room) / "incomplete")
        os.replace(unpacked, home)


def _fetch(address: str, part: Path, progress: Progress | None) -> str:
    """Write what is at the address to `part`, and return its SHA-256."""
    sha256, done = hashlib.sha256(), 0
    try:
        # The address is one of `ADDRESSES`, never a user's.
        with (
            urllib.request.urlopen(address, timeout=_PATIENCE) as response,  # noqa: S310
            part.open("wb") as file,
        ):
            length = int(response.headers.get("Content-Length") or 0)
            while piece := response.read(_PIECE):
                file.write(piece)
                sha256.update(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, length)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"could not download {address} ({error}); check the network, or put the file into "
            f"{part.parent.parent} by hand"
        ) from error
    return sha256.hexdigest()


def _require(got: str, expected: str, address: str) -> None:
    if got != expected:
        raise DataError(
            f"what {address} sent has the SHA-256 {got[:16]}…, not {expected[:16]}…; nothing was "
            "kept: try again, and do not trust that network if it happens twice"
        )


def _unpack(archive: zipfile.ZipFile, name: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, place.open("wb") as target:
        shutil.copyfileobj(source, target)
