"""What a look at a peer finds, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from pdlrecover.errors import PDLRecoverError


class Verdict(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """The peer works, and something should be looked at."""
    PROBLEM = "problem"
    """It does not start, or cannot go on, or not with that peer."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """Which: `keys`, `clock`, `peer hospital-b`."""
    verdict: Verdict = Verdict.OK
    what: str
    remedy: str = ""
    """What to do; empty only if all is well."""

    def __post_init__(self) -> None:
        if bool(self.remedy) is (self.verdict is Verdict.OK):
            raise ValueError(f"what is wrong has a remedy, and what is not has none, got {self}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that was looked at."""

    peer: str
    """Its name, or its folder if that is not known."""
    running: bool
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return worst(each.verdict for each in self.findings)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of these; of none: ok."""
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.OK)


def ok(check: str, what: str) -> Finding:
    """Return that all is well with something."""
    return Finding(check=check, what=what)


def warning(check: str, what: str, remedy: str) -> Finding:
    """Return what should be looked at."""
    return Finding(check=check, verdict=Verdict.WARNING, what=what, remedy=remedy)


def problem(check: str, what: str, remedy: str) -> Finding:
    """Return what keeps the peer from working."""
    return Finding(check=check, verdict=Verdict.PROBLEM, what=what, remedy=remedy)


def refused(check: str, error: PDLRecoverError) -> Finding:
    """Return what `peer run` would say, too: errors say what is wrong; and then what to do."""
    what, _, remedy = str(error).partition("; ")
    return problem(check, what, remedy or "mend that, and look again")
