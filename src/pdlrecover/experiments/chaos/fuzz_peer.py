"""Validly signed odd messages at a live peer, while it trains with others.

1. All peers of a federation but the last are started as processes of their own. The last member is
   this program: it has that member's keys, and nothing of its protocol.
2. It listens to what the others say, and sends the first peer messages that it has drawn or
   mutated, each with its valid signature, as fast as they are taken: gRPC and TLS as between peers.
3. When all were taken and the training has ended, the peers are stopped.

It holds if no peer logged an error that is a bug, none ended, all that train have one model, nobody
honest was proven to have cheated, and the first peer's memory has not grown much.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.folder import IDENTITY, TRAINED
from pdlrecover.engines.peers.identity.keyring import Keyring
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.transport.link import Limits, Tls
from pdlrecover.engines.peers.transport.network import Network
from pdlrecover.errors import CodecError
from pdlrecover.experiments.chaos import verdict as v
from pdlrecover.experiments.chaos.local_federation import settle
from pdlrecover.experiments.chaos.memory import own_bytes
from pdlrecover.experiments.chaos.odd_messages import OddMessages
from pdlrecover.experiments.chaos.peer_processes import PeerProcesses
from pdlrecover.experiments.chaos.scenario import Scenario

MEMORY = 64 << 20
"""The peer may grow by this many bytes."""
DEALING = 0.5
"""Seconds: the others wait for a dealing of the hostile member in every round, and none comes."""
AT_ONCE = 200
"""So many messages are under way at most."""
PATIENCE = 120.0
"""Nothing is taken, or no round ends, for this many seconds: that is a problem."""
TOLD = 20


@dataclass(frozen=True, kw_only=True)
class PeerVerdict:
    """What came of it."""

    messages: int
    """How many the peer has taken."""
    grown_bytes: int
    weights: str | None
    """The digest of the one model that the others trained meanwhile."""
    named: tuple[str, ...]
    """What the peers say that the hostile member did."""
    problems: tuple[str, ...]


def fuzz_peer(
    place: Path, count: int, seed: int, say: Callable[[str], None], rounds: int = 100
) -> PeerVerdict:
    """Send so many messages to a live peer, in a federation whose files are in a new folder."""
    scenario = Scenario(peers=5, rounds=rounds, cheating=True)
    place.mkdir(parents=True)
    agreed = scenario.agreed()
    agreed["deadlines"] = replace(agreed["deadlines"], dealing=DEALING)
    federation = settle(place, scenario.names, agreed, source="digits")
    *honest, hostile = scenario.names
    with PeerProcesses(federation, scenario.names) as processes:
        for name in honest:
            processes.start(name)
        member = HostileMember(federation, processes.folder(hostile), f"peer {seed}")
        taken, grown, problems = asyncio.run(_attack(member, processes, honest, count, say))
        problems += [f"{name} ended with code {code}" for name, code in processes.died().items()]
        processes.stop()
        problems += v.bugs(processes, honest)
        found = v.models(processes, honest, TRAINED)
        if len(found) < len(honest) or len(set(found.values())) != 1:
            problems.append(f"the others did not come to one model: {found}")
        named = v.named(processes, honest)
    for name in honest:
        proven = [what for what, is_proven in named.get(name, {}).items() if is_proven]
        problems += [f"{name} is honest, and was proven to have cheated: {proven}"] * bool(proven)
    if grown > MEMORY:
        problems.append(f"memory has grown by {grown / 1e6:.0f} MB, more than {MEMORY / 1e6:.0f}")
    return PeerVerdict(
        messages=taken,
        grown_bytes=grown,
        weights=min(found.values(), default=None) if len(set(found.values())) == 1 else None,
        named=tuple(named.get(hostile, ())),
        problems=tuple(problems),
    )


class HostileMember:
    """A member's keys and connections, and what it hears."""

    def __init__(self, federation: Path, folder: Path, seed: str) -> None:
        members, identity = load_federation(federation).peers, Identity.load(folder / IDENTITY)
        self.me = load_federation(federation).number_of(identity)
        self.odd = OddMessages(seed, len(members))
        self._keys = Keyring.of_peer(identity, members)
        self._addresses = [member.address for member in members]
        key, certificate = identity.tls_pem()
        self._tls = Tls(
            authority=b"".join(member.certificate_pem for member in members),
            certificate=certificate,
            key=key,
            names=tuple(member.tls_name for member in members),
            pinned=tuple(member.certificate for member in members),
        )

    def network(self) -> Network:
        """Return its connections, not started."""
        limits = Limits(queued_messages=2 * AT_ONCE, deadline=60.0)
        return Network(
            me=self.me,
            addresses=self._addresses,
            tls=self._tls,
            receive=self._hear,
            limits=limits,
        )

    def message(self) -> bytes:
        """Draw a message, signed."""
        return self.odd.signed(self.me, self._keys.sign)

    async def _hear(self, source: int, data: bytes) -> None:
        with suppress(CodecError):
            self.odd.see(codec.decode(data))


async def _attack(
    member: HostileMember,
    processes: PeerProcesses,
    honest: list[str],
    count: int,
    say: Callable[[str], None],
) -> tuple[int, int, list[str]]:
    """Send until so many were taken and the training has ended.

    Return how many were, by how much the first peer has grown, and what went wrong.
    """
    network, victim, problems = member.network(), honest[0], list[str]()
    await network.start()
    try:
        if not await _until(lambda: member.odd.last is not None and _moves(processes, victim)):
            return 0, 0, [f"{victim} was not heard of within {PATIENCE:.0f} s"]
        before, since = own_bytes(processes.pid(victim)), time.monotonic()
        sent = told = seen = 0
        while (taken := network.counts["sent"]) < count and not processes.died():
            while sent - taken - network.counts["dropped"] < AT_ONCE:
                network.send(0, member.message())
                sent += 1
            if taken != seen:
                seen, since = taken, time.monotonic()
            if time.monotonic() > since + PATIENCE:
                problems.append(f"{victim} took none for {PATIENCE:.0f} s, after {taken:,}")
                break
            if taken * TOLD >= told * count:
                say(f"{taken:,} of {count:,} signed messages were taken by {victim}")
                told += 1
            await asyncio.sleep(0.01)
        if not await _until(lambda: _all_trained(processes, honest) or bool(processes.died())):
            problems.append(f"the training did not end within {PATIENCE:.0f} s after the messages")
        alive = victim not in processes.died()
        grown = own_bytes(processes.pid(victim)) - before if alive else 0
        return min(taken, count), grown, problems
    finally:
        await network.stop()


async def _until(condition: Callable[[], bool]) -> bool:
    """Wait until something is so; say whether it came to that."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.1)
    return True


def _moves(processes: PeerProcesses, name: str) -> bool:
    """Say whether a peer has come to its second round: everything that it loads is loaded."""
    runs = processes.status(name).get("runs", {}).values()
    return any(run["step"] > 1 for run in runs)


def _all_trained(processes: PeerProcesses, names: list[str]) -> bool:
    return len(v.models(processes, names, TRAINED)) == len(names)
