"""Real sockets on the loopback, in one process."""

import asyncio
import socket
from dataclasses import replace
from functools import partial

import grpc
import loopback
import pytest
from loopback import certificates, free_addresses, issued, pinned

from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.transport import link
from pdlrecover.engines.peers.transport.link import METHOD, SIZE_BYTES, Limits
from pdlrecover.engines.peers.transport.network import Network

QUICK = Limits(deadline=2.0, pause=0.05, message_bytes=3 << 20, queued_messages=8)
until = partial(loopback.until, seconds=20.0)


async def started(count, papers=None, limits=QUICK, block=None, complaints=None):
    """Return networks that write down what they receive; `block` is an event that holds peer 1.

    All complaints go to one list.
    """
    complaints = [] if complaints is None else complaints
    papers, addresses = papers or certificates(count), free_addresses(count)
    received = [[] for _ in range(count)]
    networks = []
    for me in range(count):

        async def receive(source, data, me=me):
            if me == 1 and block is not None:
                await block.wait()
            received[me].append((source, data))

        networks.append(
            Network(
                me=me,
                addresses=addresses,
                tls=papers[me],
                receive=receive,
                limits=limits,
                complain=lambda peer, what: complaints.append((peer, what)),
            )
        )
    for network in networks:
        await network.start()
    return networks, received, addresses, papers


def announced(size):
    return size.to_bytes(SIZE_BYTES, "little")


async def stop(networks):
    for network in networks:
        await network.stop()


def test_messages_arrive_whole_with_their_sender_small_and_in_chunks():
    async def story():
        networks, received, _, _ = await started(3)
        large = bytes(range(256)) * 10_000
        networks[0].send(1, b"hello")
        networks[0].send(1, large)
        networks[2].send(1, b"")
        await until(lambda: len(received[1]) == 3)
        assert sorted(received[1]) == sorted([(0, b"hello"), (0, large), (2, b"")])
        await stop(networks)

    asyncio.run(story())


def test_a_message_over_the_limit_is_not_sent_and_one_that_was_is_refused():
    async def story():
        networks, received, addresses, papers = await started(2, complaints=(complaints := []))
        networks[0].send(1, bytes(4 << 20))
        networks[0].send(1, b"next")
        await until(lambda: received[1])
        assert networks[0].counts["dropped"] == 1
        assert networks[1].counts["oversize"] == 0
        credentials = grpc.ssl_channel_credentials(
            papers[0].authority, papers[0].key, papers[0].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        async with grpc.aio.secure_channel(addresses[1], credentials, options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_unary(METHOD)(iter([announced(4 << 20) + b"x"]), timeout=5.0)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert received[1] == [(0, b"next")]
        assert networks[1].counts["oversize"] == 1
        assert complaints == [(0, f"sent a message of more than {3 << 20} bytes")]
        await stop(networks)

    asyncio.run(story())


@pytest.mark.slow
def test_what_was_not_answered_is_sent_again_over_a_new_stream():
    async def story():
        block = asyncio.Event()
        networks, received, _, _ = await started(2, block=block)
        for i in range(3):
            networks[0].send(1, b"%d" % i)
        await until(lambda: networks[0].counts["failed"] == 1)  # by the deadline, of 2 seconds
        block.set()
        await until(lambda: networks[0].counts["sent"] == 3)
        assert {data for _, data in received[1]} == {b"0", b"1", b"2"}
        assert networks[0].counts["dropped"] == 0
        await stop(networks)

    asyncio.run(story())


def test_a_message_that_is_cut_off_with_its_connection_is_nobodys_word():
    async def story():
        networks, received, addresses, papers = await started(2)
        credentials = grpc.ssl_channel_credentials(
            papers[0].authority, papers[0].key, papers[0].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        async with grpc.aio.secure_channel(addresses[1], credentials, options) as channel:
            for sent in (
                [announced(9) + b"abcdefgh"],
                [announced(7) + b"abcdefgh"],
                [announced(9) + b"abcdefgh", b"too much"],
                [announced(9), b""],
                [b"x"],
                [b""],
            ):
                call = channel.stream_unary(METHOD)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(iter(sent), timeout=5.0)
                assert caught.value.code() is grpc.StatusCode.DATA_LOSS
            dying = channel.stream_unary(METHOD)()
            await dying.write(announced(9) + b"abcdefgh")
            dying.cancel()
        networks[0].send(1, b"whole")
        await until(lambda: received[1])
        assert received[1] == [(0, b"whole")]
        assert networks[1].counts["cut_off"] >= 6
        await stop(networks)

    asyncio.run(story())


def test_a_stranger_and_a_certificate_of_another_authority_are_refused():
    async def story():
        networks, received, addresses, papers = await started(2)
        stranger = certificates(2)[0]
        for tls, names in ((stranger, None), (papers[0], "peer-0.test")):
            credentials = grpc.ssl_channel_credentials(
                papers[0].authority, tls.key, tls.certificate
            )
            options = [("grpc.ssl_target_name_override", names or "peer-1.test")]
            async with grpc.aio.secure_channel(addresses[1], credentials, options) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.stream_unary(METHOD)(iter([b"x"]), timeout=2.0)
        good = grpc.ssl_channel_credentials(
            papers[0].authority, papers[0].key, papers[0].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        async with grpc.aio.secure_channel(addresses[1], good, options) as channel:
            sent = [announced(4) + b"good"]
            await channel.stream_unary(METHOD)(iter(sent), timeout=2.0)
        async with grpc.aio.insecure_channel(addresses[1]) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.stream_unary(METHOD)(iter([b"x"]), timeout=2.0)
        assert received[1] == [(0, b"good")]
        await stop(networks)

    asyncio.run(story())


def test_a_peer_is_known_by_its_certificate_and_one_without_a_number_is_refused(caplog):
    async def story():
        papers = certificates(3)
        narrowed = [replace(p, names=p.names[:2]) for p in papers]
        networks, received, addresses, _ = await started(2, narrowed, complaints=(complaints := []))
        credentials = grpc.ssl_channel_credentials(
            papers[2].authority, papers[2].key, papers[2].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        async with grpc.aio.secure_channel(addresses[1], credentials, options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_unary(METHOD)(iter([b"x"]), timeout=2.0)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        ((peer, what),) = complaints
        assert peer is None
        assert "127.0.0.1" in what
        assert "(['peer-2.test']) is of no peer in this federation file" in what
        assert not received[1]
        await stop(networks)

    asyncio.run(story())


def test_pinned_peers_reach_each_other_and_a_member_cannot_issue_certificates_for_others():
    identities = [Identity.generate(name) for name in ("ash", "birch", "cedar")]
    papers = pinned(identities)
    forged, key = issued(papers[0].names[0], identities[1])

    async def story():
        networks, received, addresses, _ = await started(3, papers)
        networks[0].send(2, b"true")
        await until(lambda: received[2])
        for chain in (forged, forged + papers[1].certificate):
            credentials = grpc.ssl_channel_credentials(papers[0].authority, key, chain)
            options = [("grpc.ssl_target_name_override", papers[2].names[2])]
            async with grpc.aio.secure_channel(addresses[2], credentials, options) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.stream_unary(METHOD)(iter([b"forged"]), timeout=2.0)
        assert received[2] == [(0, b"true")]
        await stop(networks)

    asyncio.run(story())


def test_another_certificate_under_a_pinned_name_is_refused():
    async def story():
        papers = certificates(2)
        strict = [replace(p, pinned=(b"another", b"one")) for p in papers]
        networks, received, _, _ = await started(2, strict)
        networks[0].send(1, b"x")
        await until(lambda: networks[0].counts["failed"] > 0)
        assert not received[1]
        await stop(networks)

    asyncio.run(story())


def test_a_frozen_peer_does_not_keep_the_others_waiting_and_its_queue_is_bounded():
    async def story():
        block = asyncio.Event()
        networks, received, _, _ = await started(3, block=block)
        for i in range(30):
            networks[0].send(1, b"frozen %d" % i)
            networks[0].send(2, b"lively %d" % i) if i < 8 else None
        async with asyncio.timeout(1.5):
            await until(lambda: len(received[2]) == 8)
        assert not received[1]
        assert networks[0].counts["dropped"] >= 30 - 8 - 1
        block.set()
        await until(lambda: received[1])
        await stop(networks)

    asyncio.run(story())


@pytest.mark.slow
def test_a_message_to_a_peer_that_is_not_up_yet_arrives_when_it_is():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        received = []

        async def receive(source, data):
            received.append((source, data))

        first = Network(me=0, addresses=addresses, tls=papers[0], receive=receive, limits=QUICK)
        await first.start()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", int(addresses[1].split(":")[1])))
            first.send(1, b"early")
            await asyncio.sleep(0.1)
        second = Network(me=1, addresses=addresses, tls=papers[1], receive=receive, limits=QUICK)
        await second.start()
        for _ in range(20):
            first.send(1, b"again")
            await asyncio.sleep(0.1)
        await until(lambda: received)
        assert {source for source, _ in received} == {0}
        assert {data for _, data in received} <= {b"early", b"again"}
        await stop([first, second])

    asyncio.run(story())


def test_a_stream_that_cannot_be_opened_does_not_close_the_way_to_a_peer(caplog):
    async def story():
        networks, received, _, _ = await started(2)
        link = networks[0]._links[1]
        opened = link._open

        def broken(*_, **__):
            link._open = opened
            raise TypeError("no such argument")

        link._open = broken
        networks[0].send(1, b"first")
        networks[0].send(1, b"next")
        await until(lambda: len(received[1]) == 2)
        assert received[1] == [(0, b"first"), (0, b"next")]
        await stop(networks)

    asyncio.run(story())
    assert "no such argument" in caplog.text


def test_logs_call_a_peer_by_its_name_without_its_fingerprint():
    assert link._short(Identity.generate("elm-2").member("elm:1").tls_name) == "elm-2"
    assert link._short("peer-1.test") == "peer-1.test"


@pytest.mark.slow
def test_a_peer_that_cannot_be_reached_is_named_once_and_again_when_it_can(caplog):
    async def story():
        caplog.set_level("INFO")
        papers, addresses = certificates(2), free_addresses(2)
        received = []

        async def receive(source, data):
            received.append(data)

        first = Network(me=0, addresses=addresses, tls=papers[0], receive=receive, limits=QUICK)
        await first.start()
        for _ in range(3):
            first.send(1, b"early")
        await until(lambda: first.counts["dropped"] == 3)
        said = [r.getMessage() for r in caplog.records]
        assert len(said) == 1
        assert said[0].startswith(
            f"cannot reach peer-1.test at {addresses[1]} (nobody listens there)"
        )
        assert said[0].endswith("check that it runs, its address, and the firewall")
        second = Network(me=1, addresses=addresses, tls=papers[1], receive=receive, limits=QUICK)
        await second.start()
        while not received:
            first.send(1, b"again")
            await asyncio.sleep(0.1)
        await until(lambda: len(caplog.records) == 2)
        assert f"peer-1.test at {addresses[1]} can be reached now" in caplog.records[1].getMessage()
        await stop([first, second])

    asyncio.run(story())


async def chunks_of(size, pause=0.0):
    for i in range(size):
        yield (b"" if i else announced(size << 18)) + bytes(1 << 18)
        await asyncio.sleep(pause)


@pytest.mark.slow
def test_one_peer_cannot_have_many_messages_read_at_once_nor_send_one_for_ever():
    async def story():
        limits = replace(QUICK, deadline=1.0, calls=4)
        block = asyncio.Event()
        networks, received, addresses, papers = await started(2, limits=limits, block=block)
        credentials = grpc.ssl_channel_credentials(
            papers[0].authority, papers[0].key, papers[0].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        channels = [
            grpc.aio.secure_channel(addresses[1], credentials, [*options, ("number", i)])
            for i in range(8)
        ]
        slow = channels[0].stream_unary(METHOD)(chunks_of(8, 0.5), timeout=10.0)
        with pytest.raises(grpc.aio.AioRpcError):  # a client that still sends may not hear why
            await slow
        assert networks[1].counts["slow"] == 1
        calls = [c.stream_unary(METHOD)(chunks_of(4), timeout=3.0) for c in channels]
        await until(lambda: networks[1].counts["refused"] == 4)
        assert networks[1].counts["received"] == 1
        block.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(answer == announced(1) for answer in ended) == 4
        assert len(received[1]) == 4
        for channel in channels:
            await channel.close()
        await stop(networks)

    asyncio.run(story())


def test_a_network_stops_in_silence_while_others_speak_to_it(capfd):
    """What is under way at the end must not be told to the operator as an error."""

    async def story():
        networks, received, *_ = await started(3)
        for peer in (1, 2):
            networks[peer].send(0, b"word")
        await until(lambda: len(received[0]) == 2)
        await networks[0].stop()
        for peer in (1, 2):
            networks[peer].send(0, b"late word")
        await asyncio.sleep(0.1)
        await stop(networks[1:])

    asyncio.run(story())
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_wrong_with_our_own_part_of_a_stream_is_told(caplog):
    async def story():
        networks, received, *_ = await started(2)
        link = networks[0]._links[1]
        send, failures = link._send, [ZeroDivisionError("a slip")]

        async def slipping(call, message):
            if failures:
                raise failures.pop()
            await send(call, message)

        link._send = slipping
        networks[0].send(1, b"lost")
        networks[0].send(1, b"word")
        await until(lambda: (0, b"word") in received[1])
        await stop(networks)

    asyncio.run(story())
    assert "this is a bug" in caplog.text
    assert "a slip" in caplog.text
