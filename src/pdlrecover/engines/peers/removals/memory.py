"""What a peer keeps on disk of removals: proposals, signed approvals, and what has passed.

It is written in the wire's own forms, with a version: see `protocol.stored`.
"""

import json
from dataclasses import dataclass
from typing import Annotated

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.messages import RemovalProposal
from pdlrecover.engines.peers.protocol.stored import StoredForm

MAX_STORED, MAX_APPROVAL = 1 << 20, 1 << 12
_NAME = "removals"


@dataclass(frozen=True, kw_only=True)
class StoredApproval:
    """A peer's approval: the whole message, as it was signed."""

    peer: f.Peer
    message: Annotated[bytes, f.Bytes(MAX_APPROVAL)]


@dataclass(frozen=True, kw_only=True)
class StoredRemoval:
    """A removal that was proposed, and who has approved it."""

    proposal: RemovalProposal
    approvals: tuple[StoredApproval, ...]


@dataclass(frozen=True, kw_only=True)
class StoredRemovals:
    """All removals that a peer knows, and the digests of those that have passed, in that order."""

    removals: Annotated[tuple[StoredRemoval, ...], MAX_STORED] = ()
    passed: Annotated[tuple[f.Digest, ...], MAX_STORED] = ()


def recall(store: Store) -> StoredRemovals:
    """Return what is kept of removals; nothing, if nothing is."""
    saved = store.recall(_NAME)
    return REMOVALS.decode(saved) if saved else StoredRemovals()


def remember(store: Store, removals: StoredRemovals) -> None:
    """Keep what is known of removals, instead of what was kept before."""
    store.remember({_NAME: REMOVALS.encode(removals)})


def _read_version_0(data: bytes) -> StoredRemovals:
    """Read JSON with hexadecimal digits."""
    saved, removals = json.loads(data), []
    if saved.keys() != {"removals", "passed"}:
        raise ValueError(f"it has the parts {sorted(saved)}")
    for item in saved["removals"]:
        approvals = tuple(
            StoredApproval(peer=int(peer), message=bytes.fromhex(message))
            for peer, message in item.pop("approvals").items()
        )
        item |= {"removed": tuple(item["removed"]), "after": bytes.fromhex(item["after"])}
        removals.append(StoredRemoval(proposal=RemovalProposal(**item), approvals=approvals))
    passed = tuple(map(bytes.fromhex, saved["passed"]))
    return StoredRemovals(removals=tuple(removals), passed=passed)


REMOVALS = StoredForm(kind=3, form=f.form_of(StoredRemovals), read_version_0=_read_version_0)
