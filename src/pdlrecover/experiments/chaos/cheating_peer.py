"""A peer that cheats, for chaos runs only: a program of its own.

    python -m pdlrecover.experiments.chaos.cheating_peer CHEAT peer run FEDERATION FOLDER

It puts a cheat in three places of the peer, in its own process, and then runs the command. The peer
that everybody else runs knows nothing of it: no setting, message or file leads here.
"""

import functools
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pdlrecover.engines.peers.protocol.ballot import Ballot
from pdlrecover.engines.peers.protocol.effects import Send
from pdlrecover.engines.peers.protocol.messages import EVERYBODY, Body, Header, Held, Proposal
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.runs.contribution import Contribution
from pdlrecover.experiments.chaos.cheats import CHEATS, Cheat, Spoken
from pdlrecover.field import Integers


def play(cheat: Cheat) -> None:
    """Make every peer of this process play this cheat."""
    _deal(cheat)
    _propose(cheat)
    _speak(cheat)


def _deal(cheat: Cheat) -> None:
    honest = Contribution.__call__

    @functools.wraps(honest)
    def dealt(self: Contribution, asked: Any, *rest: Any, **named: Any) -> Integers:
        return cheat.deals(honest(self, asked, *rest, **named), asked.round)

    Contribution.__call__ = dealt  # type: ignore[method-assign]


def _propose(cheat: Cheat) -> None:
    honest = Ballot.propose

    @functools.wraps(honest)
    def proposed(self: Ballot, dealers: Sequence[Held]) -> Proposal:
        return honest(self, tuple(cheat.proposes(dealers, self.me, self.quorum)))

    Ballot.propose = proposed  # type: ignore[method-assign]


def _speak(cheat: Cheat) -> None:
    honest = RunContext.send

    def said(context: RunContext, place: Header, body: Body, to: int, whose: int) -> list[Send]:
        spoken = Spoken(body=body, step=place.step, to=to, peers=context.peers)
        sends = [honest(context, place, each, whose) for each in cheat.says(spoken)]
        return [replace(each, to=to) for each in sends]

    def send(self: RunContext, place: Header, body: Body, to: int) -> Send:
        return said(self, place, body, to, to)[0]

    def broadcast(self: RunContext, place: Header, body: Body) -> list[Send]:
        return [each for to in self.others for each in said(self, place, body, to, EVERYBODY)]

    RunContext.send = send  # type: ignore[method-assign]
    RunContext.broadcast = broadcast  # type: ignore[method-assign]


def main() -> None:
    """Play the cheat that the first argument names, and run the command that the others are."""
    name, *command = sys.argv[1:]
    play(CHEATS[name])
    sys.argv = ["pdlrecover", *command]
    runpy.run_module("pdlrecover", run_name="__main__")


if __name__ == "__main__":
    main()
