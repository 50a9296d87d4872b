"""What a removal was proposed with, as the one line that is part of its digest.

The line is JSON with sorted keys: the federation's settings of recovery; `training`, the run that
is recovered from, if that has an epoch; and `replaces`, the removal whose recovery this one takes
the place of, if there is one. What is not said is left out, so that lines and digests of earlier
versions stay what they were.
"""

import json
from dataclasses import dataclass
from typing import Any, Self

from pdlrecover.engines.peers.federation.plan import Recovery
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.errors import PDLRecoverError, PlanError

_DIGESTS = ("training", "replaces")


@dataclass(frozen=True, kw_only=True)
class RemovalTerms:
    """How the recovery of a removal is to run, and of what."""

    recovery: Recovery
    training: bytes = NOTHING
    """The name of the training run; `NOTHING` if it is one of before there were epochs."""
    replaces: bytes = NOTHING
    """The removal that this one replaces; `NOTHING` if it replaces none."""

    def as_line(self) -> str:
        """Return them as one line; equal terms have equal lines."""
        digests = {name: getattr(self, name) for name in _DIGESTS}
        said = {name: digest.hex() for name, digest in digests.items() if digest != NOTHING}
        return json.dumps({**json.loads(self.recovery.as_line()), **said}, sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Return the terms in a line, whoever wrote it; raise `PlanError` if there are none."""
        try:
            facts: dict[str, Any] = json.loads(line)
            digests = {name: bytes.fromhex(facts.pop(name, NOTHING.hex())) for name in _DIGESTS}
            terms = cls(recovery=Recovery.from_line(json.dumps(facts)), **digests)
        except (ValueError, TypeError, AttributeError, RecursionError, PDLRecoverError) as error:
            raise PlanError(
                "this removal says in no known way how it is to run; use the same version of the "
                "software everywhere, and propose it again"
            ) from error
        if any(len(digest) != len(NOTHING) for digest in digests.values()):
            raise PlanError("this removal names a run by what is no digest; propose it again")
        return terms
