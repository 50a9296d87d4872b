"""What a peer keeps on disk of removals: proposals, signed approvals, and what has passed.

It is written in the wire's own forms, with a version: see `protocol.stored`.
"""

import json
from dataclasses import dataclass

from pdlrecover.engines.peers.protocol.codec import REMOVAL_PROPOSAL
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.forms import DIGEST, MAX_PEERS, U16, Bytes, Many, Record
from pdlrecover.engines.peers.protocol.messages import RemovalProposal
from pdlrecover.engines.peers.protocol.stored import StoredForm

MAX_STORED = 1 << 20
MAX_APPROVAL = 1 << 12
_NAME = "removals"


@dataclass(frozen=True, kw_only=True)
class StoredApproval:
    """A peer's approval: the whole message that it signed."""

    peer: int
    message: bytes


@dataclass(frozen=True, kw_only=True)
class StoredRemoval:
    """A removal that was proposed, and who has approved it."""

    proposal: RemovalProposal
    approvals: tuple[StoredApproval, ...]


@dataclass(frozen=True, kw_only=True)
class StoredRemovals:
    """All removals that a peer knows, and the digests of those that have passed, in that order."""

    removals: tuple[StoredRemoval, ...] = ()
    passed: tuple[bytes, ...] = ()


def recall(store: Store) -> StoredRemovals:
    """Return what is kept of removals; nothing, if nothing is."""
    saved = store.recall(_NAME)
    return REMOVALS.decode(saved) if saved else StoredRemovals()


def remember(store: Store, removals: StoredRemovals) -> None:
    """Keep what is known of removals, instead of what was kept before."""
    store.remember({_NAME: REMOVALS.encode(removals)})


def _read_version_0(data: bytes) -> StoredRemovals:
    """Read JSON with hexadecimal digits."""
    saved = json.loads(data)
    removals = (
        StoredRemoval(
            proposal=RemovalProposal(
                removed=tuple(item["removed"]),
                reason=item["reason"],
                method=item["method"],
                accept_differencing=item["accept_differencing"],
                after=bytes.fromhex(item["after"]),
                settings=item["settings"],
            ),
            approvals=tuple(
                StoredApproval(peer=int(peer), message=bytes.fromhex(message))
                for peer, message in item["approvals"].items()
            ),
        )
        for item in saved["removals"]
    )
    return StoredRemovals(
        removals=tuple(removals), passed=tuple(map(bytes.fromhex, saved["passed"]))
    )


_APPROVAL = Record(StoredApproval, {"peer": U16, "message": Bytes(MAX_APPROVAL)})
_REMOVAL = Record(
    StoredRemoval, {"proposal": REMOVAL_PROPOSAL, "approvals": Many(_APPROVAL, MAX_PEERS)}
)
REMOVALS: StoredForm[StoredRemovals] = StoredForm(
    kind=3,
    form=Record(
        StoredRemovals,
        {"removals": Many(_REMOVAL, MAX_STORED), "passed": Many(DIGEST, MAX_STORED)},
    ),
    read_version_0=_read_version_0,
)
