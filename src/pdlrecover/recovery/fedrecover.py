"""FedRecover (Cao, Jia, Zhang & Gong, IEEE S&P 2023): a server replays every single peer's updates.

From ŵ_0 = w̄_0, for t = 0 … T−1, peer i of the kept ones:

1. Exact round (the first T_w, one in every T_c after, the last T_f): every peer computes gᵢ(ŵ_t).
   Before the final rounds, and where ŵ_t ≠ w̄_t, that adds the pair ΔW = ŵ_t − w̄_t, the same for
   all, and ΔGᵢ = gᵢ(ŵ_t) − gᵢ(w̄_t), each peer's own, both of round t. The last s are used.
2. Estimated round: ĝᵢ = gᵢ(w̄_t) + H̃ᵢ(ŵ_t − w̄_t), H̃ᵢ by L-BFGS on peer i's own pairs, in the
   compact form that `curvature` explains.
3. Abnormality: a peer with any coordinate |ĝᵢ| > τ computes exactly. τ = max_t τ_t, where at most
   a fraction ε = 1e-6 of all coordinates of round t of the original updates exceed τ_t.
4. Step: the weighted mean, through the run's own optimiser.

What the paper leaves open, or differs in, and what is done here:

- *Whose original updates τ is taken from*: the kept peers'. A poisoner's own may be of any size.
- *Weights*: the paper's gᵢ is a plain gradient, ours comes multiplied by αᵢ. H̃ᵢ is linear in ΔGᵢ,
  so it makes no difference but for τ, which is about gᵢ/αᵢ.
- *The lower triangle* is the strict one; with its diagonal the secant equation fails.
- *The pair of round 0*, where ŵ = w̄, is left out. T_w > s is checked.
- *Partly exact rounds*: ΔW is common to all, so a pair is added only where all computed exactly;
  that includes a round in which all were abnormal.
- *An estimate that cannot be had* (a singular system, a number that is not finite) is abnormal.
- *Short runs*: T_w is at most a quarter of the run, and T_f too.
- *The optimiser* is the run's own, where the paper has plain SGD.

It asks for every kept peer's stored update in every round: first for τ, then to replay. All peers
are computed at once in float32; the server computes alone, so nobody needs to agree on bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import PlanError
from pdlrecover.recovery import requests
from pdlrecover.recovery.requests import Asking, Individuals, Method, Original, Vector
from pdlrecover.recovery.schedule import Schedule

Rows = NDArray[np.float32]
"""One row of d numbers for each kept peer."""


@dataclass(frozen=True, kw_only=True)
class FedRecoverOptions:
    """FedRecover's constants; the defaults are the paper's."""

    warmup: int = 20
    """T_w."""
    period: int = 10
    """T_c."""
    final: int = 5
    """T_f."""
    buffer: int = 2
    """s."""
    exceeding: float = 1e-6
    """ε: the share of a round's original coordinates that may exceed its τ_t."""

    def __post_init__(self) -> None:
        if not self.warmup > self.buffer:
            raise PlanError(
                f"FedRecover needs more rounds of warm-up than pairs, got {self.warmup} and "
                f"{self.buffer}"
            )
        if not 0 <= self.exceeding < 1:
            raise PlanError(f"exceeding is a share from 0 to below 1, got {self.exceeding}")

    def schedule(self, rounds: int) -> Schedule:
        """Return which of `rounds` rounds are exact."""
        return Schedule(
            preparation=max(self.buffer + 1, min(self.warmup, rounds // 4)),
            period=self.period,
            final=min(self.final, rounds // 4),
            buffer=self.buffer,
        )


def fedrecover(run: Original, options: FedRecoverOptions | None = None) -> Method:
    """Recover the model; yields requests, returns ŵ_T."""
    options = options or FedRecoverOptions()
    rounds, schedule = run.rounds, options.schedule(run.rounds)
    schedule.check(rounds)
    limit = yield from abnormal_from(rounds, options.exceeding)
    curvature = PeerCurvature(size=schedule.buffer)
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(rounds):
        updates, fallback = None, False
        if curvature.ready and not schedule.is_exact(t, rounds):
            updates = yield from _estimated(t, model, run.models[t], curvature, limit)
            fallback = updates is None
        exact = updates is None
        if updates is None:
            updates = yield from requests.individual(t, at=model)
            if t < rounds - schedule.final and (model != run.models[t]).any():
                stored = yield from requests.individual(t)
                curvature.add(model - run.models[t], updates.values - stored.values)
        model = stepper.step(model, updates.total.mean)
        yield requests.Stepped(round=t, model=model, exact=exact, fallback=fallback)
    return model


def abnormal_from(rounds: int, exceeding: float) -> Asking[float]:
    """Return τ, from the stored updates of every round.

    τ_t is above the τ so far only if too many coordinates are, so only those need sorting.
    """
    limit = -1.0
    for t in range(rounds):
        stored = yield from requests.individual(t)
        sizes = np.abs(stored.values)
        sizes /= stored.weights[:, None].astype(np.float32)
        above = sizes[sizes > limit]
        allowed = int(exceeding * sizes.size)
        if len(above) > allowed:
            limit = float(np.partition(above, -allowed - 1)[-allowed - 1])
    return limit


def _estimated(
    t: int, model: Vector, past: Vector, curvature: "PeerCurvature", limit: float
) -> Asking[Individuals | None]:
    """Return estimates, and exact updates where those are abnormal; None if all of them are."""
    stored = yield from requests.individual(t)
    found = curvature.corrected(stored.values, model - past)
    largest = np.maximum(found.max(axis=1), -found.min(axis=1))
    abnormal = np.flatnonzero(~(largest <= limit * stored.weights))
    if len(abnormal) == len(found):
        return None
    if len(abnormal):
        fresh = yield from requests.individual(t, at=model, of=tuple(abnormal.tolist()))
        found[abnormal] = fresh.values
    return Individuals(values=found, weights=stored.weights)


class PeerCurvature:
    """The last s pairs of every peer: W (s, d) is common, G is (peers, d) for each pair."""

    def __init__(self, *, size: int) -> None:
        self._size = size
        self._w: list[Vector] = []
        self._g: list[Rows] = []
        self._a: NDArray[np.float64] = np.zeros((0, 0, 0))

    @property
    def ready(self) -> bool:
        """Whether there is a pair."""
        return bool(self._w)

    def add(self, displacement: Vector, differences: Rows) -> None:
        """Add a pair, and drop the oldest beyond the size."""
        self._w = [*self._w, displacement][-self._size :]
        self._g = [*self._g, differences][-self._size :]
        w = np.stack(self._w).astype(np.float32)
        self._a = np.stack([g @ w.T for g in self._g], axis=2).astype(float)

    def corrected(self, stored: Rows, v: Vector) -> Rows:
        """Return every peer's stored update plus H̃v; NaN where that cannot be computed.

        a[i] is WᵀGᵢ, and the systems of all peers, 2s × 2s each, are solved in one call.
        """
        s, a, w = len(self._w), self._a, np.stack(self._w)
        gram = w @ w.T
        rho = a[:, -1, -1] / gram[-1, -1]
        u = np.stack([g @ v.astype(np.float32) for g in self._g], axis=1)
        lower = np.tril(a, -1)
        systems = np.zeros((len(a), 2 * s, 2 * s))
        systems[:, :s, :s] = -np.eye(s) * a
        systems[:, :s, s:] = lower.transpose(0, 2, 1)
        systems[:, s:, :s] = lower
        systems[:, s:, s:] = rho[:, None, None] * gram
        sides = np.concatenate([u, rho[:, None] * (w @ v)], axis=1)
        singular = ~(np.abs(np.linalg.slogdet(systems).sign) > 0)
        systems[singular] = np.eye(2 * s)
        p = np.linalg.solve(systems, sides[:, :, None])[:, :, 0]
        p[singular] = np.nan
        common = np.concatenate([rho[:, None], -rho[:, None] * p[:, s:]], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Rows = common.astype(np.float32) @ np.vstack([v, w]).astype(np.float32)
            found += stored
            for g, own in zip(self._g, p[:, :s].T.astype(np.float32), strict=True):
                found -= own[:, None] * g
        return found
