"""The summary of an experiment: sentences computed from its numbers, that say only what happened.

The sentence that stands out is about the recovery that stands first in the comparison, whichever
it is. What diverged is said to have, and where nothing was shared nothing is said to be opened.
"""

from pdlrecover.experiments.analysis.comparison import (
    DIVERGED,
    STAYS,
    alike,
    best,
    level,
    stayed,
)
from pdlrecover.experiments.analysis.document import Fact
from pdlrecover.experiments.analysis.format import counted, listed, percent, readable
from pdlrecover.experiments.analysis.promises import holds
from pdlrecover.experiments.analysis.results import Mean
from pdlrecover.experiments.analysis.seeds import SeedResults
from pdlrecover.experiments.experiment.result import POISONED, shown_name
from pdlrecover.recovery.methods import OURS, REFERENCE, starts_afresh

CLEARLY = 0.005
"""Half a point of accuracy: less is not worth a sentence."""


def headline(runs: SeedResults) -> str:
    """Return a title: the data, who did what, and whether that is a recovery at all."""
    config = runs.config
    if config.malicious:
        what = f"{config.malicious} of {config.peers} peers attacked ({config.attack})"
        what += f", {config.undetected} more stayed undetected" if config.undetected else ""
    else:
        left = f"{config.leavers} of {config.peers} peers left"
        what = left if config.leavers else "nobody was removed"
        if config.undetected:
            attackers = counted(config.undetected, "attacker", "attackers")
            what += f", {attackers} stayed undetected ({config.attack})"
    if not _recoveries(runs):
        return f"Training on {config.dataset}: {what}"
    done = "Diverged: recovery" if _all_diverged(runs) else "Recovery"
    return f"{done} on {config.dataset}: {what}"


def sentences(runs: SeedResults) -> list[str]:
    """Return the summary: the setting, what was reached, at what cost, and what was seen."""
    made = [_setting(runs), _reached(runs), _cost(runs), _ours(runs), *_others(runs), _seen(runs)]
    return [sentence for sentence in [*made, *_cautions(runs)] if sentence]


def key(runs: SeedResults) -> int:
    """Return which sentence says most: what was reached, after the setting, if anything was."""
    return int(bool(_recoveries(runs)))


def facts(runs: SeedResults) -> list[Fact]:
    """Return the few numbers to look at first, of the recovery that stands first."""
    first = best(runs)
    if first is None or level(runs, first) == DIVERGED:
        return []
    against = ""
    if REFERENCE in runs.methods:
        against = f"{REFERENCE}: {_accuracy(runs, REFERENCE)}"
    reached = percent(runs.value(first, "accuracy"))
    made = [Fact(value=reached, label=f"accuracy after {called(first)}", note=against)]
    before, after = (runs.value(name, "attack_success") for name in (POISONED, first))
    if after is not None:
        was = f"before: {percent(before)}"
        made.append(Fact(value=percent(after), label="backdoor success", note=was))
    kept = runs.remembered(first)
    if kept is not None:
        share = f"± {kept.error:.2f}; the original: 1"
        made.append(Fact(value=f"{kept.value:z.2f}", label="remembered", note=share))
    exact, rounds = _value(runs.exact_rounds(first)), runs.config.rounds
    whole = "of" if exact <= rounds else "the training had"
    made.append(Fact(value=f"{exact:,.0f}", label="exact rounds", note=f"{whole} {rounds:,}"))
    if runs.config.clear:
        return made
    alone = _value(runs.individual_openings(first))
    note = "opened one by one" if alone else "only sums were opened"
    return [*made, Fact(value=f"{alone:,.0f}", label="single peers’ updates seen", note=note)]


def called(method: str) -> str:
    """Return how sentences call a method."""
    return "PDLRecover" if method == OURS else method


def divergences(runs: SeedResults) -> list[str]:
    """Say which methods diverged, why, and what their numbers are of."""
    lines = []
    for name in runs.methods:
        reasons = dict(zip(runs.seeds, runs.diverged(name), strict=True))
        if seeds := [str(seed) for seed, why in reasons.items() if why]:
            which = f" with {'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)}"
            lines.append(
                f"{shown_name(name, runs.config)} diverged{which if len(reasons) > 1 else ''}, and "
                "its numbers are of the last model it had come to: "
                f"{next(filter(None, reasons.values()))}."
            )
    return lines


def _recoveries(runs: SeedResults) -> list[str]:
    return [name for name in runs.methods if name != POISONED]


def _all_diverged(runs: SeedResults) -> bool:
    return all(any(runs.diverged(name)) for name in _recoveries(runs))


def _setting(runs: SeedResults) -> str:
    config, kept = runs.config, runs.config.kept
    text = (
        f"{config.peers} peers trained a model ({config.model}) on {config.dataset} for "
        f"{config.rounds:,} rounds; "
    )
    did = "planted a backdoor" if config.attack == "backdoor" else f"attacked ({config.attack})"
    missed, accused = config.undetected, config.accused
    parts = []
    if config.malicious:
        parts.append(f"{config.malicious} of them {did}")
        parts += [f"{missed} more stayed undetected"] if missed else []
        if accused:
            honest = counted(accused, "honest one was", "honest ones were")
            parts.append(f"{honest} removed by mistake")
    elif config.leavers:
        parts.append(f"{config.leavers} of them left")
    else:
        parts.append("nobody was removed")
    if missed and not config.malicious:
        parts.append(f"{missed} of those who stayed {did} and went undetected")
    if tried := _recoveries(runs):
        many = counted(len(tried), "way", "ways")
        done = f"the {kept} kept peers tried {many} to recover"
        if not config.removed:
            ways = counted(len(tried), "recovery was run", "recoveries were run")
            done = f"{ways} all the same, with all {kept} peers"
        parts.append(f"and {done}")
    return f"{text}{', '.join(parts)}."


def _reached(runs: SeedResults) -> str:
    """Say what the recovery that stands first has reached, or that there is none."""
    tried = _recoveries(runs)
    if not tried:
        return ""
    if _all_diverged(runs):
        whole = "Training and recovery" if any(runs.diverged(POISONED)) else "Every recovery"
        return f"{whole} diverged: the numbers below are of models that are worth nothing."
    first = best(runs)
    if first is None:
        return f"Retraining reached {_accuracy(runs, REFERENCE)}, and no other recovery was run."
    average = f"On average over {len(runs.seeds)} seeds, " if len(runs.seeds) > 1 else ""
    if level(runs, first) == DIVERGED:
        return f"{average}retraining reached {_accuracy(runs, REFERENCE)}; all others diverged."
    text = f"{average}{called(first)} reached {percent(runs.value(first, 'accuracy'))}"
    if REFERENCE in runs.methods:
        text += f" against {_accuracy(runs, REFERENCE)} of retraining"
    exact, rounds = _value(runs.exact_rounds(first)), runs.config.rounds
    part = f" of {rounds:,}" if exact <= rounds else ""
    text += f", with {exact:,.0f}{part} exact rounds; {_before(runs, first)}"
    rivals = len([name for name in tried if name != REFERENCE])
    equals = alike(runs, first)
    shared = f", with {listed(equals)}," if equals else ""
    place = f"It is{shared} the best of {rivals} recoveries" if rivals > 1 else ""
    return ". ".join(part for part in (text, place + _shortfall(runs, first, place)) if part) + "."


def _shortfall(runs: SeedResults, first: str, place: str) -> str:
    """Say that even the first one does not keep what is promised, where that can be told."""
    left = bool(runs.config.leavers)
    if any(runs.diverged(REFERENCE)) or holds(runs, first, float("inf"), left=left) is not False:
        return ""
    return ", and does not keep what is promised" if place else "It does not keep what is promised"


def _before(runs: SeedResults, method: str) -> str:
    before, after = (runs.value(name, "attack_success") for name in (POISONED, method))
    if before is None or after is None:
        which = "poisoned" if runs.config.malicious else "original"
        return f"the {which} model had {_accuracy(runs, POISONED)}"
    verb = "fell" if after < before else "went"
    return f"the backdoor {verb} from {percent(before)} to {percent(after)}"


def _ours(runs: SeedResults) -> str:
    """Say what the paper's own method reached, where another stands first."""
    if OURS not in runs.methods or best(runs) in (None, OURS) or _all_diverged(runs):
        return ""
    if any(runs.diverged(OURS)):
        return "PDLRecover, the paper’s method, diverged."
    return f"PDLRecover, the paper’s method, reached {_spent(runs, OURS, bare=True)}."


def _others(runs: SeedResults) -> list[str]:
    """Name who did better than the paper's method without the backdoor, and who left it there."""
    rivals = [name for name in _recoveries(runs) if name not in (REFERENCE, OURS)]
    fine = [name for name in rivals if level(runs, name) < STAYS]
    ours = runs.value(OURS, "accuracy") if OURS in runs.methods else None
    lines = []
    if ours is not None and not any(runs.diverged(OURS)):
        better = [n for n in fine if (runs.value(n, "accuracy") or 0) > ours + CLEARLY]
        if better:
            names = listed([_spent(runs, name) for name in better])
            lines.append(f"More accurate than the paper’s method: {names}.")
    if kept := [name for name in [*rivals, OURS] if name in runs.methods and stayed(runs, name)]:
        how = [f"{name} ({percent(runs.value(name, 'attack_success'))})" for name in kept]
        lines.append(f"The backdoor stayed after {listed(how)}.")
    return lines


def _cost(runs: SeedResults) -> str:
    first = best(runs)
    if first is None or REFERENCE not in runs.methods or level(runs, first) == DIVERGED:
        return ""
    ours, theirs = (runs.value(n, "gradient_evaluations") or 0 for n in (first, REFERENCE))
    sent, sends = (readable(runs.value(n, "bytes_per_peer") or 0) for n in (first, REFERENCE))
    told = f"each peer sent {sent} against {sends}"
    if runs.config.clear:
        told = f"on shares each peer would send {sent} against {sends}"
    return f"It computed {ours:,.0f} gradients where retraining computes {theirs:,.0f}, and {told}."


def _accuracy(runs: SeedResults, method: str) -> str:
    """Return a method's accuracy, which says if it diverged."""
    found = percent(runs.value(method, "accuracy"))
    return f"{found} (diverged)" if any(runs.diverged(method)) else found


def _spent(runs: SeedResults, method: str, *, bare: bool = False) -> str:
    rounds = counted(round(_value(runs.exact_rounds(method))), "exact round", "exact rounds")
    told = f"{percent(runs.value(method, 'accuracy'))} with {rounds}"
    return told if bare else f"{method} ({told})"


def _seen(runs: SeedResults) -> str:
    alone = {name: _value(runs.individual_openings(name)) for name in runs.methods}
    how = [f"{name} ({count:,.0f})" for name, count in alone.items() if count]
    if runs.config.clear:
        text = "Nothing was shared (--clear), so this run hid nothing"
        if not how:
            return f"{text}; on shares only sums over many peers would be opened."
        return f"{text}; single peers’ updates were looked at by {listed(how)}."
    if not how:
        return "Only sums over many peers were opened: nobody’s own update was seen."
    return f"Single peers’ updates were opened by {listed(how)}; the others opened only sums."


def _cautions(runs: SeedResults) -> list[str]:
    lines = divergences(runs)
    config = runs.config
    names = [name for name in runs.methods if name != POISONED]
    old = [name for name in names if not starts_afresh(name, config.settings)]
    if len(config.removed) == 1 and old:
        lines.append(
            "One peer was removed: what was opened with it, and without it by "
            f"{listed(old)}, differs by its own updates, so those can be computed."
        )
    if runs.unfinished:
        lines.append(
            f"Not finished: {listed([shown_name(n, runs.config) for n in runs.unfinished])}."
        )
    return lines


def _value(mean: Mean | None) -> float:
    return 0 if mean is None else mean.value
