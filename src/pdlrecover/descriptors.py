"""File descriptors: how many a process may have, and what it does when there are none left.

Rules:

- Files and connections are taken from one number. The operating system has two limits for it: the
  soft one, which counts, and the hard one, up to which a process may raise the soft one by itself.
- Whoever cannot open a file for want of descriptors waits: connections of strangers, which anybody
  can make, are closed soon by those who accept them. What is still not possible after that long is
  an error, and it says what there is too much of.
"""

import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
LOG = logging.getLogger("pdlrecover.descriptors")
PATIENCE, PAUSE = 60.0, 0.1
"""For so many seconds a file is tried to be opened, with pauses of so many."""
SPENT = (errno.EMFILE, errno.ENFILE)
TOO_MANY = (
    "too many files and connections are open: let only the other peers through the firewall, or "
    "raise the limit (ulimit -n, or LimitNOFILE= of a systemd unit)"
)
_OWN = ("/proc/self/fd", "/dev/fd")
_USUAL = 64
"""So many are taken to be in use where the system does not say."""


def is_spent(error: BaseException) -> bool:
    """Say whether something failed for want of descriptors; LMDB's errors have a `code`."""
    return (getattr(error, "errno", None) or getattr(error, "code", None)) in SPENT


def patiently(act: Callable[[], T], patience: float = PATIENCE) -> T:
    """Do what needs descriptors; while there are none, wait and try again, for so many seconds."""
    end: float | None = None
    while True:
        try:
            return act()
        except Exception as error:
            if not is_spent(error):
                raise
            now = time.monotonic()
            if end is None:
                end = now + patience
                if patience:
                    text, facts = (
                        "a file cannot be opened, and is waited for: %s",
                        {"event": "descriptors"},
                    )
                    LOG.warning(text, TOO_MANY, extra={"facts": facts})
            if now >= end:
                raise
        time.sleep(PAUSE)


def remedy(error: OSError, otherwise: str) -> str:
    """Return what to do about a file that cannot be written: that, or have fewer files open."""
    return TOO_MANY if is_spent(error) else otherwise


def raise_limit() -> int:
    """Raise the soft limit to the hard one, and return how many descriptors there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # a system may have a lower one than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """Return how many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def in_use() -> int:
    """Return how many descriptors this process has."""
    return len(_all()) or _USUAL


def callers(port: int) -> set[tuple[str, int]] | None:
    """Return host and port of all who are connected to a port of this process; None if unknown."""
    found: set[tuple[str, int]] = set()
    if not (descriptors := _all()):
        return None
    for fd in descriptors:
        try:
            looked_at = socket.socket(fileno=fd)
        except OSError:  # no socket, or closed meanwhile
            continue
        try:
            here, there = looked_at.getsockname(), looked_at.getpeername()
        except OSError:  # it listens, or is not connected any more
            continue
        finally:
            looked_at.detach()
        if looked_at.family in (socket.AF_INET, socket.AF_INET6) and here[1] == port:
            found.add((there[0].removeprefix("::ffff:"), there[1]))
    return found


def _all() -> list[int]:
    """Return the descriptors of this process; none where the system does not tell."""
    for place in _OWN:
        with suppress(OSError):
            return [int(name) for name in os.listdir(place)]
    return []
