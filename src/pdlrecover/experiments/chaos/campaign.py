"""Chaos for a given time: one fresh federation after the other, and one verdict on all."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdlrecover.errors import PlanError
from pdlrecover.experiments.chaos.cheats import CHEATS
from pdlrecover.experiments.chaos.scenario import Scenario
from pdlrecover.experiments.chaos.trial import PATIENCE, Trial
from pdlrecover.experiments.chaos.verdict import ChaosVerdict, TrialVerdict


def named_cheats(text: str) -> tuple[str, ...]:
    """Return the cheats that a list names, separated by commas; `all` names all of them."""
    chosen = tuple(CHEATS) if text == "all" else tuple(text.split(",")) if text else ()
    unknown = [name for name in chosen if name not in CHEATS]
    if unknown:
        raise PlanError(f"cheats are {', '.join(CHEATS)}, or all; got {', '.join(unknown)}")
    return chosen


def unleash(
    place: Path,
    scenario: Scenario,
    *,
    seed: int,
    seconds: float,
    say: Callable[[str], None],
    beyond: bool = False,
    cheats: Sequence[str] = (),
    patience: float = PATIENCE,
) -> ChaosVerdict:
    """Run federations until the time is over; the last one comes to its end.

    As many cheats play in each as it has tolerated liars, and all have their turn, however long it
    takes.
    """
    trials: list[TrialVerdict] = []
    began, turn = time.monotonic(), 0
    while not trials or turn < len(cheats) or time.monotonic() < began + seconds:
        playing = [cheats[(turn + i) % len(cheats)] for i in range(scenario.liars)]
        turn += scenario.liars
        number = len(trials) + 1
        say(f"federation {number}, seed {seed}-{number}" + (f", {playing}" if playing else ""))
        trial = Trial(
            place / str(number),
            scenario,
            f"{seed}-{number}",
            say=say,
            beyond=beyond,
            cheats=dict(zip(scenario.removed, playing, strict=False)),
            patience=patience,
        )
        trials.append(trial.run())
    return ChaosVerdict(
        peers=scenario.peers,
        seed=seed,
        beyond=beyond,
        seconds=time.monotonic() - began,
        trials=tuple(trials),
    )


def record(verdict: ChaosVerdict) -> dict[str, Any]:
    """Return the verdict as it is written to a file."""
    return {**asdict(verdict), "problems": verdict.problems, "holds": not verdict.problems}
