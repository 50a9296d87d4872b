"""Connections of nobody: whoever can reach the port can make them."""

import asyncio
import json
import socket
import threading
from collections import Counter
from functools import partial

import loopback
import pytest
import whole_peers
from loopback import certificates, free_addresses
from processes import Processes, same

from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.identity.member import split_address
from pdlrecover.engines.peers.transport.link import Limits
from pdlrecover.engines.peers.transport.network import Network

until = partial(loopback.until, seconds=30.0)


class Strangers:
    """Keeps so many idle connections open to an address: those that are closed come again."""

    def __init__(self, address, count):
        self._to, self._count = split_address(address), count
        self._open, self._ends = [], threading.Event()
        self.most = 0
        """How many were open at once."""
        self._thread = threading.Thread(target=self._work)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        for each in self._open:
            each.close()

    def _work(self):
        while not self._ends.wait(0.05):
            for each in [each for each in self._open if is_closed(each)]:
                self._open.remove(each)
                each.close()
            while len(self._open) < self._count and not self._ends.is_set():
                try:
                    self._open.append(socket.create_connection(self._to, timeout=1.0))
                except OSError:
                    break
                self._open[-1].setblocking(False)
            self.most = max(self.most, len(self._open))


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_connections_that_say_nothing_are_closed_soon_and_counted_and_callers_are_served():
    async def story():
        papers, addresses, received = certificates(2), free_addresses(2), []

        async def receive(source, data):
            received.append((source, data))

        networks = [
            Network(
                me=me,
                addresses=addresses,
                tls=papers[me],
                receive=receive,
                limits=Limits(handshake=3.0, connections=20),
            )
            for me in range(2)
        ]
        for network in networks:
            await network.start()
        networks[0].send(1, b"before")
        await until(lambda: len(received) == 1)
        idle = [socket.create_connection(split_address(addresses[1])) for _ in range(30)]
        for each in idle:
            each.setblocking(False)
        idle[0].send(b"\x16\x03\x01")  # as a handshake begins
        await until(lambda: sum(map(is_closed, idle)) >= 11)  # 1 of 20 is the other peer's
        assert sum(map(is_closed, idle)) == 11, "those beyond the limit are closed at once"
        networks[0].send(1, b"during")
        await until(lambda: len(received) == 2)
        await until(lambda: all(map(is_closed, idle)))
        await until(lambda: networks[1].counts["unfinished"] >= 19)
        assert networks[1].counts["unfinished"] <= 30
        assert networks[0].counts["unfinished"] == 0
        networks[0].send(1, b"after")
        await until(lambda: len(received) == 3)
        assert [data for _, data in received] == [b"before", b"during", b"after"]
        for each in (*idle, *networks):
            closed = each.close() if isinstance(each, socket.socket) else await each.stop()
            assert closed is None

    asyncio.run(story())


@pytest.mark.slow
def test_a_peer_with_few_descriptors_trains_to_the_end_among_hundreds_of_idle_connections(tmp_path):
    rounds, few = 60, 256
    place = Processes(tmp_path, training=whole_peers.training(rounds=rounds))
    address = load_federation(place.federation).peers[0].address
    try:
        place.start(0, descriptors=few)
        place.start(1, 2, 3, 4)
        place.wait(lambda: place.step(0) >= 2)
        with Strangers(address, 2 * few) as strangers:
            place.wait(lambda: strangers.most > few / 2)
            assert place.step(0) < rounds - 10, "most of the training is still to come"
            place.wait(place.have(place.everybody, "trained.json"))
            place.wait(lambda: place.ask(0, do="status")["network"].get("unfinished", 0) > few / 2)
        assert place.running[0].poll() is None
        same([place.folder(me) / "trained.safetensors" for me in place.everybody])
        told = [json.loads((place.folder(me) / "trained.json").read_text()) for me in (0, 1)]
        assert told[0]["dealt"] == told[1]["dealt"]
        assert Counter(told[1]["dealt"])["ash"] > rounds - 10, "it goes on to deal"
        assert any("connections came and made no call" in text for text in place.warnings())
    finally:
        place.end()
