"""What each method opens, of whom, and what it would have to store."""

from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.report.document import Document, Row, Table
from pdlrecover.experiments.reproductions.accuracy import ALL
from pdlrecover.experiments.reproductions.reproduction import Reproduction, columns, command
from pdlrecover.experiments.reproductions.scale import Scale

COLUMNS = columns(
    "method",
    "kind",
    "of",
    "openings",
    "numbers",
    "megabytes",
    "stored_gigabytes",
    kind="what",
    of="of whom",
    megabytes="MB sent per peer, in all",
    stored_gigabytes="GB of single updates to be stored",
)


def _cells(scale: Scale) -> list[Config]:
    return [scale.config(scale.datasets[0], scale.seeds[0], methods=ALL)]


def _document(scale: Scale, results: Results) -> Document:
    result = results[0]
    rows: list[Row] = [
        {
            "method": method,
            "kind": kind,
            "of": opened.of,
            "openings": opened.openings,
            "numbers": opened.numbers,
            "megabytes": round(result.methods[method].bytes_per_peer / 1e6, 1),
            "stored_gigabytes": round(result.methods[method].individual_storage_bytes / 1e9, 2),
        }
        for method in ALL
        for kind, opened in result.methods[method].opened.items()
    ]
    alone = [method for method in ALL if "individual" in result.methods[method].opened]
    return Document(
        name="ledger",
        title="What each method opens",
        summary=[
            f"Single peers' updates are seen by {', '.join(alone)}.",
            "All others see sums over many peers only.",
            _setting(result.config),
        ],
        tables=[
            Table.from_rows(
                title="What each method opens",
                columns=COLUMNS,
                rows=rows,
                command=command("ledger", scale),
            )
        ],
        ledger={method: result.methods[method].opened for method in ALL},
    )


def _setting(config: Config) -> str:
    """Say what run the counts are of."""
    return (
        f"This is one run on {config.dataset}: {config.peers} peers, {len(config.removed)} of them "
        f"removed, {config.rounds:,} rounds with {config.optimizer}, seed {config.seed}."
    )


REPRODUCTION = Reproduction(
    name="ledger", title="What each method opens", cells=_cells, document=_document
)
