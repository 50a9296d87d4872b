"""What a federation tolerates, and the packing, degrees and quorums that follow.

Rules: with c colluders, D dropouts, e liars among n peers, and ℓ numbers packed in a polynomial,

    opening                                  degree       responders needed
    a shared vector                          c + ℓ − 1    c + ℓ + 2e
    a dot product, shared with public        c + 2ℓ − 2   c + 2ℓ − 1 + 2e
    a dot product, shared with shared        2c + 2ℓ − 2  2c + 2ℓ − 1 + 2e

- Any c peers together learn nothing; D peers may be away (or removed) and e of those that answer
  may send wrong shares, and openings still succeed and name the liars.
- The default packing is the largest ℓ for which vectors, and dot products with public vectors,
  can be opened by n − D peers. With `products`, dot products of two shared vectors too.
"""

from dataclasses import dataclass

from pdlrecover.errors import Setting, ToleranceError


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a federation must survive."""

    colluders: int
    """c: how many peers may pool what they see, and still learn nothing."""
    dropouts: int = 0
    """D: how many peers may be absent, or removed."""
    liars: int = 0
    """e: how many of the peers that answer may send wrong shares."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ToleranceError(
                    Setting(name), f" must be a whole number of at least 0, got {value!r}"
                )

    def quorums(
        self, peers: int, *, packing: int | None = None, products: bool = False
    ) -> "Quorums":
        """Derive packing and quorums for `peers` peers, or raise and say what to change."""
        if isinstance(peers, bool) or not isinstance(peers, int) or peers < 1:
            raise ToleranceError(
                Setting("peers"), f" must be a whole number of at least 1, got {peers!r}"
            )
        factor = 2 if products else 1
        spare = peers - self.dropouts - factor * self.colluders - 2 * self.liars
        largest = (spare + 1) // 2
        if largest < 1:
            raise ToleranceError(*self._refusal(peers, factor, spare))
        if packing is not None and not (isinstance(packing, int) and 1 <= packing <= largest):
            raise ToleranceError(
                f"packing must be between 1 and {largest} for {peers} peers with {self}, "
                f"got {packing}; leave it out to get {largest}"
            )
        return Quorums(peers=peers, tolerance=self, packing=packing or largest)

    def __str__(self) -> str:
        many = [f"{n} {name[:-1] if n == 1 else name}" for name, n in vars(self).items()]
        return f"{many[0]}, {many[1]} and {many[2]}"

    def _refusal(self, peers: int, factor: int, spare: int) -> list[str | Setting]:
        """Say which numbers would do, changing one at a time: `spare` must rise to 1."""
        missing = 1 - spare
        ways: list[str | Setting] = [f"have at least {peers + missing} peers"]
        for name, worth in (("colluders", factor), ("dropouts", 1), ("liars", 2)):
            value = getattr(self, name) - -(-missing // worth)
            if value >= 0:
                ways += [", or lower ", Setting(name), f" to {value}"]
        formula = f"dropouts + {'2·' if factor == 2 else ''}colluders + 2·liars + 1"
        why = f"that takes {formula} = {peers + missing} peers"
        return [f"{peers} peers cannot survive {self}: {why}; ", *ways]


@dataclass(frozen=True, kw_only=True)
class Quorums:
    """Packing, degrees and quorums that follow from a tolerance."""

    peers: int
    tolerance: Tolerance
    packing: int
    """ℓ: how many numbers one polynomial carries."""

    @property
    def vector_degree(self) -> int:
        """The degree of a shared block."""
        return self.tolerance.colluders + self.packing - 1

    @property
    def dot_degree(self) -> int:
        """The degree of a shared block times a public one."""
        return self.vector_degree + self.packing - 1

    @property
    def product_degree(self) -> int:
        """The degree of a shared block times a shared one."""
        return 2 * self.vector_degree

    @property
    def vector(self) -> int:
        """Responders needed to open a shared vector."""
        return self._responders(self.vector_degree)

    @property
    def dot(self) -> int:
        """Responders needed to open a dot product of a shared and a public vector."""
        return self._responders(self.dot_degree)

    @property
    def product(self) -> int:
        """Responders needed to open a dot product of two shared vectors; may exceed the peers."""
        return self._responders(self.product_degree)

    def blocks(self, length: int) -> int:
        """Return how many field elements one peer holds of a shared vector of `length` numbers."""
        return -(-length // self.packing)

    def _responders(self, degree: int) -> int:
        return degree + 1 + 2 * self.tolerance.liars
