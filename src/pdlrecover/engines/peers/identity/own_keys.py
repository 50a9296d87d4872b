"""A peer's own keys, and the folder they are kept in.

    signing.key   Ed25519: signs what this peer says
    sealing.key   X25519: opens what is sealed to it
    tls.key       P-256: the connection's key (gRPC knows no Ed25519 certificates)
    tls.crt       its certificate, self-signed, for <id>.pdlrecover
    history.salt  makes the history's key from a passphrase; no secret

Rules: the folder appears at once with all files, mode 0700 and 0600; what others may read, and keys
that do not belong together, are refused. Nothing secret is in a repr or in an error.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pdlrecover.engines.peers.identity.member import DOMAIN, Member, check_name, peer_id, tls_name
from pdlrecover.engines.peers.identity.private_files import check_folder, create_folder, read_file
from pdlrecover.errors import IdentityError, MembershipError

YEARS = 10
"""How long a certificate is valid."""
SALT_BYTES = 16

SIGNING, SEALING, TLS_KEY, TLS_CERTIFICATE = "signing.key", "sealing.key", "tls.key", "tls.crt"
SALT = "history.salt"
T = TypeVar("T")
PrivateKey = Ed25519PrivateKey | X25519PrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Identity:
    """A peer's own keys."""

    name: str
    signing: Ed25519PrivateKey
    sealing: X25519PrivateKey
    tls_key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    salt: bytes
    """For a storage key made from a passphrase."""

    def __repr__(self) -> str:
        return f"Identity({self.id})"

    @property
    def id(self) -> str:
        """The peer's id."""
        return peer_id(self.name, self.signing.public_key().public_bytes_raw())

    def member(self, address: str) -> Member:
        """Return what others may know of this peer, when it listens at an address."""
        return Member(
            name=self.name,
            address=address,
            signing=self.signing.public_key().public_bytes_raw(),
            sealing=self.sealing.public_key().public_bytes_raw(),
            certificate=self.certificate.public_bytes(pem.Encoding.DER),
        )

    def tls_pem(self) -> tuple[bytes, bytes]:
        """Return the private key and the certificate of its connections, in PEM."""
        return _pem(self.tls_key), self.certificate.public_bytes(pem.Encoding.PEM)

    @classmethod
    def generate(cls, name: str, *, now: datetime | None = None) -> Self:
        """Return new keys for a peer of this name."""
        check_name(name)
        signing, tls_key = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
        peer = peer_id(name, signing.public_key().public_bytes_raw())
        return cls(
            name=name,
            signing=signing,
            sealing=X25519PrivateKey.generate(),
            tls_key=tls_key,
            certificate=_certificate(peer, tls_key, now or datetime.now(UTC)),
            salt=os.urandom(SALT_BYTES),
        )

    @classmethod
    def create(cls, folder: Path, name: str) -> Self:
        """Make new keys for a peer of this name, in a new folder."""
        identity = cls.generate(name)
        tls = dict(zip((TLS_KEY, TLS_CERTIFICATE), identity.tls_pem(), strict=True))
        own = {SIGNING: _pem(identity.signing), SEALING: _pem(identity.sealing)}
        create_folder(folder, {**own, **tls, SALT: identity.salt.hex().encode()})
        return identity

    @classmethod
    def load(cls, folder: Path, *, now: datetime | None = None) -> Self:
        """Read the keys in a folder; refuse what others may read, or what does not fit together."""
        check_folder(folder)
        name, certificate = _load(folder / TLS_CERTIFICATE, _named_certificate)
        identity = cls(
            name=name,
            signing=_load(folder / SIGNING, partial(_key, Ed25519PrivateKey)),
            sealing=_load(folder / SEALING, partial(_key, X25519PrivateKey)),
            tls_key=_load(folder / TLS_KEY, partial(_key, ec.EllipticCurvePrivateKey)),
            certificate=certificate,
            salt=_load(folder / SALT, _salt),
        )
        if identity.tls_key.public_key() != certificate.public_key():
            raise IdentityError(f"{TLS_KEY} and {TLS_CERTIFICATE} in {folder} are no pair")
        try:
            identity.member("localhost:1")
        except MembershipError as error:
            raise IdentityError(f"the keys in {folder} do not fit together: {error}") from error
        if certificate.not_valid_after_utc < (now or datetime.now(UTC)):
            raise IdentityError(
                f"the certificate in {folder} ended on {certificate.not_valid_after_utc:%Y-%m-%d}; "
                "make a new identity, and ask the others to take it into the federation"
            )
        return identity


def _certificate(peer: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate for the peer's name, which is no authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, peer)])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_name(peer))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(both, critical=False)
        .sign(key, SHA256())
    )


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())


def _load(path: Path, read: Callable[[bytes], T]) -> T:
    """Read a private file; what raises in reading its content is damaged."""
    missing = "restore the folder from a backup"
    content = read_file(path, missing)
    try:
        return read(content)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        raise IdentityError(f"{path} is damaged; {missing}") from error


def _key(kind: type, content: bytes) -> Any:
    key = pem.load_pem_private_key(content, password=None)
    if not isinstance(key, kind):
        raise ValueError(f"this is no {kind.__name__}")
    return key


def _salt(content: bytes) -> bytes:
    salt = bytes.fromhex(content.decode())
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes")
    return salt


def _named_certificate(content: bytes) -> tuple[str, x509.Certificate]:
    """Read a certificate; the peer's name in it is its id without the fingerprint."""
    found = x509.load_pem_x509_certificate(content)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (name,) = names.get_values_for_type(x509.DNSName)
    return name.removesuffix(f".{DOMAIN}").rpartition("-")[0], found
