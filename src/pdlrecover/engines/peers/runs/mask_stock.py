"""How many zero masks are left of those that a recovery's peers dealt and agreed on.

Rules:

- A step that finds too few left deals as many as an update has blocks: enough for most recoveries.
  Dot products that take more than that deal their own.
- No mask is used twice: a step takes those that follow on the last step's.
- A peer that was away when the masks were dealt has no shares of them, and does not answer where
  they are used. So once a peer deals an update that did not deal these masks, new ones are dealt.
- All of that follows from the public log, so it is the same at all peers.
"""

from dataclasses import dataclass


@dataclass(kw_only=True)
class MaskStock:
    """The masks of one recovery that are not used yet."""

    size: int
    """How many masks a stock has."""
    step: int = -1
    """In which step they were dealt."""
    used: int = 0
    """How many of them have been taken."""
    dealers: frozenset[int] = frozenset()
    """Who dealt them."""
    _fresh: bool = False
    """Whether all who are here have dealt them."""

    def take(self, count: int, step: int) -> int:
        """Take masks for a step; return how many it must deal, 0 if there are enough left.

        The masks taken are the last `count` of the first `used` ones.
        """
        if self._fresh and self.used + count <= self.size:
            self.used += count
            return 0
        self.step, self.used, self.dealers = step, count, frozenset()
        self._fresh = count < self.size
        return max(count, self.size)

    def meet(self, dealers: frozenset[int]) -> None:
        """Notice who deals updates: who did not deal the masks needs new ones."""
        if not dealers <= self.dealers:
            self._fresh = False
