"""What each method opens, of whom, and what it would have to store."""

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.reproductions.accuracy import ALL
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction
from pdlrecover.experiments.reproductions.scale import Scale


def _cells(scale: Scale) -> list[Config]:
    return [scale.config(scale.datasets[0], scale.seeds[0], methods=ALL)]


def _write(draft: Draft, results: Results) -> None:
    (result,) = results
    config = result.config
    known = [method for method in ALL if method in result.methods]
    methods = {name: result.methods[name] for name in known if result.methods[name].opened}
    unknown = [method for method in known if method not in methods]
    rows: list[Row] = [
        {
            "method": method,
            "kind": kind,
            "of": opened.of,
            "openings": opened.openings,
            "numbers": opened.numbers,
            "megabytes": round(one.bytes_per_peer / 1e6, 1),
            "stored_gigabytes": round(one.individual_storage_bytes / 1e9, 2),
        }
        for method, one in methods.items()
        for kind, opened in one.opened.items()
    ]
    draft.table(
        draft.title,
        rows,
        kind="what",
        of="of whom",
        megabytes="MB sent per peer, in all",
        stored_gigabytes="GB of single updates to be stored",
    )
    draft.ledger = {method: one.opened for method, one in methods.items()}
    alone = [method for method, opened in draft.ledger.items() if "individual" in opened]
    draft.summary = [
        f"Single peers' updates are seen by {', '.join(alone)}.",
        "All others see sums over many peers only.",
        f"This is one run on {config.dataset}: {config.peers} peers, {len(config.removed)} of them "
        f"removed, {config.rounds:,} rounds with {config.optimizer}, seed {config.seed}.",
    ]
    if unknown:
        draft.summary.append(f"What {listed(unknown)} opened is not recorded.")


REPRODUCTION = Reproduction(
    name="ledger", title="What each method opens", cells=_cells, write=_write
)
