"""`auto`: accelerated retraining, with the rounds and local steps that a run like this one needs.

1. A run that was itself trained by Muon came further than others do in its rounds, and takes more
   of them to come as far again, with small singular values lifted as far as in the training.
2. With tiny minibatches a mean update is mostly noise. Peers then take several local steps in a
   round, so that each round is about as many samples as a normal minibatch has.

It uses no history: in no setting that was recorded did replaying it pay. The constants were chosen
on validation data: `docs/methods/auto.md` says how.
"""

from dataclasses import dataclass, replace

from pdlrecover.errors import PlanError
from pdlrecover.recovery.accelerated import STARTS, AcceleratedOptions, accelerated_retrain
from pdlrecover.recovery.optimizers import Muon
from pdlrecover.recovery.requests import Method, Original


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """The constants of the decision."""

    rounds: int = 25
    rounds_after_muon: int = 40
    gain_after_muon: float = 30000.0
    """As far as can be, as in training; a limit would keep nothing from minorities that retraining
    does not give them."""
    rate_after_muon: float = 0.04
    samples: int = 16
    """A round takes at least this many samples of every peer, in local steps if need be."""
    local_rate: float = 0.1
    """The rate of these local steps."""
    start: str | None = None
    """first or fresh, as for accelerated retraining; None: what is given for that."""

    def __post_init__(self) -> None:
        for name in ("rounds", "rounds_after_muon", "samples"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.start not in (None, *STARTS):
            raise PlanError(f"start must be {' or '.join(STARTS)}, got {self.start!r}")

    def start_of(self, given: AcceleratedOptions) -> str:
        """Return where it begins."""
        return self.start or given.start

    def plan(
        self, run: Original, batch_size: int, given: AcceleratedOptions, local_steps: int = 1
    ) -> AcceleratedOptions:
        """Return how accelerated retraining runs here; what is not decided is as given.

        `local_steps` are those of the training, which stay if they are enough.
        """
        plan = replace(given, rounds=self.rounds, start=self.start_of(given))
        if isinstance(run.optimizer, Muon):
            plan = replace(
                plan,
                rounds=self.rounds_after_muon,
                gain=self.gain_after_muon,
                rate=self.rate_after_muon,
            )
        if batch_size * (given.local_steps or local_steps) >= self.samples:
            return plan
        steps = -(-self.samples // batch_size)
        return replace(plan, local_steps=steps, local_rate=self.local_rate)


def auto(
    run: Original,
    batch_size: int,
    options: AutoOptions | None = None,
    accelerated: AcceleratedOptions | None = None,
    local_steps: int = 1,
) -> Method:
    """Recover by accelerated retraining, with the rounds and local steps that this run needs."""
    options = options or AutoOptions()
    plan = options.plan(run, batch_size, accelerated or AcceleratedOptions(), local_steps)
    return accelerated_retrain(run, plan, batch_size=batch_size)
