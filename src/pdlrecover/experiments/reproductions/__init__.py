"""Tables and figures by name: the paper's, and ours."""

from dataclasses import replace

from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.analysis.results import Results, origin
from pdlrecover.experiments.batch.recorded import Recorded, lacking
from pdlrecover.experiments.batch.run_numbers import rounded
from pdlrecover.experiments.reproductions import (
    accelerated,
    accuracy,
    attacks,
    counts,
    frontier,
    ledger,
    scaling,
    settings,
    suspects,
    theorem1,
    times,
    tuning,
)
from pdlrecover.experiments.reproductions.reproduction import Reproduction
from pdlrecover.experiments.reproductions.scale import Scale

REPRODUCTIONS: dict[str, Reproduction] = {
    each.name: each
    for each in (
        times.TABLE_1,
        times.TABLE_2,
        accuracy.TABLE_3,
        accuracy.ATTACK_CURVES,
        accuracy.LEAVER_CURVES,
        counts.MALICIOUS_COUNT,
        counts.LEAVER_COUNT,
        counts.ROUNDS,
        attacks.REPRODUCTION,
        accelerated.REPRODUCTION,
        frontier.REPRODUCTION,
        suspects.REPRODUCTION,
        settings.REPRODUCTION,
        theorem1.REPRODUCTION,
        ledger.REPRODUCTION,
        scaling.REPRODUCTION,
        tuning.REPRODUCTION,
    )
}


def document_of_records(
    one: Reproduction, scale: Scale, records: Recorded, earlier: Document | None
) -> Document | None:
    """Return the document of what is recorded, which says what is not; None of too little.

    Numbers are rounded as they are recorded, and curves are the earlier document's.
    """
    cells = one.cells(scale)
    found = [rounded(result) for config in cells if (result := records.known(config)) is not None]
    if not found or len(found) < len(cells):
        return None
    document = one.document(scale, Results(found), earlier)
    missing = lacking(cells, records)
    said = [f"Not recorded yet: {missing}."] if missing else []
    return replace(
        document,
        summary=[*document.summary, *said],
        note=document.note or origin(found),
    )


__all__ = ["REPRODUCTIONS", "Reproduction", "document_of_records"]
