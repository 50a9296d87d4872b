"""The peers of a federation by number and by name, and who is meant by `remove=…`.

Rules: peers have numbers from 0 on, in the order of the datasets, and names where the datasets came
as a mapping. Some of them can be given as

- a list of numbers, of names, or of both;
- a mask: one truth value for each peer, as list, array, tensor or column;
- a file of suspects: `"@suspects.json"` or a `Path` (see `pdlrecover.suspects`).
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdlrecover.errors import PlanError
from pdlrecover.federation.arguments import described
from pdlrecover.suspects import SIGN, read_suspects

FORMS = 'a list of peers, such as [3, 7], one truth value for each peer, or "@suspects.json"'


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who the peers are."""

    count: int
    names: tuple[str, ...] | None = None

    def title(self, peer: int) -> str:
        """Return what a peer is called in messages."""
        return f"peer {self.said(peer)}"

    def said(self, peer: int) -> str:
        """Return a peer as it stands in messages, after "peer"."""
        return str(peer) if self.names is None else repr(self.names[peer])

    def name(self, peer: int) -> str:
        """Return a peer's name, or its number."""
        return str(peer) if self.names is None else self.names[peer]

    def number(self, peer: Any, argument: str) -> int:
        """Return the number of the peer that is meant, or raise."""
        if isinstance(peer, np.generic) or (isinstance(peer, torch.Tensor) and not peer.ndim):
            peer = peer.item()
        if isinstance(peer, str):
            return self._named(peer)
        if isinstance(peer, bool) or not isinstance(peer, int):
            raise PlanError(
                f"{argument} must name peers by number or name, and has {described(peer)}"
            )
        if not 0 <= peer < self.count:
            raise PlanError(
                f"peers are numbered 0 to {self.count - 1}; there is no peer {peer} ({argument})"
            )
        return peer

    def numbers(self, given: Any, argument: str) -> tuple[int, ...]:
        """Return the numbers of the peers that are meant, in the order given."""
        if isinstance(given, str | Path):
            given = self._file(given, argument)
        if isinstance(given, torch.Tensor):
            given = given.detach().cpu().numpy()
        if hasattr(given, "to_numpy"):
            given = self._in_order(given, argument).to_numpy()
        if isinstance(given, dict) or not isinstance(given, Iterable):
            hint = f"; write {argument}=[{given!r}]" if isinstance(given, int) else ""
            raise PlanError(f"{argument} must be {FORMS}, got {described(given)}{hint}")
        if isinstance(given, np.ndarray) and given.ndim != 1:
            raise PlanError(f"{argument} must be {FORMS}, got an array of shape {given.shape}")
        peers = list(given)
        if any(isinstance(peer, bool | np.bool_) for peer in peers):
            peers = self._masked(peers, argument)
        numbers = tuple(self.number(peer, argument) for peer in peers)
        if len(set(numbers)) < len(numbers):
            twice = next(peer for peer in numbers if numbers.count(peer) > 1)
            raise PlanError(
                f"{argument} names {self.title(twice)} more than once; name each peer once, or "
                "give truth values (True, False) if it is a mask"
            )
        return numbers

    def _named(self, name: str) -> int:
        if self.names is None:
            raise PlanError(
                f"there is no peer {name!r}: these peers have numbers, 0 to {self.count - 1}; give "
                "the datasets as a mapping from names to use names"
            )
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {self.listed()}"
            raise PlanError(f"there is no peer {name!r}; {meant}")
        return self.names.index(name)

    def listed(self) -> str:
        """Return all peers in a few words."""
        if self.names is None:
            return f"0 to {self.count - 1}"
        more = f" and {self.count - 6} more" if self.count > 6 else ""
        return ", ".join(self.names[:6]) + more

    def _file(self, given: str | Path, argument: str) -> list[int | str]:
        if isinstance(given, Path):
            return read_suspects(given)
        if given.startswith(SIGN):
            return read_suspects(Path(given.removeprefix(SIGN)))
        raise PlanError(f"{argument} must be {FORMS}, got {given!r}; write {argument}=[{given!r}]")

    def _in_order(self, given: Any, argument: str) -> Any:
        """Return a column of pandas, a mask that is indexed by peers in their order."""
        index = list(getattr(given, "index", ()))
        places = list(range(len(index)))
        if given.dtype.kind != "b" or index == places:
            return given
        mine = places if self.names is None else list(self.names)
        if sorted(map(str, index)) != sorted(map(str, mine)):
            raise PlanError(
                f"{argument} is a mask whose index is not that of the peers ({self.listed()}); "
                "index it by them, or give its values in the order of the peers"
            )
        return given.loc[mine]

    def _masked(self, mask: list[Any], argument: str) -> list[int]:
        """Return the peers for which a mask is true."""
        if not all(isinstance(each, bool | np.bool_) for each in mask):
            raise PlanError(f"{argument} mixes truth values with peers; give either of them")
        if len(mask) != self.count:
            raise PlanError(
                f"{argument} has {len(mask)} truth values and there are {self.count} peers; give "
                "one for each peer, or the peers' numbers"
            )
        return [peer for peer, chosen in enumerate(mask) if chosen]
