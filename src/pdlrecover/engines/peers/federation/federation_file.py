"""The federation file: a membership as TOML.

    format = 1
    name = "heart"
    [tolerance]  [model]  [training]  [recovery]  [deadlines]
    [peers.hospital-a]
    address = "hospital-a.example.org:7400"
    signing = "…"  sealing = "…"  certificate = '''…'''

Rules: a key that does not exist is refused with the nearest that does; so is a value of the wrong
type, and a key that is missing. Settings may be written with `-` or `_`. Garbage raises
`MembershipError`, and so does a file that makes sense and cannot be.
"""

import base64
import binascii
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pdlrecover.engines.peers.federation.membership import FORMAT, Membership
from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.identity.member import Member
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.tables import as_toml, check_keys, read_table, shown
from pdlrecover.errors import MembershipError
from pdlrecover.sharing import Tolerance

TABLES: dict[str, type] = {
    "tolerance": Tolerance,
    "model": Model,
    "training": Training,
    "recovery": Recovery,
    "deadlines": Deadlines,
}
_OPTIONAL = ("recovery", "deadlines")
_PEER = ("address", "signing", "sealing", "certificate")


def read_federation(text: str) -> Membership:
    """Return the membership that a federation file says."""
    values = _values(text)
    agreed = _agreed(values, ("peers", *TABLES))
    peers = tuple(_peer(name, peer) for name, peer in values["peers"].items())
    return Membership(peers=peers, **agreed)


def found_federation(plan: str, invitations: Iterable[str]) -> Membership:
    """Return the federation of those who were invited, by a plan: such a file without peers."""
    values = _values(plan)
    if "peers" in values:
        raise MembershipError("the plan has peers already: leave [peers] to the invitations")
    return Membership.invited(invitations, **_agreed({"format": FORMAT, **values}, tuple(TABLES)))


def load_federation(path: Path) -> Membership:
    """Read a federation file."""
    try:
        return read_federation(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise MembershipError(
            f"{path} is not there; name the federation file, which `pdlrecover peer federate` makes"
        ) from error
    except IsADirectoryError as error:
        raise MembershipError(f"{path} is a folder; name the federation file") from error
    except OSError as error:
        raise MembershipError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MembershipError(f"{path} is not TOML: {error}") from error
    except MembershipError as error:
        raise MembershipError(f"{path}: {error}") from error


def write_federation(membership: Membership) -> str:
    """Return the federation file of a membership."""
    lines = [
        "# What the peers agree on. A changed value changes the digest that all of them sign.",
        f"format = {FORMAT}",
        f'name = "{membership.name}"',
    ]
    for name, kind in TABLES.items():
        lines += ["", f"[{name}]"]
        table = getattr(membership, name)
        for key in fields(kind):
            value = getattr(table, key.name)
            lines.append(f"# {key.name} =" if value is None else f"{key.name} = {as_toml(value)}")
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


def _values(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MembershipError(f"this is not TOML: {error}") from error


def _agreed(values: Mapping[str, Any], needed: tuple[str, ...]) -> dict[str, Any]:
    """Return the name and the tables, checked."""
    check_keys(values, ("format", "name", *TABLES, "peers"), "")
    if type(found := values.get("format")) is not int or found != FORMAT:
        raise MembershipError(
            f"this file must say format = {FORMAT}, got {shown(found)}; use the same "
            "version of the program everywhere"
        )
    if "name" not in values:
        raise MembershipError("name is missing")
    if not isinstance(values["name"], str):
        raise MembershipError(f"name must be a text, got {shown(values['name'])}")
    for name in needed:
        if name not in _OPTIONAL and name not in values:
            raise MembershipError(f"the table [{name}] is missing")
        if not isinstance(values.get(name, {}), dict):
            raise MembershipError(f"{name} must be a table, got {shown(values[name])}")
    tables: dict[str, Any] = {
        name: read_table(kind, values.get(name, {}), name) for name, kind in TABLES.items()
    }
    return {"name": values["name"], **tables}


def _peer(name: str, values: Any) -> Member:
    path = f"peers.{name}"
    if not isinstance(values, dict):
        raise MembershipError(f"{path} must be a table, got {shown(values)}")
    check_keys(values, _PEER, path)
    for key in _PEER:
        if key not in values:
            raise MembershipError(f"{path}.{key} is missing")
        if not isinstance(values[key], str):
            raise MembershipError(f"{path}.{key} must be a text, got {shown(values[key])}")
    return Member(
        name=name,
        address=values["address"],
        signing=_decoded(values["signing"], f"{path}.signing"),
        sealing=_decoded(values["sealing"], f"{path}.sealing"),
        certificate=_certificate(values["certificate"], f"{path}.certificate"),
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
