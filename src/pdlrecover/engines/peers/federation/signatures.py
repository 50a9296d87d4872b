"""Who has signed a federation file.

One line for each peer, in a file next to the federation file and not covered by its digest:

    hospital-a <digest in hexadecimal> <Ed25519 signature in base64>

Rules: what is signed is the digest of the membership. A signature of another digest is not wrong:
it is of another version, and does not count. A federation starts when everybody has signed.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.folder import signatures_path
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.sealing import sign, verify
from pdlrecover.errors import ForgeryError, MembershipError
from pdlrecover.files import about, read_text

_DOMAIN = b"pdlrecover federation agreement 1: "
_LINE = re.compile(r"([a-z0-9-]{1,32}) ([0-9a-f]{64}) ([A-Za-z0-9+/]{86}==)")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Who has signed."""

    signed: tuple[str, ...]
    """Peers whose signature of this version is there."""
    other: tuple[str, ...]
    """Peers that have signed another version."""
    missing: tuple[str, ...]
    """Peers that have not signed at all."""

    @property
    def complete(self) -> bool:
        """Whether everybody has signed this version."""
        return not self.other and not self.missing

    def require(self) -> None:
        """Raise unless everybody has signed this version."""
        if self.complete:
            return
        parts = []
        if self.missing:
            parts.append(
                f"{_have(self.missing)} not signed the federation file: each signs by `pdlrecover "
                "peer sign FEDERATION FOLDER`, and the line that it prints goes into this file"
            )
        if self.other:
            parts.append(
                f"{_have(self.other)} signed another version of it: compare the files, "
                "and sign again"
            )
        raise MembershipError("; ".join(parts))


def sign_federation(identity: Identity, membership: Membership) -> str:
    """Return this peer's line: it agrees to the membership."""
    membership.number_of(identity)
    digest = membership.digest
    signature = base64.b64encode(sign(identity.signing, _DOMAIN + digest)).decode()
    return f"{identity.name} {digest.hex()} {signature}"


def add_signature(text: str, line: str) -> str:
    """Return the lines with one more, in the place of the same peer's earlier one."""
    name = _parsed(line)[0]
    kept = [other for other in _lines(text) if _parsed(other)[0] != name]
    return "\n".join(sorted([*kept, line.strip()])) + "\n"


def check_signatures(membership: Membership, text: str) -> Agreement:
    """Return who has signed; a line that is malformed, forged or a stranger's raises."""
    signed: set[str] = set()
    other: set[str] = set()
    for line in _lines(text):
        name, digest, signature = _parsed(line)
        peer = membership.peers[membership.number(name)]
        try:
            verify(peer.signing_key, signature, _DOMAIN + digest)
        except ForgeryError as error:
            raise MembershipError(
                f"the signature of {name} is forged, or made with keys that are not in the "
                "federation file"
            ) from error
        (signed if digest == membership.digest else other).add(name)
    return Agreement(
        signed=tuple(sorted(signed)),
        other=tuple(sorted(other - signed)),
        missing=tuple(p.name for p in membership.peers if p.name not in signed | other),
    )


def check_agreement(federation: Path, membership: Membership) -> None:
    """Raise unless everybody has signed the federation file."""
    path = signatures_path(federation)
    missing = (
        "nobody has signed the federation file yet: every peer signs by `pdlrecover peer sign "
        f"{federation} FOLDER`, and the lines go to {path.name}"
    )
    text = read_text(path, MembershipError, missing=missing)
    with about(path, MembershipError):
        check_signatures(membership, text).require()


def _have(names: tuple[str, ...]) -> str:
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'}"


def _lines(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def _parsed(line: str) -> tuple[str, bytes, bytes]:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise MembershipError(
            f"a signature is one line of a name, a digest and a signature; got {line[:60]!r}"
        )
    try:
        signature = base64.b64decode(match[3], validate=True)
    except binascii.Error as error:
        raise MembershipError(f"the signature of {match[1]} is not base64") from error
    return match[1], bytes.fromhex(match[2]), signature
