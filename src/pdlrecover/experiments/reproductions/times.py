"""Tables I and II: how long retraining and PDLRecover take, by the number of removed peers.

Two readings. *All peers*: the processor's seconds for the engine within one run, which has one
thread, so that what else runs on the machine is not in them. *One peer*: what a peer would spend of
that, since its gradients are its own (`Seconds.of_one_peer`); with shares on only (the typical m),
for in the clear nothing is dealt or opened. The verdict is on the first.
"""

from dataclasses import replace

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.promises import word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.reproductions import paper
from pdlrecover.experiments.reproductions.reproduction import BLOCKS, Draft, Reproduction
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

METHODS = (REFERENCE, OURS)
PROMISED = {"clear": 0.15, "shares": 0.35}
"""The largest ratio of the times, in runs of the paper's length."""


def times(name: str, title: str, attack: str, published: paper.Times) -> Reproduction:
    """Return the reproduction of one of the two tables."""

    def cells(scale: Scale) -> list[Config]:
        clear = scale.configs_by_count(attack, METHODS)
        first = [c for c in clear if c.seed == scale.seeds[0]]
        shared = [replace(c, clear=False) for c in first if len(c.removed) == scale.typical]
        return clear + shared

    def write(draft: Draft, results: Results) -> None:
        rows = [_row(result, published, judged=draft.scale.promised) for result in results]
        kept = [row["holds"] == "yes" for row in rows if row["holds"] is not None]
        ours, shared = (
            [float(r) for row in rows if row["mode"] == mode and (r := row["ratio"]) is not None]
            for mode in ("clear", "shares")
        )
        single = [float(r) for row in rows if (r := row["peer_ratio"]) is not None]
        draft.summary = []
        if single:
            draft.summary.append(
                f"For one peer PDLRecover on shares takes {min(single):.2f} to {max(single):.2f} "
                "of the time of retraining: its own gradients, its dealing, opening and "
                "estimating, without a network."
            )
        draft.summary.append(
            "For a processor that computes for all peers it takes "
            f"{min(ours):.2f} to {max(ours):.2f} in the clear"
            + (f" and at most {max(shared):.2f} on shares" if shared else "")
            + "; the paper reports about 0.65."
        )
        if kept:
            draft.summary.append(
                f"{sum(kept)} of {len(kept)} runs keep to what is promised: {PROMISED['clear']:g} "
                f"in the clear, {PROMISED['shares']:g} on shares."
            )
        draft.table(
            draft.title,
            rows,
            note=BLOCKS,
            retrain_peer_seconds="one peer: retrain (s)",
            pdlrecover_peer_seconds="one peer: PDLRecover (s)",
            peer_ratio="one peer: ratio",
            retrain_seconds="all peers: retrain (s)",
            pdlrecover_seconds="all peers: PDLRecover (s)",
            ratio="all peers: ratio",
            paper_retrain_seconds="paper: retrain (s)",
            paper_pdlrecover_seconds="paper: PDLRecover (s)",
            paper_ratio="paper: ratio",
        )

    return Reproduction(name=name, title=title, cells=cells, write=write)


def _row(result: Result, published: paper.Times, *, judged: bool) -> Row:
    one, config = Results([result]), result.config
    retrain, ours = (one.mean_of(name, lambda each: each.seconds.processor) for name in METHODS)
    ratio = None if not (retrain and ours) else round(ours.value / retrain.value, 3)
    alone, mine = (
        None if config.clear else one.mean_of(n, lambda each: each.seconds.of_one_peer(config.kept))
        for n in METHODS
    )
    m, mode = len(config.removed), "clear" if config.clear else "shares"
    theirs = published.get(config.dataset, {}).get(m)
    return {
        "dataset": config.dataset,
        "m": m,
        "seed": config.seed,
        "mode": mode,
        "retrain_peer_seconds": number(alone, 1),
        "pdlrecover_peer_seconds": number(mine, 1),
        "peer_ratio": round(mine.value / alone.value, 3) if mine and alone else None,
        "retrain_seconds": number(retrain, 1),
        "pdlrecover_seconds": number(ours, 1),
        "ratio": ratio,
        "paper_retrain_seconds": None if theirs is None else theirs[0],
        "paper_pdlrecover_seconds": None if theirs is None else theirs[1],
        "paper_ratio": None if theirs is None else round(theirs[1] / theirs[0], 3),
        "holds": word(ratio <= PROMISED[mode]) if judged and ratio is not None else None,
    }


TABLE_1 = times(
    "table-1",
    "Time of recovery from attackers (the paper's Table I)",
    "backdoor",
    paper.ATTACK_TIMES,
)
TABLE_2 = times(
    "table-2",
    "Time of recovery after honest peers left (the paper's Table II)",
    LEAVERS,
    paper.LEAVER_TIMES,
)
