"""What a cheating peer does otherwise than the protocol says.

A cheat changes up to three things: the numbers that the peer deals, the set of dealers that it
proposes when it leads, and what it says to whom. What it says is changed before it is signed, so
that all of it carries the cheat's valid signature. In all else the peer is honest. Every cheat is
deterministic: what is said twice is said in the same words, unless the contradiction is the cheat.

Here is only what a cheat would do. It is done by `cheating_peer`, a program of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.field import F61, Integers

EVERY = 5
"""Cheats that spoil a round do so in one round of this many, so that training can go on."""
FETCHES = 8
"""How often a greedy peer asks for the same."""


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """What a peer is about to say to another."""

    body: m.Body
    step: int
    to: int
    """The recipient's number."""
    peers: tuple[int, ...]
    """Who takes part in the run."""


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """One way of cheating."""

    summary: str
    deals: Callable[[Integers, int], Integers] = lambda numbers, round: numbers
    """From the numbers of an update, its weight last, and the round: what is dealt instead."""
    proposes: Callable[[Sequence[m.Held], int, int], Sequence[m.Held]] = lambda held, *_: held
    """From the set that an honest leader would propose, the cheat's number and the quorum: what the
    cheat proposes."""
    says: Callable[[Spoken], list[m.Body]] = lambda spoken: [spoken.body]
    """What is said instead: one thing, or, where it is said to everybody, several."""
    is_named: bool = False
    """Whether some honest peer must have named the cheat by the end."""


def _weight(factor: int) -> Callable[[Integers, int], Integers]:
    def deal(numbers: Integers, round: int) -> Integers:
        dealt = numbers.copy()
        if round % EVERY == EVERY - 1:
            dealt[-1] = factor * max(abs(int(dealt[-1])), 1)
        return dealt

    return deal


def _absurd_update(numbers: Integers, round: int) -> Integers:
    dealt = numbers.copy()
    if round % EVERY == EVERY - 1:
        dealt[:-1] = 1 << 50
    return dealt


def _small_set(held: Sequence[m.Held], me: int, quorum: int) -> Sequence[m.Held]:
    """Propose the cheat itself and as few others as a set may have: a quorum in all."""
    others = [each for each in held if each.dealer != me][: quorum - 1]
    return sorted([*others, *(h for h in held if h.dealer == me)], key=lambda each: each.dealer)


def _withhold(spoken: Spoken) -> list[m.Body]:
    """Say where the cheat is, instead of dealing, to two peers, others in each step."""
    place, count = spoken.peers.index(spoken.to), len(spoken.peers)
    missed = (place - spoken.step) % count < 2
    return [
        m.Position(reply=False) if isinstance(spoken.body, m.Dealing) and missed else spoken.body
    ]


def _wrong_sub_secret(spoken: Spoken) -> list[m.Body]:
    if not isinstance(spoken.body, m.SubSecret):
        return [spoken.body]
    values = F61.add(spoken.body.values, np.ones_like(spoken.body.values))
    return [replace(spoken.body, values=values)]


def _two_votes(spoken: Spoken) -> list[m.Body]:
    """Vote for the set, and for nothing as well."""
    if not isinstance(spoken.body, m.Vote):
        return [spoken.body]
    return [spoken.body, replace(spoken.body, choice=m.NOTHING)]


def _greedy(spoken: Spoken) -> list[m.Body]:
    if not isinstance(spoken.body, m.Receipt):
        return [spoken.body]
    return [spoken.body, *[m.Fetch(first=0)] * FETCHES]


CHEATS = {
    "large-weight": Cheat(
        summary="deals a weight so large that the mean is nearly nothing",
        deals=_weight(1 << 20),
        is_named=True,
    ),
    "negative-weight": Cheat(
        summary="deals a weight that makes the sum of all weights negative",
        deals=_weight(-100),
        is_named=True,
    ),
    "absurd-update": Cheat(
        summary="deals an update far beyond the public bound",
        deals=_absurd_update,
        is_named=True,
    ),
    "small-set": Cheat(summary="leaves dealers out when it leads", proposes=_small_set),
    "withhold": Cheat(summary="sends no dealing to a rotating few", says=_withhold),
    "wrong-sub-secret": Cheat(
        summary="sends sub-secrets that are not the sum of its shares",
        says=_wrong_sub_secret,
        is_named=True,
    ),
    "two-votes": Cheat(summary="votes in two ways", says=_two_votes, is_named=True),
    "greedy": Cheat(summary="asks for the whole log again and again", says=_greedy, is_named=True),
}
"""By name. A name in a run's list of cheats may come more than once."""
