"""Tables and figures by name: the paper's, and ours."""

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

__all__ = ["REPRODUCTIONS", "Reproduction"]
