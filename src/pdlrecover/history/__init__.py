"""What a round leaves behind: of a simulation in plain files, of a real peer in a sealed vault."""

from pdlrecover.history.plain.array_log import ArrayLog
from pdlrecover.history.plain.run_history import (
    FILES,
    DealtSums,
    Layout,
    RunHistory,
    complete_cohorts,
)
from pdlrecover.history.sealed.chain import Head
from pdlrecover.history.sealed.records import VaultLayout
from pdlrecover.history.sealed.vault import ShareSum, StoredModels, Vault
from pdlrecover.history.sealed.verification import Damage, Verification, verify

__all__ = [
    "FILES",
    "ArrayLog",
    "Damage",
    "DealtSums",
    "Head",
    "Layout",
    "RunHistory",
    "ShareSum",
    "StoredModels",
    "Vault",
    "VaultLayout",
    "Verification",
    "complete_cohorts",
    "verify",
]
