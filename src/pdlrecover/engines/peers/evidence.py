"""Equivocation: one peer that signs two different things for one purpose, and the proof of it.

The proof is both signed messages, whole. A dealer's two statements are compared by `holdings`.
"""

from pdlrecover.engines.peers import codec, dealing
from pdlrecover.engines.peers.circle import Circle
from pdlrecover.engines.peers.effects import Blame, Effect
from pdlrecover.engines.peers.messages import (
    Envelope,
    Equivocation,
    Header,
    Proposal,
    SubSecret,
    Vote,
)
from pdlrecover.errors import CodecError

MAX_PASSED_ON = 1 << 16
"""Larger proofs are kept, and not passed on."""
_STATEMENT_BYTES = 32 + codec.SIGNATURE


def raise_alarm(circle: Circle, place: Header, first: Envelope, second: Envelope) -> list[Effect]:
    """Blame the sender of two messages that exclude each other, and pass the proof on."""
    sender = first.header.sender
    what = f"signed two different {type(first.body).__name__}s for one purpose"
    blame = Blame(peer=sender, what=what, evidence=(first.data, second.data))
    if max(len(first.data), len(second.data)) > MAX_PASSED_ON:
        return [blame]
    proof = Equivocation(accused=sender, first=first.data, second=second.data)
    return [blame, *circle.broadcast(place, proof)]


def judge(circle: Circle, place: Header, accuser: int, body: Equivocation) -> tuple[bool, Blame]:
    """Look at a proof; say whether it is one, and blame the accused, or else who sent it."""
    if proves(circle, place, body):
        what = "signed two different things for one purpose"
        return True, Blame(peer=body.accused, what=what, evidence=(body.first, body.second))
    return False, Blame(peer=accuser, what="accused a peer without proof")


def is_about_dealing(body: Equivocation) -> bool:
    """Say whether this shows two statements of a dealer, not two messages."""
    return len(body.first) == len(body.second) == _STATEMENT_BYTES


def proves(circle: Circle, place: Header, body: Equivocation) -> bool:
    """Say whether the accused signed both, and both cannot be honest."""
    if is_about_dealing(body):
        slot = dealing.slot_of(place, body.accused)
        return body.first[:32] != body.second[:32] and all(
            circle.crypto.verify(body.accused, dealing.statement(slot, part[:32]), part[32:])
            for part in (body.first, body.second)
        )
    try:
        first, second = codec.decode(body.first), codec.decode(body.second)
    except CodecError:
        return False
    same_place = _place(first.header) == _place(second.header)
    return (
        same_place
        and first.header.sender == body.accused
        and first.header.federation == circle.federation
        and _purpose(first) is not None
        and _purpose(first) == _purpose(second)
        and first.signed != second.signed
        and all(circle.crypto.verify(body.accused, e.signed, e.signature) for e in (first, second))
    )


def _place(header: Header) -> tuple[object, ...]:
    return header.federation, header.run, header.step, header.sender, header.log, header.asked


def _purpose(envelope: Envelope) -> tuple[object, ...] | None:
    match envelope.body:
        case Proposal(view=view):
            return Proposal, view
        case Vote(view=view, final=final):
            return Vote, view, final
        case SubSecret(choice=choice):
            return SubSecret, choice
        case _:
            return None
