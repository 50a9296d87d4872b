"""What peers on the loopback need: keys, certificates, addresses, and patience."""

import asyncio
import datetime
import socket

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from pdlrecover.engines.peers.identity.keyring import Keyring
from pdlrecover.engines.peers.transport.link import Tls


def new_keyrings(peers):
    """Return fresh keys for so many peers at once."""
    signing = [Ed25519PrivateKey.generate() for _ in range(peers)]
    sealing = [X25519PrivateKey.generate() for _ in range(peers)]
    public = [(s.public_key(), e.public_key()) for s, e in zip(signing, sealing, strict=True)]
    return [Keyring(s, e, public) for s, e in zip(signing, sealing, strict=True)]


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


async def until(condition, seconds=60.0):
    """Wait for something that will be."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def certificates(count):
    """Return each peer's TLS papers, under one authority."""
    authority_key = generate_private_key(SECP256R1())
    authority = _certificate("authority", authority_key, "authority", authority_key, True)
    names = tuple(f"peer-{i}.test" for i in range(count))
    papers = []
    for name in names:
        key = generate_private_key(SECP256R1())
        certificate = _certificate(name, key, "authority", authority_key, False)
        papers.append(
            Tls(
                authority=_pem(authority),
                certificate=_pem(certificate),
                key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
                names=names,
            )
        )
    return papers


def pinned(identities):
    """Return the TLS papers of peers that know each other's very certificates."""
    members = [each.member(f"127.0.0.1:{7000 + i}") for i, each in enumerate(identities)]
    return [
        Tls(
            authority=b"".join(member.certificate_pem for member in members),
            certificate=each.tls_pem()[1],
            key=each.tls_pem()[0],
            names=tuple(member.tls_name for member in members),
            pinned=tuple(member.certificate for member in members),
        )
        for each in identities
    ]


def issued(name, issuer):
    """Return a certificate for a name that a peer has signed with its TLS key, and its key."""
    key = generate_private_key(SECP256R1())
    made = _certificate(name, key, issuer.certificate.subject, issuer.tls_key, False)
    return _pem(made), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate):
    return certificate.public_bytes(Encoding.PEM)


def _certificate(name, key, issuer, issuer_key, authority):
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
    return builder.sign(issuer_key, SHA256())


def _name(text):
    if isinstance(text, x509.Name):
        return text
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
