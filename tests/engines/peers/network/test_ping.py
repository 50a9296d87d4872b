"""Pings over real sockets: who is answered, how often, and what an older peer says."""

import asyncio
from collections import Counter

import grpc
from loopback import certificates, free_addresses

from pdlrecover.engines.peers.greeting import encode, greeting
from pdlrecover.engines.peers.transport.link import Limits
from pdlrecover.engines.peers.transport.network import Network
from pdlrecover.engines.peers.transport.ping import AT_ONCE, EACH_SECONDS, PING, How, Pings, ping

FILE = bytes(range(32))


async def lone(papers, addresses, me=1, greet=lambda: encode(greeting(FILE)), deadline=5.0):
    """Return one peer's network, and what it has received."""
    received = []

    async def receive(source, data):
        received.append((source, data))

    limits = Limits(deadline=deadline)
    network = Network(
        me=me, addresses=addresses, tls=papers[me], receive=receive, limits=limits, greet=greet
    )
    await network.start()
    return network, received


def test_a_member_is_told_version_clock_and_file_and_nothing_is_changed_by_that():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, received = await lone(papers, addresses)
        echo = await ping(addresses[1], papers[0].names[1], papers[0], 5.0)
        assert echo.how is How.ANSWERED
        assert echo.greeting.federation == FILE.hex()
        assert abs(echo.ahead) <= echo.seconds, "it is the same clock"
        assert network.counts["pings"] == 2
        assert received == []
        assert network.counts["received"] == network.counts["refused"] == 0
        await network.stop()

    asyncio.run(story())


def test_whoever_is_no_member_gets_no_answer():
    async def story():
        papers, addresses = certificates(3), free_addresses(3)
        network, _ = await lone([None, papers[1]], addresses[:2])
        strangers = certificates(2)
        echo = await ping(addresses[1], papers[0].names[1], strangers[0], 2.0)
        assert echo.how is How.UNREACHABLE, "the handshake fails"
        await network.stop()
        few = [
            type(p)(
                authority=p.authority,
                certificate=p.certificate,
                key=p.key,
                names=p.names[:2],
            )
            for p in papers
        ]
        network, _ = await lone(few, addresses[:2])
        echo = await ping(addresses[1], papers[0].names[1], papers[2], 2.0)
        assert echo.how is How.REFUSED, "one of the authority, and not in the federation"
        assert network.counts["pings"] == 0
        await network.stop()

    asyncio.run(story())


def test_who_asks_too_often_is_refused_and_counted_and_messages_come_through():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, received = await lone(papers, addresses)
        caller, _ = await lone(papers, addresses, me=0)
        outcomes = [
            (await ping(addresses[1], papers[0].names[1], papers[0], 5.0)).how
            for _ in range(AT_ONCE // 2 + 3)
        ]
        assert outcomes[0] is How.ANSWERED
        assert outcomes[-1] is How.BUSY
        assert network.counts["refused"] >= 1
        assert network.counts["pings"] > AT_ONCE
        caller.send(1, b"hello")
        async with asyncio.timeout(10):
            while not received:
                await asyncio.sleep(0.02)
        await caller.stop()
        await network.stop()

    asyncio.run(story())


def test_a_ping_with_content_is_refused():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, _ = await lone(papers, addresses)
        tls = papers[0]
        credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        named = [("grpc.ssl_target_name_override", tls.names[1])]
        async with grpc.aio.secure_channel(addresses[1], credentials, options=named) as channel:
            try:
                await channel.unary_unary(PING)(b"x", timeout=5.0)
                code = None
            except grpc.aio.AioRpcError as error:
                code = error.code()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        await network.stop()

    asyncio.run(story())


async def code_of(tls, address, name, messages):
    """Return how a ping ends that is sent as these messages, and nothing after them."""
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    named = [("grpc.ssl_target_name_override", name)]
    async with grpc.aio.secure_channel(address, credentials, options=named) as channel:
        call = channel.stream_unary(PING)(timeout=10.0)
        try:
            for message in messages:
                await call.write(message)
            return await call.code()
        except grpc.aio.AioRpcError as error:
            return error.code()


def test_a_ping_that_never_comes_is_not_waited_for():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, _ = await lone(papers, addresses, deadline=0.3)
        code = await code_of(papers[0], addresses[1], papers[0].names[1], [])
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert network.counts["slow"] == 1, "the other side has ended it, and not this one"
        await network.stop()

    asyncio.run(story())


def test_of_pings_that_are_too_many_nothing_is_read():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, _ = await lone(papers, addresses, deadline=30.0)
        network._pings = Pings(2, network.counts, 1e12)  # until then none is left
        network._pings._left = [0.0, 0.0]
        code = await code_of(papers[0], addresses[1], papers[0].names[1], [])
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await network.stop()

    asyncio.run(story())


def test_an_older_peer_is_reached_and_named_so_and_nonsense_is_no_greeting():
    async def story():
        papers, addresses = certificates(2), free_addresses(2)
        network, _ = await lone(papers, addresses, greet=None)
        echo = await ping(addresses[1], papers[0].names[1], papers[0], 5.0)
        assert (echo.how, echo.greeting) == (How.OLDER, None)
        await network.stop()
        network, _ = await lone(papers, addresses, greet=lambda: b"hello")
        echo = await ping(addresses[1], papers[0].names[1], papers[0], 5.0)
        assert (echo.how, echo.greeting) == (How.NONSENSE, None)
        await network.stop()

    asyncio.run(story())


def test_pings_come_back_with_time():
    counts = Counter()
    pings, now = Pings(2, counts, 100.0), 100.0
    taken = [pings.take(0, now) for _ in range(AT_ONCE + 2)]
    assert taken == [True] * AT_ONCE + [False] * 2
    assert pings.take(1, now), "each peer has its own"
    now += 3.5 * EACH_SECONDS
    assert [pings.take(0, now) for _ in range(4)] == [True, True, True, False]
    assert sum(pings.take(0, now + 1e6) for _ in range(2 * AT_ONCE)) == AT_ONCE
    assert counts["pings"] == 3 * AT_ONCE + 7
