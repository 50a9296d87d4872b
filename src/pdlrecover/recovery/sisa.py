"""SISA (Bourtoule et al., IEEE S&P 2021): shards that learn apart, so that few must learn again.

1. *Sharded, isolated*: the peers are divided into S shards before training, and each trains a
   constituent model of its own (see `groups`).
2. *Removal*: only shards that had a removed peer train again, from the start, without it.
3. *Aggregated*: the paper's prediction is a vote of the constituents. What is returned here has to
   be one model: it starts at the mean of the constituents' weights, and is trained for K rounds to
   predict what they predict on average (soft voting) on the kept peers' samples, with all of them
   as teachers (see `requests.Teacher`).

What the paper leaves open, or differs in, and what is done here:

- *Shards are of peers*, not of samples, since peers are what is removed. They are of equal size and
  drawn from the peers' numbers.
- *Slices*, which let a shard start again at a later checkpoint, are left out: all of a peer's data
  is in every round, so there is none that its data have not touched.
- *The run was not trained in shards*, so the constituents of untouched shards are computed too, and
  not counted as a cost of the recovery.
- *One model* is no ensemble. The mean of weights of models that trained apart can be far worse than
  any of them, which K rounds mend; `distil=0` returns the mean.
- *Exact*: no constituent has seen a removed peer, nor have the rounds of step 3, whose teachers
  are these constituents. So nothing of a removed peer is left, whatever the quality.

It opens one sum over each shard's kept peers in every round of the run, of those the touched ones'
as part of the recovery; then K fresh sums over all kept peers. On shares every shard must keep
c + 2 peers, so that its sum hides each of them.
"""

from dataclasses import dataclass

from pdlrecover.errors import PlanError
from pdlrecover.recovery.distillation import distilled
from pdlrecover.recovery.groups import divided, kept_groups, train_apart
from pdlrecover.recovery.requests import Method, Original, Teacher


@dataclass(frozen=True, kw_only=True)
class SisaOptions:
    """SISA's constants."""

    shards: int = 2
    """S; as many as c = n/3 leaves room for."""
    distil: int | None = None
    """K; None: a tenth of the run's rounds, at least one."""

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise PlanError(f"SISA needs at least 1 shard, got {self.shards}")

    def length(self, run: Original) -> int:
        """Return K."""
        return max(1, run.rounds // 10) if self.distil is None else self.distil


def sisa(run: Original, options: SisaOptions | None = None) -> Method:
    """Train the shards apart, then bring them together in one model."""
    options = options or SisaOptions()
    if options.shards > run.peers:
        raise PlanError(f"{run.peers} peers cannot be divided into {options.shards} shards")
    groups = kept_groups(run, divided(run.peers, options.shards))
    model = yield from train_apart(run, groups)
    teacher = Teacher(models=tuple(group.model for group in groups))
    rounds = range(run.rounds, run.rounds + options.length(run))
    return (yield from distilled(run, model, teacher, rounds))
