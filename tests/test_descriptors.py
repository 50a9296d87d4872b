"""Descriptors run out for real here: the limit of this process is lowered, and put back."""

import errno
import os
import resource
import socket
import threading
from contextlib import contextmanager, suppress

import lmdb
import pytest

from pdlrecover import descriptors
from pdlrecover.errors import HistoryError, LocalError
from pdlrecover.files import read_bytes, write_whole
from pdlrecover.history import Vault, VaultLayout
from pdlrecover.history.sealed.database import Database

KEY = bytes(range(32))
LAYOUT = VaultLayout(federation=bytes(32), run="ab", peer=0, parameters=10, blocks=3)


@contextmanager
def lowered(soft):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def exhausted(until=None):
    """Take all descriptors; give them back at the end, or when `until` is set, if it is given."""
    with lowered(max(map(int, os.listdir("/proc/self/fd"))) + 8):
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))

        def release():
            if until is not None:
                until.wait(30.0)
            while taken:
                os.close(taken.pop())

        other = threading.Thread(target=release)
        if until is not None:
            other.start()
        try:
            yield
        finally:
            if until is None:
                release()
            else:
                until.set()
                other.join()


@pytest.fixture
def waited(monkeypatch):
    """Be told when somebody waits, and let the wait be short."""
    event = threading.Event()
    real = descriptors.time.sleep
    monkeypatch.setattr(descriptors.time, "sleep", lambda seconds: (event.set(), real(seconds)))
    return event


def test_a_file_is_written_and_read_once_descriptors_are_there_again(tmp_path, waited):
    with exhausted(until=waited):
        write_whole(tmp_path / "file", b"content", durable=True)
    waited.clear()
    with exhausted(until=waited):
        assert read_bytes(tmp_path / "file", LocalError) == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_history_is_opened_once_descriptors_are_there_again(tmp_path, waited):
    lmdb.open(str(tmp_path / "other")).close()  # it imports modules, which are files
    with exhausted(until=waited), Vault(tmp_path / "history", KEY, LAYOUT) as vault:
        vault.put_checkpoints({"name": b"content"})
        assert vault.get_checkpoint("name") == b"content"


def test_a_history_goes_on_once_descriptors_are_there_again(tmp_path, waited):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.put_checkpoints({"name": b"first"})
        with exhausted(until=waited):
            vault.reserve(1 << 20)
            vault.put_checkpoints({"name": b"second"})
        assert vault.get_checkpoint("name") == b"second"


def test_who_waits_in_vain_is_told_what_there_is_too_much_of(tmp_path, monkeypatch):
    monkeypatch.setattr(descriptors.patiently, "__defaults__", (0.0,))
    Database(tmp_path).close()
    with exhausted(), pytest.raises(HistoryError) as opened:
        Database(tmp_path)
    with exhausted(), pytest.raises(LocalError) as written:
        write_whole(tmp_path / "file", b"content", LocalError, patience=0.0)
    for caught in (opened, written):
        assert "too many files and connections are open" in str(caught.value)
        assert "make room" not in str(caught.value)
    assert not (tmp_path / "file").exists()


def test_other_errors_are_not_waited_for():
    def fail():
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        descriptors.patiently(fail)


def test_the_soft_limit_is_raised_to_the_hard_one():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with lowered(100):
        assert descriptors.limit() == 100
        assert descriptors.raise_limit() == descriptors.limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard


def test_descriptors_in_use_are_counted_and_those_of_no_port_are_no_callers():
    before = descriptors.in_use()
    with socket.socket() as one, socket.socket():
        assert descriptors.in_use() == before + 2
        assert descriptors.callers(1) == set()
        assert one.fileno() > 0, "looking at a socket does not close it"
        os.fstat(one.fileno())
