"""Peers whose federation files differ tell each other what theirs says. No input/output.

Rules:

- A message under another federation's digest is never taken as what it is. It is answered, not more
  often than `AGAIN` seconds, with what this peer's file says, signed.
- Whoever gets that names the fields that differ, once for every other file. Nobody gives in: people
  compare the files, and all sign the same one.
- Everything in a federation file is public among its peers, and only a peer that both files know
  can send this: the transport has checked its certificate, and its signature is checked here.
"""

import json

from pdlrecover.engines.peers.federation.membership import Membership, differing_facts
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Reaction
from pdlrecover.engines.peers.protocol.messages import NOTHING, Terms
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.errors import CodecError

AGAIN = 30.0
MOST = 8
"""At most this many differences are shown."""


class Disagreement:
    """What this peer's federation file says, and whose says something else."""

    def __init__(self, context: RunContext, membership: Membership) -> None:
        """`context` is everybody, with the run `NOTHING`."""
        self._context = context
        self._facts = json.dumps(membership.facts())
        self._sent_at: dict[int, float] = {}
        self._seen: dict[int, bytes] = {}
        self.found: dict[int, list[str]] = {}
        """By peer: where its file differs from this peer's."""

    def concerns(self, data: bytes) -> bool:
        """Say whether a message is of another federation file than this peer's."""
        return codec.peek_federation(data) != self._context.federation

    def receive(self, data: bytes, source: int, now: float) -> list[Reaction]:
        """Take a message of another federation file."""
        try:
            envelope = codec.decode(data)
        except CodecError as error:
            return [Blame(peer=source, what=str(error))]
        header, crypto = envelope.header, self._context.crypto
        signed = crypto.verify(source, envelope.signed, envelope.signature)
        if header.sender != source or not signed:
            return [Blame(peer=source, what="sent a forged message of another federation")]
        effects: list[Reaction] = []
        if now >= self._sent_at.get(source, -AGAIN) + AGAIN:
            self._sent_at[source] = now
            place = self._context.place(0, NOTHING, NOTHING, 0)
            effects.append(self._context.send(place, Terms(facts=self._facts.encode()), source))
        if isinstance(envelope.body, Terms) and self._seen.get(source) != header.federation:
            self._seen[source] = header.federation
            effects.append(self._compare(source, envelope.body))
        return effects

    def _compare(self, source: int, body: Terms) -> Blame | Note:
        try:
            there = json.loads(body.facts)
            if not isinstance(there, dict):
                raise ValueError("a federation file is a table")
            differing = differing_facts(json.loads(self._facts), there)
        except (ValueError, RecursionError):  # what is nested deeply may be read, and not be said
            return Blame(peer=source, what="sent what is no federation file")
        found = [repr(text)[1:-1][:200] for text in differing]  # it goes to logs and terminals
        self.found[source] = found[:MOST]
        more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
        text = (
            f"{self._context.name(source)} has another federation file: "
            f"{'; '.join(found[:MOST])}{more}; compare the files, and sign the same one"
        )
        facts = {"event": "other-file", "peer": source, "differences": found[:MOST]}
        return Note(text=text, facts=facts)
