"""The options of a recovery as plain arguments, with the defaults of the command line.

Rules: what a method has no use for is refused, not ignored. The schedule of a short run is an
eighth of it at the start and at the end, as on the command line and between real peers.
"""

from collections.abc import Callable

from pdlrecover.errors import PlanError
from pdlrecover.federation.arguments import instance, whole
from pdlrecover.recovery.accelerated import FRESH, AcceleratedOptions
from pdlrecover.recovery.methods import METHODS, Numbers, Settings, entry_of, parse
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.schedule import Schedule


def settings_of(
    method: str,
    *,
    trained: int,
    batch_size: int,
    local_steps: int,
    rounds: int | None,
    schedule: Schedule | None,
    fresh_start: bool,
    optimizer: str | None,
    settings: Settings | None,
) -> Settings:
    """Return the settings that these arguments stand for, in a run of `trained` rounds."""
    given = {"rounds": rounds, "schedule": schedule, "optimizer": optimizer}
    plain = [name for name, value in given.items() if value is not None]
    plain += ["fresh_start"] if fresh_start else []
    if settings is not None:
        instance("settings", settings, Settings, "Settings(…)", PlanError)
        if plain:
            raise PlanError(
                f"give {plain[0]}, or settings, which have all options of a recovery; not both"
            )
        return settings
    base, entry = parse(method)[0], entry_of(method)
    if schedule is not None:
        instance("schedule", schedule, Schedule, "a Schedule(preparation=…, final=…)", PlanError)
        if entry.rounds == "own":
            raise PlanError(
                f"{base} follows no schedule, so schedule={schedule!r} has no place; leave it out, "
                f"or choose one of {_those(lambda name: METHODS[name].rounds != 'own')}"
            )
    numbers: Numbers = {}
    if rounds is not None:
        whole("rounds", rounds, 1)
        numbers = {key: int(rounds) for key in _round_options(base)}
        if not numbers:
            raise PlanError(
                f"{base} sets its own number of rounds, so rounds={rounds} has no place; leave it "
                f"out, or choose one of {_those(_round_options)}"
            )
    if optimizer is not None:
        if not isinstance(optimizer, str) or "optimizer" not in entry.varies:
            raise PlanError(
                f"{base} takes no optimizer, got {optimizer!r:.60}; leave it out, or choose "
                "accelerated-retrain with muon or adam"
            )
        numbers["optimizer"] = optimizer
    start = FRESH if fresh_start else AcceleratedOptions.start
    made = Settings(
        options=Options(schedule=schedule or Schedule.usual(trained)),
        accelerated=AcceleratedOptions(start=start),
        batch_size=batch_size,
        local_steps=local_steps,
    )
    if fresh_start and not entry.afresh(made):
        raise PlanError(
            f"{base} cannot start afresh; leave fresh_start out, or choose one of "
            f"{_those(lambda name: METHODS[name].afresh(made))}"
        )
    return entry.vary(made, numbers) if numbers else made


def _round_options(method: str) -> list[str]:
    """Return the options of a method that are numbers of rounds, not shares of them."""
    varies = METHODS[method].varies
    return [key for key in varies if key.split("_")[0] == "rounds" and varies[key] is int]


def _those(fits: Callable[[str], object]) -> str:
    """Return the names of the methods that fit."""
    return ", ".join(name for name in METHODS if fits(name))
