"""Knowledge distillation (Wu, Zhu & Mitra, 2022): take the removed updates out, learn from the old.

1. *Erase*: the removed peers P are taken to have dealt zero in every round ("lazy learning"), so
   that ŵ = w̄_T − Σ_t (what P added to the step of round t). For SGD with rate η that is
   w̄_T + Σ_t η·Σ_P g(w̄_t) / Σ_{K∪P} α.
2. *Distil*: for K rounds, from ŵ, the kept peers compute the gradient of the distillation loss with
   the original model w̄_T as teacher, at temperature τ (see `requests.Teacher`).

What the paper leaves open, or differs in, and what is done here:

- *Whose data*: the paper's server has unlabelled data of its own, and no client takes part. Here
  nobody has such data: the kept peers' samples stand in for it, without their labels. So the kept
  peers work again, K rounds in all.
- *Which steps*: where the run used momentum or Adam, what P added is the difference of steps: the
  run's own, and those of the same optimiser, in a state of its own, along Σ_K g / Σ_{K∪P} α. For
  plain SGD that is the formula above.
- *The optimiser of step 2* is the run's own, from its first state.
- *τ and K*: the paper has "high" temperatures, and as many epochs as its server likes. τ is 3, and
  K a tenth of the run's rounds.
- *The loss* is multiplied by τ², so that its gradients keep their size (Hinton et al. 2015). There
  is no part with hard labels, which the paper has as an option.

The teacher has the backdoor. It is not handed on as long as no kept peer's sample has the trigger;
what of the removed data the teacher shows on the kept peers' samples, is.

It opens two stored sums of every round, the kept peers' and the removed ones', and K fresh sums.
"""

from dataclasses import dataclass

from pdlrecover.errors import PlanError
from pdlrecover.recovery.requests import (
    Asking,
    Method,
    Original,
    Removed,
    Stepped,
    Sum,
    Teacher,
    Update,
    Vector,
    past,
)


@dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """The constants of the distillation."""

    rounds: int | None = None
    """K; None: a tenth of the run's."""
    temperature: float = 3.0
    """τ."""

    def __post_init__(self) -> None:
        if not (self.rounds is None or self.rounds >= 1) or not self.temperature > 0:
            raise PlanError(
                "distillation needs rounds of at least 1 and a temperature above 0, got "
                f"{self.rounds} and {self.temperature}"
            )

    def length(self, run: Original) -> int:
        """Return K."""
        return max(1, run.rounds // 10) if self.rounds is None else self.rounds


def distillation(run: Original, options: DistillationOptions | None = None) -> Method:
    """Erase the removed peers' updates, then distil; return the last ŵ."""
    options = options or DistillationOptions()
    model = yield from erased(run)
    teacher = Teacher(models=(run.models[-1],), temperature=options.temperature)
    return (yield from distilled(run, model, teacher, range(options.length(run))))


def erased(run: Original) -> Asking[Vector]:
    """Return w̄_T without what the removed peers added to every step; void rounds had none."""
    stepper = run.optimizer.start()
    model = run.models[-1].copy()
    for t in range(run.rounds):
        kept = yield from past(t)
        removed: Sum | None = yield Removed(rounds=(t,))
        if kept is None or removed is None:
            continue
        without = stepper.step(run.models[t], kept.values / (kept.weight + removed.weight))
        model -= run.models[t + 1] - without
    return model


def distilled(run: Original, model: Vector, teacher: Teacher, rounds: range) -> Method:
    """Do exact rounds from a model, towards the teacher's predictions on the kept peers' data."""
    stepper = run.optimizer.start()
    for t in rounds:
        total: Sum | None = yield Update(round=t, at=model, teacher=teacher)
        if total is not None:
            model = stepper.step(model, total.mean)
        yield Stepped(round=t, model=model, exact=True, void=total is None)
    return model
