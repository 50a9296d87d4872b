"""Tables I and II: how long retraining and PDLRecover take, by the number of removed peers.

Times are the processor's seconds for the engine within one run, which has one thread: so what else
runs on the machine is not in them. With shares on (the typical m only) what is dealt and opened is.
"""

from dataclasses import replace

from pdlrecover.experiments.analysis.promises import word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.report.document import Row
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
        draft.summary = [
            f"In the clear PDLRecover takes {min(ours):.2f} to {max(ours):.2f} of the time of "
            "retraining; the paper reports about 0.65.",
        ]
        if shared:
            draft.summary.append(
                f"With shares dealt and opened it takes at most {max(shared):.2f}."
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
            retrain_seconds="retrain (s)",
            pdlrecover_seconds="PDLRecover (s)",
            paper_retrain_seconds="paper: retrain (s)",
            paper_pdlrecover_seconds="paper: PDLRecover (s)",
            paper_ratio="paper: ratio",
        )

    return Reproduction(name=name, title=title, cells=cells, write=write)


def _row(result: Result, published: paper.Times, *, judged: bool) -> Row:
    one, config = Results([result]), result.config
    retrain, ours = (one.mean_of(name, lambda each: each.seconds.processor) for name in METHODS)
    ratio = None if not (retrain and ours) else round(ours.value / retrain.value, 3)
    m, mode = len(config.removed), "clear" if config.clear else "shares"
    theirs = published.get(config.dataset, {}).get(m)
    return {
        "dataset": config.dataset,
        "m": m,
        "seed": config.seed,
        "mode": mode,
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
