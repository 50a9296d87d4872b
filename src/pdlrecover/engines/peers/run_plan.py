"""What all peers of a federation have agreed on before they train: public, and the same for all."""

import hashlib
import json
from dataclasses import dataclass, field

from pdlrecover.errors import PlanError
from pdlrecover.learning import FlatModel
from pdlrecover.recovery import optimizers
from pdlrecover.recovery.methods import Settings
from pdlrecover.recovery.optimizers import SGD, Adam
from pdlrecover.sharing import Scheme, Tolerance


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The training, the tolerance, and how recoveries are done."""

    peers: int
    tolerance: Tolerance
    rounds: int
    optimizer: SGD | Adam
    batch_size: int
    seed: int
    size_bound: int
    """The public bound on how many samples a peer holds; a peer's weight is its share of it."""
    bound: float = 10.0
    """The L2 norm that updates are clipped to."""
    l2: float = 0.0
    fraction_bits: int = 20
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.size_bound < 1 or self.batch_size < 1:
            raise PlanError(
                "a plan needs at least 1 round, a batch size and a size bound of at least 1, got "
                f"{self.rounds}, {self.batch_size} and {self.size_bound}"
            )

    @property
    def scheme(self) -> Scheme:
        """How updates are shared."""
        return Scheme.for_peers(self.peers, self.tolerance)

    def run(self, federation: bytes, model: FlatModel) -> bytes:
        """Return the name of the training run: a digest of all that it depends on in public."""
        facts = {
            "peers": self.peers,
            "tolerance": vars(self.tolerance),
            "rounds": self.rounds,
            "optimizer": optimizers.as_record(self.optimizer),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "size_bound": self.size_bound,
            "bound": self.bound,
            "l2": self.l2,
            "fraction_bits": self.fraction_bits,
            "settings": repr(self.settings),
            "initial": hashlib.sha256(model.initial.astype("<f8").tobytes()).hexdigest(),
        }
        told = json.dumps(facts, sort_keys=True).encode()
        return hashlib.sha256(b"pdlrecover training" + federation + told).digest()
