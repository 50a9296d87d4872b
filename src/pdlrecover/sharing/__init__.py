"""Secret sharing: tolerance, packed Shamir, robust opening, masked dot products."""

from pdlrecover.sharing.dots import (
    add_masks,
    dot_public,
    dot_shared,
    dots_public,
    open_dots,
    zero_masks,
    zero_masks_with,
)
from pdlrecover.sharing.robust import Opening, open_robust
from pdlrecover.sharing.shamir import Scheme
from pdlrecover.sharing.shares import DotShares, Shares
from pdlrecover.sharing.tolerance import Quorums, Tolerance

__all__ = [
    "DotShares",
    "Opening",
    "Quorums",
    "Scheme",
    "Shares",
    "Tolerance",
    "add_masks",
    "dot_public",
    "dot_shared",
    "dots_public",
    "open_dots",
    "open_robust",
    "zero_masks",
    "zero_masks_with",
]
