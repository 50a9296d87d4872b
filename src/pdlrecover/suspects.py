"""A file of suspects: who is to be removed, written by whoever found them.

    {"format": 1, "suspects": [{"peer": "hospital-b"}, {"peer": 7, "score": 0.98}]}

Rules: a peer is named by its name or its number, counted from 0. What else an entry says is for
people, and other keys are left alone. A file without suspects removes nobody, so it is refused.
"""

from pathlib import Path

from pdlrecover.errors import PlanError
from pdlrecover.files import read_json

FORMAT = 1
SIGN = "@"
"""What stands before the name of such a file where a peer could be named."""


def read_suspects(path: Path) -> list[int | str]:
    """Return the peers that a file names, in its order, each once."""
    found = read_json(path, PlanError, missing="name a file of suspects", damaged=None)
    if not isinstance(found, dict) or not isinstance(found.get("suspects"), list):
        raise PlanError(f'{path} must be a JSON object with a list "suspects"')
    if (form := found.get("format")) != FORMAT:
        raise PlanError(f'{path} must say "format": {FORMAT}, got {form!r}')
    peers: list[int | str] = []
    for place, entry in enumerate(found["suspects"]):
        peer = entry.get("peer") if isinstance(entry, dict) else None
        if isinstance(peer, bool) or not isinstance(peer, int | str):
            raise PlanError(
                f'suspect {place} in {path} must be {{"peer": name or number}}, got {entry!r:.60}'
            )
        if peer not in peers:
            peers.append(peer)
    if not peers:
        raise PlanError(f"{path} names no suspect, so there is nobody to remove")
    return peers
