"""The federation file: a membership as TOML.

    format = 1
    name = "heart"
    [tolerance]  [model]  [training]  [recovery]  [deadlines]  [evaluation]  [data]  [standardise]
    [peers.hospital-a]
    address = "hospital-a.example.org:7400"
    signing = "…"  sealing = "…"  certificate = '''…'''

Rules: an unknown key is refused with the nearest known one; so is a value of the wrong type, and a
missing key. `[standardise]` may be left out, and then inputs stay as they are. Keys may be written
with `-` or `_`. Garbage raises `MembershipError`, and so does a file that can be read and makes no
sense.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pdlrecover.decode import decode, parse_toml, shown, toml_table
from pdlrecover.engines.peers.federation.membership import FORMAT, Membership
from pdlrecover.engines.peers.federation.plan import (
    DataPlan,
    EvaluationPlan,
    Model,
    Recovery,
    Training,
)
from pdlrecover.engines.peers.identity.member import Member
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.errors import MembershipError
from pdlrecover.files import about, read_text
from pdlrecover.recovery.standardisation import Standardise
from pdlrecover.sharing import Tolerance


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The federation file without its peers."""

    format: int = FORMAT
    name: str
    tolerance: Tolerance
    model: Model
    training: Training
    recovery: Recovery = field(default_factory=Recovery)
    deadlines: Deadlines = field(default_factory=Deadlines)
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    data: DataPlan = field(default_factory=DataPlan)
    standardise: Standardise | None = None


TABLES = tuple(key.name for key in fields(Plan) if key.name not in ("format", "name"))


@dataclass(frozen=True, kw_only=True)
class PeerTable:
    """A peer's table."""

    address: str
    signing: str
    """The public key that it signs with, in base64."""
    sealing: str
    """The public key that others seal messages to it with, in base64."""
    certificate: str
    """Its TLS certificate, in PEM."""


@dataclass(frozen=True, kw_only=True)
class FederationFile(Plan):
    """The whole file."""

    peers: dict[str, PeerTable]


File = TypeVar("File", bound=Plan)


def read_federation(text: str) -> Membership:
    """Return the membership that a federation file says."""
    values = parse_toml(text, MembershipError)
    if "peers" not in values and {"tolerance", "model", "training"} <= values.keys():
        raise MembershipError(
            "this is a plan, without peers; make a federation file of it and the peers' "
            "invitations: pdlrecover peer federate INVITATIONS --plan PLAN"
        )
    if "format" not in values:
        raise MembershipError(
            f"this is no federation file: it must say format = {FORMAT}; name the one that "
            "`pdlrecover peer federate` made"
        )
    file = _read(FederationFile, values)
    return Membership(peers=tuple(_peer(*item) for item in file.peers.items()), **_agreed(file))


def found_federation(plan: str, invitations: Iterable[str]) -> Membership:
    """Return the federation of those who were invited, by a plan: such a file without peers."""
    values = parse_toml(plan, MembershipError)
    if "peers" in values:
        raise MembershipError("the plan has peers already: leave [peers] to the invitations")
    return Membership.invited(invitations, **_agreed(_read(Plan, {"format": FORMAT, **values})))


def load_federation(path: Path) -> Membership:
    """Read a federation file."""
    missing = "name the federation file, which `pdlrecover peer federate` makes"
    text = read_text(path, MembershipError, missing=missing)
    with about(path, MembershipError):
        return read_federation(text)


def write_federation(membership: Membership) -> str:
    """Return the federation file of a membership."""
    lines = [
        "# What the peers agree on. A changed value changes the digest that all of them sign.",
        f"format = {FORMAT}",
        f'name = "{membership.name}"',
    ]
    for name in TABLES:
        if (table := getattr(membership, name)) is not None:
            lines += toml_table(name, table)
    for peer in membership.peers:
        lines += [
            "",
            f"[peers.{peer.name}]",
            f'address = "{peer.address}"',
            f'signing = "{base64.b64encode(peer.signing).decode()}"',
            f'sealing = "{base64.b64encode(peer.sealing).decode()}"',
            f"certificate = '''\n{peer.certificate_pem.decode()}'''",
        ]
    return "\n".join(lines) + "\n"


def _read(kind: type[File], values: dict[str, Any]) -> File:
    """Return what a file says, once its format is known to be this one."""
    if type(found := values.get("format")) is not int or found != FORMAT:
        raise MembershipError(
            f"this file must say format = {FORMAT}, got {shown(found)}; use the same version of "
            "the program everywhere"
        )
    return decode(kind, values, MembershipError)


def _agreed(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in ("name", *TABLES)}


def _peer(name: str, entry: PeerTable) -> Member:
    path = f"peers.{name}"
    return Member(
        name=name,
        address=entry.address,
        signing=_decoded(entry.signing, f"{path}.signing"),
        sealing=_decoded(entry.sealing, f"{path}.sealing"),
        certificate=_certificate(entry.certificate, f"{path}.certificate"),
    )


def _decoded(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MembershipError(f"{path} is not base64") from error


def _certificate(text: str, path: str) -> bytes:
    try:
        (found,) = x509.load_pem_x509_certificates(text.encode())
        return found.public_bytes(Encoding.DER)
    except ValueError as error:
        raise MembershipError(f"{path} is not one certificate in PEM") from error
