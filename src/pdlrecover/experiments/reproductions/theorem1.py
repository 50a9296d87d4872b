"""Theorem 1 as an experiment: how far recovery ends from retraining, and how far it may.

On L2-regularised logistic regression every round's loss is μ-strongly convex with μ = λ, and
𝓛-smooth. Recovery and retraining start at the same w_0, step with rate γ ≤ min(1/μ, 1/𝓛), and
use the same minibatches, so with Z ≥ ‖ĝ_t − ∇L_t(ŵ_t)‖ for all t

    ‖ŵ_t − w_t‖ ≤ γZ · (1 − r^t)/(1 − r),    r = √(1 − γμ).

Z is measured: in every round the true mean gradient of the kept peers is computed at ŵ_t beside the
estimated one. Exact rounds have an error of at most the fixed-point rounding, which is in Z too.
"""

import math
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from pdlrecover.errors import PlanError
from pdlrecover.experiments.analysis.document import Series
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction
from pdlrecover.recovery.methods import OURS, REFERENCE, Settings
from pdlrecover.recovery.requests import Stepped, Vector
from pdlrecover.recovery.same_bits import norm

if TYPE_CHECKING:
    from pdlrecover.experiments.experiment.world import World

BOUND = Config(
    dataset="digits",
    model="logistic",
    peers=20,
    malicious=5,
    rounds=300,
    learning_rate=0.1,
    l2=0.05,
    preparation=25,
    final=25,
    clear=True,
    methods=(REFERENCE, OURS),
)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One run: measured distances, measured errors, and the bound, by round."""

    seed: int
    rate: float
    convexity: float
    smoothness: float
    z: float
    distance: list[float]
    error: list[float]
    bound: list[float]

    def holds(self) -> bool:
        """Say whether no distance exceeds the bound."""
        return all(d <= b for d, b in zip(self.distance, self.bound, strict=True))


def measure_bound(config: Config) -> Bound:
    """Train, retrain and recover; return distances, Z and the bound."""
    if config.model != "logistic" or config.l2 <= 0 or config.optimizer != "sgd":
        raise PlanError("Theorem 1 is about L2-regularised logistic regression trained with SGD")
    from pdlrecover.experiments.experiment.world import build  # with torch

    world = build(config)
    smoothness = _smoothness(world)
    if config.learning_rate > min(1 / config.l2, 1 / smoothness):
        raise PlanError(
            f"Theorem 1 needs a learning rate of at most min(1/μ, 1/𝓛) = "
            f"{min(1 / config.l2, 1 / smoothness):.4g}, got {config.learning_rate}"
        )
    federation, removed = world.federation, world.removed
    federation.train(config.rounds, config.learning_rate, progress=False)
    retrained = [federation.original.models[0]]
    federation.run_method(
        removed,
        "retrain",
        reason="malicious",
        settings=config.settings,
        observer=lambda s: retrained.append(s.model),
    )
    watch = _ErrorMeter(world)
    federation.run_method(
        removed,
        "pdlrecover",
        reason="malicious",
        settings=Settings(options=config.options),
        observer=watch,
    )
    distance = [norm(a - b) for a, b in zip(watch.models, retrained, strict=True)]
    z = max(watch.errors)
    shrink = math.sqrt(1 - config.learning_rate * config.l2)
    bound = [
        config.learning_rate * z * (1 - shrink**t) / (1 - shrink) for t in range(len(distance))
    ]
    return Bound(
        seed=config.seed,
        rate=config.learning_rate,
        convexity=config.l2,
        smoothness=smoothness,
        z=z,
        distance=distance,
        error=watch.errors,
        bound=bound,
    )


class _ErrorMeter:
    """Follows a recovery by plain SGD, and compares each of its steps with the true gradient."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._kept = [p for p in range(world.config.peers) if p not in world.removed]
        self.models: list[Vector] = [world.federation.original.models[0]]
        self.errors: list[float] = []

    def __call__(self, step: Stepped) -> None:
        before = self.models[-1]
        simulated_peers = self._world.federation.simulated_peers
        sums = simulated_peers.sums(step.round, before, [self._kept], "recovery")[0]
        true = sums[:-1] / sums[-1]
        used = (before - step.model) / self._world.config.learning_rate
        self.errors.append(norm(used - true))
        self.models.append(step.model)


def _smoothness(world: "World") -> float:
    """Return an upper bound of 𝓛: the softmax Hessian is at most ½·xxᵀ for every sample, plus λ.

    Every minibatch's mean of ‖x‖² is at most the largest; the bias counts as a feature of 1.
    """
    x = world.dataset.train_x.flatten(1).double()
    largest = float((x.square().sum(dim=1) + 1).max())
    return 0.5 * largest + world.config.l2


SEEDS = (0, 1, 2)


def _write(draft: Draft, results: Results) -> None:
    bounds = [measure_bound(replace(BOUND, seed=seed)) for seed in SEEDS]
    distances, errors = [], []
    held = sum(found.holds() for found in bounds)
    draft.summary = [f"Theorem 1 holds with {held} of {len(bounds)} seeds."]
    for found in bounds:
        rounds = [float(t) for t in range(len(found.distance))]
        seed = f"seed {found.seed}"
        distances.append(Series(name=f"measured, {seed}", x=rounds, y=list(found.distance)))
        distances.append(Series(name=f"bound, {seed}", x=rounds, y=list(found.bound)))
        errors.append(Series(name=seed, x=rounds[1:], y=list(found.error)))
        draft.summary.append(
            f"Seed {found.seed}: at the end ‖recovered − retrained‖ = {found.distance[-1]:.4f} and "
            f"the bound is {found.bound[-1]:.4f}, with Z = {found.z:.4f}, the largest error of an "
            f"estimated mean gradient; Theorem 1 {'holds' if found.holds() else 'is broken'}."
        )
    draft.figure(
        "Distance to retraining, and the bound",
        "round",
        "‖recovered − retrained‖",
        distances,
        log=True,
    )
    title = "Error of each step, whose maximum is Z"
    draft.figure(title, "round", "‖estimated − true mean gradient‖", errors)
    versions = ", ".join(f"{name} {version(name)}" for name in ("pdlrecover", "torch", "numpy"))
    draft.note = f"Seeds {', '.join(map(str, SEEDS))}; {versions}."


REPRODUCTION = Reproduction(
    name="bound",
    title="Theorem 1: how far recovery may end from retraining",
    cells=lambda scale: [],  # it measures along the way, which no result record holds
    write=_write,
)
