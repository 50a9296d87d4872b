"""Watches over one step for peers that contradict themselves.

The first message of each purpose is kept, to compare later ones with. Once a peer is proven to
contradict itself in one kind of message, no more of that kind is said or looked at in the step: a
cheat makes others send little.
"""

from pdlrecover.engines.peers import evidence
from pdlrecover.engines.peers.circle import Circle
from pdlrecover.engines.peers.effects import Blame, Effect
from pdlrecover.engines.peers.messages import Envelope, Equivocation, Header


class Watch:
    """What the peers have signed in one step, and who was caught."""

    def __init__(self, circle: Circle, place: Header) -> None:
        self._circle, self._place = circle, place
        self._first: dict[tuple[object, ...], Envelope] = {}
        self.caught: set[tuple[int, type]] = set()
        """Who has been proven to contradict itself, and in what kind of message."""

    def compare(self, envelope: Envelope, *purpose: object) -> list[Effect]:
        """Blame a sender that signs two different things for one purpose, and tell the others."""
        kind = envelope.header.sender, type(envelope.body)
        first = self._first.setdefault((*kind, *purpose), envelope)
        if first.signed == envelope.signed or kind in self.caught:
            return []
        self.caught.add(kind)
        return evidence.raise_alarm(self._circle, self._place, first, envelope)

    def judge(self, envelope: Envelope, body: Equivocation) -> list[Effect]:
        """Look at a proof that a peer contradicts itself; if it is none, blame who sent it."""
        kind = body.accused, evidence.subject(body)
        if kind in self.caught:
            return []
        if not evidence.equivocates(self._circle.crypto.verify, envelope.header, body):
            return [Blame(peer=envelope.header.sender, what="accused a peer without proof")]
        self.caught.add(kind)
        what = "signed two different things for one purpose"
        return [Blame(peer=body.accused, what=what, evidence=(envelope.data,))]
