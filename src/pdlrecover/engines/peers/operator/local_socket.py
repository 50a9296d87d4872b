"""The local socket of a running peer, by which its operator's commands reach it.

Rules: it is a file that only its owner can use, never open to other machines. It takes one JSON
object a line, and answers each with one.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pdlrecover.engines.peers.operator.status import Answer
from pdlrecover.errors import PDLRecoverError, PlanError

MAX_LINE, MAX_ANSWER = 1 << 16, 1 << 26


class NoPeerError(PlanError):
    """There is no running peer to ask."""


async def serve_control(path: Path, answer: Callable[[dict[str, Any]], Answer]) -> asyncio.Server:
    """Answer commands on a local socket: one JSON object a line, and one back."""

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            found: Any
            while line := await reader.readline():
                try:
                    command = json.loads(line)
                    known = isinstance(command, dict)
                    found = answer(command) if known else {"error": "no object"}
                except PDLRecoverError as error:
                    found = {"error": str(error), "parts": error.parts}
                except ValueError as error:
                    found = {"error": f"not a command: {error}"}
                writer.write(msgspec.json.encode(found) + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    path.unlink(missing_ok=True)
    try:
        bound = _private_socket(path)
    except OSError as error:
        raise PlanError(
            f"cannot open the local socket {path}: {error.strerror or error}; choose a folder with "
            "a shorter path, on a local disk"
        ) from error
    return await asyncio.start_unix_server(session, sock=bound, limit=MAX_LINE)


def _private_socket(path: Path) -> socket.socket:
    """Return a socket that only its owner can connect to.

    The mask is the process's, so nothing may be awaited while it is set.
    """
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


async def ask(path: Path, command: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """Give a running peer a command, and return its answer; if none runs: `NoPeerError`."""
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
    except OSError as error:
        raise NoPeerError(
            f"no peer is running in {path.parent} ({error.strerror}); start it by `pdlrecover peer "
            f"run FEDERATION {path.parent}`"
        ) from error
    try:
        writer.write(json.dumps(command).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), timeout)
        found: dict[str, Any] = json.loads(line) if line else {}
    except TimeoutError as error:
        raise PlanError(
            f"the peer in {path.parent} does not answer within {timeout:g} s: it is frozen, or "
            "very busy; look at its log and try again"
        ) from error
    except (OSError, ValueError) as error:
        raise PlanError(
            f"the peer in {path.parent} gave an answer that cannot be read ({error}); look at its "
            "log, and see whether it is of the same version"
        ) from error
    finally:
        writer.close()
    if not line:
        raise NoPeerError(f"the peer in {path.parent} is stopping; start it again and ask it then")
    return found
