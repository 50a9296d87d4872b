"""The ledger: what a method opened, of whom, and what it cost.

It is nothing but the list of the method's requests, added up. Openings are counted by kind:

    fresh sums       Σ_K g(ŵ_t), one exact round each
    group sums       the same over some of the kept peers only; those that a training in groups
                     would have opened before are counted apart, and cost the recovery nothing
    stored sums      Σ_K g(w̄_t) of one round, or of a block of rounds
    directions       ĝ_t without its public part: a stored sum plus a combination of shared pairs
    dot products     single numbers: entries of A and u
    removed sums     Σ_P g(w̄_t) over the removed peers
    individual       one peer's own update, stored or fresh
    single weights   one peer's weight α in a void round, to find who made it void
    sketches         random projections of one peer's update in a void round, for the same
    evaluations      correct answers, loss and number of held-out samples, each as a sum
    statistics       Σ x or Σ (x − m)² over samples, and their number, to bring inputs to one scale
    losses           single numbers: the kept peers' mean training loss in a round
    head sums        loss, gradient and Hessian of the last layer, over whole datasets: of the kept
                     peers, of the removed ones, or of all; each peer's sum is one evaluation
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from pdlrecover.engines.summary import Summary, counted
from pdlrecover.engines.traffic import ELEMENT_BYTES, Traffic
from pdlrecover.recovery import requests
from pdlrecover.recovery.evaluation import NUMBERS

ALONE = "one peer"
"""Of whom single numbers or updates are."""
IN_WORDS = {
    "fresh sums": ("sum", "of new updates"),
    "group sums": ("sum", "of new updates"),
    "group sums (training)": ("sum", "of updates as in the training"),
    "stored sums": ("sum", "of stored updates"),
    "removed sums": ("sum", "of stored updates"),
    "directions": ("sum", "of stored updates, corrected"),
    "dot products": ("dot product", "with a shared sum"),
    "evaluations": ("evaluation", "on held-out samples"),
    "statistics": ("sum", "of inputs, for their scale"),
    "losses": ("mean loss", ""),
    "individual": ("update", ""),
    "single weights": ("weight", ""),
    "sketches": ("sketch", "of an update"),
    "head sums (kept)": ("sum", "over whole datasets"),
    "head sums (removed)": ("sum", "over whole datasets"),
    "head sums (all)": ("sum", "over whole datasets"),
}
"""What a kind is called for people who have not read these rules."""
PARTS = ("gradient", "dealing", "opening", "estimation")
"""What the seconds are split in."""


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Where the time of a method went."""

    gradient: float
    dealing: float
    opening: float
    estimation: float
    total: float
    processor: float | None = None
    """Of the total, what the processor spent on this process: other work on a machine is not in
    it. None in records of versions that did not measure it."""

    def of_one_peer(self, peers: int) -> float:
        """Return the seconds of one of the peers that took part, of what a simulation computes.

        The gradients are those of all peers. One dealing and one opening stand for everybody's, and
        each peer estimates by itself: these count whole. What estimates and openings of stored
        sums do with shares is done for all who answer, so of that it is more than one peer's; what
        a network, keys, signatures and disks cost is not in it.
        """
        return self.gradient / peers + self.dealing + self.opening + self.estimation


@dataclass(frozen=True, kw_only=True)
class Openings:
    """What a method opened of one kind."""

    openings: int
    numbers: int
    of: str
    """Of whom, in words."""


@dataclass(frozen=True, kw_only=True)
class LedgerRecord:
    """A ledger added up."""

    exact_rounds: int
    fallback_rounds: int
    gradient_evaluations: int
    updates: int
    """How many updates single peers computed, each of one or more gradients."""
    bytes_per_peer: int
    individual_storage_bytes: int
    """What a server would have to store of single peers' updates."""
    liars: list[int]
    opened: dict[str, Openings]
    """By kind, in alphabetical order."""


@dataclass(kw_only=True, eq=False, repr=False)
class Ledger:
    """What was opened in one run of a method."""

    kept: int
    """Of how many peers the sums were."""
    traffic: Traffic
    removed: int = 0
    """How many peers were left out."""
    local_steps: int = 1
    """How many gradients a peer computes for an update, unless a request says otherwise."""
    openings: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    exact_rounds: int = 0
    fallback_rounds: int = 0
    gradient_evaluations: int = 0
    updates: int = 0
    bytes_per_peer: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    """Where the time went: see `PARTS`."""
    processor_seconds: float = 0.0
    """Of that, what the processor spent on this process: other work on a machine is not in it."""
    liars: set[int] = field(default_factory=set)
    """The peers that sent wrong shares in openings, and were found out."""
    _stored_individuals: set[int] = field(default_factory=set)
    """The rounds whose stored updates were looked at one by one, each counted once."""
    _smallest_group: int | None = None

    @property
    def stored_bytes(self) -> int:
        """What a server would have had to store of single peers' updates, as 4-byte floats."""
        return 4 * len(self._stored_individuals) * self.kept * self.traffic.parameters

    def enter(self, request: requests.Request) -> None:
        """Write down a request."""
        d = self.traffic.parameters
        match request:
            case requests.Update(of=tuple(of)):
                self._enter_group(request, len(of))
            case requests.Update(local=local):
                self._open("fresh sums", 1, d + 1, self.traffic.exact_round_bytes)
                self.exact_rounds += 1
                self._compute(self.kept, local)
            case requests.Past():
                self._open("stored sums", 1, d + 1, self.traffic.opening_bytes)
            case requests.PastBlocks(blocks=blocks):
                count = len(blocks)
                size = count * self.traffic.opening_bytes
                self._open("stored sums", count, count * (d + 1), size)
            case requests.Direction():
                self._open("directions", 1, d + 1, self.traffic.opening_bytes)
            case requests.Dots(pairs=pairs, vectors=vectors):
                count = len(pairs) * len(vectors)
                self._open("dot products", count, count, self.traffic.dots_bytes(count))
            case requests.Removed():
                self._open("removed sums", 1, d + 1, self.traffic.opening_bytes)
            case requests.Evaluation():
                self._open("evaluations", 1, NUMBERS, self.traffic.evaluation_bytes)
            case requests.Moments(at=at):
                numbers = len(at) + 1
                self._open("statistics", 1, numbers, self.traffic.few_bytes(numbers))
            case requests.Weights():
                count = self.kept + self.removed
                self._open("single weights", count, count, self.traffic.dots_bytes(count))
            case requests.Sketches():
                count = self.kept + self.removed
                numbers = requests.SKETCHES * count
                self._open("sketches", count, numbers, self.traffic.dots_bytes(numbers))
            case requests.Individual(everybody=True):
                count = self.kept + self.removed
                self._open("individual", count, count * (d + 1), 0)
            case requests.Individual(at=None, round=t):
                if t not in self._stored_individuals:
                    self._stored_individuals.add(t)
                    self._open("individual", self.kept, self.kept * (d + 1), 0)
            case requests.Individual(of=of):
                count = self.kept if of is None else len(of)
                self._open("individual", count, count * (d + 1), ELEMENT_BYTES * (d + 1))
                self.exact_rounds += of is None
                self._compute(count, None)
            case requests.Loss():
                self._open("losses", 1, 1, 0)
            case requests.Head(head=head, of=of):
                classes, features = head.shape
                # A loss, a gradient and a symmetric matrix for each class; the count of samples.
                count = classes * (1 + features + features * (features + 1) // 2) + 1
                self._open(f"head sums ({of})", 1, count, ELEMENT_BYTES * count)
                self.gradient_evaluations += self._peers(of)
                self.updates += self._peers(of)
            case requests.Stepped(fallback=fallback):
                self.fallback_rounds += fallback

    def _enter_group(self, request: requests.Update, size: int) -> None:
        """Write down a sum over `size` of the kept peers: they deal, and all help to open it."""
        if size > 1:
            self._smallest_group = min(size, self._smallest_group or size)
        if request.before:
            kind = "individual" if size == 1 else "group sums (training)"
            self._open(kind, 1, self.traffic.parameters + 1, 0)
            return
        dealing = self.traffic.exact_round_bytes - self.traffic.opening_bytes
        sent = self.traffic.opening_bytes + dealing * size // self.kept
        kind = "individual" if size == 1 else "group sums"
        self._open(kind, 1, self.traffic.parameters + 1, sent)
        self._compute(size, request.local)

    def _compute(self, peers: int, local: requests.LocalSteps | None) -> None:
        """Count what these peers compute for an update of each."""
        self.updates += peers
        self.gradient_evaluations += peers * (self.local_steps if local is None else local.steps)

    def _open(self, kind: str, openings: int, numbers: int, size: int) -> None:
        self.openings[kind] += openings
        self.numbers[kind] += numbers
        self.bytes_per_peer += size

    def include(self, other: "Ledger") -> None:
        """Add what was opened, sent and computed in another run."""
        self.openings.update(other.openings)
        self.numbers.update(other.numbers)
        self.bytes_per_peer += other.bytes_per_peer
        for part, seconds in other.seconds.items():
            self.seconds[part] += seconds
        self.processor_seconds += other.processor_seconds

    def totals(self) -> LedgerRecord:
        """Add up what has been entered."""
        return LedgerRecord(
            exact_rounds=self.exact_rounds,
            fallback_rounds=self.fallback_rounds,
            gradient_evaluations=self.gradient_evaluations,
            updates=self.updates,
            bytes_per_peer=self.bytes_per_peer,
            individual_storage_bytes=self.stored_bytes,
            liars=sorted(self.liars),
            opened={
                kind: Openings(openings=count, numbers=self.numbers[kind], of=self._of(kind))
                for kind, count in sorted(self.openings.items())
            },
        )

    def record(self) -> dict[str, Any]:
        """Return the totals and the seconds as plain values, for JSON."""
        return {**asdict(self.totals()), "seconds": asdict(self.split_seconds())}

    def in_words(self, *, clear: bool = False) -> str:
        """Say what was opened, of whom; with `clear` nothing was shared, so all was in the open."""
        opened = self.totals().opened
        what = "; ".join(
            f"{_counted(kind, each.openings)}, {'each ' if each.openings > 1 else ''}of {each.of}"
            for kind, each in opened.items()
        )
        if clear:
            return f"nothing was shared (clear=True); on shares, {what or 'nothing'}"
        if any(each.of == ALONE for each in opened.values()):
            return what
        return f"{what or 'nothing'}; no update of a single peer"

    def summary(self) -> Summary:
        """Return what there is to say in a few lines."""
        found = self.totals()
        rows = [
            (kind, f"{each.openings}, {each.numbers} numbers in all, of {each.of}")
            for kind, each in found.opened.items()
        ]
        rows += [
            ("exact rounds", str(found.exact_rounds)),
            ("gradients", f"{found.gradient_evaluations}, of all peers together"),
            ("sent by a peer", f"{found.bytes_per_peer / 1e6:.2f} MB, if this was shared"),
            ("seconds", f"{self.split_seconds().total:.2f}, of all peers together"),
        ]
        if found.liars:
            rows.append(("wrong shares", f"from peers {', '.join(map(str, found.liars))}"))
        return Summary(title="What was opened, of whom, and what it cost", rows=tuple(rows))

    def __repr__(self) -> str:
        openings = counted(sum(self.openings.values()), "opening")
        return f"<Ledger: {openings}, {counted(self.exact_rounds, 'exact round')}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().html()

    def _peers(self, of: str) -> int:
        return {"kept": self.kept, "removed": self.removed}.get(of, self.kept + self.removed)

    def _of(self, kind: str) -> str:
        removed = ALONE if self.removed == 1 else "the removed peers together"
        special = {
            "individual": ALONE,
            "single weights": ALONE,
            "sketches": ALONE,
            "group sums": f"at least {self._smallest_group} kept peers together",
            "group sums (training)": f"at least {self._smallest_group} kept peers together",
            "removed sums": removed,
            "head sums (removed)": removed,
            "head sums (all)": f"all {self.kept + self.removed} peers together",
        }
        return special.get(kind, f"{self.kept} kept peers together")

    def split_seconds(self) -> Seconds:
        """Return the seconds of every part, in all, and those of the processor."""
        total = sum(self.seconds.values())
        return Seconds(**self.seconds, total=total, processor=self.processor_seconds)


def _counted(kind: str, openings: int) -> str:
    """Return how many were opened of a kind, in words."""
    thing, more = IN_WORDS[kind]
    plural = thing + ("es" if thing.endswith(("s", "ch")) else "s")
    return f"{openings} {thing if openings == 1 else plural} {more}".rstrip()
