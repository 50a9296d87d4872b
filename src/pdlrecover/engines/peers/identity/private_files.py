"""Files that only their owner may read.

Rules: a file has mode 0600 and its folder 0700, and both belong to whoever runs the process, or to
root. A folder appears with all its files at once, and nothing is ever overwritten. What others may
read is refused, not repaired: it may have been read already.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pdlrecover.errors import IdentityError
from pdlrecover.files import sync_folder, write_new

MAX_BYTES = 1 << 16
"""No key is longer."""


def create_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder with these files, all at once."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for name, content in files.items():
                write_new(made / name, content)
            sync_folder(made)
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        sync_folder(folder.parent)
    except FileExistsError as error:
        raise _exists(folder) from error
    except OSError as error:
        if folder.exists():
            raise _exists(folder) from error
        raise IdentityError(f"{folder} cannot be made: {error.strerror}") from error


def create_file(path: Path, content: bytes) -> None:
    """Write a new private file, in a folder that is there: a disk may have to be put in first."""
    try:
        write_new(path, content)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise _exists(path) from error
    except FileNotFoundError as error:
        raise IdentityError(
            f"the folder {path.parent} is not there, and {path.name} cannot be written; make the "
            "folder, or put in the disk that it is on"
        ) from error
    except OSError as error:
        raise IdentityError(f"{path} cannot be written: {error.strerror}") from error


def read_file(path: Path, missing: str) -> bytes:
    """Read a private file; refuse it if others may read or change it.

    `missing` says what to do if it is not there.
    """
    try:
        with path.open("rb") as file:
            _check(path, os.fstat(file.fileno()), "600")
            return file.read(MAX_BYTES)
    except FileNotFoundError as error:
        raise IdentityError(f"{path} is not there; {missing}") from error
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error


def read_credential(path: Path) -> bytes:
    """Read a file that a service was given by whoever starts it, in a folder of its own.

    systemd leaves it to root and lets the service's user in by an access list, which shows as the
    group's right to read: that much is allowed here. Others may not read, and nobody write.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & 0o037 or status.st_uid not in (os.geteuid(), 0):
                mode = stat.S_IMODE(status.st_mode)
                raise IdentityError(
                    f"{path} is open to other users (mode {mode:04o}, user {status.st_uid}); a "
                    "credential belongs to root or to the service, and has mode 0440 or less"
                )
            return file.read(MAX_BYTES)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error


def check_folder(folder: Path) -> None:
    """Refuse a folder that others may look into."""
    try:
        _check(folder, folder.stat(), "700")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IdentityError(
            f"{folder} is not there: is {folder.parent} a peer's folder? Name the one that "
            "`pdlrecover peer init` has made"
        ) from error
    except OSError as error:
        raise IdentityError(f"{folder} cannot be read: {error.strerror}") from error


def _check(path: Path, status: os.stat_result, mode: str) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise IdentityError(
            f"{path} belongs to another user (number {status.st_uid}); keys must be the property "
            "of the user that runs the peer: chown it, or run as that user"
        )
    if status.st_mode & 0o077:
        raise IdentityError(
            f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}); close it by "
            f"`chmod {mode} {path}`, and make new keys if others may have read it"
        )


def _exists(path: Path) -> IdentityError:
    return IdentityError(f"{path} exists already, and keys are never overwritten; move it away")
