"""`pdlrecover history verify`: checks that a peer's history is intact."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pdlrecover.cli.common import Folder, ask_passphrase
from pdlrecover.engines.peers.folder import HISTORY, IDENTITY
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.settings import history_key, load_settings
from pdlrecover.errors import HistoryError

DAMAGED = 1
"""The exit code of a history that is not whole."""


def verify(
    folder: Folder,
    key_file: Annotated[
        Path | None, typer.Option(help="The history's key, if not where the settings say.")
    ] = None,
) -> None:
    """Look through a stopped peer's history: what is damaged, missing or put back, what is whole.

    Nothing is changed.
    """
    from pdlrecover.engines.peers.startup import verified  # with torch

    if key_file is not None:
        key = StorageKey.from_file(key_file)
    else:
        salt = Identity.load(folder / IDENTITY).salt
        key = history_key(
            folder, load_settings(folder), salt, ask_passphrase if sys.stdin.isatty() else None
        )
    found = verified(folder / HISTORY, key)
    if not found:
        raise HistoryError(f"there is no history in {folder / HISTORY} yet")
    for name, verification in found.items():
        typer.echo(f"{name}:")
        for line in str(verification).splitlines():
            typer.echo(f"  {line}")
    if not all(verification.sound for verification in found.values()):
        raise typer.Exit(DAMAGED)
