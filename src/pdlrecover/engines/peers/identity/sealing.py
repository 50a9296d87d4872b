"""Signing and sealing between peers, by the `cryptography` package.

Rules:

- Signatures are Ed25519.
- What is sealed to a recipient is HPKE in base mode (RFC 9180): DHKEM(X25519, HKDF-SHA256),
  HKDF-SHA256, AES-256-GCM, a fresh ephemeral key each time. The associated data go into `info`, as
  section 8.1 of the RFC has it for single messages: opening with other ones fails.
- Sealing does not say who sealed. Who must know signs what was sealed.
- What does not verify or open raises; nothing returns False.
"""

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from pdlrecover.errors import ForgeryError

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)

SEALING_OVERHEAD = 48
"""A sealed message is this many bytes longer: the ephemeral key, and the tag."""


def seal(recipient: X25519PublicKey, plaintext: bytes, associated: bytes) -> bytes:
    """Seal a message to a recipient."""
    return _SUITE.encrypt(plaintext, recipient, associated)


def open_sealed(private: X25519PrivateKey, sealed: bytes | memoryview, associated: bytes) -> bytes:
    """Open a message that was sealed to us, with the same associated data."""
    try:
        return _SUITE.decrypt(sealed, private, associated)
    except InvalidTag as error:
        raise ForgeryError(
            f"a sealed message of {len(sealed)} bytes does not open: it was changed, or meant for "
            "another recipient, round or sender"
        ) from error


def sign(private: Ed25519PrivateKey, message: bytes) -> bytes:
    """Return the signature of a message, 64 bytes."""
    return private.sign(message)


def verify(public: Ed25519PublicKey, signature: bytes, message: bytes) -> None:
    """Raise unless the signature of this message is by the owner of this key."""
    try:
        public.verify(signature, message)
    except InvalidSignature as error:
        raise ForgeryError("a signature does not hold: the message or its signer differ") from error
