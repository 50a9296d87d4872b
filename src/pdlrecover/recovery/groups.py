"""Peers in groups, each of which trains a model of its own: what `sisa` and `knot` have in common.

Rules:

- Who is in which group was settled before training, over all peers, and is public.
- A group trains from w̄_0 with the run's own optimiser, on the minibatches of the run's rounds. Its
  steps go along the sums over its own kept peers.
- A group that lost a peer is *touched*, and trains again from the start. The others would have kept
  their models; a run that was not trained in groups has none, so they are computed here, and asked
  for as `before`: they are no cost of the recovery.
- A group that lost all its peers is gone.
- On shares the sum over a group is opened only if it hides each of its peers: `check_sizes`.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pdlrecover.errors import PlanError, Setting
from pdlrecover.recovery.requests import Method, Original, Stepped, Stepper, Sum, Update, Vector
from pdlrecover.sharing import Tolerance


@dataclass(kw_only=True, eq=False)
class Group:
    """Some of the kept peers, and their model."""

    of: tuple[int, ...]
    """Their places among the kept peers."""
    touched: bool
    """Whether a removed peer was one of them."""
    model: Vector
    stepper: Stepper
    weight: float = 1.0
    """Σ α over them, once they have dealt."""


def divided(peers: int, groups: int) -> list[int]:
    """Return each peer's group: as equal in size as can be, and drawn from the numbers alone."""
    order = sorted(range(peers), key=lambda i: hashlib.sha256(f"group {i}".encode()).digest())
    group = [0] * peers
    for place, peer in enumerate(order):
        group[peer] = place % groups
    return group


def check_sizes(groups: int, *, peers: int, removed: Sequence[int], tolerance: Tolerance) -> None:
    """Raise if the sum over some group's kept peers would not hide each of them."""
    group_of = divided(peers, groups)
    sizes = Counter(group_of[peer] for peer in range(peers) if peer not in removed)
    least, smallest = tolerance.colluders + 2, min(sizes.values(), default=0)
    if smallest < least:
        raise PlanError(
            f"of {groups} groups of {peers} peers one keeps {smallest}, and a sum must be over at "
            f"least {least} to hide each from {tolerance.colluders} colluders; take fewer groups, "
            "tolerate fewer colluders, or run it in the clear (",
            Setting("clear", "True"),
            ")",
        )


def kept_groups(run: Original, group_of: Sequence[int]) -> list[Group]:
    """Return the groups with kept peers, at the first model."""
    if len(group_of) != run.peers:
        raise PlanError(f"{run.peers} peers trained, and {len(group_of)} are in groups")
    touched = {group_of[peer] for peer in set(range(run.peers)) - set(run.kept)}
    found: dict[int, list[int]] = {}
    for place, peer in enumerate(run.kept):
        found.setdefault(group_of[peer], []).append(place)
    return [
        Group(
            of=tuple(found[name]),
            touched=name in touched,
            model=run.models[0].copy(),
            stepper=run.optimizer.start(),
        )
        for name in sorted(found)
    ]


def train_apart(run: Original, groups: Sequence[Group]) -> Method:
    """Train every group for the run's rounds; return the mean of their models."""
    mean = run.models[0]
    for t in range(run.rounds):
        for group in groups:
            total: Sum | None = yield Update(
                round=t, at=group.model, of=group.of, before=not group.touched
            )
            if total is None:
                continue
            group.model = group.stepper.step(group.model, total.mean)
            group.weight = total.weight
        mean = averaged(groups)
        yield Stepped(round=t, model=mean, exact=False)
    return mean


def averaged(groups: Sequence[Group]) -> Vector:
    """Return the mean of the groups' models, weighted by their peers' weights."""
    total = groups[0].weight * groups[0].model
    weight = groups[0].weight
    for group in groups[1:]:
        total = total + group.weight * group.model
        weight += group.weight
    return total / weight
