"""`pdlrecover peer check-evidence`: whether what a peer has kept proves a cheat."""

from pathlib import Path
from typing import Annotated

import typer

from pdlrecover.cli.common import FederationFile
from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.identity.keyring import Signers
from pdlrecover.engines.peers.protocol import codec, evidence
from pdlrecover.engines.peers.protocol.forms import MAX_ELEMENTS
from pdlrecover.errors import CodecError, LocalError, MessageError
from pdlrecover.files import read_bytes


def check_evidence(
    federation: FederationFile,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A file of a peer's folder evidence/, or all files that belong together."
        ),
    ],
) -> None:
    """Say who is proven to have cheated, and how, by the public keys alone."""
    membership = load_federation(federation)
    missing = "name a file of a peer's folder evidence/"
    parts = [read_bytes(path, LocalError, missing=missing) for path in files]
    for path, part in zip(files, parts, strict=True):
        try:
            codec.decode(part)
        except CodecError as error:
            raise MessageError(
                f"{path} is not an evidence file; name one of a peer's folder evidence/, or all "
                "files that belong together"
            ) from error
    verify = Signers.of(membership.peers).verify
    bounds = membership.training.bounds(MAX_ELEMENTS)
    founding = membership.founding_run
    peer, what = evidence.proven(membership.scheme, verify, parts, bounds, founding)
    typer.echo(f"{membership.peers[peer].name} {what}")
