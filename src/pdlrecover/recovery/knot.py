"""Knot (Su & Li, INFOCOM 2023): clusters of similar clients, of which only the touched train again.

1. *Clusters*: after one round of training, every peer k has its disparity from the consensus,
   S_k = (1 − cos(g_k, Σ_i g_i))/2 at w̄_0. The peers are assigned to N clusters with targets
   S̃_n = n/N so that the distances |S̃_n − S_k| are least in lexicographical order: the largest of
   them first, then the second, and so on.
2. *Clustered aggregation*: every cluster trains a model of its own, from w̄_0 (see `groups`).
3. *Removal*: the clusters that had a removed peer train again, from the start, without it.
4. *The global model* is the mean of the clusters' models, weighted as by FedAvg, taken at the end.

What the paper leaves open, or differs in, and what is done here:

- *Asynchrony is not modelled.* In the paper clients report when they are ready, untouched clusters
  train on while others start again, and training ends when accuracy is high and steady. Here all
  peers take part in every round, and every cluster trains for as many rounds as the run had. So
  what the paper gains in time is not seen here; what it saves in work is.
- *Training times*, the other half of the distances in step 1, are the same for all peers then, and
  drop out.
- *Sizes*: the paper bounds those of clusters from below and above. Here they are as equal as can
  be, and then the least distances are those of the peers in order of S_k, cut into N parts.
- *The run was not trained in clusters*, so untouched clusters' models are computed too, and not
  counted as a cost of the recovery.
- `clusters` is 5, as in the paper's MNIST experiments; `assignment=random` is its other variant,
  with clusters drawn at random.

It sees every peer's own update of the first round, the removed ones' too; then it opens one sum
over each cluster's kept peers in every round. The mean of weights of models that trained apart can
be far worse than any of them: that is as published.
"""

from dataclasses import dataclass

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.recovery.groups import divided, kept_groups, train_apart
from pdlrecover.recovery.requests import Individual, Individuals, Method, Original, Vector


@dataclass(frozen=True, kw_only=True)
class KnotOptions:
    """Knot's constants."""

    clusters: int = 5
    """N; at most one for each peer."""
    assignment: str = "disparity"
    """disparity: as in step 1; random: drawn from the peers' numbers."""

    def __post_init__(self) -> None:
        if self.clusters < 1:
            raise PlanError(f"Knot needs at least 1 cluster, got {self.clusters}")
        if self.assignment not in ("disparity", "random"):
            raise PlanError(f"assignment must be disparity or random, got {self.assignment!r}")


def knot(run: Original, options: KnotOptions | None = None) -> Method:
    """Train the clusters apart; return the mean of their models."""
    options = options or KnotOptions()
    clusters = min(options.clusters, run.peers)
    if options.assignment == "random":
        group_of = divided(run.peers, clusters)
    else:
        first: Individuals = yield Individual(round=0, everybody=True)
        group_of = assigned(disparities(first), clusters)
    return (yield from train_apart(run, kept_groups(run, group_of)))


def disparities(first: Individuals) -> Vector:
    """Return S_k of every peer, from all peers' updates at one model; ½ if one has no direction."""
    rows = first.values.astype(float)
    consensus = rows.sum(axis=0)
    along = rows @ consensus
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(consensus)
    cosines = np.divide(along, sizes, out=np.zeros_like(along), where=sizes > 0)
    return np.asarray((1 - cosines) / 2)


def assigned(disparity: Vector, clusters: int) -> list[int]:
    """Return each peer's cluster: peers in order of disparity, cut into parts of equal size."""
    order = np.argsort(disparity, kind="stable")
    group = [0] * len(disparity)
    for name, part in enumerate(np.array_split(order, clusters)):
        for peer in part.tolist():
            group[peer] = name
    return group
