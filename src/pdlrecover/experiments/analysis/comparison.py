"""All methods beside each other, best first: what they reached, what they remember, what they cost.

The order, `ranked`:

1. retraining, the reference; then
2. those that keep what is promised of a model (`promises.holds`, at any cost);
3. those that do not, but have removed the backdoor;
4. those after which the backdoor stayed;
5. those that diverged; and last the original model.

Within these the more accurate comes first, and of equals the one with fewer exact rounds. Where
retraining is missing, or has diverged itself, nothing can be held against it: 2 and 3 are one.

Over several settings it is the share of them in which the promises are kept that counts, then in
how many the method ran, then the mean difference from retraining. Settings differ in more than the
seed and the methods.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pdlrecover.experiments.analysis.document import Row, Table
from pdlrecover.experiments.analysis.promises import (
    ACCURATE,
    BACKDOOR_MARGIN,
    CLEAN,
    REMEMBERED,
    above,
    gap,
    holds,
    points,
)
from pdlrecover.experiments.analysis.results import Mean, Results, percent
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, TRAINED, Result, shown_name
from pdlrecover.recovery.methods import METHODS, REFERENCE

TITLE = "Methods{against}, best first"
STAYED = 0.5
"""A backdoor that keeps more than this share of its success has not been removed."""
KEPT, BROKEN, STAYS, DIVERGED = range(4)
"""How well a method did, in the order of the table."""
WORDS = {KEPT: "kept", BROKEN: "broken", STAYS: "backdoor stayed", DIVERGED: "diverged"}
HEADINGS = {
    "promises": "promises",
    "accuracy": "accuracy (%)",
    "held_out_accuracy": "by the peers (%)",
    "backdoor": "backdoor (%)",
    "kept": "promises kept",
    "minus_retrain": "minus retrain (points)",
    "worst": "at the worst (points)",
    "above_retrain": "backdoor above retrain, worst (points)",
    "individual": "sees single peers",
    "gradients": "gradients of a peer",
    "seconds": "seconds of a peer",
}


def compared(results: Sequence[Result], command: str, *, judged: bool = True) -> Table:
    """Return the table of these results, of which there is at least one.

    Without `judged` it does not say which promises are kept: the runs are shorter than those that
    promises are about.
    """
    settings = by_setting(results)
    names = dict.fromkeys(name for of in settings for r in of for name in r.methods)
    if len(settings) == 1:
        (of,) = settings
        order = ranked(of, judged=judged)
        rows = [_row(of, name, judged=judged) for name in order]
    else:
        order = _ranked_over(settings, list(names))
        rows = [_row_over(settings, name, judged=judged) for name in order]
        if all(row["settings"] == len(settings) for row in rows):
            rows = [{key: row[key] for key in row if key != "settings"} for row in rows]
    sent = "would send" if any(r.config.clear for r in results) else "sent"
    headings = HEADINGS | {"megabytes": f"MB each peer {sent}"}
    if len(settings) > 1:
        headings["remembered"] = "remembered, at the most"
    title = TITLE.format(against=" against retraining" if REFERENCE in order else "")
    return Table.from_rows(title, rows, headings, command, _note(settings, rows, judged=judged))


def shown_names(table: Table, config: Config) -> Table:
    """Return a table of one experiment with its methods called as they are shown."""
    place = table.keys.index("method")
    rows = [
        [*row[:place], shown_name(str(row[place]), config), *row[place + 1 :]] for row in table.rows
    ]
    return replace(table, rows=rows)


def ranked(of: Results, *, judged: bool = True) -> list[str]:
    """Return the methods of one setting in the order of the table; see `compared`."""
    names = [name for name in of[0].methods if len(of.entries(name)) == len(of)]
    recoveries = [name for name in names if name not in (POISONED, REFERENCE)]

    def place(name: str) -> tuple[float, ...]:
        accuracy = of.mean(name, "accuracy")
        lost = math.inf if accuracy is None else -accuracy.value
        stands = level(of, name)
        return (stands if judged else max(stands, BROKEN), lost, *_effort([of], name))

    recoveries.sort(key=place)
    ends = [name for name in (REFERENCE, POISONED) if name in names]
    return [*ends[: REFERENCE in names], *recoveries, *ends[REFERENCE in names :]]


def best(of: Results) -> str | None:
    """Return the recovery that stands first, retraining apart; None if there is none."""
    return next((name for name in ranked(of) if name not in (POISONED, REFERENCE)), None)


def level(of: Results, method: str) -> int:
    """Return how well a method did in these results, which are of one setting."""
    if any(of.diverged(method)):
        return DIVERGED
    if stayed(of, method):
        return STAYS
    if any(of.diverged(REFERENCE)):
        return KEPT
    kept = holds(of, method, math.inf, left=bool(of[0].config.leavers))
    return BROKEN if kept is False else KEPT


def stayed(of: Results, method: str) -> bool:
    """Say whether a method has left the backdoor in place.

    Where retraining is there and has not diverged, only what is above its success counts, for some
    inputs with the trigger are of the wanted class anyway: it is more than the margin that is
    promised, and more than `STAYED` of what the original model has above retraining. Elsewhere it
    is more than `STAYED` of the original's success.
    """
    before, after = (of.mean(name, "attack_success") for name in (POISONED, method))
    if before is None or after is None or not before.value:
        return False
    had, has = (above(of, name) for name in (POISONED, method))
    if had is None or has is None or any(of.diverged(REFERENCE)):
        return after.value > STAYED * before.value
    return has.value > max(BACKDOOR_MARGIN, STAYED * had.value)


def by_setting(results: Iterable[Result]) -> list[Results]:
    """Group results whose configs differ in nothing but the seed and the methods."""
    groups: dict[Config, list[Result]] = {}
    for result in results:
        groups.setdefault(replace(result.config, seed=0, methods=()), []).append(result)
    return [Results(found) for found in groups.values()]


def having(of: Results, method: str) -> Results:
    """Return those of the results that have a method."""
    return Results(result for result in of if method in result.methods)


def _row(of: Results, method: str, *, judged: bool) -> Row:
    entries = {POISONED: "original", REFERENCE: "reference"}
    told = None
    if method in entries:
        told = entries[method]
    elif judged or level(of, method) > BROKEN:
        told = WORDS[level(of, method)]
    if method in entries and any(of.diverged(method)):
        told = f"{entries[method]}, diverged"
    known = REFERENCE in of[0].methods and not any(of.diverged(REFERENCE))
    return {
        "method": method,
        "promises": None if told == WORDS[KEPT] and not known else told,
        "accuracy": percent(of.mean(method, "accuracy")),
        "held_out_accuracy": percent(of.held_out_accuracy(method)),
        "backdoor": percent(of.mean(method, "attack_success")),
        "remembered": _remembered(of, method),
        **_cost([of], method),
    }


def _row_over(settings: list[Results], method: str, *, judged: bool) -> Row:
    runs = [some for of in settings if (some := having(of, method))]
    against = _with_reference(runs)
    gaps = [found.value for of in against if (found := gap(of, method)) is not None]
    beyond = [found.value for of in against if (found := above(of, method)) is not None]
    known = [share for of in runs if (share := of.remembered(method)) is not None]
    kept, judgeable = _kept(runs, method)
    recovers = method not in (POISONED, REFERENCE)
    least = max(known, key=lambda each: each.value, default=None)
    return {
        "method": method,
        "settings": len(runs),
        "kept": f"{kept} of {judgeable}" if judged and recovers and judgeable else None,
        "minus_retrain": points(statistics.fmean(gaps)) if gaps else None,
        "worst": points(min(gaps)) if gaps else None,
        "above_retrain": points(max(beyond), 1) if beyond else None,
        "remembered": None if least is None else str(least),
        **_cost(runs, method),
    }


def _kept(runs: Sequence[Results], method: str) -> tuple[int, int]:
    """Return in how many settings the promises are kept, and in how many that can be told."""
    found = [
        holds(of, method, math.inf, left=bool(of[0].config.leavers)) for of in _with_reference(runs)
    ]
    return sum(map(bool, found)), sum(each is not None for each in found)


def _with_reference(runs: Sequence[Results]) -> list[Results]:
    """Return the settings in which retraining has not diverged: only those are held against it."""
    return [of for of in runs if not any(of.diverged(REFERENCE))]


def _ranked_over(settings: list[Results], names: list[str]) -> list[str]:
    def place(name: str) -> tuple[float, ...]:
        runs = [some for of in settings if (some := having(of, name))]
        kept, judged = _kept(runs, name)
        against = _with_reference(runs)
        gaps = [found.value for of in against if (found := gap(of, name)) is not None]
        lost = -statistics.fmean(gaps) if gaps else math.inf
        return (-kept / judged if judged else 1, -len(runs), lost, *_effort(runs, name))

    recoveries = [name for name in names if name not in (POISONED, REFERENCE)]
    recoveries.sort(key=place)
    first, last = ([each] if each in names else [] for each in (REFERENCE, POISONED))
    return [*first, *recoveries, *last]


def _effort(runs: Sequence[Results], method: str) -> tuple[float, float]:
    """Return what decides between equals: exact rounds, then the place in the registry."""
    rounds = _mean([of.exact_rounds(method) for of in runs])
    known = list(METHODS)
    base = method.partition(":")[0]
    return (
        math.inf if rounds is None else rounds,
        known.index(base) if base in known else len(known),
    )


def _cost(runs: Sequence[Results], method: str) -> Row:
    """Return what a method costs one peer: means over the settings, each of means over seeds."""
    rounds = _mean([of.exact_rounds(method) for of in runs])
    gradients = _mean([of.gradients(method) for of in runs])
    spent = _mean([of.peer_seconds(method) for of in runs])
    sent = _mean([of.mean(method, "bytes_per_peer") for of in runs])
    alone = any(one.sees_single_peers for of in runs for one in of.entries(method))
    return {
        "individual": "yes" if alone else None,
        "exact_rounds": None if rounds is None else round(rounds, 1),
        "gradients": None if gradients is None else round(gradients, 1),
        "seconds": None if spent is None else round(spent, 2),
        "megabytes": None if sent is None else round(sent / 1e6, 1),
    }


def _mean(found: Sequence[Mean | None]) -> float | None:
    there = [each.value for each in found if each is not None]
    return statistics.fmean(there) if there else None


def _remembered(of: Results, method: str) -> str | None:
    found = of.remembered(method)
    return None if found is None else str(found)


def _note(settings: list[Results], rows: Sequence[Row], *, judged: bool) -> str:
    """Return the caption: the order, what is promised, and what the numbers are."""
    there = {key for row in rows for key, cell in row.items() if cell is not None}
    notes = []
    if len(settings) == 1:
        notes.append(_order(rows))
    else:
        notes.append(
            f"Over {len(settings)} settings. After retraining, the reference, by the share of its "
            "settings in which a method keeps the promises, then by their number, then by the mean "
            "difference from retraining."
        )
    words = {row.get("promises") for row in rows} & {WORDS[KEPT], WORDS[BROKEN]}
    if judged and (words or "kept" in there):
        terms = [ACCURATE, *([CLEAN] if there & {"backdoor", "above_retrain"} else [])]
        if "remembered" in there:
            terms.append(f"what is remembered not surely above {REMEMBERED:g}")
        notes.append(f"Promised of a model, whatever it cost: {', '.join(terms)}.")
    if "remembered" in there:
        notes.append(
            "Remembered, of the data of the peers that left: the original 1, a model that never "
            "saw it 0; ± is a standard error."
        )
    elif any(of[0].config.leavers for of in settings):
        notes.append(
            "What is remembered of those who left could not be measured here, so it is not judged."
        )
    if len(settings) == 1 and len(settings[0]) > 1:
        notes.append(f"Rates are means over {len(settings[0])} seeds, ± the standard deviation.")
    elif len(settings) > 1:
        notes.append("Points are of means over the seeds; costs are means over the settings.")
    if "individual" in there:
        notes.append("Those that look at single peers’ updates cannot run on shares.")
    if "seconds" in there:
        notes.append(
            "The seconds of a peer are those of its own gradients, its dealing, opening and "
            "estimating in a simulation on shares, without a network."
        )
    clear = [r.config.clear for of in settings for r in of]
    if any(clear):
        some = "Nothing" if all(clear) else "In some of the runs nothing"
        notes.append(f"{some} was shared (--clear): bytes are what each peer would send on shares.")
    return " ".join(notes)


def _order(rows: Sequence[Row]) -> str:
    """Say which kinds of methods stand below each other, of those that there are."""
    told = [row.get("promises") for row in rows]
    kinds = {
        "kept": "those that keep the promises",
        "broken": "those that do not",
        None: "those of which nothing is told",
        "backdoor stayed": "those after which the backdoor stayed",
        "diverged": "those that diverged",
    }
    there = [words for kind, words in kinds.items() if kind in told]
    come = f" {', then '.join(there)}; of each" if there != [kinds[None]] and there else ""
    after = "In order:"
    if any(row["method"] == REFERENCE for row in rows):
        after = "After retraining, the reference,"
        after += "" if "reference" in told else " which diverged,"
    last = ", and the original model last" if any(row["method"] == POISONED for row in rows) else ""
    return f"{after}{come} the more accurate first{last}."


def first(table: Table) -> Row | None:
    """Return the row of the recovery that stands first in a table, retraining apart."""
    rows = table.by_key()
    others = (POISONED, TRAINED, REFERENCE)
    return next((row for row in rows if row["method"] not in others), None)


def standing_out(table: Table) -> str | None:
    """Return the method whose row stands out in a table: the first recovery, unless it diverged."""
    row = first(table)
    return None if row is None or row.get("promises") == WORDS[DIVERGED] else str(row["method"])


def alike(of: Results, method: str) -> list[str]:
    """Return the other recoveries that did exactly as well, in the order's own terms."""

    def place(name: str) -> tuple[object, ...]:
        accuracy, rounds = of.mean(name, "accuracy"), of.exact_rounds(name)
        return level(of, name), accuracy and accuracy.value, rounds and rounds.value

    others = [name for name in ranked(of) if name not in (POISONED, REFERENCE, method)]
    return [name for name in others if place(name) == place(method)]
