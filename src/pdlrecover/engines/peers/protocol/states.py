"""The states of a step at one peer, and which moves are legal: a table.

`python docs/peers_states.py` draws docs/peers-states.md from this table.
"""

from enum import Enum

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import MessageError


class StepState(Enum):
    """Where a peer is in a step."""

    COMPUTING = "computes what it will deal"
    GATHERING = "has dealt, and waits for the others' dealings"
    AGREEING = "has sent its receipt, and agrees with the others on whose dealings count"
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


UNSETTLED = (StepState.COMPUTING, StepState.GATHERING, StepState.AGREEING)
"""The states in which a peer does not know yet whose dealings count."""
TABLE: dict[tuple[StepState, Move], StepState] = {
    (StepState.COMPUTING, Move.DEALT): StepState.GATHERING,
    (StepState.COMPUTING, Move.DECIDED): StepState.OPENING,
    (StepState.GATHERING, Move.ALL_HERE): StepState.AGREEING,
    (StepState.GATHERING, Move.DEADLINE): StepState.AGREEING,
    (StepState.GATHERING, Move.DECIDED): StepState.OPENING,
    (StepState.AGREEING, Move.DECIDED): StepState.OPENING,
    (StepState.OPENING, Move.OPENS): StepState.OPENED,
    **{(state, Move.OVERTAKEN): StepState.BEHIND for state in (*UNSETTLED, StepState.OPENING)},
    (StepState.BEHIND, Move.CAUGHT_UP): StepState.OPENED,
    **{
        (state, Move.DIVERGED): StepState.STOPPED
        for state in (*UNSETTLED, StepState.OPENING, StepState.BEHIND)
    },
}

_ACCUSATIONS = frozenset({m.Misdealt, m.Equivocation})
_BEFORE = frozenset({m.Dealing, m.Receipt, m.Proposal, m.Vote, m.SubSecret}) | _ACCUSATIONS
TAKES: dict[StepState, frozenset[type]] = {
    **dict.fromkeys(StepState, frozenset()),
    **dict.fromkeys(UNSETTLED, _BEFORE),
    StepState.OPENING: frozenset({m.SubSecret}) | _ACCUSATIONS,
}
"""Which messages of its own step a peer looks at; others come too late and are passed over."""
HELPS = frozenset({m.Receipt, m.Proposal, m.Vote})
"""What a peer looks at besides when it has waited long in OPENING: others may not have settled the
set yet, and need its votes again in later views."""


def moved(state: StepState, move: Move) -> StepState:
    """Return the state that a move leads to; raise if it is not legal."""
    try:
        return TABLE[state, move]
    except KeyError:
        raise MessageError(f"{move.name} is not legal in state {state.name}") from None
