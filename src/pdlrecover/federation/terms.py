"""How a federation is set up, besides its model and data: the options of `simulate`, checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pdlrecover.adversary import Attack
from pdlrecover.engines.simulated_peers import SimulatedPeers, simulate_peers
from pdlrecover.engines.summary import counted
from pdlrecover.errors import (
    DataError,
    HistoryError,
    ModelError,
    PlanError,
    RangeError,
    ToleranceError,
)
from pdlrecover.federation.arguments import described, instance, number, whole
from pdlrecover.federation.own_data import OwnData
from pdlrecover.federation.roster import Roster
from pdlrecover.files import make_folder
from pdlrecover.learning import LocalTraining
from pdlrecover.recovery.standardisation import Standardise
from pdlrecover.sharing import Tolerance

DEFAULT_BUDGET = 8 << 30
"""How many bytes of history may be written to disk, unless the caller allows more."""
NewModel = Callable[[int], torch.nn.Module]
"""Returns the module with first weights drawn from a seed."""


LEAST_BOUND = 1e-4
MOST_SAMPLES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The options of `Federation.simulate`, which describes them."""

    tolerance: Tolerance
    batch_size: int = 32
    seed: int = 0
    bound: float = 10.0
    l2: float = 0.0
    local_steps: int = 1
    local_rate: float = 0.1
    malicious: Any = ()
    attack: Attack | None = None
    cohorts: Sequence[Any] | None = None
    clear: bool = False
    peer_by_peer: bool = False
    folder: Path | str | None = None
    resume: bool = False
    budget: int = DEFAULT_BUDGET
    new_model: NewModel | None = None
    held_out: float = 0.0
    evaluate_every: int = 10
    standardise: bool | Standardise = False

    def __post_init__(self) -> None:
        example = "Tolerance(colluders=…, dropouts=…)"
        instance("tolerance", self.tolerance, Tolerance, example, ToleranceError)
        plain: dict[str, float] = {
            name: whole(name, getattr(self, name), 1)
            for name in ("batch_size", "local_steps", "evaluate_every", "budget")
        }
        plain["seed"] = whole("seed", self.seed, 0)
        plain["bound"] = number("bound", self.bound, above=0.0, error=RangeError)
        if plain["bound"] < LEAST_BOUND:
            raise RangeError(
                f"bound must be at least {LEAST_BOUND}, got {self.bound}: updates are rounded to "
                "steps of about 1e-6, and shorter ones would be rounded to nothing"
            )
        if plain["batch_size"] > MOST_SAMPLES:
            raise PlanError(
                f"batch_size must be at most {MOST_SAMPLES:,}, got {self.batch_size}; minibatches "
                "are drawn with replacement, and a peer's samples are rarely more"
            )
        plain["l2"] = number("l2", self.l2)
        plain["local_rate"] = number("local_rate", self.local_rate, above=0.0)
        plain["held_out"] = number("held_out", self.held_out, error=DataError)
        for name, value in plain.items():  # numpy's numbers are none that a record may hold
            object.__setattr__(self, name, value)
        for name in ("clear", "peer_by_peer", "resume"):
            instance(name, getattr(self, name), bool, "True or False", PlanError)
        example = "True, False or Standardise(bound=…)"
        instance("standardise", self.standardise, (bool, Standardise), example, PlanError)
        if not self.held_out <= 0.5:
            raise DataError(f"held_out must be a share from 0 to 0.5, got {self.held_out}")
        if self.folder == "" or (self.resume and self.folder is None):
            raise PlanError(
                "resume takes up what is in a folder; give the folder of the interrupted training"
                if self.resume
                else "folder is empty; name a folder, or leave it out for a temporary place"
            )
        is_module = isinstance(self.new_model, torch.nn.Module)
        if self.new_model is not None and (is_module or not callable(self.new_model)):
            raise ModelError(
                "new_model must be a function that returns the module for a seed, got "
                f"{described(self.new_model)}"
            )
        if self.cohorts is not None:
            instance("cohorts", self.cohorts, (list, tuple), "a list of groups", HistoryError)
        if self.folder is not None:
            instance("folder", self.folder, (str, Path), "the path of a folder", HistoryError)

    @property
    def standardisation(self) -> Standardise | None:
        """How inputs are standardised, if they are."""
        if isinstance(self.standardise, Standardise):
            return self.standardise
        return Standardise() if self.standardise else None

    def place(self) -> Path | None:
        """Return where the history goes, having made the folder."""
        if self.folder is None:
            return None
        make_folder(place := Path(self.folder), HistoryError)
        return place

    def groups(self, roster: Roster) -> list[tuple[int, ...]] | None:
        """Return the cohorts by numbers."""
        if self.cohorts is None:
            return None
        return [_cohort(roster, peers) for peers in self.cohorts]

    def simulated_peers(self, model: torch.nn.Module, own: OwnData) -> SimulatedPeers:
        """Return the peers."""
        attackers = own.roster.numbers(self.malicious, "malicious")
        _check_attack(self.attack, attackers)
        return simulate_peers(
            model,
            own.x,
            own.y,
            own.partition,
            batch_size=self.batch_size,
            seed=self.seed,
            bound=self.bound,
            local=LocalTraining(l2=self.l2, steps=self.local_steps, rate=self.local_rate),
            malicious=attackers,
            attack=self.attack,
            peer_by_peer=self.peer_by_peer,
            held_out=self.held_out,
        )


def _cohort(roster: Roster, peers: Any) -> tuple[int, ...]:
    """Return a cohort by numbers, as often as they are named: the history refuses repetitions."""
    try:
        return roster.numbers(peers, "cohorts")
    except PlanError as error:
        raise HistoryError(
            f"cohorts must be disjoint groups of peers, none empty: {error}"
        ) from error


def _check_attack(attack: Attack | None, attackers: Sequence[int]) -> None:
    """Refuse an attack by nobody, and attackers without an attack."""
    if attack is None:
        if attackers:
            raise PlanError(
                f"malicious names {counted(len(attackers), 'peer')}, and there is no attack for "
                "them; give one of pdlrecover.adversary (attack=Backdoor(…)), or leave"
                " malicious out"
            )
        return
    if isinstance(attack, type | str) or not hasattr(attack, "corrupt"):
        raise PlanError(
            "attack must be an attack of pdlrecover.adversary, such as Backdoor(…), got "
            f"{described(attack)}"
        )
    if not attackers:
        raise PlanError(
            f"there is an attack ({type(attack).__name__}) and nobody to play it; name the peers "
            "(malicious=[0, 1]), or leave attack out"
        )
