"""Crab (Jiang, Shen, Liu, Tan & Lam, 2024): keep what mattered, roll back, calibrate from there.

What the server would have stored in training:

1. *Windows* of rounds: one closes when the training loss has dropped by 10% since it opened.
2. In each, the 60% of rounds in which the global model changed most, by the KL divergence of w̄_t
   and w̄_{t+1}; in each of those, the 70% of peers whose update is closest in cosine to the global
   one. Of these it keeps the model w̄_t and the updates.

Recovery:

3. *Rollback*: the sensitivity to the removed P is S_t = Σ_{τ<t} ‖mean over all − mean over K‖, of
   the stored updates of round τ. Start at the last kept w̄_t with S_t ≤ β·S_T; at w̄_0 if none is.
4. FedEraser's calibration (see `fed_eraser`) over the kept rounds and peers from there on.

What the paper leaves open, or differs in, and what is done here:

- *Whose loss*: the kept peers' mean training loss on the minibatches of each round, which they
  would have sent with their updates. A method has no data, so it is asked for (`Loss`).
- *KL of two models* needs distributions. As in its authors' code these are softmaxes of the
  weights, which needs no data; theirs are by layer, ours of the whole vector, since a model is one
  here. It is KL(w̄_t ‖ w̄_{t+1}), and counts for round t, whose update made the change.
- *Cosine* is between updates, as the paper writes, not between models as in its code; the global
  update is everybody's, since nobody knew then who would be removed. The 70% are of the kept
  peers: whoever was chosen of P is of no use later.
- *Shares of small numbers* are rounded, and at least one round and one peer are kept.
- *The sensitivity* is the first-order one with unit growth: what P moved the mean in every round,
  added up, without the rate.
- *The bound* follows in the paper from a noise to be certified. There is none here, so it is a
  share β of what S comes to in the whole run: it has no unit, hence needs no tuning by dataset,
  and β = 0 starts at w̄_0.
- *At the model that was rolled back to* stored and fresh updates are the same: the stored are used.
- *How far a kept round goes*: as in `fed_eraser`, up to the next kept one (the first also stands
  for any before it), so that as many steps are taken as the run had from there; with
  `repeat=False` it is one.
- *The optimiser* starts afresh: its moments at w̄_t hold updates of P.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.recovery import requests
from pdlrecover.recovery.fed_eraser import calibrated, lengths
from pdlrecover.recovery.requests import Individuals, Method, Original, Vector, individual
from pdlrecover.recovery.same_bits import norm


@dataclass(frozen=True, kw_only=True)
class CrabOptions:
    """Crab's constants."""

    drop: float = 0.1
    """The share of its first loss that closes a window."""
    rounds: float = 0.6
    """The share of a window's rounds that is kept."""
    peers: float = 0.7
    """The share of the peers that is kept in each."""
    sensitivity: float = 0.1
    """β: the share of the run's whole sensitivity that the rollback may keep."""
    repeat: bool = True
    """Whether a kept round is stepped along for all the rounds that it stands for, or once."""

    def __post_init__(self) -> None:
        for name in ("drop", "rounds", "peers", "sensitivity"):
            if not 0 <= getattr(self, name) <= 1:
                raise PlanError(f"Crab's {name} is a share from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What is kept of a round."""

    round: int
    peers: tuple[int, ...]
    """By their places among the kept peers."""
    lengths: Vector
    """Of their stored updates."""


def crab(run: Original, options: CrabOptions | None = None) -> Method:
    """Recover the model; yields requests, returns the last ŵ."""
    options = options or CrabOptions()
    losses = []
    for t in range(run.rounds):
        losses.append((yield requests.Loss(round=t)))
    changes = [divergence(run.models[t], run.models[t + 1]) for t in range(run.rounds)]
    chosen = select_rounds(windows(losses, options.drop), changes, options.rounds)

    sensitivity, kept = [0.0], []
    for t in range(run.rounds):
        ours = yield from requests.past(t)
        theirs: requests.Sum | None = yield requests.Removed(rounds=(t,))
        if ours is None or theirs is None:
            sensitivity.append(sensitivity[-1])
            continue
        everybody = (ours.values + theirs.values) / (ours.weight + theirs.weight)
        sensitivity.append(sensitivity[-1] + norm(everybody - ours.mean))
        if t in chosen:
            stored = yield from individual(t)
            kept.append(keep(t, stored, everybody, options.peers))

    bound = options.sensitivity * sensitivity[-1]
    start = max((k.round for k in kept if sensitivity[k.round] <= bound), default=0)
    kept = [k for k in kept if k.round >= start]
    stepper = run.optimizer.start()
    model = run.models[start].copy()
    ends = [k.round for k in kept[1:]] + [run.rounds]
    for this, end in zip(kept, ends, strict=True):
        at_start = this.round == start
        updates = yield from individual(this.round, None if at_start else model, this.peers)
        total = updates.total if at_start else calibrated(this.lengths, updates)
        begin = start if this is kept[0] else this.round
        for t in range(begin, end) if options.repeat else (this.round,):
            model = stepper.step(model, total.mean)
            yield requests.Stepped(round=t, model=model, exact=False)
    return model


def windows(losses: Sequence[float], drop: float) -> list[range]:
    """Return the windows, one after the other, of all rounds."""
    starts = [0]
    for t, loss in enumerate(losses):
        if t > starts[-1] and loss <= (1 - drop) * losses[starts[-1]]:
            starts.append(t)
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(losses)], strict=True)]


def select_rounds(parts: Sequence[range], changes: Sequence[float], share: float) -> set[int]:
    """Return the rounds of each window in which the model changed most."""
    chosen: set[int] = set()
    for window in parts:
        count = max(1, round(share * len(window)))
        chosen.update(sorted(window, key=lambda t: -changes[t])[:count])
    return chosen


def divergence(before: Vector, after: Vector) -> float:
    """Return the KL divergence of the softmaxes of two models."""
    one, other = _log_softmax(before), _log_softmax(after)
    return float((np.exp(one) * (one - other)).sum())


def keep(t: int, stored: Individuals, everybody: Vector, share: float) -> Kept:
    """Return what is kept of a round: the peers whose updates are closest to everybody's mean.

    The order of the cosines is that of the projections; an update of zero comes last.
    """
    sizes = lengths(stored.values)
    along = np.asarray(stored.values @ everybody.astype(np.float32), dtype=float)
    projections = np.divide(along, sizes, out=np.full_like(sizes, -np.inf), where=sizes > 0)
    count = max(1, round(share * len(sizes)))
    peers = np.sort(np.argsort(-projections, kind="stable")[:count])
    return Kept(round=t, peers=tuple(peers.tolist()), lengths=sizes[peers])


def _log_softmax(x: Vector) -> Vector:
    shifted = x - x.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))
