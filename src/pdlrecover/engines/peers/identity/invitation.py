"""An invitation: one printable line with everything that others need to know of a peer.

    pdlrecover-peer-1.<base64url>.<checksum>

The middle is name, address, signing key, sealing key and certificate, each after its length in two
bytes, and then the peer's signature of all that (so the keys are its own). The checksum, the first
four bytes of SHA-256 in hexadecimal, tells a line that was cut or mistyped from a forged one.

An invitation says nothing secret, but who reads it must know that it came from that peer: compare
the fingerprint at the end of the id by telephone.
"""

import base64
import binascii
import hashlib
import re

from pdlrecover.engines.peers.identity.member import Member
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.sealing import sign, verify
from pdlrecover.errors import ForgeryError, MembershipError

PREFIX = "pdlrecover-peer-"
VERSION = 1
MAX_CHARACTERS = 8192

_FIELDS = ("name", "address", "signing", "sealing", "certificate")
_SIGNATURE = 64
_DOMAIN = b"pdlrecover invitation 1: "


def invite(identity: Identity, address: str) -> str:
    """Return the invitation of a peer that listens at this address."""
    member = identity.member(address)
    content = b""
    for name in _FIELDS:
        value = getattr(member, name)
        value = value.encode() if isinstance(value, str) else value
        content += len(value).to_bytes(2, "big") + value
    content += sign(identity.signing, _DOMAIN + content)
    middle = base64.urlsafe_b64encode(content).decode().rstrip("=")
    return f"{PREFIX}{VERSION}.{middle}.{_checksum(content)}"


def read_invitation(text: str) -> Member:
    """Return the peer that an invitation is of; white space in it does not matter."""
    line = "".join(text[: 2 * MAX_CHARACTERS].split())
    content = _content(line)
    body, signature = content[:-_SIGNATURE], content[-_SIGNATURE:]
    values = _values(body)
    try:
        name, address = (values[field].decode("ascii") for field in ("name", "address"))
    except UnicodeDecodeError as error:
        raise MembershipError("an invitation's name and address must be plain ASCII") from error
    member = Member(
        name=name,
        address=address,
        signing=values["signing"],
        sealing=values["sealing"],
        certificate=values["certificate"],
    )
    try:
        verify(member.signing_key, signature, _DOMAIN + body)
    except ForgeryError as error:
        raise MembershipError(
            f"the invitation of {name} is forged: it is not signed by the key that is in it"
        ) from error
    return member


def _content(line: str) -> bytes:
    """Return the bytes of an invitation that is whole."""
    match = re.fullmatch(rf"{PREFIX}([0-9]{{1,4}})\.([A-Za-z0-9_-]*)\.([0-9a-f]*)", line)
    if match is None or len(line) > MAX_CHARACTERS:
        raise MembershipError(
            f"this is no invitation: it must be one line that begins with {PREFIX}{VERSION}. and "
            f"ends with a checksum; got {line[:40]!r}"
        )
    version, middle, checksum = match.groups()
    if int(version) != VERSION:
        raise MembershipError(
            f"this invitation has version {version}, and this program reads {VERSION}; use the "
            "same version of the program everywhere"
        )
    try:
        content = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
    except (binascii.Error, ValueError):
        content = b""
    canonical = base64.urlsafe_b64encode(content).decode().rstrip("=") == middle
    if not canonical or checksum != _checksum(content):
        raise MembershipError(
            "this invitation was cut or mistyped: its checksum is wrong; ask for it again, and "
            "copy the whole line"
        )
    return content


def _values(body: bytes) -> dict[str, bytes]:
    values = {}
    for name in _FIELDS:
        length = int.from_bytes(body[:2], "big")
        if len(body) < 2 + length:
            raise MembershipError(f"this invitation is malformed: its {name} is cut off")
        values[name], body = body[2 : 2 + length], body[2 + length :]
    if body:
        raise MembershipError(f"this invitation is malformed: {len(body)} bytes too many")
    return values


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]
