"""The history of a real peer: every dealer's share of every round, sealed, and what is public.

Rules:

- Round t is committed as one write: the model w̄_t it started from, the dealers whose updates were
  summed, this peer's share from each of them, the opened sum, and evidence. It counts when `commit`
  returns; of a process that is killed before, staged shares may be left, and they do not count. A
  step of a recovery that asks for no update is a round without a model.
- Shares of the next round may be *staged*: written where they will stay, before the round is
  committed with them, or without them. So they are written once.
- Rounds come in order, from 0. A round that this peer missed is committed without shares.
- All records are sealed (`records`) and chained (`chain`). Models and sums are public to the peers,
  and still nothing can be read off a stolen disk without the key.
- Shares may be kept of the last rounds only, and of round 0; models are always kept.
- `reserve` before a round, so that a full disk stops the peer between rounds.

The key must be kept elsewhere: who has the folder and the key has everything, and who has lost the
key has nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from cryptography.exceptions import InvalidTag
from numpy.typing import NDArray

from pdlrecover.errors import HistoryError
from pdlrecover.field import F61, Elements, as_bytes
from pdlrecover.field.product import reduce_in_place
from pdlrecover.history.sealed import records
from pdlrecover.history.sealed.chain import Head
from pdlrecover.history.sealed.journal import Content, Journal
from pdlrecover.history.sealed.records import Kind, VaultLayout

Vector = NDArray[np.float64]

_TERMS = 3
"""Shares that are added to a folded sum before it is folded again: (q + 3) + 3q < 2^63."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareSum:
    """The sum of what some dealers dealt to this peer in a round."""

    values: Elements
    """The sum modulo q, over the dealers that are neither missing nor damaged."""
    missing: tuple[int, ...] = ()
    """Dealers whose share this peer does not have."""
    damaged: tuple[int, ...] = ()
    """Dealers whose share does not open, or is not the one that was stored."""

    @property
    def whole(self) -> bool:
        """Whether it is the sum over all dealers that were asked for."""
        return not self.missing and not self.damaged


class Vault:
    """One peer's history of one run, in a folder."""

    def __init__(
        self,
        folder: Path,
        key: bytes,
        layout: VaultLayout,
        *,
        keep: int | None = None,
        limit: int | None = None,
        read_only: bool = False,
        accept_rollback: bool = False,
    ) -> None:
        """Open the history in this folder, or start one.

        `keep` is of how many last rounds shares are kept, besides round 0 (all if not given),
        `limit` how many bytes the file may have, `accept_rollback` goes on from a database that is
        known to be an old copy.
        """
        if keep is not None and keep < 1:
            raise HistoryError(f"the shares of at least 1 round must be kept, got {keep}")
        self.folder, self.layout, self.keep = folder, layout, keep
        self._journal = Journal(
            folder, key, layout, limit=limit, read_only=read_only, accept_rollback=accept_rollback
        )

    def __repr__(self) -> str:
        return f"Vault({str(self.folder)!r}, {len(self)} rounds)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._journal.close()

    def __len__(self) -> int:
        """Return how many rounds are stored."""
        return self._journal.state.head.rounds

    @property
    def finished(self) -> bool:
        """Whether the run's last model is there."""
        return self._journal.state.finished

    @property
    def size(self) -> int:
        """How many bytes the history has on disk."""
        return self._journal.size

    @property
    def shares_from(self) -> int:
        """The first round from which on shares are kept; those of round 0 are, too."""
        return self._journal.state.shares_from

    @property
    def head(self) -> Head:
        """Where the history stands; nobody else remembers it unless somebody writes it down."""
        return self._journal.state.head

    def reserve(self, size: int) -> None:
        """Make room for a write of `size` bytes (see `VaultLayout.round_bytes`), or raise."""
        self._journal.reserve(size)

    def commit(
        self,
        *,
        round: int,
        model: Vector | None,
        dealers: Iterable[int],
        shares: Mapping[int, Elements],
        total: NDArray[np.int64] | None = None,
        evidence: Mapping[str, bytes] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> Head:
        """Store a round for good, and return the new head.

        Shares that were staged under their `names` (by dealer) are not written again.
        """
        dealers, evidence = tuple(sorted(dealers)), evidence or {}
        self._check_round(round, dealers, shares)
        contents: dict[bytes, Content] = {}
        if model is not None:
            contents[records.round_key(round, Kind.MODEL)] = self._model_bytes(model)
        if total is not None:
            contents[records.round_key(round, Kind.TOTAL)] = as_bytes(
                _checked(total, total.shape, "i8")
            )
        for name, content in evidence.items():
            contents[records.evidence_key(round, name)] = content
        staged, adopted = self._journal.state.staged, []
        for dealer, share in sorted(shares.items()):
            key = records.share_key(round, dealer)
            if (found := staged.get(key.hex())) and found.name == (names or {}).get(dealer):
                adopted.append(key)
            else:
                contents[key] = self._share_bytes(share)
        new = len(shares) - len(adopted)
        size = self.layout.round_bytes(new, evidence=[*map(len, evidence.values())])
        if total is not None:
            size += max(0, total.nbytes - 8 * self.layout.parameters)
        return self._journal.append(contents, dealers, size=size, keep=self.keep, adopted=adopted)

    def finish(self, model: Vector) -> Head:
        """Store the model that the last round led to."""
        contents: dict[bytes, Content] = {
            records.round_key(len(self), Kind.MODEL): self._model_bytes(model)
        }
        size = self.layout.round_bytes(0)
        return self._journal.append(contents, (), size=size, keep=self.keep, final=True)

    @property
    def models(self) -> "StoredModels":
        """w̄_0, w̄_1, …: one for each round, and the last one when the run is finished."""
        return StoredModels(self)

    def model(self, t: int) -> Vector:
        """Return the model that round t started from."""
        content = self._journal.read(t, records.round_key(t, Kind.MODEL))
        return np.frombuffer(content, "<f8").astype(np.float64)

    def dealers(self, t: int) -> tuple[int, ...]:
        """Return whose updates were summed in round t."""
        with self._journal.reading(t) as (_, manifest):
            return manifest.dealers

    def total(self, t: int) -> NDArray[np.int64]:
        """Return the opened sum of round t."""
        content = self._journal.read(t, records.round_key(t, Kind.TOTAL))
        return np.frombuffer(content, "<i8").astype(np.int64)

    def evidence(self, t: int, name: str) -> bytes:
        """Return a piece of evidence of round t."""
        return self._journal.read(t, records.evidence_key(t, name))

    def sum(self, t: int, dealers: Iterable[int]) -> ShareSum:
        """Add up what these dealers dealt to this peer in round t."""
        total, spare, share = np.zeros((3, self.layout.blocks), dtype=np.int64)
        missing, damaged = [], []
        added = 0
        with self._journal.reading(t) as (transaction, manifest):
            for dealer in dict.fromkeys(dealers):
                key = records.share_key(t, dealer)
                record = transaction.get(key)
                if record is None:
                    missing.append(dealer)
                elif not self._opens(key, record, manifest.records.get(key.hex()), share):
                    damaged.append(dealer)
                else:
                    total += share
                    added += 1
                    if added % _TERMS == 0:  # fold: x ← (x mod 2^61) + (x div 2^61) ≤ q + 3
                        np.right_shift(total, 61, out=spare)
                        total &= F61.modulus
                        total += spare
        reduce_in_place(total, spare)
        return ShareSum(values=total, missing=tuple(missing), damaged=tuple(damaged))

    def put_checkpoints(
        self,
        contents: Mapping[str, bytes],
        *,
        staged: Mapping[int, tuple[str, Elements]] | None = None,
        head: bool = True,
    ) -> None:
        """Store a run's progress under names, over what was there, all in one write.

        `staged` are shares of the next round by dealer, each with its name. Without `head` it is as
        durable and a third of the work: the head file is left to the next write, so that a
        database put back to before this checkpoint alone is not noticed.
        """
        shares = {
            records.share_key(len(self), dealer): (name, self._share_bytes(share))
            for dealer, (name, share) in (staged or {}).items()
        }
        self._journal.put_checkpoints(contents, shares, head=head)

    def staged(self, dealer: int, name: str) -> Elements | None:
        """Return a dealer's share of the next round, if it was staged under this name and is whole.

        A damaged one goes with the next commit, as one that was staged under another name.
        """
        content = self._journal.get_staged(records.share_key(len(self), dealer), name)
        return None if content is None else np.frombuffer(content, "<i8").astype(np.int64)

    def get_checkpoint(self, name: str) -> bytes | None:
        """Return a recovery's progress, or None if there is none of that name."""
        return self._journal.get_checkpoint(name)

    def _opens(self, key: bytes, record: memoryview, expected: str | None, out: Elements) -> bool:
        """Say whether a share is the one that was stored, and write it to `out` if so."""
        if records.fingerprint(record) != expected:
            return False
        try:
            self._journal.sealer.open_into(key, record, out)
        except InvalidTag:
            return False
        return True

    def _check_round(self, t: int, dealers: tuple[int, ...], shares: Mapping[int, Any]) -> None:
        if t != len(self):
            raise HistoryError(f"round {len(self)} comes next, got round {t}")
        if len(set(dealers)) != len(dealers) or min(dealers, default=0) < 0:
            raise HistoryError(f"dealers must be distinct numbers from 0 on, got {dealers}")
        if strangers := sorted(set(shares) - set(dealers)):
            raise HistoryError(
                f"round {t} has shares of {strangers[:5]}, who are not among its dealers"
            )

    def _share_bytes(self, share: Elements) -> memoryview:
        return as_bytes(F61.elements(_checked(share, (self.layout.blocks,), "i8")))

    def _model_bytes(self, model: Vector) -> memoryview:
        return as_bytes(_checked(model, (self.layout.parameters,), "f8"))


class StoredModels(Sequence[Vector]):
    """The models of a history, each read and opened when it is asked for."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __len__(self) -> int:
        return len(self._vault) + self._vault.finished

    @overload
    def __getitem__(self, index: int) -> Vector: ...
    @overload
    def __getitem__(self, index: slice) -> list[Vector]: ...
    def __getitem__(self, index: int | slice) -> Vector | list[Vector]:
        """Return a model, or a list of models."""
        if isinstance(index, slice):
            return [self._vault.model(t) for t in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} models, got index {index}")
        return self._vault.model(index % len(self))


def _checked(array: NDArray[Any], shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    if array.shape != shape or array.dtype != dtype:
        raise HistoryError(
            f"this must be an array of {np.dtype(dtype)} and shape {shape}, "
            f"got {array.dtype} and shape {array.shape}"
        )
    return array
