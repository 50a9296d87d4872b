"""What observers are told while a federation trains or recovers.

    class Prints:
        def begin(self, run: Run) -> Follow:
            return lambda event: print(run.name, event.scalars)

Rules:

- An observer is told that a run begins, and returns what is to be told of it: `RoundDone` after
  every round, `Measured` where somebody measured a model, and last `Ended`. Several runs may be
  under way at once, each with a function of its own.
- Events are plain numbers: no model, nothing shared, nothing of a single peer, but for a simulation
  whose method looks at single peers in any case. They may be kept, queued and sent.
- Rounds are counted from 1, as many as a run has gone through: a run that starts over counts on.
- A run that is taken up again (`Run.continues`) tells its rounds again from the first one.
  Who keeps curves passes over what it has; the rounds that were answered from what is stored are
  the same, and have no seconds.
- The names of the curves are given here, by `scalars`, for all observers alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Plain = str | int | float | bool
Outcome = Literal["finished", "stopped", "failed"]
Kind = Literal["training", "recovery", "experiment"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A run that begins: a training, a recovery, or an experiment that has some of both."""

    name: str
    """`training`, or a method's name; of an experiment, what its folder is called."""
    kind: Kind
    settings: Mapping[str, Plain] = field(default_factory=dict)
    """What it was set up with, to show and to compare by."""
    identity: str = ""
    """Of what it is a run: the same text whenever it is taken up again."""
    continues: bool = False
    """Whether to go on with the curves of the latest run of this identity, if there is one."""
    whose: str = ""
    """The peer that follows it, between real peers."""
    parent: "Run | None" = None
    """The experiment that it belongs to."""


@dataclass(frozen=True, kw_only=True)
class RoundDone:
    """A round is done."""

    round: int
    """How many are."""
    exact: bool
    """Whether peers computed gradients in it."""
    fallback: bool = False
    """Whether it was exact because the guard asked for it."""
    void: bool = False
    """Whether it changed nothing."""
    update_norm: float | None = None
    """The L2 norm of the last mean update that was opened in it; None if none was."""
    seconds: float | None = None
    """What it took; None if it was answered from what is stored."""
    bytes_per_peer: int = 0
    """What a peer sent since the round before, as the ledger counts it."""
    opened: Mapping[str, int] = field(default_factory=dict)
    """How many openings there were since, of each kind, by the ledger's names."""

    @property
    def scalars(self) -> dict[str, float]:
        """The points of curves that it has."""
        found = {
            "round/exact": float(self.exact),
            "round/void": float(self.void),
            "round/update_norm": self.update_norm,
            "round/seconds": self.seconds,
            "round/bytes_per_peer": float(self.bytes_per_peer),
            **{f"opened/{under_scored(kind)}": float(n) for kind, n in self.opened.items()},
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Somebody has measured a model."""

    round: int
    """After how many rounds."""
    on: Literal["test", "held_out", "original"]
    """On the test part of a simulation; on what the peers hold out, by opened sums; or the same of
    the model that a recovery is compared with."""
    accuracy: float | None = None
    loss: float | None = None
    attack_success: float | None = None
    """How often a backdoor works, where it is known."""

    @property
    def scalars(self) -> dict[str, float]:
        """The points of curves that it has."""
        rates = ("accuracy", "loss", "attack_success")
        found = {f"{self.on}/{name}": getattr(self, name) for name in rates}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run has ended."""

    outcome: Outcome = "finished"
    """`stopped`: by its user, and it can be taken up again."""
    why: str = ""
    """Why it did not finish."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What it came to, and what that took."""
    records: Mapping[str, Any] = field(default_factory=dict)
    """Values for JSON by the name of their file, such as `ledger.json`."""
    files: tuple[Path, ...] = ()
    """What it has written, to be kept with it."""

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers as a curve's last points."""
        return {f"final/{name}": float(value) for name, value in self.numbers.items()}


Event = RoundDone | Measured | Ended
Follow = Callable[[Event], None]
"""Is told what happens in one run."""


class Observer(Protocol):
    """Follows runs: shows them, or keeps their curves."""

    def begin(self, run: Run, /) -> Follow:
        """Take note that a run begins; return what is told the rest of it."""


def under_scored(kind: str) -> str:
    """Return a kind of opening as it is part of a curve's name: `group_sums_training`."""
    return kind.replace(" ", "_").replace("(", "").replace(")", "")
