"""What a run leaves behind: every public model, and every cohort's sum of updates in every round.

Rules:

- A *cohort* is a group of peers whose updates are kept as one sum. Removal works on whole cohorts:
  what was added up cannot be taken apart. Each peer alone is the rule; larger cohorts are for
  simulations whose history would not fit otherwise.
- A round's record is appended when the round is done, so an interrupted run keeps its whole rounds.
- Where the sums are shared, the record holds every peer's share of each cohort's sum.
"""

import json
import math
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pdlrecover.errors import HistoryError, Whom
from pdlrecover.field import Elements
from pdlrecover.files import read_json, write_json
from pdlrecover.history.plain.array_log import ArrayLog

FORMAT = 1
FILES = ("sums.bin", "models.bin", "layout.json")
"""What a history consists of."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the records of a run look like, and whose they are."""

    parameters: int
    """d: numbers in a model."""
    cohorts: tuple[tuple[int, ...], ...]
    """Whose updates are kept as one sum."""
    record: tuple[int, ...]
    """The shape of what is kept of one cohort's sum."""
    run: str
    """A name or digest of the run's settings: another run's history is refused."""

    def bytes_per_round(self) -> int:
        """Return how much a round adds on disk."""
        return 8 * (self.parameters + len(self.cohorts) * int(np.prod(self.record)))


@dataclass(frozen=True, kw_only=True, eq=False)
class DealtSums:
    """What all peers hold of each cohort's sum in a round: only a sum store makes and reads it."""

    values: Elements
    """One row for each cohort: its clear sum, or a share for each peer."""


class RunHistory:
    """The models and sums of one run, in a folder (a temporary one if none is given)."""

    def __init__(self, layout: Layout, folder: Path | None = None, *, resume: bool = False) -> None:
        self.layout = layout
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="pdlrecover-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_or_write_layout()
        sums_shape = (len(layout.cohorts), *layout.record)
        models, sums = self.folder / "models.bin", self.folder / "sums.bin"
        torn = 0
        for path, shape in ((sums, sums_shape), (models, (layout.parameters,))) if resume else ():
            path.touch()
            whole, rest = divmod(path.stat().st_size, 8 * math.prod(shape))
            torn += rest
            ArrayLog.trim(path, shape, np.int64, whole)
        self.sums = ArrayLog(sums, sums_shape, np.int64)
        self.models = ArrayLog(models, (layout.parameters,), np.float64)
        if torn:  # then the run was not finished, and its rounds are those that both files have
            self._cut(self.rounds)

    @property
    def rounds(self) -> int:
        """How many rounds are whole: both their sums and the model they started from are there."""
        return min(len(self.sums), len(self.models))

    def record(self, model: np.ndarray, dealt: DealtSums) -> None:
        """Append a round: the model it started from, and what is held of each cohort's sum."""
        if len(self.sums) != len(self.models):  # an interruption has left half a round
            self._cut(self.rounds)
        self.sums.append(dealt.values)
        self.models.append(model)

    def dealt(self, t: int) -> DealtSums:
        """Return what was recorded of round t's sums, mapped from the file."""
        return DealtSums(values=self.sums[t])

    def _cut(self, rounds: int) -> None:
        self.sums.cut(rounds)
        self.models.cut(rounds)

    def finish(self, model: np.ndarray) -> None:
        """Append the model that the last round led to."""
        self.models.append(model)

    @property
    def finished(self) -> bool:
        """Whether the run's last model is there."""
        return len(self.models) == len(self.sums) + 1

    def discard(self) -> None:
        """Delete the history's files; nothing can be recovered from it any more."""
        for name in FILES:
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def cohorts_of(self, kept: Sequence[int]) -> list[int]:
        """Return the cohorts that make up the kept peers; raise if they cut through one."""
        wanted, found = set(kept), []
        for index, cohort in enumerate(self.layout.cohorts):
            inside = wanted.intersection(cohort)
            if inside and len(inside) < len(cohort):
                raise HistoryError(
                    Whom(tuple(sorted(set(cohort) - inside)[:5])),
                    f" stood in one sum with {len(inside)} kept peers, and cannot be taken out of "
                    "it; record them as a cohort of their own before training",
                )
            if inside:
                found.append(index)
        return found

    def _check_or_write_layout(self) -> None:
        path = self.folder / "layout.json"
        mine = json.loads(json.dumps({"format": FORMAT, **asdict(self.layout)}))
        if not path.exists():
            write_json(path, mine, HistoryError)
            return
        found = read_json(
            path, HistoryError, damaged="get it from a copy, or train in another folder"
        )
        if not isinstance(found, dict):
            raise HistoryError(f"{path} is no layout of a history; train in another folder")
        for key, value in mine.items():
            if found.get(key) != value:
                raise HistoryError(
                    f"the history in {self.folder} is another run's: its {key} differs; "
                    "give another folder"
                )


def complete_cohorts(
    named: Sequence[Sequence[int]] | None, peers: int
) -> tuple[tuple[int, ...], ...]:
    """Return the named cohorts, and one for each peer that none of them has."""
    cohorts = [tuple(sorted(cohort)) for cohort in named or ()]
    taken = [peer for cohort in cohorts for peer in cohort]
    if len(set(taken)) != len(taken) or any(not 0 <= p < peers for p in taken) or () in cohorts:
        raise HistoryError(
            f"cohorts must be disjoint groups of peers numbered 0 to {peers - 1}, none empty"
        )
    return (*cohorts, *((p,) for p in range(peers) if p not in set(taken)))
