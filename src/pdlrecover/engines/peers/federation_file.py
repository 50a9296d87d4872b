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
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pdlrecover.engines.peers.member import Member
from pdlrecover.engines.peers.membership import FORMAT, Membership
from pdlrecover.engines.peers.plan import Deadlines, Model, Recovery, Training
from pdlrecover.errors import MembershipError, PDLRecoverError
from pdlrecover.sharing import Tolerance

Table = TypeVar("Table")

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
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MembershipError(f"the federation file is not TOML: {error}") from error
    _check_keys(values, ("format", "name", *TABLES, "peers"), "")
    if type(found := values.get("format")) is not int or found != FORMAT:
        raise MembershipError(
            f"the federation file must say format = {FORMAT}, got {_shown(found)}; use the same "
            "version of the program everywhere"
        )
    if not isinstance(values.get("name"), str):
        raise MembershipError(f"name must be a text, got {_shown(values.get('name'))}")
    for name in ("peers", *TABLES):
        if name not in _OPTIONAL and name not in values:
            raise MembershipError(f"the federation file needs a table [{name}]")
        if not isinstance(values.get(name, {}), dict):
            raise MembershipError(f"{name} must be a table, got {_shown(values[name])}")
    tables: dict[str, Any] = {
        name: _table(kind, values.get(name, {}), name) for name, kind in TABLES.items()
    }
    peers = tuple(_peer(name, peer) for name, peer in values["peers"].items())
    return Membership(name=values["name"], peers=peers, **tables)


def load_federation(path: Path) -> Membership:
    """Read a federation file."""
    try:
        return read_federation(path.read_text("utf-8"))
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
            lines.append(f"# {key.name} =" if value is None else f"{key.name} = {_toml(value)}")
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


def _peer(name: str, values: Any) -> Member:
    path = f"peers.{name}"
    if not isinstance(values, dict):
        raise MembershipError(f"{path} must be a table, got {_shown(values)}")
    _check_keys(values, _PEER, path)
    for key in _PEER:
        if not isinstance(values.get(key), str):
            raise MembershipError(f"{path}.{key} must be a text, got {_shown(values.get(key))}")
    return Member(
        name=name,
        address=values["address"],
        signing=_decoded(values["signing"], f"{path}.signing"),
        sealing=_decoded(values["sealing"], f"{path}.sealing"),
        certificate=_certificate(values["certificate"], f"{path}.certificate"),
    )


def _table(kind: type[Table], values: Mapping[str, Any], path: str) -> Table:
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type] # it is a dataclass
    spelt = [key.replace("-", "_") for key in values]
    if twice := {key for key in spelt if spelt.count(key) > 1}:
        raise MembershipError(f"{path}.{min(twice)} is there twice, with - and with _")
    values = dict(zip(spelt, values.values(), strict=True))
    _check_keys(values, known, path)
    checked = {key: _value(f"{path}.{key}", value, known[key]) for key, value in values.items()}
    for key, a_field in known.items():
        if key not in values and a_field.default is MISSING:
            raise MembershipError(f"{path}.{key} is missing")
    try:
        return kind(**checked)
    except MembershipError:
        raise
    except PDLRecoverError as error:
        raise MembershipError(f"{path}: {error}") from error


def _check_keys(values: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    known = list(known)
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            where = f" in {path}" if path else ""
            raise MembershipError(f"there is no setting called {key!r}{where}; {hint}")


def _value(path: str, value: Any, a_field: "Field[Any]") -> Any:
    hint: Any = a_field.type
    kinds = [k for k in get_args(hint) if k is not type(None)] if _optional(hint) else [hint]
    (kind,) = kinds
    if get_origin(kind) is tuple:
        fine = isinstance(value, list) and all(map(_is_whole, value))
        value = tuple(value) if fine else value
    elif kind is float:
        fine = _is_whole(value) or type(value) is float
        value = float(value) if fine else value
    else:
        fine = _is_whole(value) if kind is int else type(value) is kind
    if not fine:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise MembershipError(
            f"{path} must be {names.get(kind, 'a list of whole numbers')}, got {_shown(value)}"
        )
    return value


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return "a number that is too long"


def _optional(hint: Any) -> bool:
    return isinstance(hint, UnionType)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else repr(value)


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
