import os
import resource
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.files import (
    about,
    alone,
    make_folder,
    read_bytes,
    read_json,
    read_text,
    write_json,
    write_new,
    write_whole,
)


@contextmanager
def no_room(size):
    """Let no file grow beyond this size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "a.txt"
    write_whole(path, "é", durable=durable)
    write_whole(path, b"two", durable=durable)
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_durable_file_is_private_and_others_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "private", "x", durable=True)
        write_whole(tmp_path / "shared", "x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "private") == 0o600
    assert mode(tmp_path / "shared") == 0o640


@pytest.mark.parametrize("durable", [False, True])
def test_a_full_disk_keeps_the_old_file(tmp_path, durable):
    path = tmp_path / "a.json"
    write_json(path, [1])
    with no_room(100):
        with pytest.raises(HistoryError, match=r"a\.json cannot be written: File too large; make"):
            write_whole(path, "x" * 10_000, HistoryError, durable=durable)
        with pytest.raises(OSError, match="File too large") as caught:
            write_whole(path, "x" * 10_000, durable=durable)
    assert caught.value.filename == str(path)
    assert read_json(path, PlanError) == [1]
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_place_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match=r"none/a cannot be written: No such file"):
        write_whole(tmp_path / "none" / "a", "", PlanError)
    with pytest.raises(PlanError, match=r"file/a cannot be written: Not a directory"):
        write_whole(tmp_path / "file" / "a", "", PlanError)
    with pytest.raises(PlanError, match=r"cannot be written: Is a directory"):
        write_whole(tmp_path, "", PlanError)
    with pytest.raises(PlanError, match=r"the folder .*file/a cannot be written: Not a directory"):
        make_folder(tmp_path / "file" / "a", PlanError)


def test_the_cause_of_an_error_is_the_operating_systems(tmp_path):
    with pytest.raises(PlanError) as caught:
        write_whole(tmp_path / "none" / "a", "", PlanError)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_reader_never_sees_a_part(tmp_path):
    path = tmp_path / "a"
    contents = {letter * 300_000 for letter in "abcd"}
    path.write_text("a" * 300_000)

    def write(letter):
        for _ in range(20):
            write_whole(path, letter * 300_000)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "bcd"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_text() in contents
    assert os.listdir(tmp_path) == ["a"]


def test_a_new_file_never_replaces_one(tmp_path):
    write_new(tmp_path / "key", b"one")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"one"
    assert mode(tmp_path / "key") == 0o600


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(PlanError, match="none does not exist; name a file that does"):
        read_text(tmp_path / "none", PlanError)
    with pytest.raises(PlanError, match="none does not exist; run it first"):
        read_bytes(tmp_path / "none", PlanError, missing="run it first")
    with pytest.raises(PlanError, match="is a folder; name a file"):
        read_text(tmp_path, PlanError)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match=r"bytes is not a text file \(UTF-8\)"):
        read_text(tmp_path / "bytes", PlanError)
    with pytest.raises(PlanError, match=r"bytes/a cannot be read: Not a directory"):
        read_text(tmp_path / "bytes" / "a", PlanError)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_damaged_json_is_said(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(HistoryError, match=r"a\.json is damaged: .*; delete it"):
        read_json(tmp_path / "a.json", HistoryError, damaged="delete it")
    with pytest.raises(HistoryError, match=r"a\.json is no JSON file: .*; name one that is"):
        read_json(tmp_path / "a.json", HistoryError, damaged=None)


def test_what_is_wrong_inside_a_file_is_said_with_its_name():
    with pytest.raises(PlanError, match=r"^a\.toml: too few peers$"), about("a.toml", PlanError):
        raise HistoryError("too few peers")


def test_a_second_process_waits_for_the_first(tmp_path):
    path = tmp_path / "a"
    code = (
        "import sys; from pathlib import Path; from pdlrecover.files import alone\n"
        "with alone(Path(sys.argv[1])): print('in')"
    )
    with alone(path):
        command = [sys.executable, "-c", code, str(path)]
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=0.5)
    assert other.communicate(timeout=60)[0] == "in\n"


def test_a_file_keeps_its_mode_unless_it_must_be_private(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o660)
    write_whole(path, "new")
    assert path.stat().st_mode & 0o777 == 0o660
    write_whole(path, "newer", durable=True)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_whole(pipe, "text")
        assert reader.communicate(timeout=60)[0] == b"text"
    assert pipe.is_fifo()


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f"a.{dead.pid}-1.part"
    busy = tmp_path / f"a.{os.getpid()}-1.part"
    other = tmp_path / f"b.{dead.pid}-1.part"
    for path in (left, busy, other):
        path.write_text("half")
    write_whole(tmp_path / "a", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", busy, other])
