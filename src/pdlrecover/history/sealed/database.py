"""One LMDB file: it grows ahead of need, and its errors are readable.

Rules:

- A write is one transaction, synced when it returns: it is there as a whole or not at all,
  whatever kills the process.
- `reserve` allocates the disk blocks of the next writes, past everything in use. A full disk, a
  quota or the limit shows there, before a round, and not in the middle of one: a write that fits
  what was reserved before is not refused.
- A file whose pages are damaged, or that was cut off, is not handed to LMDB: it would crash the
  process. Whoever opens it for writing looks at all pages first.
- One process writes; others may read.
- A process that is killed while it makes the file leaves it empty, or full of zeros if the power
  was lost. Nothing was stored then, and the file is made again.
- Every error of LMDB or of the disk becomes a `HistoryError`. A file that cannot be opened for want
  of descriptors is waited for first.
"""

import errno
import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import lmdb
from lmdb.verify import VerifyError
from lmdb.verify import verify as verify_pages

from pdlrecover.descriptors import SPENT, TOO_MANY, patiently
from pdlrecover.errors import HistoryError

DATA, LOCK, HEAD_FILE = "data.mdb", "writer.lock", "head"
FIRST_MAP = 16 << 20
NEWBORN = 4 << 20
"""Before its first write is done a file is smaller."""
SPARE = 4 << 20
"""Bytes of the disk that are left to others: logs, and the small files next to the data."""

Reading: TypeAlias = "lmdb.Transaction[memoryview]"
Writing: TypeAlias = "lmdb.Transaction[bytes]"

_REPAIR = (
    "restore the whole folder from a backup, or move it away and fetch the public rounds from "
    "other peers"
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Database:
    """An LMDB environment in a folder of mode 0700."""

    def __init__(self, folder: Path, *, read_only: bool = False, limit: int | None = None) -> None:
        self.folder, self.read_only, self.limit = folder, read_only, limit
        self._path = folder / DATA
        self._reserved = 0
        """Up to here the file is this process's to write."""
        if read_only and not self._path.exists():
            raise HistoryError(f"there is no history in {folder}")
        if not read_only:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._writer = None if read_only else only_writer(folder)
        try:
            if not read_only and self._path.exists() and is_blank(folder):
                os.truncate(self._path, 0)
            if not read_only and self._path.exists() and (found := damaged_pages(folder)):
                raise HistoryError(
                    f"the structure of the database in {folder} is damaged ({found[0]}); {_REPAIR}"
                )
            self._env = self._opened()
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Let go of the files."""
        self._env.close()
        self._release()

    @property
    def size(self) -> int:
        """How many bytes the file has on disk."""
        return self._path.stat().st_blocks * 512

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Look at one moment of the data."""
        with said(self.folder), self._begun() as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Write all that happens inside at once, and synced; an exception undoes it."""
        self._check_writable()
        with said(self.folder), self._env.begin(write=True) as transaction:
            yield transaction

    def reserve(self, size: int) -> None:
        """Make sure that a write of `size` bytes finds room, or raise."""
        self._check_writable()
        page = self._env.stat()["psize"]
        used = (self._env.info()["last_pgno"] + 1) * page
        end = used + size + size // 64 + 256 * page
        end += -end % page
        if end <= self._reserved:
            return
        if self.limit is not None and end > self.limit:
            raise HistoryError(
                f"the history in {self.folder} would grow to {_needed(end)} and "
                f"{_there(self.limit)} are allowed; allow more, or keep the shares of fewer "
                "rounds; nothing was written"
            )
        self._allocate(used, end)
        if end > self._env.info()["map_size"]:
            with said(self.folder):
                self._env.set_mapsize(2 * end)
        self._reserved = end

    def _check_writable(self) -> None:
        if self.read_only:
            raise HistoryError(f"the history in {self.folder} was opened for reading only")

    def _allocate(self, used: int, end: int) -> None:
        disk = os.statvfs(self.folder)
        free, allocated = disk.f_bavail * disk.f_frsize, self._path.stat().st_blocks * 512
        if end > allocated and end - allocated + SPARE > free:
            needs = (
                f"{_needed(end - allocated + SPARE)} of free disk, {_there(SPARE)} of which stay"
            )
            raise self._no_room(f"{needs} free for other files,", f"{_there(free)} are free")
        if not hasattr(os, "posix_fallocate"):
            return
        before = self._path.stat().st_size
        try:
            with patiently(lambda: self._path.open("r+b")) as file:
                os.posix_fallocate(file.fileno(), used, end - used)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                return
            os.truncate(self._path, before)
            needs = f"{_needed(end - allocated)} more"
            raise self._no_room(needs, os.strerror(error.errno)) from error

    def _no_room(self, needs: str, why: str) -> HistoryError:
        return HistoryError(
            f"the next write to {self.folder} needs {needs} and there is no room ({why}); make "
            "room and start again; nothing was written, and nothing is lost"
        )

    def _opened(self) -> lmdb.Environment:
        with said(self.folder):
            size = self._path.stat().st_size if self._path.exists() else 0
            env = patiently(
                lambda: lmdb.open(
                    str(self.folder),
                    map_size=max(FIRST_MAP, size),
                    readonly=self.read_only,
                    mode=0o600,
                    create=not self.read_only,
                )
            )
        needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if size and size < needed:
            env.close()
            raise HistoryError(
                f"{self._path} was cut off: it has {size} bytes of at least {needed}; {_REPAIR}"
            )
        return env

    def _begun(self) -> Reading:
        try:
            return self._env.begin(buffers=True)
        except lmdb.MapResizedError:  # another process wrote more than is mapped here
            self._env.set_mapsize(0)
            return self._env.begin(buffers=True)

    def _release(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


def is_blank(folder: Path) -> bool:
    """Say whether nothing was ever written: no head file, and a database of no bytes, or zeros."""
    path = folder / DATA
    with said(folder):
        small = not (folder / HEAD_FILE).exists() and path.stat().st_size <= NEWBORN
        return small and not any(patiently(path.read_bytes))


def damaged_pages(folder: Path) -> list[str]:
    """Say what is wrong with the structure of a database that nobody is writing to."""
    path = folder / DATA
    try:
        with said(folder):
            return patiently(lambda: _verified(folder)) if path.stat().st_size else []
    except VerifyError as error:
        return [str(error)]


def _verified(folder: Path) -> list[str]:
    found: list[str] = verify_pages(str(folder))  # type: ignore[no-untyped-call]
    return found


def only_writer(folder: Path) -> int:
    """Return a file descriptor that keeps other writers away until it is closed."""
    with said(folder):
        fd = patiently(lambda: os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise HistoryError(
            f"another process is using the history in {folder}; stop it first"
        ) from error
    return fd


@contextmanager
def said(folder: Path) -> Iterator[None]:
    """Say what the database or the disk reports as a `HistoryError`."""
    try:
        yield
    except lmdb.MapFullError as error:
        raise HistoryError(
            f"the history in {folder} outgrew the room reserved for it; this write was undone and "
            "nothing is lost; reserve more and try again"
        ) from error
    except (lmdb.Error, OSError) as error:
        code = error.code if isinstance(error, lmdb.Error) else error.errno
        if code in _NO_ROOM:
            raise HistoryError(
                f"the disk of {folder} is full ({os.strerror(code)}); this write was undone and "
                "nothing is lost; make room and start again"
            ) from error
        if code in SPENT:
            raise HistoryError(
                f"the history in {folder} cannot be opened ({os.strerror(code)}): {TOO_MANY}; "
                "nothing that was stored is lost by that; then start again"
            ) from error
        if code == errno.EIO:
            raise HistoryError(
                f"the disk of {folder} refused a write or a read ({error}): it is full or failing; "
                "nothing that was stored is lost by that; make room or look at the disk, and start "
                "again"
            ) from error
        raise HistoryError(
            f"the history in {folder} cannot be used ({error}); {_REPAIR}"
        ) from error


def _needed(size: int) -> str:
    """Return a size that is needed, rounded up: next to a smaller one that is there, it differs."""
    return _size(math.ceil(size / 1e5))


def _there(size: int) -> str:
    """Return a size that is there, rounded down."""
    return _size(math.floor(size / 1e5))


def _size(tenths: int) -> str:
    return f"{tenths / 10:.1f} MB" if tenths < 10_000 else f"{tenths / 10_000:.4f} GB"
