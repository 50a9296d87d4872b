"""What a round leaves behind: of a simulation in plain files, of a real peer in a sealed vault."""

from pdlrecover.history.chain import Head
from pdlrecover.history.log import ArrayLog
from pdlrecover.history.records import VaultLayout
from pdlrecover.history.run import FILES, Layout, RunHistory, complete_cohorts
from pdlrecover.history.vault import ShareSum, StoredModels, Vault
from pdlrecover.history.verification import Damage, Verification, verify

__all__ = [
    "FILES",
    "ArrayLog",
    "Damage",
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
