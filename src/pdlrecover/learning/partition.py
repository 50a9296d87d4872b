"""Who holds which samples.

Rules:

- A partition is a list with one sorted array of sample indices per peer. Every sample is dealt to
  exactly one peer, and every peer holds at least one; with fewer samples than peers that cannot
  be, and `DataError` says so.
- All randomness comes from the seed; no global random state is read or written.
- Nothing is drawn again until it fits: where a random rule leaves a peer with nothing, it is given
  one sample of the peer that holds the most at that time, so a partition always ends.
"""

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdlrecover.errors import DataError, Setting

Indices = NDArray[np.int64]
Partition = list[Indices]


def iid(labels: ArrayLike, peers: int, seed: int) -> Partition:
    """Deal all samples out at random, as evenly as can be."""
    samples = len(_labels(labels, peers))
    rng = np.random.default_rng(seed)
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), peers)]


def fang(labels: ArrayLike, peers: int, degree: float, seed: int) -> Partition:
    """Deal samples out to groups of peers that prefer one class each.

    M. Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", 2020:

    1. The peers are split at random into C groups, one for each class, as even as can be.
    2. A sample of class l goes to group l with probability `degree`, and to each other group with
       probability (1 − degree)/(C − 1). So 1/C is iid and 1 is one class per peer.
    3. In its group it goes to a peer chosen uniformly.

    With fewer peers than classes, a peer stands in several groups: group l is the one peer number
    l modulo `peers` of the random order.
    """
    y = _labels(labels, peers)
    if not 0 <= degree <= 1:
        raise DataError(Setting("degree"), f" of fang is a probability, 0 to 1, got {degree}")
    rng = np.random.default_rng(seed)
    classes = int(y.max()) + 1
    order = rng.permutation(peers)
    if peers >= classes:
        groups = np.array_split(order, classes)
    else:
        groups = [order[[label % peers]] for label in range(classes)]
    others = (y + rng.integers(1, max(classes, 2), size=len(y))) % classes
    group = np.where(rng.random(len(y)) < degree, y, others)
    sizes = np.array([len(members) for members in groups])
    starts = np.cumsum(sizes) - sizes
    seats = starts[group] + rng.integers(0, sizes[group])
    return _filled(np.concatenate(groups)[seats], peers)


def dirichlet(labels: ArrayLike, peers: int, alpha: float, seed: int) -> Partition:
    """Deal each class out in proportions drawn from a symmetric Dirichlet distribution.

    For each class, p ~ Dir(α, …, α) over the peers, and peer i gets the share p_i of the class's
    samples (T.-M. H. Hsu et al., 2019). Large α is iid; as α → 0 one peer gets a whole class.
    """
    y = _labels(labels, peers)
    if not (np.isfinite(alpha) and alpha > 0):
        raise DataError(
            Setting("alpha", flag="degree"),
            f" must be positive and finite, got {alpha}",
        )
    rng = np.random.default_rng(seed)
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(peers, alpha))
        if not np.isclose(shares.sum(), 1):  # so small an α that every share underflowed
            shares = np.eye(peers)[rng.integers(peers)]
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return _filled(owner, peers)


def by_subject(subjects: ArrayLike, peers: int, seed: int) -> Partition:
    """Deal out by whose sample it is.

    With at least as many subjects as peers, each peer gets whole subjects, as many as the others
    give or take one. With fewer, no peer holds samples of two subjects: every further peer takes
    a part of the subject that has the most samples per peer so far.
    """
    who = _labels(subjects, peers)
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.unique(who))
    if len(people) >= peers:
        return [np.flatnonzero(np.isin(who, part)) for part in np.array_split(people, peers)]
    held = [rng.permutation(np.flatnonzero(who == person)) for person in people]
    seats = [1] * len(held)
    loads = [(-float(len(samples)), person) for person, samples in enumerate(held)]
    heapq.heapify(loads)
    for _ in range(peers - len(held)):
        person = loads[0][1]
        seats[person] += 1
        heapq.heapreplace(loads, (-len(held[person]) / seats[person], person))
    parts = [
        np.sort(part)
        for samples, count in zip(held, seats, strict=True)
        for part in np.array_split(samples, count)
    ]
    return [parts[i] for i in rng.permutation(peers)]


KINDS = ("iid", "fang", "dirichlet", "subject")


def by_name(
    kind: str,
    labels: ArrayLike,
    peers: int,
    seed: int,
    *,
    degree: float = 0.5,
    alpha: float = 0.5,
    subjects: ArrayLike | None = None,
) -> Partition:
    """Return the partition of that kind; of `degree`, `alpha` and `subjects` it takes its own."""
    match kind:
        case "iid":
            return iid(labels, peers, seed)
        case "fang":
            return fang(labels, peers, degree, seed)
        case "dirichlet":
            return dirichlet(labels, peers, alpha, seed)
        case "subject" if subjects is not None:
            return by_subject(subjects, peers, seed)
        case "subject":
            raise DataError(
                "this dataset does not say whose samples they are; set ",
                Setting("partition"),
                " to fang or iid",
            )
        case _:
            raise DataError(
                f"no partition is called {kind!r}; known are {', '.join(KINDS)} (",
                Setting("partition"),
                ")",
            )


def _labels(labels: ArrayLike, peers: int) -> Indices:
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"a partition needs one integer per sample, got {y.dtype} {y.shape}")
    if y.size and y.min() < 0:
        raise DataError(f"labels and subjects are counted from 0, got {y.min()}")
    if peers < 1 or len(y) < peers:
        raise DataError(
            f"{len(y)} samples cannot be dealt to {peers} peers so that each holds one; "
            "use fewer peers, at least 1, or more data"
        )
    return y.astype(np.int64)


def _filled(owner: Indices, peers: int) -> Partition:
    """Return the partition by owners, after each empty peer took a sample of the fullest."""
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.searchsorted(owner[order], np.arange(1, peers)))
    fullest = [(-len(part), peer) for peer, part in enumerate(parts)]
    heapq.heapify(fullest)
    for peer in range(peers):
        if len(parts[peer]):
            continue
        size, donor = fullest[0]
        parts[peer], parts[donor] = parts[donor][-1:], parts[donor][:-1]
        heapq.heapreplace(fullest, (size + 1, donor))
    return parts
