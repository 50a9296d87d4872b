"""One peer's keys and everybody's public ones, as the protocol uses them."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from pdlrecover.engines.peers.identity.member import Member
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.sealing import open_sealed, seal, sign, verify
from pdlrecover.errors import ForgeryError


class Signers:
    """Everybody's public signing keys, by number: enough to check what peers have signed."""

    def __init__(self, keys: Sequence[Ed25519PublicKey]) -> None:
        self._keys = tuple(keys)

    @staticmethod
    def of(members: Sequence[Member]) -> "Signers":
        """Return the signing keys of a federation's members."""
        return Signers([member.signing_key for member in members])

    def verify(self, peer: int, data: bytes, signature: bytes) -> bool:
        """Say whether a peer signed this."""
        if not 0 <= peer < len(self._keys):
            return False
        try:
            verify(self._keys[peer], signature, data)
        except ForgeryError:
            return False
        return True


class Keyring(Signers):
    """Signs and opens as one peer; verifies and seals by number. See `sealing` for how."""

    def __init__(
        self,
        signing: Ed25519PrivateKey,
        sealing: X25519PrivateKey,
        public: Sequence[tuple[Ed25519PublicKey, X25519PublicKey]],
    ) -> None:
        """`public` has everybody's signing and sealing keys, in the order of the peers."""
        super().__init__([key for key, _ in public])
        self._signing, self._sealing = signing, sealing
        self._recipients = [key for _, key in public]

    @classmethod
    def of_peer(cls, identity: Identity, members: Sequence[Member]) -> "Keyring":
        """Return an identity's keys, with those of all members of its federation."""
        public = [(member.signing_key, member.sealing_key) for member in members]
        return cls(identity.signing, identity.sealing, public)

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature."""
        return sign(self._signing, data)

    def seal(self, peer: int, data: bytes, context: bytes) -> bytes:
        """Return what only this peer can open, and only in this context."""
        return seal(self._recipients[peer], data, context)

    def unseal(self, data: bytes | memoryview, context: bytes) -> bytes | None:
        """Return what was sealed to this peer, or None if it was not, or is damaged."""
        try:
            return open_sealed(self._sealing, data, context)
        except (ForgeryError, ValueError):
            return None
