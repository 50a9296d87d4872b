"""The states of a step at one peer, and which moves are legal: a table.

`python docs/peers_states.py` draws docs/peers-states.md from this table.
"""

from enum import Enum

from pdlrecover.engines.peers import messages as m
from pdlrecover.errors import MessageError


class State(Enum):
    """Where a peer is in a step."""

    COMPUTING = "computes what it will deal"
    GATHERING = "has dealt, and waits for the others' dealings"
    AGREEING = "has told what it holds, and agrees with the others on whose dealings count"
    OPENING = "collects sub-secrets until they open"
    BEHIND = "has been overtaken, and fetches the public answers"
    OPENED = "has the answer"
    STOPPED = "holds another model than the others, and goes no further"


class Move(Enum):
    """What takes a step from one state to another."""

    DEALT = "own shares are dealt"
    ALL_HERE = "every peer's dealing is here"
    DEADLINE = "the time for dealing is over"
    DECIDED = "a quorum has settled the set"
    OPENS = "enough sub-secrets lie on one polynomial"
    OVERTAKEN = "more peers than may lie are ahead"
    CAUGHT_UP = "the fetched answers lead to what those peers signed"
    DIVERGED = "too many peers signed another model"


TABLE: dict[tuple[State, Move], State] = {
    (State.COMPUTING, Move.DEALT): State.GATHERING,
    (State.COMPUTING, Move.DECIDED): State.OPENING,
    (State.GATHERING, Move.ALL_HERE): State.AGREEING,
    (State.GATHERING, Move.DEADLINE): State.AGREEING,
    (State.GATHERING, Move.DECIDED): State.OPENING,
    (State.AGREEING, Move.DECIDED): State.OPENING,
    (State.OPENING, Move.OPENS): State.OPENED,
    **{
        (state, Move.OVERTAKEN): State.BEHIND
        for state in (State.COMPUTING, State.GATHERING, State.AGREEING, State.OPENING)
    },
    (State.BEHIND, Move.CAUGHT_UP): State.OPENED,
    **{
        (state, Move.DIVERGED): State.STOPPED
        for state in (
            State.COMPUTING,
            State.GATHERING,
            State.AGREEING,
            State.OPENING,
            State.BEHIND,
        )
    },
}

_ACCUSATIONS = frozenset({m.Misdealt, m.Equivocation})
_BEFORE = frozenset({m.Dealing, m.Receipt, m.Proposal, m.Vote, m.SubSecret}) | _ACCUSATIONS
TAKES: dict[State, frozenset[type]] = {
    State.COMPUTING: _BEFORE,
    State.GATHERING: _BEFORE,
    State.AGREEING: _BEFORE,
    State.OPENING: frozenset({m.SubSecret}) | _ACCUSATIONS,
    State.BEHIND: frozenset(),
    State.OPENED: frozenset(),
    State.STOPPED: frozenset(),
}
"""Which messages of its own step a peer looks at; others come too late and are passed over."""
HELPS = frozenset({m.Receipt, m.Proposal, m.Vote})
"""What a peer looks at besides when it has waited long in OPENING: others may not have settled the
set yet, and need its votes again in later views."""


def moved(state: State, move: Move) -> State:
    """Return the state that a move leads to; raise if it is not legal."""
    try:
        return TABLE[state, move]
    except KeyError:
        raise MessageError(f"{move.name} is not legal in state {state.name}") from None
