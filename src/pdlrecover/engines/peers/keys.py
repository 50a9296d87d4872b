"""Keys for one federation: Ed25519 signatures, and sealing by HPKE (X25519, AES-256-GCM)."""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@dataclass(frozen=True, kw_only=True)
class PublicKeys:
    """What everybody knows of a peer."""

    signing: bytes
    sealing: bytes


class Keyring:
    """One peer's private keys, and everybody's public ones."""

    def __init__(
        self,
        signing: Ed25519PrivateKey,
        sealing: X25519PrivateKey,
        public: Sequence[PublicKeys],
    ) -> None:
        self._signing, self._sealing = signing, sealing
        self._verifying = [Ed25519PublicKey.from_public_bytes(keys.signing) for keys in public]
        self._recipients = [X25519PublicKey.from_public_bytes(keys.sealing) for keys in public]

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature."""
        return self._signing.sign(data)

    def verify(self, peer: int, data: bytes, signature: bytes) -> bool:
        """Say whether a peer signed this."""
        if not 0 <= peer < len(self._verifying):
            return False
        try:
            self._verifying[peer].verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def seal(self, peer: int, data: bytes, context: bytes) -> bytes:
        """Return what only this peer can open, and only in this context."""
        return _SUITE.encrypt(data, self._recipients[peer], info=context)

    def unseal(self, data: bytes, context: bytes) -> bytes | None:
        """Return what was sealed to this peer, or None if it was not, or is damaged."""
        try:
            return _SUITE.decrypt(data, self._sealing, info=context)
        except (InvalidTag, ValueError):
            return None


def new_keyrings(peers: int) -> list[Keyring]:
    """Return fresh keys for so many peers at once: for trials, where one hand sets up all."""
    signing = [Ed25519PrivateKey.generate() for _ in range(peers)]
    sealing = [X25519PrivateKey.generate() for _ in range(peers)]
    public = [
        PublicKeys(
            signing=s.public_key().public_bytes_raw(), sealing=e.public_key().public_bytes_raw()
        )
        for s, e in zip(signing, sealing, strict=True)
    ]
    return [Keyring(s, e, public) for s, e in zip(signing, sealing, strict=True)]
