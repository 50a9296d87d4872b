"""What each method opens, of whom, and what it would have to store."""

from pdlrecover.experiments.analysis.results import Results, kept
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.run import Record
from pdlrecover.experiments.report.document import Cell, Document, Table
from pdlrecover.experiments.reproductions.accuracy import ALL
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.reproductions.scale import Scale

COLUMNS = [
    "method",
    "what",
    "of whom",
    "openings",
    "numbers",
    "MB sent per peer, in all",
    "GB of single updates to be stored",
]


def _cells(scale: Scale) -> list[Config]:
    return [scale.config(scale.datasets[0], scale.seeds[0], methods=ALL)]


def _document(scale: Scale, results: Results) -> Document:
    record = results[0]
    rows: list[list[Cell]] = []
    for method in ALL:
        entry = record["methods"][method]
        for kind, opened in entry["opened"].items():
            rows.append(
                [
                    method,
                    kind,
                    opened["of"],
                    opened["openings"],
                    opened["numbers"],
                    round(entry["bytes_per_peer"] / 1e6, 1),
                    round(entry["individual_storage_bytes"] / 1e9, 2),
                ]
            )
    alone = [m for m in ALL if "individual" in record["methods"][m]["opened"]]
    return Document(
        name="ledger",
        title="What each method opens",
        summary=[
            f"Single peers' updates are seen by {', '.join(alone)}.",
            "All others see sums over many peers only.",
            _setting(record["config"]),
        ],
        tables=[
            Table(
                title="What each method opens",
                columns=COLUMNS,
                rows=rows,
                command=command("ledger", scale),
            )
        ],
        ledger={method: record["methods"][method]["opened"] for method in ALL},
    )


def _setting(config: Record) -> str:
    """Say what run the counts are of."""
    removed = config["peers"] - kept(config)
    return (
        f"This is one run on {config['dataset']}: {config['peers']} peers, {removed} of them "
        f"removed, {config['rounds']:,} rounds with {config['optimizer']}, seed {config['seed']}."
    )


REPRODUCTION = Reproduction(
    name="ledger", title="What each method opens", cells=_cells, document=_document
)
