"""What everybody knows of a peer: name, address, public keys, certificate.

Rules:

- A name is a word of lower-case letters, digits and dashes, up to 32 characters.
- The id is the name and the fingerprint of the signing key: the first 16 bytes of its SHA-256, in
  base32. Nobody else can have it, whatever name he chooses.
- The certificate is self-signed, for the one DNS name `<id>.pdlrecover`, and no authority: its
  owner cannot issue a certificate for anybody else, even where it is trusted.
"""

import base64
import hashlib
import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from pdlrecover.errors import MembershipError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
DOMAIN = "pdlrecover"

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One peer of a federation, as the others know it."""

    name: str
    address: str
    """host:port, where it listens."""
    signing: bytes
    """Ed25519 public key."""
    sealing: bytes
    """X25519 public key."""
    certificate: bytes
    """Its TLS certificate, in DER."""

    def __post_init__(self) -> None:
        check_name(self.name)
        split_address(self.address)
        try:
            Ed25519PublicKey.from_public_bytes(self.signing)
            sealing = X25519PublicKey.from_public_bytes(self.sealing)
            X25519PrivateKey.generate().exchange(sealing)  # refuses points of low order
        except ValueError as error:
            raise MembershipError(f"a public key of {self.name} is no key: {error}") from error
        _check_certificate(self)

    @property
    def id(self) -> str:
        """The peer's id."""
        return peer_id(self.name, self.signing)

    @property
    def tls_name(self) -> str:
        """The name that its certificate is for."""
        return tls_name(self.id)

    @cached_property
    def signing_key(self) -> Ed25519PublicKey:
        """What its signatures are checked with."""
        return Ed25519PublicKey.from_public_bytes(self.signing)

    @cached_property
    def sealing_key(self) -> X25519PublicKey:
        """What is sealed to it is sealed with this."""
        return X25519PublicKey.from_public_bytes(self.sealing)

    @property
    def certificate_pem(self) -> bytes:
        """Its TLS certificate, in PEM."""
        return x509.load_der_x509_certificate(self.certificate).public_bytes(Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its certificate, in hexadecimal."""
        return hashlib.sha256(self.certificate).hexdigest()


def check_name(name: str) -> str:
    """Refuse what is no name."""
    if not NAME.fullmatch(name):
        raise MembershipError(
            f"a name is made of lower-case letters, digits and dashes, up to 32 of them, and "
            f"neither begins nor ends with a dash; got {name!r}"
        )
    return name


def peer_id(name: str, signing: bytes) -> str:
    """Return the id of a peer by its name and its public signing key."""
    digest = hashlib.sha256(b"pdlrecover peer: " + signing).digest()[:16]
    return f"{name}-{base64.b32encode(digest).decode().rstrip('=').lower()}"


def tls_name(peer: str) -> str:
    """Return the DNS name in the certificate of a peer with this id."""
    return f"{peer}.{DOMAIN}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of host:port, where an IPv6 host stands in brackets."""
    host, colon, port = address.rpartition(":")
    fine = bool(colon) and re.fullmatch(r"[1-9][0-9]{0,4}", port) and int(port) < 1 << 16
    if not fine or not _is_host(host):
        raise MembershipError(
            "an address is host:port with a lower-case host and a port from 1 to 65535, such as "
            f"peer.example.org:7400, 192.0.2.7:7400 or [2001:db8::7]:7400; got {address[:80]!r}"
        )
    return host.strip("[]"), int(port)


def _is_host(host: str) -> bool:
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else None
    try:
        ip = ipaddress.ip_address(host if inner is None else inner)
    except ValueError:
        labels = host.split(".")
        named = len(host) <= 253 and not labels[-1].isdecimal()
        return named and all(_LABEL.fullmatch(label) for label in labels)
    if "%" in host:  # the scope of a link-local address means nothing elsewhere
        return False
    return str(ip) == (host if inner is None else inner) and (ip.version == 6) == (
        inner is not None
    )


def _check_certificate(member: Member) -> None:
    try:
        found = x509.load_der_x509_certificate(member.certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        limits = found.extensions.get_extension_for_class(x509.BasicConstraints).value
        key = found.public_key()
        found.verify_directly_issued_by(found)
    except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise MembershipError(f"the certificate of {member.name} is damaged: {error}") from error
    except InvalidSignature as error:
        raise MembershipError(
            f"the certificate of {member.name} is not signed by its own key"
        ) from error
    if list(names) != [x509.DNSName(member.tls_name)]:
        raise MembershipError(
            f"the certificate of {member.name} is not for {member.tls_name}: its keys and its "
            "certificate do not belong together"
        )
    curve = key.curve if isinstance(key, ec.EllipticCurvePublicKey) else None
    if limits.ca or not isinstance(curve, ec.SECP256R1):
        raise MembershipError(
            f"the certificate of {member.name} must have a P-256 key and be no authority"
        )
