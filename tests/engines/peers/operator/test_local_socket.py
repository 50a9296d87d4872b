import asyncio
import io
import json
import os
import sys
from contextlib import redirect_stderr

import pytest

from pdlrecover.cli import main
from pdlrecover.engines.peers.operator.local_socket import NoPeerError, ask, serve_control
from pdlrecover.errors import PlanError, Setting

PROPOSE = "pdlrecover peer propose-removal {folder} --peers elm --reason left"


def test_several_local_sockets_opened_at_once_leave_the_process_mask_alone(tmp_path):
    before = os.umask(0o022)

    async def open_all():
        paths = [tmp_path / str(i) for i in range(5)]
        servers = await asyncio.gather(*(serve_control(path, lambda command: {}) for path in paths))
        modes = [path.stat().st_mode & 0o777 for path in paths]
        for server in servers:
            server.close()
            await server.wait_closed()
        return modes

    try:
        assert asyncio.run(open_all()) == [0o600] * 5
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def asked(path, answer, **arguments):
    """Ask a server that answers each line so."""

    async def session(reader, writer):
        await reader.readline()
        writer.write(answer or b"")
        if answer is None:
            await reader.read()  # until who asked has gone
        writer.close()
        await writer.wait_closed()
        done.set()

    async def story():
        async with await asyncio.start_unix_server(session, path):
            try:
                return await ask(path, {"do": "status"}, **arguments)
            finally:
                await done.wait()

    done = asyncio.Event()

    return asyncio.run(story())


def test_a_long_status_is_read(tmp_path):
    told = {"text": "x" * (1 << 18)}
    assert asked(tmp_path / "control", json.dumps(told).encode() + b"\n") == told


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"", NoPeerError, "is stopping"),
        (b"{\n", PlanError, "cannot be read"),
        (None, PlanError, "does not answer within 0.2 s"),
    ],
)
def test_a_peer_that_gives_no_answer_is_said(tmp_path, answer, kind, words):
    with pytest.raises(kind, match=words):
        asked(tmp_path / "control", answer, timeout=0.2)


def test_a_refusal_comes_with_its_settings_for_the_command_to_say_as_flags(tmp_path, monkeypatch):
    def answer(command):
        raise PlanError("this reveals much; accept it by ", Setting("accept_differencing", "True"))

    async def story():
        async with await serve_control(tmp_path / "control", answer):
            with monkeypatch.context() as patch:
                patch.setattr(sys, "argv", PROPOSE.format(folder=tmp_path).split())
                return await asyncio.to_thread(told, main)

    assert asyncio.run(story()) == "error: this reveals much; accept it by --accept-differencing\n"


def told(command):
    err = io.StringIO()
    with redirect_stderr(err), pytest.raises(SystemExit, match="2"):
        command()
    return err.getvalue()
