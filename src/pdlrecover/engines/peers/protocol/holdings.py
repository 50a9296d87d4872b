"""The dealings of one step that a peer holds, and what the others say they hold.

Rules:

- A dealing is held if its dealer signed it, its public part is well formed, its share unseals, is
  the one committed to, and is on the published polynomials.
- A dealer that provably cheated is left out of the step: with two signed public parts, or with a
  row that does not fit its own commitments. The proof is passed on once, so all honest peers leave
  it out, and kept whole: see `evidence`. So is one that was removed by a vote.
- What is held is kept on disk before this peer votes for it: it can be opened after a crash. A
  receipt counts until the next one of the same peer: who was restarted may hold less.
- What cannot be proven (a share that does not unseal), or would be an accusation of the wrong size
  (a public part that is), makes the dealing not held, no more.
"""

from collections import Counter
from collections.abc import Iterable

from pdlrecover.engines.peers.protocol import dealing, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.dealing import Dealt, Public
from pdlrecover.engines.peers.protocol.effects import Blame, Effect
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.step_memory import Row
from pdlrecover.engines.peers.protocol.tasks import Task
from pdlrecover.field import Elements


class Holdings:
    """What is here of one step's dealings."""

    def __init__(
        self, context: RunContext, task: Task, place: m.Header, present: Iterable[int] = ()
    ) -> None:
        self.expected = set(present)
        """Whose dealings and receipts are waited for: who was there last, or is heard from."""
        self.passed_over: frozenset[int] = frozenset()
        """Whose dealings are not waited for all the same: see `latecomers`."""
        self._context, self._task, self._place = context, task, place
        self._rows: dict[int, Elements] = {}
        self._saved: set[int] = set()
        self._held: dict[int, m.Held] = {}
        self._statements: dict[int, bytes] = {}
        self._stated: dict[int, tuple[bytes, bytes]] = {}
        """A digest and a statement for each dealer, by its dealing or others' receipts."""
        self._receipts: dict[int, frozenset[m.Held]] = {}
        self._cheats: set[int] = set()
        self._removed: frozenset[int] = frozenset()
        self.own_statement = b""

    @property
    def complete(self) -> bool:
        """Whether the dealings of all that are waited for are here, or known to be bad.

        Without a quorum of them, everybody is waited for.
        """
        awaited = self.expected - self.passed_over if self.has_quorum else self._context.peers
        return set(awaited) <= self.here

    @property
    def has_quorum(self) -> bool:
        """Whether the dealings of a quorum are here."""
        return len(self._rows) >= self._context.quorum

    @property
    def here(self) -> set[int]:
        """Whose dealings need not be waited for: they are here, or not wanted."""
        return self._rows.keys() | self._left_out

    def hold_own(self, dealt: Dealt) -> None:
        """Hold what this peer itself has dealt."""
        me, kind = self._context.me, self._task.kind
        if kind is None:
            return
        binding, digest = dealing.binding_of(self._place, me), self.digest_of(me, dealt.public)
        self.own_statement = self._context.crypto.sign(dealing.statement(binding, digest))
        row = dealing.own_row(kind, dealt, me)
        self._hold(m.Held(dealer=me, digest=digest), self.own_statement, row)

    def digest_of(self, dealer: int, public: Public) -> bytes:
        """Return the digest of a dealer's public part in this step."""
        masks = self._task.kind is not None and self._task.kind.masks
        return public.digest(dealing.binding_of(self._place, dealer), masks=masks)

    def unsaved(self) -> tuple[Row, ...]:
        """Return those rows that are held and were not returned here before, to be saved."""
        new = sorted(self._held.keys() - self._saved)
        self._saved.update(new)
        step, held, said = self._place.step, self._held, self._statements
        return tuple(
            Row(step=step, held=held[p], statement=said[p], values=self._rows[p]) for p in new
        )

    def restore(self, saved: Iterable[Row]) -> None:
        """Hold what was saved, and is not lost."""
        for row in saved:
            if row.values is not None:
                self._hold(row.held, row.statement, row.values)
                self._saved.add(row.held.dealer)

    def seal_context(self, dealer: int, recipient: int) -> bytes:
        """Return what a sealed share is bound to."""
        binding = dealing.binding_of(self._place, dealer)
        return b"pdlrecover share" + binding + recipient.to_bytes(2, "little")

    def take_dealing(self, dealer: int, body: m.Dealing) -> list[Effect]:
        """Judge a dealing, and hold it if it is good."""
        kind, me = self._task.kind, self._context.me
        if kind is None:
            return [Blame(peer=dealer, what="dealt where nothing is dealt")]
        binding = dealing.binding_of(self._place, dealer)
        public = Public(commitments=body.commitments, proof=body.proof)
        digest = self.digest_of(dealer, public)
        if not self._has_stated(dealer, digest, body.statement):
            return [Blame(peer=dealer, what="dealt without a valid statement")]
        if not dealing.is_shaped(kind, public):
            return [Blame(peer=dealer, what="dealt with a public part of the wrong size")]
        conflict = self._compare(dealer, digest, body.statement, checked=True)
        if conflict or dealer in self._held or dealer in self._left_out:
            return conflict
        private = self._context.crypto.unseal(body.sealed, self.seal_context(dealer, me))
        if private is None or not dealing.committed(public, me, private):
            return [Blame(peer=dealer, what="sent a share that it did not commit to")]
        row = dealing.row_of(kind, binding, public, me, private)
        if row is None or not dealing.check_public(kind, public):
            proof = m.Misdealt(
                dealer=dealer,
                commitments=body.commitments,
                proof=body.proof,
                statement=body.statement,
                private=private,
            )
            sends = self._context.broadcast(self._place, proof)
            return [*self._cheated(dealer, "dealt shares that do not fit", sends[0].data), *sends]
        self._hold(m.Held(dealer=dealer, digest=digest), body.statement, row)
        return []

    def judge_accusation(self, envelope: m.Envelope, body: m.Misdealt) -> list[Effect]:
        """Look at the proof that a dealer cheated the accuser; if it is none, blame that one."""
        kind, dealer, accuser = self._task.kind, body.dealer, envelope.header.sender
        if kind is None or dealer not in self._context.peers:
            return [Blame(peer=accuser, what="accused without reason")]
        if dealer in self._left_out:
            return []
        if wrong := evidence.flaw(self._context.crypto.verify, kind, envelope.header, body):
            return [Blame(peer=accuser, what=wrong)]
        return self._cheated(dealer, f"dealt peer {accuser} shares that do not fit", envelope.data)

    def leave_out(self, removed: Iterable[int]) -> None:
        """Take no dealings of just these, and of those that are proven to cheat."""
        self._removed = frozenset(removed)

    def distrust(self, dealer: int) -> None:
        """Take no dealing of this dealer, which is proven to cheat."""
        self._cheats.add(dealer)

    @property
    def _left_out(self) -> set[int]:
        return self._cheats | self._removed

    def leaves_out(self, dealer: int) -> bool:
        """Say whether no dealing of this dealer is taken."""
        return dealer in self._left_out

    def take_receipt(self, sender: int, body: m.Receipt) -> list[Effect]:
        """Take a receipt, and see whether a dealer signed something else for others."""
        dealers = [held.dealer for held in body.held]
        distinct = dealers == sorted(set(dealers)) and set(dealers) <= set(self._context.peers)
        if len(body.held) != len(body.statements) or not distinct:
            return [Blame(peer=sender, what="sent a malformed receipt")]
        self._receipts[sender] = frozenset(body.held)
        effects: list[Effect] = []
        for held, statement in zip(body.held, body.statements, strict=True):
            effects += self._compare(held.dealer, held.digest, statement)
        return effects

    def receipt(self, view: int) -> m.Receipt:
        """Return this peer's receipt in a view."""
        held = tuple(self._held[dealer] for dealer in sorted(self._held))
        statements = tuple(self._statements[h.dealer] for h in held)
        return m.Receipt(view=view, held=held, statements=statements)

    def lacking_mine(self, *, silent: bool) -> tuple[int, ...]:
        """Return whose receipts lack this peer's dealing; and who is silent so far, if asked."""
        mine, receipts = self._held.get(self._context.me), self._receipts
        others = (p for p in self._context.others if silent or p in receipts)
        return tuple(p for p in others if mine not in receipts.get(p, ()))

    def proposable(self, *, in_time: bool, view: int) -> list[m.Held] | None:
        """Return the set that a leader should propose, or None if it should wait.

        A quorum must hold all of it. In every other view more than a quorum must, if there is such
        a set: who lies about what it holds may be in a quorum, and then not vote.
        """
        receipts = self._all_receipts()
        here = len(receipts) >= self._context.quorum
        if not here or (in_time and not self.expected <= receipts.keys()):
            return None
        surely = self._largest_set(self._held_surely) if view % 2 else None
        return surely or self._largest_set(self._context.quorum)

    def _largest_set(self, least: int) -> list[m.Held] | None:
        """Return as many dealings as can be that `least` peers all hold; None if too few.

        It starts with what so many hold, drops the dealing that the fewest hold until so many hold
        all, and adds again what can be.
        """
        counts = Counter(held for some in self._all_receipts().values() for held in some)
        found = [
            held
            for held in sorted(self._held.values(), key=lambda held: -counts[held])
            if counts[held] >= least and held.dealer not in self._left_out
        ]
        chosen = list(found)
        while chosen and self._holders(chosen) < least:
            chosen.pop()
        for held in found[len(chosen) :]:
            if self._holders([*chosen, held]) >= least:
                chosen.append(held)
        if len(chosen) < self._task.least_dealers:
            return None
        return sorted(chosen, key=lambda held: held.dealer)

    def accepts(self, proposal: m.Proposal) -> bool:
        """Say whether this peer holds all of a proposed set, and nothing is left out of it.

        A dealing is left out if enough peers hold it besides the set, so that the set could be
        larger: a leader could make the sums of a round so small that nobody can be removed.
        """
        dealers = [held.dealer for held in proposal.dealers]
        if self._left_out.intersection(dealers) or not self.holds(proposal):
            return False
        left_out = [
            held
            for held in self._held.values()
            if held.dealer not in dealers and held.dealer not in self._left_out
        ]
        known = len(self._all_receipts()) >= self._context.quorum
        return not known or not any(
            self._holders([*proposal.dealers, held]) >= self._held_surely for held in left_out
        )

    def _all_receipts(self) -> dict[int, frozenset[m.Held]]:
        return {**self._receipts, self._context.me: frozenset(self._held.values())}

    def _holders(self, dealings: Iterable[m.Held]) -> int:
        """Return how many say that they hold all of these."""
        return sum(some.issuperset(dealings) for some in self._all_receipts().values())

    @property
    def _held_surely(self) -> int:
        """How many must say that they hold a dealing, so that a quorum does even if e of them lie.

        All whose receipts are here are enough, too.
        """
        liars = self._context.scheme.quorums.tolerance.liars
        return min(self._context.quorum + liars, len(self._all_receipts()))

    def holds(self, proposal: m.Proposal) -> bool:
        """Say the same of a set that a quorum voted for, whoever was proven to cheat since."""
        dealers = [held.dealer for held in proposal.dealers]
        return (
            dealers == sorted(set(dealers))
            and len(dealers) >= self._task.least_dealers
            and all(self._held.get(held.dealer) == held for held in proposal.dealers)
        )

    def rows(self, dealers: tuple[m.Held, ...]) -> dict[int, Elements] | None:
        """Return this peer's rows of these dealings; None if it does not hold them all."""
        if any(self._held.get(held.dealer) != held for held in dealers):
            return None
        return {held.dealer: self._rows[held.dealer] for held in dealers}

    def held_of(self, dealers: tuple[m.Held, ...]) -> dict[int, Elements]:
        """Return those of this peer's rows of these dealings that it holds."""
        here = (held for held in dealers if self._held.get(held.dealer) == held)
        return {held.dealer: self._rows[held.dealer] for held in here}

    def _hold(self, held: m.Held, statement: bytes, row: Elements) -> None:
        self._held[held.dealer], self._statements[held.dealer] = held, statement
        self._rows[held.dealer] = row
        self._stated[held.dealer] = held.digest, statement

    def _has_stated(self, dealer: int, digest: bytes, statement: bytes) -> bool:
        """Say whether a dealer signed that its public part has this digest."""
        signed = dealing.statement(dealing.binding_of(self._place, dealer), digest)
        return self._context.crypto.verify(dealer, signed, statement)

    def _compare(
        self, dealer: int, digest: bytes, statement: bytes, *, checked: bool = False
    ) -> list[Effect]:
        """See whether a dealer signed two different public parts; a wrong signature tells nothing.

        `checked`: the signature was verified already.
        """
        if (
            dealer not in self._context.peers
            or dealer in self._left_out
            or not self._context.proves
        ):
            return []
        known = self._stated.get(dealer)
        if known and known[0] == digest:
            return []
        if not checked and not self._has_stated(dealer, digest, statement):
            return []
        if known is None:
            self._stated[dealer] = digest, statement
            return []
        proof = m.Equivocation(accused=dealer, first=known[0] + known[1], second=digest + statement)
        sends = self._context.broadcast(self._place, proof)
        return [*self._cheated(dealer, "dealt in two different ways", sends[0].data), *sends]

    def _cheated(self, dealer: int, what: str, proof: bytes) -> list[Effect]:
        self.distrust(dealer)
        return [Blame(peer=dealer, what=what, evidence=(proof,))]
