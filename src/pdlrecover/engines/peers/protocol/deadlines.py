"""How long peers wait for each other; a table of the federation file, the same for all."""

import math
from dataclasses import dataclass

from pdlrecover.errors import MembershipError


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long to wait, in seconds; the slowest honest peer must be able to keep them."""

    message: float = 20.0
    """For another peer to acknowledge a message."""
    dealing: float = 30.0
    """From a peer's own dealing until it goes on without those that have not dealt."""
    receipts: float = 5.0
    """Until the leader proposes without those that have sent no receipt."""
    view: float = 15.0
    """For a step's leader, before the next one takes over; it grows with every view, up to 8 times
    that."""
    resend: float = 2.0
    """Until what may have been lost is sent again; it doubles, up to 8 times that. Dealings, which
    are large, are sent again to silent peers after 4 times that."""
    behind: float = 1.0
    """From being overtaken until the public answers are fetched."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise MembershipError(f"deadlines.{name} must be above 0, got {value}")
