"""Answers the operator's commands: status, proposing and approving removals."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pdlrecover import descriptors
from pdlrecover.engines.peers.folder import STATUS
from pdlrecover.engines.peers.greeting import greeting
from pdlrecover.engines.peers.operator import status as s
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.engines.peers.settings import NO_FALLBACK
from pdlrecover.errors import LocalError, PlanError
from pdlrecover.files import write_json
from pdlrecover.recovery.methods import DEFAULT

if TYPE_CHECKING:
    from pdlrecover.engines.peers.peer import Peer


def one_removal(names: Sequence[str], begins: str) -> str:
    """Return the one removal whose name begins so."""
    found = [name for name in names if name.startswith(begins)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(name[:16] for name in found or names)
    if not names:
        raise PlanError(
            "no removal is known here yet; propose one by `pdlrecover peer propose-removal`"
        )
    if not found:
        raise PlanError(f"no removal {begins!r} is known here; known are {known}")
    which = f"begin with {begins!r}" if begins else "are known here"
    raise PlanError(f"several removals {which}: {known}; say which by more of its name")


def shown(peer: "Peer") -> list[bytes]:
    """Return the runs that are of interest: the founding until it has ended."""
    return [run for run in peer.sessions if run != peer.runs.founding or run not in peer.ended]


class Control:
    """Answers questions about one running peer, and takes its operator's decisions."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    def command(self, command: dict[str, Any]) -> s.Answer:
        """Do what the operator asks on the local socket; refusals name peers."""
        try:
            return self._obeyed(command)
        except LocalError as error:
            raise type(error)(*error.naming(self._peer.names.__getitem__)) from error

    def _obeyed(self, command: dict[str, Any]) -> s.Answer:
        match command:
            case {"do": "status"}:
                return self.status()
            case {"do": "facts"}:
                return self.facts()
            case {"do": "stop"}:
                self._peer.stop()
                return s.Stopping()
            case {"do": "propose-removal", "replace": str(name)} if name:
                return self._propose_instead(name, command)
            case {"do": "propose-removal", "removed": list(removed)}:
                return self._propose(removed, command)
            case {"do": "approve", "removal": str(name)} if name:
                return self._approve(name)
            case _:
                raise PlanError(
                    "commands are status, facts, propose-removal (removed, reason, method, "
                    "accept_differencing, replace), approve (removal) and stop"
                )

    def _propose_instead(self, name: str, command: dict[str, Any]) -> s.Proposed:
        """Propose what replaces a removal; peers and reason are those of that one unless said.

        The method is the federation's fallback, unless said: the one of before has stalled.
        """
        known, names = self._peer.removals.known, self._peer.names
        found = bytes.fromhex(one_removal([digest.hex() for digest in known], name))
        if self._peer.ended.get(found) == s.DONE:
            raise PlanError(
                f"recovery {found.hex()[:16]} is done here, and there is nothing to replace; "
                "propose another removal without --replace"
            )
        old = known[found].proposal
        removed = command.get("removed") or [names[p] for p in old.removed]
        fallback = self._peer.runs.membership.recovery.fallback
        method = DEFAULT if fallback == NO_FALLBACK else fallback
        command = {"reason": old.reason, "method": method, **command}
        return self._propose(list(removed), command, found)

    def _propose(
        self, removed: list[Any], command: dict[str, Any], replaces: bytes = NOTHING
    ) -> s.Proposed:
        peer = self._peer
        proposal = peer.removals.draft(
            [
                peer.runs.membership.number(name if isinstance(name, int) else str(name))
                for name in removed
            ],
            reason=str(command.get("reason", "left")),
            method=str(command.get("method", DEFAULT)),
            accept_differencing=bool(command.get("accept_differencing", False)),
            replaces=replaces,
        )
        peer.say(peer.removals.propose(proposal))
        digest = proposal.digest
        outcome = peer.ended.get(digest, s.RUNNING if digest in peer.sessions else None)
        return s.Proposed(removal=digest.hex(), outcome=outcome)

    def _approve(self, name: str) -> s.Approved:
        peer = self._peer
        found = one_removal([digest.hex() for digest in peer.removals.known], name)
        peer.say(peer.removals.approve(bytes.fromhex(found)))
        return s.Approved(approved=found)

    def facts(self) -> s.PeerFacts:
        """Return what this peer runs on."""
        peer = self._peer
        return s.PeerFacts(
            greeting=greeting(peer.runs.membership.digest),
            parameters=peer.runs.bounds.length,
            listens_on=peer.listens_on,
            descriptors=descriptors.limit(),
            descriptors_in_use=descriptors.in_use(),
            history_bytes=peer.runs.store.size,
        )

    def status(self) -> s.PeerStatus:
        """Return where the peer is, for people and for scripts."""
        peer, names, now = self._peer, self._peer.names, time.monotonic()
        replaced = peer.removals.replaced()
        return s.PeerStatus(
            federation=peer.runs.membership.name,
            peer=names[peer.runs.me],
            time=time.time(),
            runs={run.hex()[:16]: self._run_status(run) for run in shown(peer)},
            removals=tuple(
                s.RemovalStatus(
                    removal=digest.hex(),
                    removed=tuple(names[p] for p in removal.proposal.removed),
                    reason=removal.proposal.reason,
                    method=removal.proposal.method,
                    approvals=tuple(names[p] for p in sorted(removal.approvals)),
                    needed=peer.removals.needed,
                    replaces=None if removal.replaces == NOTHING else removal.replaces.hex(),
                    replaced_by=replaced[digest].hex() if digest in replaced else None,
                )
                for digest, removal in peer.removals.known.items()
            ),
            last_heard_seconds={
                name: round(now - peer.heard[p], 1) if p in peer.heard else None
                for p, name in enumerate(names)
                if p != peer.runs.me
            },
            other_files={names[p]: tuple(what) for p, what in peer.disagreement.found.items()},
            inputs=peer.runs.inputs,
            started_over=peer.lives.started_over,
            caught=self._misdeeds(peer.misconduct.caught),
            named=self._misdeeds(peer.misconduct.named),
            blames=tuple(peer.misconduct.blames),
            history_bytes=peer.runs.store.size,
            network=dict(peer.network.counts),
        )

    def write_status(self) -> None:
        """Write the status file; the next one comes soon, so that this one is not waited for."""
        path = self._peer.folder / STATUS
        write_json(path, msgspec.to_builtins(self.status()), patience=0.0)

    def _misdeeds(self, known: Mapping[tuple[int, str], float]) -> tuple[s.MisdeedStatus, ...]:
        names = self._peer.names
        return tuple(
            s.MisdeedStatus(peer=names[p], what=what, time=at) for (p, what), at in known.items()
        )

    def _run_status(self, run: bytes) -> s.RunStatus:
        peer = self._peer
        session = peer.sessions[run]
        step = session.protocol.current
        return s.RunStatus(
            kind=peer.kind(run),
            outcome=peer.ended.get(run, s.RUNNING),
            step=session.protocol.step,
            round=session.driver.round,
            rounds=session.driver.rounds,
            state=step.state.name if step else None,
            exact_rounds=session.driver.participation.rounds,
            dealt=peer.runs.results.dealt(session),
            withheld={
                peer.names[p]: count
                for p, count in session.driver.participation.withheld.most_common()
            },
            log=session.protocol.log.hex(),
            evaluations=tuple(session.driver.evaluations.points),
            void=tuple(session.driver.void),
            named=tuple(peer.names[p] for p in sorted(session.named)),
            waits=peer.stalls.waits.get(run, ""),
        )
