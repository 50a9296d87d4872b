"""Certified removal (C. Guo, T. Goldstein, A. Hannun, L. van der Maaten, ICML 2020): a Newton step.

A linear classifier is trained on everybody's data D with a perturbed objective, each class against
the rest, and the removed peers' data P is then taken out by one step:

1. w* minimises L_D(w) + bᵀw, where L_D(w) = Σ_D ℓ(w; z, y) + λ|D|/2·‖w‖², ℓ is the logistic loss,
   b ~ N(0, s²), s = 10 and λ = 1e-3. (Over |D|: mean loss, λ/2·‖w‖² and bᵀw/|D|.)
2. The Newton step of batch removal: w⁻ = w* + Δ with Δ = H_K⁻¹ ∇L_P(w*), where K is the kept
   peers' data, H_K = ∇²L_K(w*) and ∇L_P(w*) = Σ_P ∇ℓ + λ|P|·w*.
3. What is left of the gradient, ∇L_K(w⁻) + b, has at most the length ‖Δ‖·‖XΔ‖·‖X‖₂/4, X being the
   kept samples z, one a row: the data-dependent bound, with 1/4 for the logistic loss.
4. This is (ε, δ)-certified while what has been left is at most s·ε/c, with δ = 1.5·e^{−c²/2}. Past
   that budget the classifier is trained again, on K alone and with a new b.

The result is the original model w̄_T with its last linear layer replaced by that classifier.

What the paper leaves open, or what was changed:

- *Which models.* A logistic-regression model is its own last layer, its features are the inputs,
  and all of the above holds. Of any other model only the last layer is replaced, on the frozen
  features of the original model. **These were trained on the removed peers' data and keep what
  they learned of it**: then nothing is certified. The paper asks for features that never saw the
  data, or that are differentially private.
- *The features* are divided by their length (`learning.heads`), as in the paper: step 3 needs
  ‖z‖ ≤ 1. The layer's bias is the weight of one more feature, regularised and perturbed like all.
- *One against the rest.* Replacing the layer puts these scores where softmax had its logits. The
  class named is the one with the largest score; they are no log-probabilities.
- *The head has to be trained first.* The paper's model was trained so from the start, and a
  federation's was not. So the method asks for sums over everybody's data, **the removed peers'
  included**: they take part once more. A recovery that starts when they are gone could not do this.
- *Poisoned data.* In training, attacks poison minibatches. Here a malicious peer's whole data
  counts as one minibatch and is poisoned as such, for w* and for ∇L_P alike. Attacks on updates
  leave data as it is; of them the head sees only what they did to the features.
- *Several peers* leave in one step, not one by one. What is left is added up over the classes,
  with what the training of w* left over. Nothing is carried over to a later removal, which trains
  a new w*.
- *The optimum* is found by Newton's method with step halving, to a gradient of 1e-10 per sample.
- *ε and δ* are 1 and 1e-4. Every sample counts the same, so a peer counts by its data.
- *b* must stay secret. It is drawn as `noise` says, by one process.

It opens sums of gradients and Hessians: over all peers for w*, over the removed and the kept ones
for the step, and over the kept ones to train again. It reads no stored update.
"""

import math
from dataclasses import dataclass

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.field import Source, SystemSource
from pdlrecover.recovery import requests
from pdlrecover.recovery.noise import gaussian
from pdlrecover.recovery.requests import Asking, HeadSums, Method, Original, Vector

_TOLERANCE = 1e-10
"""The gradient's length per sample at which the optimum counts as found."""
_STEPS = 100
_HALVINGS = 40
_DESCENT = 1e-4
"""The share of the promised descent that a step must keep to."""
_ROUNDING = 1e-12
"""Losses that differ by less than this share are taken for equal."""


@dataclass(frozen=True, kw_only=True)
class RemovalOptions:
    """The classifier, and what is certified of its removal."""

    l2: float = 1e-3
    """λ."""
    perturbation: float = 10.0
    """s: the standard deviation of b."""
    epsilon: float = 1.0
    """ε."""
    delta: float = 1e-4
    """δ."""
    budget: float | None = None
    """What may be left of the gradient; s·ε/c if not said. 0 always trains again, ∞ never."""

    def __post_init__(self) -> None:
        if not (0 < self.l2 < math.inf and 0 <= self.perturbation < math.inf):
            raise PlanError(
                "certified removal needs l2 > 0 and a perturbation of at least 0, both finite; "
                f"got {self.l2} and {self.perturbation}"
            )
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 1):
            raise PlanError(
                f"certified removal needs 0 < epsilon < ∞ and 0 < delta < 1, got {self.epsilon} "
                f"and {self.delta}"
            )
        if self.budget is not None and not self.budget >= 0:
            raise PlanError(f"the budget of a removal must be at least 0, got {self.budget}")

    @property
    def allowed(self) -> float:
        """What may be left of the gradient before the classifier is trained again."""
        if self.budget is not None:
            return self.budget
        return self.perturbation * self.epsilon / math.sqrt(2 * math.log(1.5 / self.delta))


def certified_removal(
    run: Original, options: RemovalOptions | None = None, source: Source | None = None
) -> Method:
    """Replace the last layer by a classifier from which the removed peers' data was taken out."""
    options = options or RemovalOptions()
    source = source or SystemSource()
    at = run.models[-1]
    places = yield requests.LastLayer()
    head, left = yield from _optimum(at, places.shape, "all", options, source)
    removed = yield from _sums(at, head, "removed")
    kept = yield from _sums(at, head, "kept")
    start = yield from _sums(at, np.zeros_like(head), "kept")
    change = newton_step(kept, removed, head, options.l2)
    # At the zero head each sample's Hessian is zzᵀ/4, so this is XᵀX.
    left += float(residual_bounds(change, 4 * start.hessian[0]).sum())
    if left <= options.allowed:
        head = head + change
    else:
        head, _ = yield from _optimum(at, head.shape, "kept", options, source)
    model = at.copy()
    model[places] = head
    yield requests.Stepped(round=run.rounds - 1, model=model, exact=False)
    return model


def newton_step(kept: HeadSums, removed: HeadSums, head: Vector, l2: float) -> Vector:
    """Return Δ = H_K⁻¹ ∇L_P(w), from the sums at the head w."""
    return _solve(_hessian(kept, l2), removed.gradient + l2 * removed.samples * head)


def residual_bounds(change: Vector, gram: Vector) -> Vector:
    """Return ‖Δ‖·‖XΔ‖·‖X‖₂/4 for each class, where XᵀX = gram."""
    lengths = np.linalg.norm(change, axis=1)
    images = np.sqrt(np.maximum(0, ((change @ gram) * change).sum(axis=1)))
    spectral = math.sqrt(max(0.0, np.linalg.eigvalsh(gram)[-1]))
    return np.asarray(lengths * images * spectral / 4, dtype=np.float64)


def _optimum(
    at: Vector, shape: tuple[int, ...], of: requests.Whose, options: RemovalOptions, source: Source
) -> Asking[tuple[Vector, float]]:
    """Minimise L(w) + bᵀw by Newton's method; return w and the length of the gradient there.

    The classes have nothing to do with each other, so each halves its own step until it descends.
    """
    b = options.perturbation * gaussian(source, *shape)
    head = np.zeros(shape)
    sums = yield from _sums(at, head, of)
    for _ in range(_STEPS):
        weight = options.l2 * sums.samples
        gradient = sums.gradient + weight * head + b
        left = float(np.linalg.norm(gradient))
        if left <= _TOLERANCE * sums.samples:
            return head, left
        loss = _objective(sums, head, weight, b)
        direction = _solve(_hessian(sums, options.l2), gradient)
        slope = (gradient * direction).sum(axis=1)
        step = np.ones(len(head))
        for _ in range(_HALVINGS):
            ahead = head - step[:, None] * direction
            sums = yield from _sums(at, ahead, of)
            enough = loss - _DESCENT * step * slope + _ROUNDING * np.abs(loss)
            worse = _objective(sums, ahead, weight, b) > enough
            if not worse.any():
                break
            step[worse] /= 2
        head = ahead
    raise PlanError(
        f"the last layer's classifier did not come to its optimum in {_STEPS} steps of Newton's "
        "method; raise l2"
    )


def _sums(at: Vector, head: Vector, of: requests.Whose) -> Asking[HeadSums]:
    answer: HeadSums = yield requests.Head(at=at, head=head, of=of)
    return answer


def _objective(sums: HeadSums, head: Vector, weight: float, b: Vector) -> Vector:
    """Return L(w) + bᵀw of each class."""
    values: Vector = sums.losses + (weight / 2 * head * head + b * head).sum(axis=1)
    return values


def _hessian(sums: HeadSums, l2: float) -> Vector:
    """Return ∇²L of each class."""
    return sums.hessian + l2 * sums.samples * np.eye(sums.hessian.shape[-1])


def _solve(matrices: Vector, rows: Vector) -> Vector:
    """Solve one system for each class."""
    return np.asarray(np.linalg.solve(matrices, rows[..., None])[..., 0], dtype=np.float64)
