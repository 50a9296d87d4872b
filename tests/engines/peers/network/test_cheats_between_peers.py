"""Cheats between whole peers: real sockets, certificates and files, one of five crooked.

Each is refused and its author named, in the log and in the status, and the others come to their
model. The same cheats, and more, are tried on the fake wire.
"""

import asyncio
import itertools
import logging
from dataclasses import replace
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import whole_peers
from cheats import changed, proven, rows_of
from loopback import issued, until

from pdlrecover import Tolerance
from pdlrecover.cli.peer_status import _lines
from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.identity.keyring import Signers
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol import codec, dealing, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.transport.link import METHOD, SIZE_BYTES
from pdlrecover.field import F61

pytestmark = pytest.mark.slow

PEERS, ROUNDS, CHEAT = 5, 6, 3
NAME = whole_peers.NAMES[CHEAT]
HONEST = [p for p in range(PEERS) if p != CHEAT]
TOLERANCE = Tolerance(colluders=1, dropouts=1, liars=1)
DEADLINES = Deadlines(message=10.0, dealing=30.0, receipts=5.0, view=5.0, resend=1.0, behind=0.5)


@pytest.fixture(scope="module")
def straight():
    """Return the model that five honest peers come to."""
    simulation = whole_peers.simulation(rounds=ROUNDS, tolerance=TOLERANCE)
    return np.array(simulation.original.models[ROUNDS])


def lived(place, corrupt=lambda peers: None, afterwards=None):
    """Let five peers train, one of them corrupted; return what is left of them."""

    async def story():
        whole_peers.settle(
            place,
            tolerance=TOLERANCE,
            training=whole_peers.training(rounds=ROUNDS),
            deadlines=DEADLINES,
        )
        peers = [whole_peers.peer(me, place) for me in range(PEERS)]
        corrupt(peers)
        tasks = [asyncio.create_task(each.run()) for each in peers]
        try:
            await until(lambda: all(trained(place, me).exists() for me in HONEST), 120)
            if afterwards:
                await afterwards(peers)
        finally:
            for each in peers:
                each.stop()
            await asyncio.gather(*tasks)
        run = peers[0].runs.training
        dealers = [peers[0].runs.store.dealers(run, t) for t in range(ROUNDS)]
        told = SimpleNamespace(
            models=[
                whole_peers.weights(trained(place, me).with_suffix(".safetensors")) for me in HONEST
            ],
            blames={me: [(b.peer, b.what) for b in peers[me].misconduct.blames] for me in HONEST},
            caught={me: list(peers[me].misconduct.caught) for me in HONEST},
            status={me: "\n".join(_lines(peers[me].control.status(), True)) for me in HONEST},
            dealers=dealers,
        )
        for each in peers:
            each.runs.store.close()
        return told

    told = asyncio.run(story())
    for model in told.models[1:]:
        np.testing.assert_array_equal(model, told.models[0])
    assert {peer for blames in told.blames.values() for peer, _ in blames} <= {CHEAT}
    return told


def trained(place, me):
    return place / whole_peers.NAMES[me] / "trained.json"


def resigned(peers, envelope, body=None, signer=CHEAT, **header):
    """Return a message with another body or header, properly signed by a peer."""
    place = replace(envelope.header, **header)
    return codec.encode(place, body or envelope.body, peers[signer].runs._crypto.sign)


def tampering(kind, change):
    """Return a corruption: messages of this kind are changed before they leave the cheat."""

    def corrupt(peers):
        cheat, send = peers[CHEAT], peers[CHEAT].network.send

        def crooked(to, data):
            envelope = codec.decode(data)
            wanted = isinstance(envelope.body, kind)
            for each in change(peers, to, envelope) if wanted else [data]:
                send(to, each)

        cheat.network.send = crooked

    return corrupt


def assert_logged(caplog, what):
    said = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert any(r.getMessage().startswith(f"{NAME} ") and what in r.getMessage() for r in said)


def assert_caught(told, what, by=HONEST):
    """Check that the cheat was proven to be one, and that the status says so."""
    for me in by:
        assert any(peer == CHEAT and what in how for peer, how in told.caught[me])
        assert f"caught lying: {NAME} (" in told.status[me]


def assert_proven(place, by=HONEST):
    """Check that what these peers have kept on disk proves the cheat to whoever has its key."""
    membership = load_federation(place / "federation.toml")
    verify = Signers.of(membership.peers).verify
    for me in by:
        files = sorted((place / whole_peers.NAMES[me] / "evidence").iterdir())
        pieces = itertools.groupby(files, lambda path: path.name.rsplit("-", 1)[0])
        kept = [[path.read_bytes() for path in group] for _, group in pieces]
        assert {evidence.proven(membership.scheme, verify, parts)[0] for parts in kept} == {CHEAT}


def assert_named(told, what):
    """Check that somebody named the cheat without proof, and that the status says so."""
    named = [me for me in HONEST if any(what in how for _, how in told.blames[me])]
    assert named, told.blames
    for me in named:
        assert f"{NAME} ({what}" in told.status[me].split("named, without proof to others: ")[1]


def test_a_wrong_sub_secret(tmp_path, caplog, straight):
    def change(peers, to, envelope):
        values = F61.add(envelope.body.values, np.ones_like(envelope.body.values))
        return [resigned(peers, envelope, replace(envelope.body, values=values))]

    def corrupt(peers):
        tampering(m.SubSecret, change)(peers)
        for me in HONEST:  # the others' lines are slower, so that the wrong one comes in time
            peers[me].network.send = late(peers[me].network.send)

    def late(send):
        def send_later(to, data):
            is_slow = isinstance(codec.decode(data).body, m.SubSecret)
            asyncio.get_running_loop().call_later(0.2 * is_slow, send, to, data)

        return send_later

    told = lived(tmp_path, corrupt)
    np.testing.assert_array_equal(told.models[0], straight.astype(np.float32))
    assert_named(told, "sent a wrong sub-secret")
    assert_logged(caplog, "sent a wrong sub-secret")


def test_an_inconsistent_dealing(tmp_path, caplog):
    def corrupt(peers):
        cheat, compute = peers[CHEAT], peers[CHEAT]._compute

        def crooked(run, job):
            def deal(binding, seed):
                dealt = job.deal(binding, seed)
                private = list(dealt.private)
                private[1] = changed(private[1], np.array(1))
                return proven(
                    cheat.sessions[run].task.kind, binding, private, rows_of(dealt.private)
                )

            compute(run, replace(job, deal=deal))

        cheat._compute = crooked

    told = lived(tmp_path, corrupt)
    assert all(CHEAT not in dealers for dealers in told.dealers)
    assert_caught(told, "shares that do not fit")
    assert_proven(tmp_path)
    assert_logged(caplog, "shares that do not fit")


def test_different_shares_for_different_peers(tmp_path, caplog):
    """Both dealings are good in themselves: other randomness, other commitments."""
    twins = {}

    def corrupt(peers):
        cheat, compute = peers[CHEAT], peers[CHEAT]._compute

        def crooked(run, job):
            twins[job.step] = job.deal(job.binding, bytes(32))
            compute(run, job)

        cheat._compute = crooked
        tampering(m.Dealing, change)(peers)

    def change(peers, to, envelope):
        if to >= 2:
            return [envelope.data]
        cheat, place = peers[CHEAT], envelope.header
        binding, twin = dealing.binding_of(place, CHEAT), twins[place.step]
        digest = twin.public.digest(binding, masks=False)
        crypto, part = cheat.runs._crypto, cheat.sessions[place.run]
        bound_to = part.protocol.current.holdings.seal_context(CHEAT, to)
        body = m.Dealing(
            commitments=twin.public.commitments,
            proof=twin.public.proof,
            statement=crypto.sign(dealing.statement(binding, digest)),
            sealed=crypto.seal(to, twin.private[to], bound_to),
        )
        return [resigned(peers, envelope, body)]

    told = lived(tmp_path, corrupt)
    assert all(CHEAT not in dealers for dealers in told.dealers)
    assert_caught(told, "two different")
    assert_proven(tmp_path)
    assert_logged(caplog, "dealt in two different ways")


def test_different_proposals_for_different_peers(tmp_path, caplog):
    proposed = []

    def change(peers, to, envelope):
        proposed.append(envelope.header.step)
        smaller = replace(envelope.body, dealers=envelope.body.dealers[:-1])
        twin = resigned(peers, envelope, smaller)
        return [envelope.data, twin] if to % 2 else [twin]

    told = lived(tmp_path, tampering(m.Proposal, change))
    assert proposed
    assert_caught(told, "signed two different", by=[1])
    assert_proven(tmp_path, by=[1])
    assert_logged(caplog, "signed two different Proposals")


def test_forged_senders_replays_and_truncated_messages(tmp_path, caplog, straight):
    """The certificate is the cheat's own; what it says is not."""
    heard = []

    def change(peers, to, envelope):
        others = [p for p in HONEST if p != to]
        old = [data for source, data in heard if source != to]
        if envelope.header.step != 1:
            return [envelope.data]
        return [  # before the right one, which all wait for: afterwards they might not look
            resigned(peers, envelope, sender=others[0]),
            resigned(peers, envelope, signer=others[0]),
            resigned(peers, envelope, signer=others[0], sender=others[0]),
            resigned(peers, envelope, recipient=others[0]),
            envelope.data[:-7],
            envelope.data + bytes(9),
            *old,  # the round before, by everybody, once more
            envelope.data,
        ]

    def corrupt(peers):
        cheat, message = peers[CHEAT], peers[CHEAT]._message
        tampering(m.Dealing, change)(peers)
        send = cheat.network.send

        def listened(source, data, now):
            if codec.decode(data).header.step == 0 and len(heard) < 24:
                heard.append((source, data))
            message(source, data, now)

        def told(to, data):
            if codec.decode(data).header.step == 0 and len(heard) < 24:
                heard.append((CHEAT, data))
            send(to, data)

        cheat._message, cheat.network.send = listened, told

    told = lived(tmp_path, corrupt)
    np.testing.assert_array_equal(told.models[0], straight.astype(np.float32))
    assert all(len(dealers) == PEERS for dealers in told.dealers)
    assert {source for source, _ in heard} > {CHEAT}
    for what in (
        "sent a message in the name of peer",
        "sent a message with a wrong signature",
        "passed on a message for peer",
        "a content of",
    ):
        assert_named(told, what)
        assert_logged(caplog, what)


def test_strangers_oversize_messages_and_forged_approvals(tmp_path, caplog):
    def forged(peers, body, sender, signer=CHEAT):
        context = peers[CHEAT].removals._context
        place = replace(peers[CHEAT].removals._place(), sender=sender, recipient=m.EVERYBODY)
        assert context.run == m.NOTHING
        return codec.encode(place, body, peers[signer].runs._crypto.sign)

    async def call(peers, key, certificate, size=1, **told):
        """Deliver something to peer 0 with these papers."""
        members = peers[0].runs.membership.peers
        roots = b"".join(member.certificate_pem for member in members)
        credentials = grpc.ssl_channel_credentials(roots, key, certificate)
        options = [("grpc.ssl_target_name_override", members[0].tls_name)]
        async with grpc.aio.secure_channel(members[0].address, credentials, options) as channel:
            head = (size << 20).to_bytes(SIZE_BYTES, "little")
            chunks = ((b"" if i else head) + bytes(1 << 20) for i in range(size))
            await channel.stream_unary(METHOD)(chunks, timeout=20.0)

    async def refused(*arguments, **told):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(*arguments, **told)

    async def afterwards(peers):
        own = Identity.load(tmp_path / NAME / "identity")
        key, certificate = own.tls_pem()
        delivered, receive = [], peers[0].network._receive

        async def received(source, data):
            if len(data) >= 1 << 20:  # nobody else sends anything as large
                delivered.append(source)
            await receive(source, data)

        peers[0].network._receive = received
        await call(peers, key, certificate)  # zeros: a good certificate, and a message of nothing
        limit = peers[0].runs.largest_message
        await refused(peers, key, certificate, size=limit // (1 << 20) + 2)
        stranger = Identity.generate(NAME).tls_pem()
        await refused(peers, *stranger)
        name = peers[0].runs.membership.peers[1].tls_name
        made, made_key = issued(name, own)  # for another peer's id, by the cheat's own key
        await refused(peers, made_key, made + certificate)
        await refused(peers, made_key, made)
        assert delivered == [CHEAT]

        proposal = peers[0].removals.draft(
            [0], reason="malicious", method="pdlrecover", accept_differencing=False
        )
        approval = m.Approval(removal=proposal.digest)
        for to in HONEST:
            peers[CHEAT].network.send(to, forged(peers, proposal, CHEAT))
            for sender in HONEST:
                peers[CHEAT].network.send(to, forged(peers, approval, sender))
                peers[CHEAT].network.send(to, forged(peers, approval, CHEAT, signer=sender))
            for _ in range(3):
                peers[CHEAT].network.send(to, forged(peers, approval, CHEAT))
        known = lambda me: peers[me].removals.known.get(proposal.digest)  # noqa: E731
        await until(lambda: all(known(me) and known(me).approvals for me in HONEST))
        await asyncio.sleep(0.5)
        for me in HONEST:
            assert list(known(me).approvals) == [CHEAT]
            assert proposal.digest not in peers[me].sessions
        await recover(peers)

    async def recover(peers):
        """The honest peers remove the cheat as ever."""
        order = {"do": "propose-removal", "removed": [NAME], "reason": "malicious"}
        name = peers[0].control.command(order).removal
        for me in (1, 2):
            await until(lambda me=me: bytes.fromhex(name) in peers[me].removals.known)
            peers[me].control.command({"do": "approve", "removal": name})
        file = f"recovered-{name[:16]}.json"
        await until(
            lambda: all((tmp_path / whole_peers.NAMES[me] / file).exists() for me in HONEST), 120
        )

    told = lived(tmp_path, afterwards=afterwards)
    for what in ("sent a message of more than", "sent a forged or misdirected message on removals"):
        assert_named(told, what)
        assert_logged(caplog, what)
