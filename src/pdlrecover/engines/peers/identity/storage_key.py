"""The key of a peer's history: 32 bytes, kept off the disk that holds the history.

Four places, in this order: a private file, the environment variable PDLRECOVER_HISTORY_KEY, the
credential `history.key` of a service, or a passphrase that somebody types. All but the last hold 64
hexadecimal digits. A passphrase becomes a key by scrypt (N = 2^17, r = 8, p = 1) with the
identity's salt.

A credential is a file in the folder that CREDENTIALS_DIRECTORY names: systemd makes it for one
service (LoadCredential=, LoadCredentialEncrypted=), and a container may mount its secrets there.

A wrong key is found when the history is opened. A lost one cannot be replaced.
"""

import os
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from pdlrecover.engines.peers.identity.private_files import create_file, read_credential, read_file
from pdlrecover.errors import IdentityError

VARIABLE = "PDLRECOVER_HISTORY_KEY"
CREDENTIALS, CREDENTIAL = "CREDENTIALS_DIRECTORY", "history.key"
KEY_BYTES = 32
COST = 1 << 17
"""scrypt's N: 128 MB of memory, for about half a second."""
SHORTEST = 12
"""Characters of a passphrase, at least."""
_MISSING = (
    "put in the disk that it is on, say where it is by key_file under [history] in peer.toml, or "
    "restore it from its backup"
)


class StorageKey:
    """A key that does not show itself."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        if len(value) != KEY_BYTES:
            raise IdentityError(f"a storage key has {KEY_BYTES} bytes, got {len(value)}")
        self._value = value

    def __repr__(self) -> str:
        return "<storage key>"

    def __reduce__(self) -> str:
        raise TypeError("a storage key is not to be copied or stored")

    def reveal(self) -> bytes:
        """Return the key itself."""
        return self._value

    @classmethod
    def generate(cls) -> "StorageKey":
        """Return a new key."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def create(cls, path: Path) -> "StorageKey":
        """Make a new key, and write it to a new private file."""
        key = cls.generate()
        create_file(path, key.reveal().hex().encode() + b"\n")
        return key

    @classmethod
    def from_hex(cls, text: str, where: str) -> "StorageKey":
        """Read 64 hexadecimal digits."""
        try:
            value = bytes.fromhex(text.strip())
        except ValueError:
            value = b""
        if len(value) != KEY_BYTES:
            raise IdentityError(
                f"{where} must hold {2 * KEY_BYTES} hexadecimal digits, and nothing else; make a "
                "key by `openssl rand -hex 32`"
            )
        return cls(value)

    @classmethod
    def from_file(cls, path: Path) -> "StorageKey":
        """Read a key from a private file."""
        return cls.from_hex(read_file(path, _MISSING).decode("ascii", "replace"), str(path))

    @classmethod
    def from_passphrase(cls, passphrase: str, salt: bytes, *, cost: int = COST) -> "StorageKey":
        """Make the key of a passphrase and a salt."""
        words = unicodedata.normalize("NFC", passphrase)
        if len(words) < SHORTEST:
            raise IdentityError(f"a passphrase needs at least {SHORTEST} characters")
        derive = Scrypt(salt=salt, length=KEY_BYTES, n=cost, r=8, p=1)
        return cls(derive.derive(words.encode()))


def find_storage_key(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    ask: Callable[[], str] | None = None,
    salt: bytes = b"",
) -> StorageKey:
    """Return the key from the file if one is named, the variable, the credential, or by asking.

    `ask` returns a passphrase; `salt` is the identity's.
    """
    if file is not None:
        return StorageKey.from_file(file)
    variables = os.environ if environment is None else environment
    if text := variables.get(VARIABLE):
        return StorageKey.from_hex(text, f"the environment variable {VARIABLE}")
    if folder := variables.get(CREDENTIALS):
        path = Path(folder) / CREDENTIAL
        if path.exists():
            text = read_credential(path).decode("ascii", "replace")
            return StorageKey.from_hex(text, f"the credential {path}")
    if ask is not None:
        return StorageKey.from_passphrase(ask(), salt)
    raise IdentityError(
        "the history's key is not there: name its file by key_file under [history] in peer.toml, "
        f"set {VARIABLE}, give the service the credential {CREDENTIAL}, or type the passphrase at "
        "a terminal"
    )
