"""Draws docs/peers-states.md from the transition table of the peers' protocol.

With `--check` nothing is written, and the exit code says whether the page is up to date.
"""

import sys
from pathlib import Path

from pdlrecover.engines.peers.protocol.states import HELPS, TABLE, TAKES, Move, StepState

PAGE = Path(__file__).parent / "peers-states.md"


def page() -> str:
    """Return the page."""
    lines = [
        "# The states of a step",
        "",
        "Drawn by `python docs/peers_states.py` from the table in",
        "`engines/peers/protocol/states.py`. What the states and moves are for is described in",
        "[the protocol](peers-protocol.md).",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> COMPUTING: something is dealt",
        "    [*] --> OPENING: only stored shares are opened",
    ]
    lines += [f"    {a.name} --> {b.name}: {move.value}" for (a, move), b in TABLE.items()]
    lines += [
        "    OPENED --> [*]",
        "    STOPPED --> [*]",
        "```",
        "",
        "| state | the peer | takes |",
    ]
    lines.append("|---|---|---|")
    for state in StepState:
        taken = ", ".join(sorted(kind.__name__ for kind in TAKES[state])) or "nothing of this step"
        later = ", ".join(sorted(kind.__name__ for kind in HELPS))
        taken += f"; after a wait also {later}" if state is StepState.OPENING else ""
        lines.append(f"| {state.name} | {state.value} | {taken} |")
    lines += ["", "| move | when |", "|---|---|"]
    lines += [f"| {move.name} | {move.value} |" for move in Move]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write or check the page."""
    if "--check" in sys.argv:
        stale = not PAGE.exists() or PAGE.read_text() != page()
        sys.exit("docs/peers-states.md is not up to date, run `make docs`" if stale else 0)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
