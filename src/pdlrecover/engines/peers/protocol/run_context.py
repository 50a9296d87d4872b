"""Who takes part in a run, their keys and quorums, and how messages to them are built."""

from dataclasses import dataclass, field

from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.contracts import Crypto
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.effects import Send
from pdlrecover.engines.peers.protocol.messages import EVERYBODY, Body, Header
from pdlrecover.errors import ToleranceError
from pdlrecover.sharing import Scheme


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContext:
    """The peers of one run, as one of them sees it."""

    me: int
    peers: tuple[int, ...]
    """Who takes part, in order: everybody in training, the kept peers in a recovery."""
    scheme: Scheme
    crypto: Crypto
    federation: bytes
    run: bytes
    deadlines: Deadlines = field(default_factory=Deadlines)
    names: tuple[str, ...] = ()
    """What all peers of the federation are called, for people."""
    proves: bool = True
    """Whether two signed words that exclude each other prove a cheat; not in a founding run."""

    def __post_init__(self) -> None:
        if self.quorum > len(self.peers):
            raise ToleranceError(
                f"a step takes {self.quorum} peers, and {len(self.peers)} take part; remove fewer"
            )

    @property
    def quorum(self) -> int:
        """How many peers settle a set: two quorums share an honest peer, and each can open."""
        liars = self.scheme.quorums.tolerance.liars
        return max((len(self.peers) + liars) // 2 + 1, self.scheme.quorums.dot)

    @property
    def trusted(self) -> int:
        """How many peers that say the same are believed: more than may collude or lie."""
        tolerance = self.scheme.quorums.tolerance
        return max(tolerance.colluders, tolerance.liars) + 1

    @property
    def others(self) -> tuple[int, ...]:
        """Everybody but this peer."""
        return tuple(peer for peer in self.peers if peer != self.me)

    def name(self, peer: int) -> str:
        """Return what a peer is called."""
        return self.names[peer] if peer < len(self.names) else f"peer {peer}"

    def send(self, place: Header, body: Body, to: int) -> Send:
        """Return a signed message to one peer, about the place that this header names."""
        return Send(to=to, data=self._signed(place, body, to), kind=type(body).__name__)

    def broadcast(self, place: Header, body: Body) -> list[Send]:
        """Return a signed message to all others."""
        data, kind = self._signed(place, body, EVERYBODY), type(body).__name__
        return [Send(to=peer, data=data, kind=kind) for peer in self.others]

    def place(self, step: int, log: bytes, asked: bytes, round: int) -> Header:
        """Return the header of this peer's messages about a step."""
        return Header(
            federation=self.federation,
            run=self.run,
            step=step,
            round=round,
            sender=self.me,
            recipient=EVERYBODY,
            log=log,
            asked=asked,
        )

    def _signed(self, place: Header, body: Body, to: int) -> bytes:
        header = Header(**{**vars(place), "recipient": to})
        return codec.encode(header, body, self.crypto.sign)
