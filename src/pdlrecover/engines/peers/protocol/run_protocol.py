"""The protocol core of one run at one peer: messages and the time come in, effects go out.

Rules:

- Steps follow each other; each is a `Step`. What was opened in them is the log, and its digest is
  in every message. A message of a past step is answered with this peer's position, one of a coming
  step waits, within limits.
- A peer that asks for this one's position in the step before may lack what this one said in it:
  that is sent once more (see `previous_step`), after pauses that double.
- A peer that fetches answers is sent each of them once, and again within limits (see `fetches`).
- A message counts if its sender takes part, is who the transport says it is, signed it, and means
  this federation, this run, and this peer or everybody. What comes too late to tell anything is not
  read further than its header.
- *Catching up.* When more peers than may collude or lie have signed messages of the same later step
  and log, this peer fetches the public answers from one of them at a time, and takes them only if
  they lead to exactly that log. Who is silent is asked again a few times if it has sent some of
  them, else another is asked; the first answer counts, of those that were asked. What it missed
  of shares stays missed. The others wait for a peer again once they have heard from it in the step
  before.
- *Divergence.* A message of the same step with another log or another request shows that its
  sender holds another model. It is not counted and its sender is named. This peer stops when more
  peers than may collude or lie hold one other model; also when the answers of that many peers do
  not lead from its log to what was signed. If those that agree are no quorum any more, and the
  others do not agree either, it waits, and says whose models differ.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.dealing import Dealt
from pdlrecover.engines.peers.protocol.effects import Blame, Commit, Effect, Halt, Note, Send
from pdlrecover.engines.peers.protocol.fetches import Fetches
from pdlrecover.engines.peers.protocol.latecomers import Latecomers
from pdlrecover.engines.peers.protocol.previous_step import Pauses, PreviousStep
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.states import StepState
from pdlrecover.engines.peers.protocol.step import Step
from pdlrecover.engines.peers.protocol.step_memory import Promise, Row
from pdlrecover.engines.peers.protocol.tasks import Task
from pdlrecover.engines.peers.protocol.waiting import Missing, Waiting
from pdlrecover.errors import CodecError, MessageError

WINDOW = 2
"""Messages of this many coming steps are kept until their time comes."""
KEPT_PER_SENDER = 24
"""At most this many of them of one peer and step,"""
KEPT_BYTES = 1 << 26
"""and until they have this many bytes."""
ANSWER_BYTES = 1 << 24
"""About this many bytes of fetched answers go into one message."""
LONGEST = 1 << 16
"""This many numbers may always be opened in a step, however small the model is."""
PATIENCE = 64
"""A silent peer is waited for up to this many times longer than at first, before the next,"""
LOYALTY = 16
"""and if it has sent some of the answers, it is asked again until that many."""


class RunProtocol:
    """One run, as one peer lives it."""

    def __init__(self, context: RunContext, longest: int = LONGEST) -> None:
        """`longest` is how many numbers a step opens at most."""
        self.context, self._longest = context, max(longest, LONGEST)
        self.step, self.log = 0, m.NOTHING
        self.current: Step | None = None
        self.halted = False
        self.previous: PreviousStep | None = None
        """What this peer said in the step before."""
        self.left_out: frozenset[int] = frozenset()
        """Whose dealings are not taken any more."""
        self._latecomers = Latecomers()
        self._pauses = Pauses(context.deadlines.resend / 2)
        self._fetches = Fetches(context.deadlines)
        self._present = context.peers
        """Who dealt in the last step in which anything was dealt: the same at every peer."""
        self._later: dict[int, dict[int, list[m.Envelope]]] = defaultdict(lambda: defaultdict(list))
        self._positions: dict[int, tuple[int, bytes]] = {}
        self._differing: dict[int, bytes] = {}
        self._overtaken_at: float | None = None
        self._behind_since = 0.0
        """Since when this peer fetches, and no answer of use has come."""
        self._fetched: list[m.LogEntry] = []
        self._fetched_log = m.NOTHING
        self._attested: dict[int, bytes] = {}
        """Logs of later steps that enough peers have signed."""
        self._source = context.me
        """Who is asked for answers,"""
        self._sources: set[int] = set()
        """and who was, in this step."""
        self._misfits: set[int] = set()
        """Whose answers did not lead to what was signed."""
        self._patience = 1
        self._catching_up = False
        self._asked = 0

    @property
    def wake_at(self) -> float:
        """When `tick` wants to be called next."""
        if self.current is None or self.halted:
            return float("inf")
        if self._overtaken_at is not None:
            return min(self.current.wake_at, self._overtaken_at + self._fetch_pause)
        return self.current.wake_at

    def replay(self, entry: m.LogEntry) -> None:
        """Take a step from the store: it was opened before this process started."""
        self._count(entry)

    def begin(
        self, task: Task, now: float, memory: Promise | None = None, rows: Iterable[Row] = ()
    ) -> list[Effect]:
        """Start the next step; `memory` and `rows` were kept of it before a crash."""
        place = self.context.place(self.step, self.log, task.asked, task.round)
        before = self.previous.spoken if self.previous else None
        self.current = Step(self.context, task, place, self._present, now, memory, rows, before)
        self.current.leave_out(self.left_out)
        self.current.holdings.passed_over = self._latecomers.passed_over(self.step)
        self._differing, self._overtaken_at, self._fetched = {}, None, []
        self._misfits, self._sources, self._patience = set(), set(), 1
        self._pauses = Pauses(self.context.deadlines.resend / 2)
        self._attested = {step: log for step, log in self._attested.items() if step > self.step}
        for peer, (step, _) in self._positions.items():
            if self.step - 1 <= step <= self.step + WINDOW:  # further ahead, nobody deals here
                self.current.is_here(peer, now)
        if self._catching_up and self._goals():
            self.current.overtaken()
            self._overtaken_at = self._behind_since = now
            return [self._fetch()]
        effects = self.current.begin(now)
        if self._catching_up:
            self._catching_up = False
            effects += self.context.broadcast(self._place(), m.Position(reply=True))
        waiting = self._later.pop(self.step, {})
        for envelopes in waiting.values():
            for envelope in envelopes:
                effects += self._now(envelope, now)
        return self._settled(effects)

    def leave_out(self, peers: frozenset[int]) -> None:
        """Take no dealings of just these peers from now on, in the step under way either.

        Each peer does so when it learns of it. What is settled is settled by votes, as always.
        """
        self.left_out = peers
        if self.current is not None:
            self.current.leave_out(peers)

    def end(self) -> None:
        """Wait for no further step: the run is over, and what comes after it is not kept."""
        self._later.clear()

    def contribute(self, step: int, dealt: Dealt, now: float) -> list[Effect]:
        """Take what `Task.deal` made; too late, it is dropped."""
        if self.current is None or step != self.step or self.halted:
            return []
        return self._settled(self.current.contribute(dealt, now))

    def receive(self, data: bytes, source: int, now: float) -> list[Effect]:
        """Take bytes that the transport says come from this peer."""
        try:
            header, kind = codec.decode_header(data)
            self._check_header(header, source)
            if self._is_late(header, kind):
                return self._late(header)
            envelope = codec.decode(data)
            if not self.context.crypto.verify(source, envelope.signed, envelope.signature):
                raise MessageError("sent a message with a wrong signature")
        except (CodecError, MessageError) as error:
            return [Blame(peer=source, what=str(error))]
        return self._settled(self.take(envelope, now))

    def take(self, envelope: m.Envelope, now: float) -> list[Effect]:
        """Take a checked message."""
        header, body, sender = envelope.header, envelope.body, envelope.header.sender
        if self.current and header.step >= self.step:
            self.current.is_here(sender, now)
        known = self._positions.get(sender)
        if known is None or header.step >= known[0]:
            self._positions[sender] = header.step, header.log
        effects: list[Effect] = []
        match body:
            case m.Fetch(first=first):
                effects = self._fetches.ask(sender, first, now) if first < self.step else []
            case m.Answers():
                effects = self._take_answers(sender, body, now)
            case m.Position(reply=reply):
                effects = [self._tell_position(sender)] if reply else []
                if reply and header.step == self.step - 1:
                    effects += self._say_again(sender, header.log, now)
            case _ if header.step < self.step:
                effects = self._late(header)
            case _ if self.current is None:
                effects = []
            case _ if header.step > self.step:
                self._keep(envelope)
            case _:
                effects = self._now(envelope, now)
        return [*effects, *self._look_ahead(now)]

    def tick(self, now: float) -> list[Effect]:
        """Do what is due by the clock."""
        if self.current is None or self.halted:
            return []
        due = self.current.wake_at <= now
        effects = self.current.tick(now) if due else []
        if due and self.current.state is not StepState.OPENED:
            effects += self.context.broadcast(self._place(), m.Position(reply=True))
        return self._settled([*effects, *self._look_ahead(now)])

    def waiting(self, now: float) -> Waiting | None:
        """Return what is missing, if the step under way has waited for it for long."""
        if self.current is None or self.halted:
            return None
        if self.current.state is StepState.BEHIND:
            return self._waiting_behind(self.current, now)
        found = self.current.waiting(now)
        return replace(found, differing=tuple(sorted(self._differing))) if found else None

    def _waiting_behind(self, step: Step, now: float) -> Waiting | None:
        """Return whose answers do not come, if none has come for long."""
        if now - self._behind_since < 2 * self.context.deadlines.message:
            return None
        asked = sorted({peer for signers in self._goals().values() for peer in signers})
        here = step.heard_lately(now)
        return Waiting(
            what=Missing.ANSWERS,
            step=self.step,
            round=step.place.round,
            since=self._behind_since,
            needed=1,
            away=tuple(peer for peer in asked if peer not in here),
            lacking=tuple(peer for peer in asked if peer in here),
        )

    def answers(self, to: int, first: int, entries: list[m.LogEntry]) -> Send:
        """Return the message that answers a `Serve`."""
        self._fetches.sent(to, first, entries)
        return self.context.send(self._place(), m.Answers(first=first, entries=tuple(entries)), to)

    def _is_late(self, header: m.Header, kind: type[m.Body]) -> bool:
        """Say whether a message has nothing to tell any more, so that it need not be read."""
        if kind in (m.Fetch, m.Answers, m.Position):
            return False
        if header.step < self.step:
            return True
        step = self.current
        return step is not None and header.step == self.step and not step.takes(kind)

    def _late(self, header: m.Header) -> list[Effect]:
        """Tell a peer that is more than a step behind where this one is.

        The last words of a step come late as a rule; whoever has lost one will ask.
        """
        return [self._tell_position(header.sender)] if header.step < self.step - 1 else []

    def _check_header(self, header: m.Header, source: int) -> None:
        """Raise if this message does not claim to be its sender's, to this peer, in this run."""
        context = self.context
        if header.sender != source:
            raise MessageError(f"sent a message in the name of peer {header.sender}")
        if header.sender not in context.others:
            raise MessageError("sent a message to a run that it has no part in")
        if header.recipient not in (context.me, m.EVERYBODY):
            raise MessageError(f"passed on a message for peer {header.recipient}")
        if (header.federation, header.run) != (context.federation, context.run):
            raise MessageError("sent a message of another federation or run")

    def _now(self, envelope: m.Envelope, now: float) -> list[Effect]:
        """Take a message of the step under way."""
        step, header = self.current, envelope.header
        if step is None or self.halted:
            return []
        if (header.log, header.asked) != (step.place.log, step.place.asked):
            return self._differs(header)
        return step.take(envelope, now)

    def _differs(self, header: m.Header) -> list[Effect]:
        """Name a peer that holds another model; stop if so many do that one of them is honest.

        A few may say so without holding one: they are as if they were silent.
        """
        claim = header.log + header.asked
        known = self._differing.get(header.sender) == claim
        if known or self.current is None or self.current.state is StepState.BEHIND:
            return []
        self._differing[header.sender] = claim
        effects: list[Effect] = [Blame(peer=header.sender, what="holds another model")]
        together = max(list(self._differing.values()).count(c) for c in self._differing.values())
        if together >= self.context.trusted:
            self.current.diverged()
            self.halted = True
            who = ", ".join(self.context.name(peer) for peer in sorted(self._differing))
            why = (
                f"in step {self.step} (round {header.round}) {who} hold another model than "
                "this peer; compare versions and hardware, then restart from the store"
            )
            effects.append(Halt(why=why))
        return effects

    def _keep(self, envelope: m.Envelope) -> None:
        """Keep a message of a coming step, within limits."""
        header = envelope.header
        if header.step <= self.step + WINDOW:
            kept = self._later[header.step][header.sender]
            size = sum(len(other.data) for other in kept)
            if len(kept) < KEPT_PER_SENDER and size < KEPT_BYTES:
                kept.append(envelope)

    def _look_ahead(self, now: float) -> list[Effect]:
        """See whether the others are ahead for long enough, and fetch what they have."""
        if self.current is None or self.halted or self.current.state is StepState.OPENED:
            return []
        goals = self._goals()
        if not goals:
            self._overtaken_at = None
            return []
        if self._overtaken_at is None:
            far = max(step for step, _ in goals) > self.step + WINDOW
            self._overtaken_at = now - (self.context.deadlines.behind if far else 0.0)
        if now < self._overtaken_at + self._fetch_pause:
            return []
        self._overtaken_at = now
        if self.current.state is StepState.BEHIND:
            self._patience = min(2 * self._patience, PATIENCE)
            if self._fetched and self._patience <= LOYALTY:
                return [self._ask_on()]
        else:
            self.current.overtaken()
            self._behind_since = now
        return [self._fetch()]

    @property
    def _fetch_pause(self) -> float:
        return self.context.deadlines.behind * self._patience

    def _goals(self) -> dict[tuple[int, bytes], list[int]]:
        """Return the later positions that enough peers signed, and who did."""
        found: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for peer, position in self._positions.items():
            if position[0] > self.step:
                found[position].append(peer)
        return {
            where: peers for where, peers in found.items() if len(peers) >= self.context.trusted
        }

    def _fetch(self) -> Send:
        """Ask the next of those that are furthest ahead for all that is missing here."""
        goals = self._goals()
        self._attested.update(goals.keys())
        signers = sorted(goals[max(goals)])
        sources = [peer for peer in signers if peer not in self._misfits] or signers
        self._asked += 1
        self._source = sources[self._asked % len(sources)]
        self._sources.add(self._source)
        self._fetched, self._fetched_log = [], self.log
        return self._ask_on()

    def _ask_on(self) -> Send:
        first = self.step + len(self._fetched)
        return self.context.send(self._place(), m.Fetch(first=first), self._source)

    def _take_answers(self, sender: int, body: m.Answers, now: float) -> list[Effect]:
        """Take fetched answers if they lead to a log that enough peers signed."""
        step = self.current
        if step is None or step.state is not StepState.BEHIND:
            return []
        if not self._fetched and sender in self._sources:
            self._source = sender
        if (
            sender != self._source
            or body.first != self.step + len(self._fetched)
            or not body.entries
        ):
            return []
        if any(len(entry.values) > self._longest for entry in body.entries):
            return self._misfit(step, sender)
        self._attested.update(self._goals().keys())
        self._overtaken_at, self._behind_since, self._patience = now, now, 1
        reached = 0
        for entry in body.entries[: max(self._attested) - body.first]:
            self._fetched.append(entry)
            self._fetched_log = entry.after(self._fetched_log)
            signed = self._attested.get(self.step + len(self._fetched))
            if signed is not None and signed != self._fetched_log:
                break
            reached = reached if signed is None else len(self._fetched)
        if not reached and self.step + len(self._fetched) < min(self._attested):
            return [self._ask_on()]
        if not reached:
            return self._misfit(step, sender)
        entries, self._fetched, self._catching_up = self._fetched[:reached], [], True
        first = step.caught_up(entries[0])
        return [first, *(Commit(entry=entry, shares={}) for entry in entries[1:])]

    def _misfit(self, step: Step, sender: int) -> list[Effect]:
        """Ask another peer; if that many cannot all be wrong, it is this peer's own log that is."""
        self._fetched = []
        self._misfits.add(sender)
        self._sources.discard(sender)
        if len(self._misfits) < self.context.trusted:
            text = f"answers of {self.context.name(sender)} do not fit, asking another peer"
            again = [self._fetch()] if self._goals() else []
            return [Note(text=text, facts={"peer": sender}), *again]
        step.diverged()
        self.halted = True
        who = ", ".join(map(self.context.name, sorted(self._misfits)))
        why = (
            f"what {who} have opened since step {self.step} does not follow from this peer's "
            "log, which is another one; move its history away and start again: what is public "
            "then comes from the others"
        )
        return [Halt(why=why)]

    def _say_again(self, to: int, log: bytes, now: float) -> list[Effect]:
        """Tell a peer that is a step behind what this one said in that step."""
        if self.previous is None or log != self.previous.place.log:
            return []
        if not self._pauses.over(to, now):
            return []
        return [*self.previous.again(self.context, to)]

    def _settled(self, effects: list[Effect]) -> list[Effect]:
        """Count the steps that these effects finish."""
        for effect in effects:
            if isinstance(effect, Commit):
                if done := self.current:
                    self._latecomers.note(self.step, late=done.late, in_time=done.in_time)
                self.previous = done.as_previous() if done else None
                self._count(effect.entry)
                self.current, self._overtaken_at = None, None
        for step in [step for step in self._later if step < self.step]:
            del self._later[step]
        return effects

    def _count(self, entry: m.LogEntry) -> None:
        self.step, self.log = self.step + 1, entry.after(self.log)
        if entry.dealers:
            self._present = tuple(held.dealer for held in entry.dealers)

    def _place(self) -> m.Header:
        return self.context.place(self.step, self.log, m.NOTHING, 0)

    def _tell_position(self, to: int) -> Send:
        return self.context.send(self._place(), m.Position(reply=False), to)
