"""What all peers' samples have in common, as far as it is known when one of them reads its own."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """What a federation says of samples; nothing, where somebody reads without one."""

    shape: tuple[int, ...] | None = None
    """The shape of a sample."""
    outputs: int | None = None
    """How many classes there are."""
    features: tuple[str, ...] | None = None
    """The columns of tables, in their order."""
    classes: tuple[str, ...] | None = None
    """The names of the classes, in the order of the model's outputs."""

    @property
    def is_federation(self) -> bool:
        """Whether a federation says anything."""
        return self.outputs is not None
