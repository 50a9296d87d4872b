"""Reading and writing files: atomic, locked, and with errors that say what to do.

Where `error` is given, it is raised with the file's name and what to do, instead of an `OSError`.
A file that cannot be opened for want of descriptors is waited for (see `descriptors`).
"""

import fcntl
import glob
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pdlrecover.descriptors import PATIENCE, patiently, remedy
from pdlrecover.errors import LocalError


def write_whole(
    path: Path,
    content: str | bytes | bytearray,
    error: type[LocalError] | None = None,
    *,
    durable: bool = False,
    patience: float = PATIENCE,
) -> None:
    """Replace a file at once: a reader sees the old one or the new one, never a part.

    With `durable` it survives a crash once this has returned, and only its owner may read it; else
    it has the mode of the file that it replaces. What is no file, as a pipe, is written to.
    """
    target = Path(os.path.realpath(path))  # a link stays, and what it points at is replaced
    part = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.part")
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            target.write_bytes(data)
            return
        left = f"{glob.escape(target.name)}.*-*.part"
        for each in patiently(lambda: list(target.parent.glob(left)), patience):
            if not _is_running(each):
                each.unlink(missing_ok=True)
        write_new(part, data, mode=0o600 if durable else 0o666, durable=durable, patience=patience)
        if not durable and target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
        if durable:
            sync_folder(target.parent)
    except BaseException as fault:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(fault, OSError):
            raise
        if error is None:
            raise type(fault)(fault.errno, fault.strerror, str(path)) from fault
        what = remedy(fault, "make room or choose another place, and try again")
        raise error(f"{path} cannot be written: {fault.strerror}; {what}") from fault


def _is_running(part: Path) -> bool:
    """Say whether the process that writes this part is there: a killed one leaves its part."""
    process = part.name.rsplit(".", 2)[-2].partition("-")[0]
    return Path("/proc", process).exists() or not Path("/proc/self").exists()


def write_json(
    path: Path,
    value: Any,
    error: type[LocalError] | None = None,
    *,
    indent: int = 2,
    patience: float = PATIENCE,
) -> None:
    """Replace a JSON file at once."""
    write_whole(path, json.dumps(value, indent=indent), error, patience=patience)


def write_new(
    path: Path,
    content: bytes | bytearray,
    *,
    mode: int = 0o600,
    durable: bool = True,
    patience: float = PATIENCE,
) -> None:
    """Write a file that must not be there yet, by default private and synced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    fd = patiently(lambda: os.open(path, flags, mode), patience)
    with open(fd, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(fd)


def make_folder(folder: Path, error: type[LocalError]) -> None:
    """Make a folder, and those that it is in, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise error(
            f"the folder {folder} cannot be written: {fault.strerror}; choose another place"
        ) from fault


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder survive a crash."""
    fd = patiently(lambda: os.open(folder, os.O_RDONLY))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_bytes(path: Path, error: type[LocalError], *, missing: str = "") -> bytes:
    """Return a file's content; `missing` says what to do if there is none."""
    try:
        return patiently(path.read_bytes)
    except FileNotFoundError as fault:
        raise error(f"{path} does not exist; {missing or 'name a file that does'}") from fault
    except IsADirectoryError as fault:
        raise error(f"{path} is a folder; {missing or 'name a file'}") from fault
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from fault


def read_text(path: Path, error: type[LocalError], *, missing: str = "") -> str:
    """Return a text file."""
    try:
        return read_bytes(path, error, missing=missing).decode()
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not a text file (UTF-8): {fault.reason}") from fault


def read_json(
    path: Path, error: type[LocalError], *, missing: str = "", damaged: str | None = "make it again"
) -> Any:
    """Return the value in a JSON file; `damaged` says what to do if it is not JSON.

    It is None for a file that a user has named, which need not be one that was ever written here.
    """
    text = read_text(path, error, missing=missing)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        if damaged is None:
            raise error(
                f"{path} is no JSON file: {fault}; {missing or 'name one that is'}"
            ) from fault
        raise error(f"{path} is damaged: {fault}; {damaged}") from fault


@contextmanager
def about(path: Path | str, error: type[LocalError]) -> Iterator[None]:
    """Say with the file's name what is wrong with its content."""
    try:
        yield
    except LocalError as fault:
        raise error(f"{path}: ", fault) from fault


@contextmanager
def held(folder: Path, error: type[LocalError], remedy: str) -> Iterator[None]:
    """Keep a folder for this process: another one that wants it is refused, and told the remedy.

    The system forgets it when the process ends, however it does, and no file is left of it.
    """
    fd = patiently(lambda: os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise error(f"another process is at work in {folder}; {remedy}") from fault
        except OSError as fault:
            raise error(
                f"{folder} cannot be kept from other processes: {fault.strerror}; choose a folder "
                "on a local disk"
            ) from fault
        yield
    finally:
        os.close(fd)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is at this file or folder; a `.lock` beside it stays."""
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
