"""Real sockets on the loopback, in one process."""

import asyncio
import socket
from dataclasses import replace

import grpc
import pytest
from office import certificates, free_addresses, issued, pinned

from pdlrecover.engines.peers.identity import Identity
from pdlrecover.engines.peers.network import METHOD, Limits, Network

QUICK = Limits(deadline=2.0, pause=0.05, message_bytes=3 << 20, queued_messages=8)


async def started(count, papers=None, limits=QUICK, block=None):
    """Return networks that write down what they receive; `block` is an event that holds peer 1."""
    papers, addresses = papers or certificates(count), free_addresses(count)
    received = [[] for _ in range(count)]
    networks = []
    for me in range(count):

        async def receive(source, data, me=me):
            if me == 1 and block is not None:
                await block.wait()
            received[me].append((source, data))

        networks.append(
            Network(me=me, addresses=addresses, tls=papers[me], receive=receive, limits=limits)
        )
    for network in networks:
        await network.start()
    return networks, received, addresses, papers


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


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


def test_a_message_over_the_limit_is_refused_and_not_tried_again(caplog):
    async def story():
        networks, received, _, _ = await started(2)
        networks[0].send(1, bytes(4 << 20))
        networks[0].send(1, b"next")
        await until(lambda: received[1])
        assert received[1] == [(0, b"next")]
        assert networks[0].counts["dropped"] == 1
        assert networks[1].counts["oversize"] == 1
        assert "peer-0.test sent a message of more than" in caplog.text
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
            await channel.stream_unary(METHOD)(iter([b"good"]), timeout=2.0)
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
        networks, received, addresses, _ = await started(2, narrowed)
        credentials = grpc.ssl_channel_credentials(
            papers[2].authority, papers[2].key, papers[2].certificate
        )
        options = [("grpc.ssl_target_name_override", "peer-1.test")]
        async with grpc.aio.secure_channel(addresses[1], credentials, options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_unary(METHOD)(iter([b"x"]), timeout=2.0)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "(['peer-2.test']) is of no peer in this federation file" in caplog.text
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


def test_a_message_that_cannot_be_sent_does_not_close_the_way_to_a_peer(caplog):
    async def story():
        networks, received, _, _ = await started(2)
        link = networks[0]._links[1]
        call = link._call

        def broken(*_, **__):
            link._call = call
            raise TypeError("no such argument")

        link._call = broken
        networks[0].send(1, b"lost")
        networks[0].send(1, b"next")
        await until(lambda: received[1])
        assert received[1] == [(0, b"next")]
        assert networks[0].counts["dropped"] == 1
        await stop(networks)

    asyncio.run(story())
    assert "no such argument" in caplog.text


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
        assert said[0].startswith(f"cannot reach peer-1.test at {addresses[1]} (UNAVAILABLE")
        assert said[0].endswith("check that it runs, its address, and the firewall")
        second = Network(me=1, addresses=addresses, tls=papers[1], receive=receive, limits=QUICK)
        await second.start()
        while not received:
            first.send(1, b"again")
            await asyncio.sleep(0.1)
        await until(lambda: len(caplog.records) == 2)
        assert "can be reached again" in caplog.records[1].getMessage()
        await stop([first, second])

    asyncio.run(story())


async def chunks_of(size, pause=0.0):
    for _ in range(size):
        yield bytes(1 << 18)
        await asyncio.sleep(pause)


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
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await slow
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert networks[1].counts["slow"] == 1
        calls = [c.stream_unary(METHOD)(chunks_of(4), timeout=3.0) for c in channels]
        await until(lambda: networks[1].counts["refused"] == 4)
        assert networks[1].counts["received"] == 1
        block.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(answer == b"" for answer in ended) == 4
        assert len(received[1]) == 4
        for channel in channels:
            await channel.close()
        await stop(networks)

    asyncio.run(story())
