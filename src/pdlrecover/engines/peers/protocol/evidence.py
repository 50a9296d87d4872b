"""Proof of a cheat: signed messages that contradict each other, or shares that fail their proof.

Rules:

- Evidence is whole messages, as they were signed: two of the cheat's own that exclude each other,
  or one of a witness, `Misdealt` or `Equivocation`, with what the cheat signed in it. Or it is the
  sub-secrets of several peers, which open to what the cheat dealt: see `single_dealings`.
- It convinces whoever has the peers' public keys, the tolerance and the bounds: see `proven`.
"""

from collections.abc import Callable, Sequence

from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.protocol import codec, dealing
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.dealing import CHECKS, NONCE_BYTES, Kind, Public
from pdlrecover.engines.peers.protocol.effects import Blame, Effect
from pdlrecover.engines.peers.protocol.forms import SIGNATURE
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.single_dealings import convicted
from pdlrecover.errors import CodecError, MessageError
from pdlrecover.sharing import Scheme

Verify = Callable[[int, bytes, bytes], bool]
"""Says whether a peer signed this: (peer, what, signature)."""
MAX_PASSED_ON = 1 << 16
"""Larger proofs are kept, and not passed on."""
_STATEMENT_BYTES = 32 + SIGNATURE


class EquivocationWatch:
    """What the peers have signed in one step, and who was caught contradicting itself.

    The first message of each purpose is kept, to compare later ones with. Once a peer is proven to
    contradict itself in one kind of message, no more of that kind is said or looked at in the step:
    a cheat makes others send little.
    """

    def __init__(self, context: RunContext, place: m.Header) -> None:
        self._context, self._place = context, place
        self._first: dict[tuple[object, ...], m.Envelope] = {}
        self.caught: set[tuple[int, type]] = set()
        """Who has been proven to contradict itself, and in what kind of message."""

    def compare(self, envelope: m.Envelope, *purpose: object) -> list[Effect]:
        """Blame a sender that signs two different things for one purpose, and tell the others."""
        kind = envelope.header.sender, type(envelope.body)
        first = self._first.setdefault((*kind, *purpose), envelope)
        if first.signed == envelope.signed or kind in self.caught or not self._context.proves:
            return []
        self.caught.add(kind)
        return raise_alarm(self._context, self._place, first, envelope)

    def sub_secrets(self, choice: bytes) -> dict[int, bytes]:
        """Return everybody's first sub-secret for a choice, as it was signed."""
        said = {
            key[0]: each for key, each in self._first.items() if key[1:] == (m.SubSecret, choice)
        }
        return {each.header.sender: each.data for each in said.values()}

    def judge(self, envelope: m.Envelope, body: m.Equivocation) -> list[Effect]:
        """Look at a proof that a peer contradicts itself; if it is none, blame who sent it."""
        kind = body.accused, subject(body)
        if kind in self.caught or not self._context.proves:
            return []
        if not equivocates(self._context.crypto.verify, envelope.header, body):
            return [Blame(peer=envelope.header.sender, what="accused a peer without proof")]
        self.caught.add(kind)
        what = "signed two different things for one purpose"
        return [Blame(peer=body.accused, what=what, evidence=(envelope.data,))]


def raise_alarm(
    context: RunContext, place: m.Header, first: m.Envelope, second: m.Envelope
) -> list[Effect]:
    """Blame the sender of two messages that exclude each other, and pass the proof on."""
    sender = first.header.sender
    what = f"signed two different {type(first.body).__name__}s for one purpose"
    blame = Blame(peer=sender, what=what, evidence=(first.data, second.data))
    if max(len(first.data), len(second.data)) > MAX_PASSED_ON:
        return [blame]
    proof = m.Equivocation(accused=sender, first=first.data, second=second.data)
    return [blame, *context.broadcast(place, proof)]


def subject(body: m.Equivocation) -> type[m.Body]:
    """Return what kind of words this claims to be about; `Dealing` if about a dealer's statements.

    Nothing is checked.
    """
    if len(body.first) == len(body.second) == _STATEMENT_BYTES:
        return m.Dealing
    try:
        return codec.decode_header(body.first)[1]
    except CodecError:
        return m.Equivocation


def equivocates(verify: Verify, header: m.Header, body: m.Equivocation) -> bool:
    """Say whether the accused signed both, and both cannot be honest."""
    if subject(body) is m.Dealing:
        binding = dealing.binding_of(header, body.accused)
        return body.first[:32] != body.second[:32] and all(
            verify(body.accused, dealing.statement(binding, part[:32]), part[32:])
            for part in (body.first, body.second)
        )
    try:
        first, second = codec.decode(body.first), codec.decode(body.second)
    except CodecError:
        return False
    return (
        first.header.sender == body.accused
        and first.header.federation == header.federation
        and contradict(verify, first, second)
    )


def contradict(verify: Verify, first: m.Envelope, second: m.Envelope) -> bool:
    """Say whether one peer signed both messages, and no honest peer signs both."""
    return (
        _place(first.header) == _place(second.header)
        and _purpose(first) is not None
        and _purpose(first) == _purpose(second)
        and first.signed != second.signed
        and all(verify(e.header.sender, e.signed, e.signature) for e in (first, second))
    )


def flaw(verify: Verify, kind: Kind, header: m.Header, body: m.Misdealt) -> str:
    """Return what is wrong with an accusation; nothing if the dealer did send such a row.

    The header is the accuser's.
    """
    binding = dealing.binding_of(header, body.dealer)
    public = Public(commitments=body.commitments, proof=body.proof)
    signed = dealing.statement(binding, public.digest(binding, masks=kind.masks))
    fits = (
        dealing.is_shaped(kind, public)
        and verify(body.dealer, signed, body.statement)
        and dealing.committed(public, header.sender, body.private)
    )
    if not fits:
        return "accused a dealer without proof"
    row = dealing.row_of(kind, binding, public, header.sender, body.private)
    if row is not None and dealing.check_public(kind, public):
        return "accused an honest dealer"
    return ""


def proven(
    scheme: Scheme,
    verify: Verify,
    parts: Sequence[bytes],
    bounds: Bounds | None = None,
    founding: bytes = m.NOTHING,
) -> tuple[int, str]:
    """Return who cheated, and how, by the evidence that a peer has kept; raise if it is none.

    In the run `founding` an honest peer that has started over contradicts what it signed before.
    It takes nothing that only peers know. How long a row should be is not known here, either: rows
    that are only too long or too short for their step prove nothing. Nor do sub-secrets of several
    peers without the `bounds` that the federation has agreed on; if they prove it of several
    dealers, the first is returned.
    """
    envelopes = [codec.decode(part) for part in parts]
    for each in envelopes:
        if not verify(each.header.sender, each.signed, each.signature):
            raise MessageError(f"this evidence is not signed by peer {each.header.sender}")
        if founding == each.header.run != m.NOTHING and not isinstance(each.body, m.Misdealt):
            raise MessageError(
                "this evidence proves nothing: it is of the founding run, in which an honest peer "
                "that has started over with an empty history contradicts itself"
            )
    match [each.body for each in envelopes]:
        case [m.Misdealt() as body]:
            header = envelopes[0].header
            if any(not flaw(verify, kind, header, body) for kind in _kinds(scheme, body)):
                return body.dealer, f"dealt peer {header.sender} shares that do not fit"
        case [m.Equivocation() as body] if equivocates(verify, envelopes[0].header, body):
            return body.accused, f"signed two different {subject(body).__name__}s for one purpose"
        case [_, _] if contradict(verify, *envelopes):
            what = type(envelopes[0].body).__name__
            return envelopes[0].header.sender, f"signed two different {what}s for one purpose"
        case [m.SubSecret(), *_] if bounds and (found := convicted(scheme, bounds, envelopes)):
            return min(found.items())
    raise MessageError("this evidence proves nothing: an honest peer may have signed all of it")


def _kinds(scheme: Scheme, body: m.Misdealt) -> list[Kind]:
    """Return what may have been dealt, by the length of the row; the statement fits one of it."""
    blocks = max(1, (len(body.private) - NONCE_BYTES) // 8 - CHECKS)
    vector, dot = scheme.quorums.vector_degree, scheme.quorums.dot_degree
    return [
        Kind(scheme=scheme, blocks=blocks, degree=vector, masks=False),
        Kind(scheme=scheme, blocks=blocks, degree=dot, masks=True),
    ]


def _place(header: m.Header) -> tuple[object, ...]:
    return header.federation, header.run, header.step, header.sender, header.log, header.asked


def _purpose(envelope: m.Envelope) -> tuple[object, ...] | None:
    match envelope.body:
        case m.Proposal(view=view):
            return m.Proposal, view
        case m.Vote(view=view, final=final):
            return m.Vote, view, final
        case m.SubSecret(choice=choice):
            return m.SubSecret, choice
        case _:
            return None
