"""Files that are complete or absent, written by one process at a time, read or explained."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pdlrecover.errors import LocalError


def write_whole(path: Path, content: str | bytes | bytearray, *, durable: bool = False) -> None:
    """Replace a file at once: a reader sees the old one or the new one, never a part.

    With `durable` it survives a crash once this has returned, and only its owner may read it.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        mode = 0o600 if durable else 0o666
        data = content.encode() if isinstance(content, str) else content
        write_new(part, data, mode=mode, durable=durable)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once; what JSON has no form for is written as text."""
    write_whole(path, json.dumps(value, indent=2, default=str))


def write_new(
    path: Path, content: bytes | bytearray, *, mode: int = 0o600, durable: bool = True
) -> None:
    """Write a file that must not be there yet, by default private and synced."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(fd, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder survive a crash."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_text(path: Path, error: type[LocalError], *, missing: str = "") -> str:
    """Return a text file, or raise `error` with the reason; `missing` is said if there is none."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError as fault:
        raise error(missing or f"{path} does not exist") from fault
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not a text file (UTF-8)") from fault


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is at this file or folder; a `.lock` beside it stays."""
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
