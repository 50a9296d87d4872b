"""What rounds cost in bytes, per peer.

Rules: a field element is 8 bytes; only elements are counted, not the headers, signatures and
sealing around them. Every peer sends to every other, so it receives as much as it sends.

    dealing a vector      one share of B = ⌈numbers/ℓ⌉ elements to each other peer
    opening a vector      one sub-secret of B elements to each other peer
    k masked dot products k elements of mask, then k elements of sub-secret, to each other peer

An update is d numbers and its weight: d + 1. Peers keep every dealer's share of every round, and
every model (8 bytes a number).
"""

from dataclasses import dataclass

from pdlrecover.errors import PlanError, Setting
from pdlrecover.recovery.evaluation import NUMBERS
from pdlrecover.sharing import Quorums

ELEMENT_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The cost of a federation's rounds for one of its peers."""

    quorums: Quorums
    parameters: int
    """d: how many numbers the model has."""
    rounds: int
    """T: how many rounds of history are kept."""
    buffer: int = 4
    """s: how many curvature pairs recovery keeps."""
    taking_part: int | None = None
    """How many peers exchange messages; by default all of them."""

    def __post_init__(self) -> None:
        for name in ("parameters", "rounds", "buffer"):
            value = getattr(self, name)
            if value < 1:
                raise PlanError(Setting(name), f" must be at least 1, got {value}")

    @property
    def share_bytes(self) -> int:
        """One peer's share of one update and its weight."""
        return ELEMENT_BYTES * self.quorums.blocks(self.parameters + 1)

    @property
    def exact_round_bytes(self) -> int:
        """Sent in an exact round: deal the update, broadcast the sub-secret."""
        return 2 * self._to_others(self.share_bytes)

    @property
    def opening_bytes(self) -> int:
        """Sent to open one shared vector: broadcast the sub-secret."""
        return self._to_others(self.share_bytes)

    @property
    def estimated_round_bytes(self) -> int:
        """Sent in an estimated round: s masked dot products, and one opened vector."""
        return self.opening_bytes + self.dots_bytes(self.buffer)

    @property
    def pair_bytes(self) -> int:
        """Sent when a pair enters the buffer: the new row and column of A = WᵀG."""
        return self.dots_bytes(2 * self.buffer - 1)

    @property
    def history_bytes(self) -> int:
        """Kept on disk by one peer: each dealer's share, and the model, of every round."""
        models = ELEMENT_BYTES * self.parameters
        return self.rounds * (self.quorums.peers * self.share_bytes + models)

    @property
    def evaluation_bytes(self) -> int:
        """Sent in an evaluation: deal the three numbers, broadcast the sub-secret."""
        return self.few_bytes(NUMBERS)

    def few_bytes(self, count: int) -> int:
        """Sent to deal `count` numbers that are used once, and to open their sums."""
        return 2 * self._to_others(ELEMENT_BYTES * self.quorums.blocks(count))

    def dots_bytes(self, count: int) -> int:
        """Sent to open `count` masked dot products."""
        return 2 * self._to_others(ELEMENT_BYTES * count)

    def _to_others(self, size: int) -> int:
        peers = self.quorums.peers if self.taking_part is None else self.taking_part
        return max(0, peers - 1) * size
