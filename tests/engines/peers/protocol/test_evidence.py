"""What a peer keeps of a cheat convinces others that have the public keys, and frames nobody."""

from dataclasses import replace

import numpy as np
import pytest
from cheats import CHEAT, HONEST, PEERS, TOLERANCE, changed, proven, rows_of, with_dealer
from wire import KEYS, Setup, Wire

from pdlrecover import Tolerance
from pdlrecover.engines.peers.identity.keyring import Signers
from pdlrecover.engines.peers.protocol import codec, dealing, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import CodecError, MessageError
from pdlrecover.sharing import Scheme

SIGNERS = Signers(KEYS[0]._keys)
SCHEME = Scheme.for_peers(PEERS, TOLERANCE)
PACKED = Scheme.for_peers(PEERS, Tolerance(colluders=1, dropouts=1))


def judged(parts, scheme=SCHEME):
    return evidence.proven(scheme, SIGNERS.verify, parts)


def proves_nothing(parts, match="proves nothing", scheme=SCHEME):
    with pytest.raises(MessageError, match=match):
        judged(parts, scheme)


@pytest.fixture(scope="module")
def misdealt():
    """What honest peers keep of a dealer whose row for peer 5 does not fit."""

    def change(kind, binding, dealt):
        private = list(dealt.private)
        private[5] = changed(private[5], np.array(1))
        return proven(kind, binding, private, rows_of(dealt.private))

    _, network = with_dealer(change)
    return {by: [b.evidence for b in network.blames[by] if b.evidence] for by in HONEST}


def test_shares_that_do_not_fit_are_proven_to_a_third_party(misdealt):
    for by in HONEST:
        assert misdealt[by]
        for parts in misdealt[by]:
            assert judged(parts) == (CHEAT, "dealt peer 5 shares that do not fit")


def test_evidence_that_was_changed_is_none(misdealt):
    (data,) = misdealt[0][0]
    proves_nothing([data[:-1] + bytes([data[-1] ^ 1])], "not signed by peer 5")
    with pytest.raises(CodecError):
        judged([data[:-1]])
    envelope = codec.decode(data)
    for body in (
        replace(envelope.body, dealer=(CHEAT + 1) % PEERS),
        replace(envelope.body, private=envelope.body.private[:-8]),
        replace(envelope.body, statement=bytes(64)),
    ):
        proves_nothing([codec.encode(envelope.header, body, KEYS[5].sign)])
    for header in ({"step": 7}, {"run": bytes(32)}, {"log": bytes(32)}):
        place = replace(envelope.header, **header)
        if place != envelope.header:
            proves_nothing([codec.encode(place, envelope.body, KEYS[5].sign)])
    place = replace(envelope.header, sender=4)
    proves_nothing([codec.encode(place, envelope.body, KEYS[4].sign)])


@pytest.mark.parametrize("scheme", [SCHEME, PACKED])
@pytest.mark.parametrize("masks", [False, True])
def test_an_honest_dealing_proves_nothing_against_its_dealer(scheme, masks):
    """With one number in a block, updates and masks are shared alike, and masks must sum to 0."""
    degree = scheme.quorums.dot_degree if masks else scheme.quorums.vector_degree
    kind = dealing.Kind(scheme=scheme, blocks=3, degree=degree, masks=masks)
    place = Setup(PEERS, TOLERANCE).context(4, bytes(32), range(PEERS)).place(0, b"l" * 32, b"", 0)
    place = replace(place, asked=bytes(32))
    binding = dealing.binding_of(place, 1)
    elements = np.arange(3 * scheme.quorums.packing, dtype=np.int64)
    if masks:
        dealt = dealing.deal_masks(kind, binding, bytes(32))
    else:
        dealt = dealing.deal_vector(kind, elements, binding, bytes(32))

    def accusation(made, signed_as):
        digest = made.public.digest(binding, masks=signed_as)
        body = m.Misdealt(
            dealer=1,
            commitments=made.public.commitments,
            proof=made.public.proof,
            statement=KEYS[1].sign(dealing.statement(binding, digest)),
            private=made.private[4],
        )
        return [codec.encode(place, body, KEYS[4].sign)]

    proves_nothing(accusation(dealt, masks), scheme=scheme)
    if masks:
        wrong = [changed(p, np.array(1)) for p in dealt.private]
        made = proven(kind, binding, wrong, rows_of(wrong))
        assert judged(accusation(made, True), scheme)[0] == 1


def voted(*choices, sender=CHEAT, body=m.Vote):
    setup = Setup(PEERS, TOLERANCE)
    place = setup.context(sender, bytes(32), range(PEERS)).place(0, bytes(32), bytes(32), 0)
    bodies = [body(view=0, final=False, choice=bytes([c]) * 32) for c in choices]
    return [codec.encode(place, each, KEYS[sender].sign) for each in bodies]


def test_two_votes_for_one_purpose_are_proof_and_one_or_others_are_none():
    first, second = voted(1, 2)
    assert judged([first, second]) == (CHEAT, "signed two different Votes for one purpose")
    proves_nothing([first])
    proves_nothing([first, first])
    proves_nothing([first, *voted(2, sender=4)])
    proves_nothing([first, second, second])
    proves_nothing([])
    elsewhere = codec.decode(second)
    header = replace(elsewhere.header, step=1)
    proves_nothing([first, codec.encode(header, elsewhere.body, KEYS[CHEAT].sign)])


def test_a_witness_that_passes_two_votes_on_proves_it_too():
    first, second = voted(1, 2)
    place = replace(codec.decode(first).header, sender=4)

    def told(**body):
        proof = m.Equivocation(**{"accused": CHEAT, "first": first, "second": second, **body})
        return [codec.encode(place, proof, KEYS[4].sign)]

    assert judged(told()) == (CHEAT, "signed two different Votes for one purpose")
    proves_nothing(told(accused=2))
    proves_nothing(told(second=first))
    proves_nothing(told(second=b"no message"))


def test_two_dealings_of_one_step_are_proven_to_a_third_party():
    """Peers below 4 get another dealing, good in itself, than the others."""
    twin, wire = Setup(PEERS, TOLERANCE), Wire()
    twin.train(wire, rounds=1)
    others = {to: d for s, to, kind, d in wire.sent if s == CHEAT and kind == "Dealing"}

    def tamper(sender, recipient, data):
        if sender == CHEAT and isinstance(codec.decode(data).body, m.Dealing) and recipient < 4:
            return [(sender, others[recipient])]
        return [(sender, data)]

    network = Setup(PEERS, TOLERANCE).train(Wire(tamper=tamper), rounds=1, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=500)
    for by in HONEST:
        kept = [b.evidence for b in network.blames[by] if b.evidence]
        assert kept
        for parts in kept:
            assert judged(parts) == (CHEAT, "signed two different Dealings for one purpose")
