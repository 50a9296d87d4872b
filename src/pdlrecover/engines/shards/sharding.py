"""How a simulation is cut over shards: what a user says of it."""

from dataclasses import dataclass

from pdlrecover.cluster import LOCAL
from pdlrecover.errors import PlanError, Setting


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Over how many shards, and where."""

    shards: int
    """How many processes compute; each takes a core."""
    on: str = LOCAL
    """`local`: processes are started on this machine, and ended again; `auto` or HOST:PORT: on the
    nodes of that Ray cluster."""
    deal_on_shards: bool = False
    """Whether they multiply by the dealing matrix, too."""
    mixed_processors: bool = False
    """Whether nodes may have other processors: the last bits of gradients then depend on who
    computes them."""

    def __post_init__(self) -> None:
        if isinstance(self.shards, bool) or not isinstance(self.shards, int) or self.shards < 1:
            raise PlanError(
                Setting("shards"), f" must be a whole number from 1 on, got {self.shards!r}"
            )
