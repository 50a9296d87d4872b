"""A federation of real peers on this machine: every peer's folder and keys, and the signed file.

Everybody's files are in one place, and nothing is protected from anybody: for trials only.

    PLACE/federation.toml, federation.signatures
    PLACE/keys/NAME.key       the keys of the histories
    PLACE/NAME/               the folder of a peer
"""

import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdlrecover.engines.peers.federation.federation_file import write_federation
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.signatures import add_signature, sign_federation
from pdlrecover.engines.peers.folder import IDENTITY, SETTINGS, signatures_path
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.settings import Data, Drill, History, PeerSettings, write_settings

FEDERATION = "federation.toml"
KEYS = "keys"
PORTS = range(15_000, 32_000)


def settle(
    place: Path,
    names: Sequence[str],
    agreed: Mapping[str, Any],
    *,
    source: str,
    drills: Sequence[str] = (),
) -> Path:
    """Make every peer's folder and the federation file, signed by all; return the file's path.

    `agreed` is what a `Membership` has besides its name and peers. `source` is where a peer finds
    its data, from its folder. `drills` are those that plant a backdoor.
    """
    (place / KEYS).mkdir(mode=0o700, parents=True, exist_ok=True)
    identities = []
    for name in names:
        folder = place / name
        folder.mkdir(mode=0o700)
        identities.append(Identity.create(folder / IDENTITY, name))
        StorageKey.create(key_path(place, name))
        settings = PeerSettings(
            data=Data(source=source),
            history=History(key_file=f"../{KEYS}/{name}.key"),
            drill=Drill(attack="backdoor" if name in drills else None),
        )
        (folder / SETTINGS).write_text(write_settings(settings))
    members = zip(identities, free_addresses(len(names)), strict=True)
    peers = tuple(identity.member(address) for identity, address in members)
    membership = Membership(name="on-this-machine", peers=peers, **agreed)
    path = place / FEDERATION
    path.write_text(write_federation(membership))
    text = ""
    for identity in identities:
        text = add_signature(text, sign_federation(identity, membership))
    signatures_path(path).write_text(text)
    return path


def key_path(place: Path, name: str) -> Path:
    """Return where the key of a peer's history is."""
    return place / KEYS / f"{name}.key"


def free_addresses(count: int) -> list[str]:
    """Return addresses on the loopback that nobody listens on.

    They are below those that the system gives to outgoing connections: a peer that is killed must
    find its port free when it is started again.
    """
    found: list[str] = []
    while len(found) < count:
        host, port = "127.0.0.1", secrets.choice(PORTS)
        with socket.socket() as tried:
            try:
                tried.bind((host, port))
            except OSError:
                continue
        if f"{host}:{port}" not in found:
            found.append(f"{host}:{port}")
    return found
