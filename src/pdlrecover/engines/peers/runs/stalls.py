"""Says what a run waits for when it does not go on, and has a stalled recovery replaced.

Rules:

- What is missing, who could bring it and what to do is a warning in the log, once for each thing
  that is missing, and stands in the status until the run goes on.
- A recovery has *stalled* when it uses the history and a step of it has waited for shares for
  longer than `recovery.stalled_after`. Then this peer approves the one removal that follows from
  it: the same peers, by the federation's fallback, which starts afresh and needs no stored share.
  It says in the log that it does so by itself. With fallback `none`, in the federation file or at
  this peer, it leaves that to its operator.
- Each peer goes by its own clock. What counts is that enough have approved: see `removals.votes`.
"""

import logging
from collections.abc import Sequence

from pdlrecover.engines.peers.federation.plan import Recovery
from pdlrecover.engines.peers.protocol.effects import Note, Reaction
from pdlrecover.engines.peers.protocol.waiting import Missing, Waiting
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.settings import NO_FALLBACK
from pdlrecover.errors import PlanError

LOG = logging.getLogger("pdlrecover.peer")


class Stalls:
    """What the runs of one peer wait for."""

    def __init__(
        self, removals: Removals, names: Sequence[str], recovery: Recovery, *, by_itself: bool
    ) -> None:
        """`by_itself` is whether this peer approves replacements without its operator."""
        self._removals, self._names, self._recovery = removals, names, recovery
        self._falls_back = by_itself and recovery.fallback != NO_FALLBACK
        self.waits: dict[bytes, str] = {}
        """By run: what it waits for, and what to do."""
        self._known: dict[bytes, tuple[object, ...]] = {}
        self._refused: set[bytes] = set()

    def look(self, run: bytes, title: str, waiting: Waiting | None, now: float) -> list[Reaction]:
        """Take what a run waits for now; return what this peer does about it."""
        facts: dict[str, object] = {"run": run.hex()[:16]}
        if waiting is None:
            if self.waits.pop(run, None):
                del self._known[run]
                facts["event"] = "goes-on"
                LOG.info("%s: goes on", title, extra={"facts": facts})
            return []
        self.waits[run] = self._text(run, waiting) + self._differ(waiting)
        subject = waiting.step, waiting.what, waiting.away, waiting.lacking, waiting.differing
        if self._known.get(run) != subject:
            self._known[run] = subject
            facts |= {"event": "waits", "round": waiting.round, "waits_for": waiting.what.value}
            facts |= {"away": self._who(waiting.away), "without": self._who(waiting.lacking)}
            LOG.warning("%s: %s", title, self.waits[run], extra={"facts": facts})
        return self._replace(run, waiting, now)

    def forget(self, run: bytes) -> None:
        """Say no more of a run that has ended."""
        self.waits.pop(run, None)
        self._known.pop(run, None)
        self._refused.discard(run)

    def _replace(self, run: bytes, waiting: Waiting, now: float) -> list[Reaction]:
        """Approve what replaces a recovery that has stalled."""
        late = now - waiting.since >= self._recovery.stalled_after
        if not late or not self._falls_back or not self._uses_history(run, waiting):
            return []
        proposal = self._removals.replacement(run)
        known = self._removals.known.get(proposal.digest)
        if run in self._refused or (known and self._removals.me in known.approvals):
            return []
        name, waited = proposal.digest.hex()[:16], f"{now - waiting.since:.0f} s"
        facts = {"event": "replacement", "run": run.hex()[:16], "removal": name}
        try:
            reactions = self._removals.propose(proposal)
        except PlanError as error:
            self._refused.add(run)
            LOG.warning(
                "recovery %s has waited for shares for %s, and cannot be replaced: %s",
                *(run.hex()[:16], waited, error),
                extra={"facts": facts},
            )
            return []
        text = (
            f"recovery {run.hex()[:16]} has waited for shares for {waited}: by the federation's "
            f"rule this peer approves, by itself, to replace it by removal {name}, which starts "
            f"afresh ({proposal.method})"
        )
        return [Note(text=text, facts=facts), *reactions]

    def _uses_history(self, run: bytes, waiting: Waiting) -> bool:
        known = waiting.what is Missing.SHARES and run in self._removals.known
        return known and not self._removals.starts_afresh(run)

    def _text(self, run: bytes, waiting: Waiting) -> str:
        """Say what is missing, who could bring it, and what to do."""
        where = f"round {waiting.round} (step {waiting.step}) waits"
        away, lacking = ", ".join(self._who(waiting.away)), ", ".join(self._who(waiting.lacking))
        start = f"start {away} or mend the connection" if away else ""
        if waiting.what is Missing.QUORUM:
            unheard = f"; not heard from are {away}; {start}" if away else ""
            return f"{where} for a quorum of {waiting.needed}{unheard}"
        if waiting.what is Missing.AGREEMENT:
            unheard = f"; not heard from are {away}" if away else ""
            return (
                f"{where} for agreement on whose dealings are added up: {waiting.needed} must hold "
                f"the same{unheard}; {start or 'look at the log of the others'}"
            )
        if waiting.what is Missing.ANSWERS:
            here = f"; asked in vain are {lacking}" if lacking else ""
            unheard = f"; not heard from are {away}; {start}" if away else ""
            return f"{where} for what the others have opened meanwhile{here}{unheard}"
        missing = [f"{away} (not heard from)"] * bool(away)
        missing += [f"{lacking} (here, without the shares)"] * bool(lacking)
        backup = f"put back a backup of the history of {lacking}" if lacking else ""
        remedies = ", or ".join(filter(None, (start, backup, self._remedy(run, waiting))))
        remedies = f"; {remedies}" if remedies else ""
        return (
            f"{where} for the shares of {waiting.needed} peers; missing are those of "
            f"{' and '.join(missing) or 'nobody, so some of them are wrong'}{remedies}"
        )

    def _differ(self, waiting: Waiting) -> str:
        """Say who is not counted because of its model, if anybody."""
        who = ", ".join(self._who(waiting.differing))
        text = (
            f"; not counted, since they say that they hold another model, are {who}: compare "
            "weights_sha256, versions and hardware"
        )
        return text if who else ""

    def _remedy(self, run: bytes, waiting: Waiting) -> str:
        """Say how a recovery that lacks shares is replaced."""
        if run not in self._removals.known:
            return ""
        by_hand = f"`pdlrecover peer propose-removal FOLDER --replace {run.hex()[:16]}`"
        if not self._falls_back or not self._uses_history(run, waiting):
            return f"propose to start afresh by {by_hand}"
        return (
            f"wait: after {self._recovery.stalled_after:.0f} s the peers replace this recovery by "
            f"one that starts afresh ({self._recovery.fallback}), or do it now by {by_hand}"
        )

    def _who(self, peers: Sequence[int]) -> list[str]:
        return [self._names[peer] for peer in peers]
