"""The summary of an experiment: sentences computed from its numbers."""

from pdlrecover.experiments.analysis.document import Fact
from pdlrecover.experiments.analysis.format import counted, listed, percent, readable
from pdlrecover.experiments.analysis.promises import BACKDOOR_MARGIN, above
from pdlrecover.experiments.analysis.results import Mean
from pdlrecover.experiments.analysis.seeds import SeedResults
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.recovery.methods import OURS, REFERENCE, starts_afresh

CLEARLY = 0.005
"""Half a point of accuracy: less is not worth a sentence."""
STAYED = 0.5
"""A backdoor that keeps more than this share of its success has not been removed."""


def headline(runs: SeedResults) -> str:
    """Return a title: the data, and who did what."""
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
    return f"Recovery on {config.dataset}: {what}"


def sentences(runs: SeedResults) -> list[str]:
    """Return the summary: the setting, what was reached, at what cost, and what was seen."""
    made = [_setting(runs), _reached(runs), _cost(runs), *_others(runs), _seen(runs)]
    return [sentence for sentence in [*made, *_cautions(runs)] if sentence]


def key(runs: SeedResults) -> int:
    """Return which sentence says most: what was reached, after the setting, where ours ran."""
    return int(OURS in runs.methods)


def facts(runs: SeedResults) -> list[Fact]:
    """Return the few numbers to look at first; none where our method did not run."""
    if OURS not in runs.methods:
        return []
    reference = REFERENCE in runs.methods
    against = f"retraining: {percent(runs.value(REFERENCE, 'accuracy'))}" if reference else ""
    if any(runs.diverged(OURS)):
        against = f"it diverged; {against}" if against else "it diverged"
    reached = percent(runs.value(OURS, "accuracy"))
    made = [Fact(value=reached, label="accuracy after PDLRecover", note=against)]
    before, after = (runs.value(name, "attack_success") for name in (POISONED, OURS))
    if after is not None:
        was = f"before: {percent(before)}"
        made.append(Fact(value=percent(after), label="backdoor success", note=was))
    exact = f"{_value(runs.exact_rounds(OURS)):,.0f}"
    made.append(Fact(value=exact, label="exact rounds", note=f"of {runs.config.rounds:,}"))
    alone = _value(runs.individual_openings(OURS))
    note = f"only sums over {runs.config.kept} peers" if not alone else "opened one by one"
    return [*made, Fact(value=f"{alone:,.0f}", label="single peers’ updates seen", note=note)]


def divergences(runs: SeedResults) -> list[str]:
    """Say which methods diverged, why, and what their numbers are of."""
    lines = []
    for name in runs.methods:
        reasons = dict(zip(runs.seeds, runs.diverged(name), strict=True))
        if seeds := [str(seed) for seed, why in reasons.items() if why]:
            which = f" with {'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)}"
            lines.append(
                f"{name} diverged{which if len(reasons) > 1 else ''}, and its numbers are of the "
                f"last model it had come to: {next(filter(None, reasons.values()))}."
            )
    return lines


def _setting(runs: SeedResults) -> str:
    config, kept = runs.config, runs.config.kept
    text = (
        f"{config.peers} peers trained a model ({config.model}) on {config.dataset} for "
        f"{config.rounds:,} rounds; "
    )
    did = "planted a backdoor" if config.attack == "backdoor" else f"attacked ({config.attack})"
    missed, accused = config.undetected, config.accused
    if config.malicious:
        text += f"{config.malicious} of them {did}, "
        text += f"{missed} more stayed undetected, " if missed else ""
        if accused:
            honest = counted(accused, "honest one was", "honest ones were")
            text += f"{honest} removed by mistake, "
        return f"{text}and the {kept} kept peers repaired it."
    if config.leavers:
        text += f"{config.leavers} of them left, and the {kept} others forgot them"
    else:
        text += "nobody was removed"
    text += f"; {missed} of those who stayed {did} and went undetected" if missed else ""
    return f"{text}."


def _reached(runs: SeedResults) -> str:
    if OURS not in runs.methods:
        return ""
    average = f"On average over {len(runs.seeds)} seeds, " if len(runs.seeds) > 1 else ""
    text = f"{average}PDLRecover reached {percent(runs.value(OURS, 'accuracy'))}"
    if REFERENCE in runs.methods:
        text += f" against {percent(runs.value(REFERENCE, 'accuracy'))} of retraining"
    text += (
        f", with {_value(runs.exact_rounds(OURS)):,.0f} of {runs.config.rounds:,} exact rounds; "
    )
    before, after = (runs.value(name, "attack_success") for name in (POISONED, OURS))
    if before is None or after is None:
        which = "poisoned" if runs.config.malicious else "original"
        return f"{text}the {which} model had {percent(runs.value(POISONED, 'accuracy'))}."
    verb = "fell" if after < before else "went"
    return f"{text}the backdoor {verb} from {percent(before)} to {percent(after)}."


def _cost(runs: SeedResults) -> str:
    if OURS not in runs.methods or REFERENCE not in runs.methods:
        return ""
    ours, theirs = (runs.value(name, "gradient_evaluations") or 0 for name in (OURS, REFERENCE))
    sent, sends = (runs.value(name, "bytes_per_peer") or 0 for name in (OURS, REFERENCE))
    return (
        f"It computed {ours:,.0f} gradients where retraining computes {theirs:,.0f}, and each peer "
        f"sent {readable(sent)} against {readable(sends)}."
    )


def _others(runs: SeedResults) -> list[str]:
    """Name who did better than ours without the backdoor, and who left the backdoor in place."""
    if OURS not in runs.methods:
        return []
    rivals = [name for name in runs.methods if name not in (POISONED, REFERENCE, OURS)]
    stayed = [name for name in rivals if _stayed(runs, name)]
    ours = runs.value(OURS, "accuracy") or 0
    better = [
        name
        for name in rivals
        if name not in stayed and (runs.value(name, "accuracy") or 0) > ours + CLEARLY
    ]
    lines = []
    if better:
        lines.append(f"More accurate than that: {listed([_spent(runs, n) for n in better])}.")
    if stayed:
        how = [f"{name} ({percent(runs.value(name, 'attack_success'))})" for name in stayed]
        lines.append(f"The backdoor stayed after {listed(how)}.")
    return lines


def _stayed(runs: SeedResults, method: str) -> bool:
    """Say whether a method has left the backdoor in place.

    Where retraining is there, only what is above its success counts, for some inputs with the
    trigger are of the wanted class anyway: it is more than the margin that is promised, and more
    than `STAYED` of what the original model has above retraining. Elsewhere it is more than
    `STAYED` of the original's success.
    """
    before, after = (runs.value(name, "attack_success") for name in (POISONED, method))
    if not before or after is None:
        return False
    had, has = (above(runs, name) for name in (POISONED, method))
    if had is None or has is None:
        return after > STAYED * before
    return has.value > max(BACKDOOR_MARGIN, STAYED * had.value)


def _spent(runs: SeedResults, method: str) -> str:
    rounds = counted(round(_value(runs.exact_rounds(method))), "exact round", "exact rounds")
    return f"{method} ({percent(runs.value(method, 'accuracy'))} with {rounds})"


def _seen(runs: SeedResults) -> str:
    alone = {name: _value(runs.individual_openings(name)) for name in runs.methods}
    how = [f"{name} ({count:,.0f})" for name, count in alone.items() if count]
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
        lines.append(f"Not finished: {listed(runs.unfinished)}.")
    return lines


def _value(mean: Mean | None) -> float:
    return 0 if mean is None else mean.value
