"""How the time of a round grows with the peers and with the parameters, shares on."""

from typing import Any

from pdlrecover.experiments.analysis.document import Row, Series
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.reproductions.reproduction import BLOCKS, Draft, Reproduction
from pdlrecover.experiments.reproductions.scale import Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

FULL_PEERS = (50, 100, 200, 500, 1000)
FULL_HIDDEN = (12, 38, 126, 380, 1258)
"""Hidden units of the MLP: 10⁴ to 10⁶ parameters on 28×28 images."""
QUICK_PEERS = (10, 20, 40)
QUICK_HIDDEN = (8, 32, 128)
PLAN = {"rounds": 24, "preparation": 4, "period": 10, "final": 2}


def _cells(scale: Scale) -> list[Config]:
    quick = scale.name == "quick"
    peers, hidden = (QUICK_PEERS, QUICK_HIDDEN) if quick else (FULL_PEERS, FULL_HIDDEN)
    base: dict[str, Any] = {"clear": False, "methods": (REFERENCE, OURS), **PLAN}
    dataset, seed = scale.datasets[0], scale.seeds[0]
    by_peers = [scale.config(dataset, seed, n // 5, peers=n, **base) for n in peers]
    by_size = [scale.config(dataset, seed, model=f"mlp-{h}", **base) for h in hidden]
    return by_peers + by_size


def round_seconds(result: Result) -> tuple[float, float]:
    """Return the seconds of an exact and of an estimated round."""
    retrain, ours = result.methods["retrain"], result.methods["pdlrecover"]
    exact = retrain.processor_seconds / retrain.exact_rounds
    estimated = result.config.rounds - ours.exact_rounds
    return exact, max(0.0, ours.processor_seconds - exact * ours.exact_rounds) / estimated


def _write(draft: Draft, results: Results) -> None:
    rows: list[Row] = []
    lines: dict[str, list[tuple[float, float, float]]] = {"peers": [], "parameters": []}
    ratios = []
    for result in results:
        config, retrain = result.config, result.methods["retrain"]
        parameters = retrain.opened["fresh sums"].numbers // config.rounds - 1
        exact, estimated = round_seconds(result)
        ratios.append(round(estimated / exact, 3))
        rows.append(
            {
                "peers": config.peers,
                "parameters": parameters,
                "exact_milliseconds": round(1000 * exact, 1),
                "estimated_milliseconds": round(1000 * estimated, 1),
                "ratio": ratios[-1],
                "megabytes": round(retrain.bytes_per_peer / config.rounds / 1e6, 2),
            }
        )
        key = "peers" if config.model == "mlp" else "parameters"
        x = config.peers if key == "peers" else parameters
        lines[key].append((float(x), 1000 * exact, 1000 * estimated))
    for key, points in lines.items():
        series = [
            Series(name=name, x=[p[0] for p in points], y=[p[place] for p in points])
            for place, name in enumerate(("exact round", "estimated round"), start=1)
        ]
        draft.figure(f"Milliseconds of a round by {key}", key, "milliseconds", series, log=True)
    draft.table(
        "One process simulating all peers, one thread, shares dealt and opened",
        rows,
        note="An estimated round is what PDLRecover took beyond its exact rounds, over the number "
        f"of rounds it estimated. {BLOCKS} Of {PLAN['rounds']} rounds, with one seed: where a "
        "round takes a few milliseconds, much of it is start-up.",
        exact_milliseconds="exact round (ms)",
        estimated_milliseconds="estimated round (ms)",
        megabytes="MB sent per peer, exact round",
    )
    draft.summary = [
        f"An estimated round takes {min(ratios):.2f} to {max(ratios):.2f} of the time of an "
        f"exact one, over {len(rows)} sizes of federation.",
    ]


REPRODUCTION = Reproduction(
    name="scaling",
    title="How the time of a round grows",
    cells=_cells,
    write=_write,
    compares=False,
)
