"""`pdlrecover peer run`: a peer at work."""

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdlrecover.cli.common import (
    BAD_INPUT,
    FederationFile,
    Folder,
    ask_passphrase,
    finish,
    observers,
)
from pdlrecover.descriptors import raise_limit
from pdlrecover.engines.peers.operator.logs import JsonLines
from pdlrecover.errors import PDLRecoverError, PlanError
from pdlrecover.files import held

if TYPE_CHECKING:
    from pdlrecover.engines.events import Observer
    from pdlrecover.engines.peers.peer import Peer
    from pdlrecover.engines.peers.startup import PeerFiles

LOG = logging.getLogger("pdlrecover.peer")
UNSENT_SECONDS = 5.0
"""How long a peer that stops waits for MLflow."""


def run(
    federation: FederationFile,
    folder: Folder,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object a line.")] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Serve numbers for Prometheus on this port of 127.0.0.1."
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(help="Serve them on this address instead; nobody is asked for a password."),
    ] = "127.0.0.1",
) -> None:
    """Run this peer: train with the others, then recover when a removal has passed.

    Interrupt it as you like; the same command goes on where it was.
    """
    lines = JsonLines()
    _log_to_terminal(lines if json_logs else None)
    try:
        _run(federation, folder, lines, port=metrics_port, host=metrics_host)
    except PDLRecoverError as error:
        if not json_logs:
            raise
        LOG.error("%s", error, extra={"facts": {"event": "refused-to-run"}})
        raise typer.Exit(BAD_INPUT) from error
    gc.freeze()  # with torch, a last collection takes a second of the processor


def _run(federation: Path, folder: Path, lines: JsonLines, *, port: int | None, host: str) -> None:
    import torch

    from pdlrecover.engines.peers.startup import PeerFiles

    torch.set_num_threads(1)
    raise_limit()
    files = PeerFiles(federation, folder)
    lines.by = files.identity.name
    with held(folder, PlanError, f"a peer runs once; see it by `pdlrecover peer status {folder}`"):
        _work(files, port, host)


def _work(files: "PeerFiles", port: int | None, host: str) -> None:
    followers = observers_of(files)
    ask_for_key = ask_passphrase if files.has_history else ask_new_passphrase
    archive = files.archive(files.storage_key(ask_for_key if sys.stdin.isatty() else None))
    try:
        peer = files.peer(archive, metrics_port=port, metrics_host=host, observers=followers)
        asyncio.run(_until_stopped(peer))
    finally:
        archive.close()
        if not finish(followers, UNSENT_SECONDS):
            LOG.warning(
                "MLflow has not taken everything; what is left is sent after the next start"
            )
    text, facts = "stopped; the same command goes on from here", {"event": "stopped"}
    LOG.info(text, extra={"facts": facts})


def observers_of(files: "PeerFiles") -> list["Observer"]:
    """Return who follows the peer's runs, by its settings; folders are meant from its own."""
    tracking, folder = files.settings.tracking, files.folder
    tensorboard = None if tracking.tensorboard is None else folder / tracking.tensorboard
    mlflow = tracking.mlflow
    if mlflow is not None and "://" not in mlflow:
        mlflow = str(folder / mlflow)
    return observers(tensorboard, mlflow, experiment=files.membership.name, wait=0.0)


async def _until_stopped(peer: "Peer") -> None:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, peer.stop)
    await peer.run()


def ask_new_passphrase() -> str:
    """Ask twice for the passphrase of a history that is to be made: a slip would lock it."""
    text = "Passphrase for the new history"
    return str(typer.prompt(text, hide_input=True, confirmation_prompt=True, err=True))


def _log_to_terminal(lines: JsonLines | None) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(lines or logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("pdlrecover")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
