"""`pdlrecover peer init | federate | sign | compare`: a peer's files before it runs."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pdlrecover.cli.common import FederationFile, Folder
from pdlrecover.engines.peers import settings as s
from pdlrecover.engines.peers.federation import federation_file, signatures
from pdlrecover.engines.peers.federation.membership import differences
from pdlrecover.engines.peers.folder import IDENTITY, SETTINGS, signatures_path
from pdlrecover.engines.peers.identity.invitation import invite, read_invitation
from pdlrecover.engines.peers.identity.member import check_name, split_address
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import VARIABLE, StorageKey
from pdlrecover.errors import DataError, IdentityError, MembershipError
from pdlrecover.files import about, read_text, write_whole
from pdlrecover.learning.reading.source import kind_of

INVITATION = "invitation.txt"
DIFFERENT = 1
"""The exit code of two federation files that differ."""


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for this peer's files.")],
    name: Annotated[str, typer.Option(help="The peer's name: hospital-a.")],
    address: Annotated[str, typer.Option(help="host:port, where the others reach it.")],
    listen: Annotated[
        str | None, typer.Option(help="host:port to listen on, if not the address.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="Make the history's key in this new file, on another disk if you can."),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A .csv, .tsv, .parquet or .npz file; a folder of images, of arrays, or that "
            "`save_to_disk` wrote; or a dataset's name."
        ),
    ] = "digits",
    label: Annotated[
        str | None, typer.Option(help="Of a table: the column with the classes.")
    ] = None,
    drill: Annotated[
        str | None, typer.Option(help="For drills only: the attack that this peer plays.")
    ] = None,
) -> None:
    """Make a peer's keys and settings in a new folder, and print its invitation."""
    check_name(name)
    split_address(address)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise IdentityError(f"{folder} exists already and is not empty; name a new folder")
    from pdlrecover.engines.peers.drills import check_drill
    from pdlrecover.learning.files import NAMES

    if data not in NAMES and not Path(data).exists():
        raise DataError(
            f"there is no file or folder {data}, and no such dataset (there are "
            f"{', '.join(NAMES)}); leave --data out if the data come later, and then name them "
            "under [data] in peer.toml"
        )
    own = _data(data, label)
    check_drill(drill)
    network, attack = s.Listening(listen=listen), s.Drill(attack=drill)
    made = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    try:
        if key_file is not None:
            StorageKey.create(key_file)
    except IdentityError:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise
    history = s.History(key_file=None if key_file is None else str(key_file.resolve()))
    settings = s.PeerSettings(data=own, history=history, network=network, drill=attack)
    write_whole(folder / SETTINGS, s.write_settings(settings), IdentityError)
    identity = Identity.create(folder / IDENTITY, name)
    invitation = invite(identity, address)
    write_whole(folder / INVITATION, invitation + "\n", IdentityError)
    typer.echo(
        f"{identity.id}: keys in {folder / IDENTITY}, settings in {folder / SETTINGS}", err=True
    )
    if key_file is None:
        typer.echo(f"history's key: set {VARIABLE}, or type a passphrase at every start", err=True)
    else:
        typer.echo(f"history's key: {key_file}; without it the history is lost", err=True)
        if key_file.resolve().is_relative_to(folder.resolve()):
            typer.echo(
                "warning: the key is in the folder whose history it protects, so whoever copies "
                "the one has the other; better move it to another disk, and say so as key_file in "
                f"{folder / SETTINGS}",
                err=True,
            )
    typer.echo("Send this line to the person who sets up the federation:", err=True)
    typer.echo(invitation)


def federate(
    invitations: Annotated[
        list[Path], typer.Argument(help="Files with one invitation on every line.")
    ],
    plan: Annotated[
        Path, typer.Option(help="TOML: name, tolerance, model, training, recovery, deadlines.")
    ],
    out: Annotated[Path, typer.Option(help="The new federation file.")] = Path("federation.toml"),
) -> None:
    """Put invitations and a plan together into a federation file, for all to sign."""
    lines = [line for path in invitations for line in _invited(path)]
    text = read_text(plan, MembershipError)
    with about(f"{plan} with {len(lines)} invitations", MembershipError):
        membership = federation_file.found_federation(text, lines)
    if out.exists():
        raise MembershipError(f"{out} exists already; choose another name, or move it away")
    write_whole(out, federation_file.write_federation(membership), MembershipError)
    typer.echo(f"{out}: {len(membership.peers)} peers, digest {membership.digest.hex()}")
    for peer in membership.peers:
        typer.echo(f"  {peer.id} at {peer.address}")
    typer.echo(
        f"Every peer reads it, compares the ids, and runs: pdlrecover peer sign {out} FOLDER"
    )


def sign(
    federation: FederationFile,
    folder: Folder,
    line: Annotated[
        list[str] | None, typer.Option(help="Another peer's line, to add to the signatures.")
    ] = None,
) -> None:
    """Sign the federation file as this peer, and list who has not signed yet."""
    membership = federation_file.load_federation(federation)
    mine = signatures.sign_federation(Identity.load(folder / IDENTITY), membership)
    path = signatures_path(federation)
    text = read_text(path, MembershipError) if path.exists() else ""
    for each in (mine, *(line or [])):
        text = signatures.add_signature(text, each)
    agreement = signatures.check_signatures(membership, text)
    write_whole(path, text, MembershipError)
    typer.echo(mine)
    waiting = (*agreement.missing, *agreement.other)
    left = "everybody has signed"
    if waiting:
        left = f"still to sign: {', '.join(waiting)}; add their lines by --line, or to this file"
    typer.echo(f"{path}: {left}", err=True)


def compare(
    here: Annotated[Path, typer.Argument(help="One federation file.")],
    there: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Say which fields of two federation files differ."""
    found = differences(*map(federation_file.load_federation, (here, there)))
    for each in found:
        typer.echo(each)
    if found:
        raise typer.Exit(DIFFERENT)
    typer.echo("they say the same, whatever their form")


def _data(data: str, label: str | None) -> s.Data:
    """Return what the settings say of the data, by what is there."""
    kind, path = "source", Path(data)
    if path.exists():
        data, found = str(path.resolve()), kind_of(path)
        kind = "source" if found == "arrays" or path.suffix.lower() == ".npz" else found
    return s.Data(**{kind: data}, label=label)  # type: ignore[arg-type] # all are texts


def _invited(path: Path) -> list[str]:
    """Return the invitations in a file, each of which can be read."""
    if path.is_dir():
        raise MembershipError(
            f"{path} is a folder; name the file with the invitation, as {path / INVITATION}"
        )
    text = read_text(path, MembershipError)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise MembershipError(f"{path} is empty; ask its peer for the invitation again")
    with about(path, MembershipError):
        for line in lines:
            read_invitation(line)
    return lines
