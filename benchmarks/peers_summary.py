"""What the stopwatches of `peers_probe.py` add up to, for `peers.py`."""

import itertools
import statistics
from collections import Counter
from typing import Any

from peers_folders import PeerFolders

WARM_UP = 3
"""So many first rounds are not counted: connections are made, and pages touched."""
EXACT = "exact round / (bare exchange + the peers' own gradient and dealing)"
ONE = "estimated round / exact round"
FIVE = "five estimated rounds / exact round"
"""Five rounds are what an estimate from shared pairs is for."""
PARTS = {
    "gradient": ("gradient",),
    "dealing": ("dealing", "sealing", "checking dealings"),
    "opening": ("sub-secret", "opening"),
    "method": ("method",),
}
"""The processor seconds of a recovery, by what is done; the rest is network, agreement and disk."""


def summary(
    folders: PeerFolders,
    exchanges: list[dict[str, float]],
    resident: list[dict[str, int]],
    methods: tuple[str, ...],
    sent: int,
) -> dict[str, Any]:
    """Return the record of one federation; the bare exchange sent so many bytes."""
    probes = folders.probes()
    alone, whole = ([r for r in exchanges if r["computes"] == kind] for kind in (0, 1))
    exact, exact_cpu = exact_rounds(probes)
    estimated = estimated_rounds(folders, probes, 1 + methods.index("pdlrecover"))
    record: dict[str, Any] = {
        "peers": folders.peers,
        "tolerance": vars(folders.membership.tolerance),
        "packing": folders.membership.scheme.quorums.packing,
        "rounds": folders.membership.training.rounds,
        "exact": exact,
        "estimated": estimated,
        "bare": {
            "exchange_seconds": median(alone, "seconds"),
            "whole_seconds": median(whole, "seconds"),
            "computing_seconds": median(whole, "computing"),
            "exchange_cpu": median(alone, "cpu"),
            "whole_cpu": median(whole, "cpu"),
            "bytes": sent,
        },
        "work": {kind: work(probes, kind) for kind in ("FreshSum", "StoredSums")},
        "recoveries": {method: recovery(probes, i) for i, method in enumerate(methods, start=1)},
        "resident_bytes": {k: max(each[k] for each in resident) for k in ("most", "own")},
    }
    against, own = record["bare"], own_work(probes)
    record["own"] = own
    one = estimated["seconds"] / estimated["exact"]
    record["ratios"] = {
        EXACT: exact["seconds"] / (against["exchange_seconds"] + own["seconds"]),
        "in processor seconds": exact_cpu / (against["exchange_cpu"] + own["cpu"]),
        "exact round / bare processes that compute, deal and exchange": exact["seconds"]
        / against["whole_seconds"],
        "the same in processor seconds": exact_cpu / against["whole_cpu"],
        ONE: one,
        FIVE: 5 * one,
        "bytes of an estimated / an exact round": estimated["bytes"] / estimated["exact_bytes"],
    }
    for method in methods[:-1]:
        spans = [record["recoveries"][each]["seconds"] for each in (method, methods[-1])]
        record["ratios"][f"{method} / {methods[-1]}"] = spans[0] / spans[1]
    return record


def median(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def exact_rounds(probes: list[dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """Return what an exact round of the training takes, and one peer's processor seconds of it."""
    seconds, states, sent = [], [], []
    for probe in probes:
        steps = runs_of(probe)[0]
        for before, step in zip(steps[WARM_UP - 1 :], steps[WARM_UP:], strict=False):
            seconds.append(step["at"] - before["at"])
            states.append(step["states"])
            sent.append(sum(step["bytes"].values()))
    names = ("COMPUTING", "GATHERING", "AGREEING", "OPENING", "HISTORY")
    record = {
        "seconds": statistics.median(seconds),
        "bytes": statistics.median(sent),
        "bytes_by_message": mean_of([s["bytes"] for p in probes for s in runs_of(p)[0]]),
        "states": {name: statistics.median(s.get(name, 0.0) for s in states) for name in names},
    }
    fresh = [sum(s["kind"] == "FreshSum" for s in p["steps"]) for p in probes]
    cpu = [p["process_cpu"]["FreshSum"] / count for p, count in zip(probes, fresh, strict=True)]
    return record, statistics.median(cpu)


def estimated_rounds(
    folders: PeerFolders, probes: list[dict[str, Any]], run: int
) -> dict[str, Any]:
    """Return what an estimated round takes: a mean over all of PDLRecover's.

    It is all the time in which no exact round was under way: the openings of stored sums, and what
    the peers compute between steps. An exact round between the same peers is the median of those
    that followed another one.
    """
    rounds, options = folders.membership.training.rounds, folders.membership.recovery
    schedule = options.options(rounds).schedule
    count = rounds - schedule.exact_rounds(rounds)
    seconds, sent, exact, exact_sent = [], [], [], []
    for steps in (runs_of(probe)[run] for probe in probes if len(runs_of(probe)) > run):
        spent = size = 0.0
        for before, step in itertools.pairwise(steps):
            spent += step["begun"] - before["at"]
            if step["kind"] != "FreshSum":
                spent += step["at"] - step["begun"]
                size += sum(step["bytes"].values())
                continue
            exact_sent.append(sum(step["bytes"].values()))
            if before["kind"] == "FreshSum" and step["begun"] - before["at"] < 0.1:
                exact.append(step["at"] - before["at"])
        seconds.append(spent / count)
        sent.append(size / count)
    return {
        "rounds": count,
        "seconds": statistics.median(seconds),
        "bytes": statistics.median(sent),
        "exact": statistics.median(exact),
        "exact_bytes": statistics.median(exact_sent),
    }


def recovery(probes: list[dict[str, Any]], run: int) -> dict[str, Any]:
    """Return how long a recovery took, from the first peer's start to the last one's end.

    And one peer's processor seconds in it, by what it did.
    """
    found = [(probe, runs_of(probe)[run]) for probe in probes if len(runs_of(probe)) > run]
    first = min(steps[0]["begun"] for _, steps in found)
    spent = [probe["runs"][steps[0]["run"]] for probe, steps in found]
    processor = {
        part: statistics.mean(sum(each.get(work, 0.0) for work in works) for each in spent)
        for part, works in PARTS.items()
    }
    processor["in all"] = statistics.mean(each["all"] for each in spent)
    return {
        "seconds": max(steps[-1]["at"] for _, steps in found) - first,
        "steps": dict(Counter(step["kind"] for step in found[0][1])),
        "processor": processor,
    }


def own_work(probes: list[dict[str, Any]]) -> dict[str, float]:
    """Return what gradient and dealing of an exact round take a peer: the mean over all rounds."""
    found: dict[str, list[float]] = {"wall": [], "cpu": []}
    for probe in probes:
        steps = sum(step["kind"] == "FreshSum" for step in probe["steps"])
        for clock, values in found.items():
            spent = probe[clock]["FreshSum"]
            values.append((spent["gradient"] + spent["dealing"]) / steps)
    return {"seconds": statistics.median(found["wall"]), "cpu": statistics.median(found["cpu"])}


def work(probes: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """Return one peer's processor seconds in a step of this kind, by work; all else is network."""
    found: Counter[str] = Counter()
    for probe in probes:
        steps = sum(step["kind"] == kind for step in probe["steps"])
        if not steps:
            continue
        shares = {name: spent / steps for name, spent in probe["cpu"][kind].items()}
        shares["network"] = probe["process_cpu"][kind] / steps - sum(shares.values())
        for name, spent in shares.items():
            found[name] += spent / sum(kind in p["cpu"] for p in probes)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def runs_of(probe: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return a peer's steps, run by run: the training, then the recoveries."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for step in probe["steps"]:
        runs.setdefault(step["run"], []).append(step)
    return list(runs.values())


def mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return {name: value / len(rows) for name, value in total.items()}
