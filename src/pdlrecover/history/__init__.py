"""What a round leaves behind: records of models and of sums of updates."""

from pdlrecover.history.log import ArrayLog
from pdlrecover.history.run import FILES, Layout, RunHistory, complete_cohorts

__all__ = ["FILES", "ArrayLog", "Layout", "RunHistory", "complete_cohorts"]
