"""What came of a chaos run: whether all ended with one model, what was lost, and who was named.

A run *holds* if nothing is in its list of problems. These are problems:

- two models where there must be one, at any two peers, in training or in a recovery
- a history that is damaged
- a peer that ended by itself, or an error that is not one of the package's own
- an honest peer that was proven to have cheated
- a cheat that should have been named, and was not
- within the tolerance: a run that did not end, or a removal that was refused, unless the removed
  were away in the whole training and there was nothing to recover
- beyond it: one that did not end, or was refused, without saying what is missing
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdlrecover.engines.peers.folder import HISTORY
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.removals.rule import NEEDLESS
from pdlrecover.engines.peers.runs.archive import TRAINING
from pdlrecover.engines.peers.startup import verified
from pdlrecover.errors import RecordError
from pdlrecover.experiments.chaos.local_federation import key_path
from pdlrecover.experiments.chaos.peer_processes import PeerProcesses
from pdlrecover.files import read_json

TRACEBACK_LINES = 40
_UNREACHABLE = "cannot reach "
_STATEMENT = re.compile(
    r"\b(missing|lacks?|waits? for|cannot go on|too few|quorum|majority)\b", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the training or a recovery ended."""

    run: str
    """`training`, or the method of the recovery."""
    seconds: float
    rounds: int | None = None
    exact_rounds: int | None = None
    weights: str | None = None
    """The digest of the one model; None if there is none, or more than one."""
    statement: str | None = None
    """What the peers said that was missing, if it did not end."""


@dataclass(frozen=True, kw_only=True)
class TrialVerdict:
    """What came of one federation."""

    seed: str
    cheats: Mapping[str, str]
    faults: Mapping[str, int]
    """How many of each kind there were."""
    endings: tuple[Ending, ...]
    named: Mapping[str, tuple[str, ...]]
    """What the others found of each peer that was named."""
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChaosVerdict:
    """What came of all federations."""

    peers: int
    seed: int
    beyond: bool
    seconds: float
    trials: tuple[TrialVerdict, ...] = field(default=())

    @property
    def problems(self) -> list[str]:
        """Everything that was wrong, in any of them."""
        numbered = enumerate(self.trials, 1)
        return [f"federation {i}: {each}" for i, trial in numbered for each in trial.problems]


def models(processes: PeerProcesses, names: Iterable[str], file: str) -> dict[str, str]:
    """Return the digest of the weights in a file of these peers, of those that have it."""
    found = {}
    for name in names:
        path = processes.folder(name) / f"{file}.json"
        if path.exists():
            found[name] = str(read_json(path, RecordError)["weights_sha256"])
    return found


def damage(processes: PeerProcesses) -> list[str]:
    """Look through the histories of the stopped peers; return what is wrong with them."""
    found = []
    for name in processes.names:
        key = StorageKey.from_file(key_path(processes.place, name))
        runs = verified(processes.folder(name) / HISTORY, key)
        found += [f"the history of {name} has no training"] * (TRAINING not in runs)
        found += [
            f"the history of {name} is damaged: {run}, {each}"
            for run, verification in runs.items()
            for each in verification.damage
        ]
    return found


def bugs(processes: PeerProcesses, honest: Iterable[str]) -> list[str]:
    """Return what honest peers logged that is no fault of anybody else."""
    found = []
    for name in honest:
        lines = list(processes.told(name))
        for i, line in enumerate(lines):
            if line["level"] in ("error", "critical") or "Traceback" in line["text"]:
                rest = itertools.takewhile(
                    lambda each: not each["level"], lines[i + 1 : i + TRACEBACK_LINES]
                )
                text = " | ".join(each["text"].strip() for each in (line, *rest))
                found.append(f"{name} logged an error: {text}")
    return found


def named(processes: PeerProcesses, honest: Iterable[str]) -> dict[str, dict[str, bool]]:
    """Return whom honest peers have named, what for, and whether that is proven to others."""
    found: dict[str, dict[str, bool]] = {}
    for name in honest:
        status = processes.status(name)
        for proven, key in ((False, "named"), (True, "caught")):
            for each in status.get(key, ()):
                found.setdefault(each["peer"], {})[each["what"]] = proven
    return found


def may_not_end(said: str | None, *, beyond: bool) -> bool:
    """Say whether a run may stay without an end, for what its peers said of it.

    It may beyond the tolerance, with a reason; and within it if the removal was needless.
    """
    return said is not None and (beyond or NEEDLESS in said)


def statement(
    processes: PeerProcesses, names: Sequence[str], after: Mapping[str, int]
) -> str | None:
    """Return what one of these peers warned of as missing, after a place in its log."""
    for name in names:
        for line in processes.told(name, after.get(name, 0)):
            text = line["text"]
            if line["level"] == "warning" and _STATEMENT.search(text):
                return f"{name}: {text}"
    return None


def unreached(processes: PeerProcesses, name: str, after: int) -> list[str]:
    """Return whom a peer said that it cannot reach, after a place in its log."""
    texts = [line["text"] for line in processes.told(name, after) if line["level"] == "warning"]
    starts = [text[len(_UNREACHABLE) :] for text in texts if text.startswith(_UNREACHABLE)]
    return [start.split()[0] for start in starts]


def facts_of(processes: PeerProcesses, name: str, file: str) -> dict[str, Any]:
    """Return the rounds of a run, and how many were exact, from what a peer wrote of it."""
    facts = read_json(processes.folder(name) / f"{file}.json", RecordError)
    return {"rounds": facts["rounds"], "exact_rounds": facts["ledger"]["exact_rounds"]}
