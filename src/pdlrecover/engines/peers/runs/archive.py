"""What a real peer keeps: one sealed vault for the training, and one for each recovery.

    founding/             the one step in which the epoch was agreed on
    standardisation/      the two steps in which the scale of inputs was, if it was
    training/             every step: model, opened sum, dealers, this peer's shares; evaluations
                          have no model and no shares
    recovery-<16 digits>/ every step is a round; those that ask for no update have no model; a
                          naming (see `void_rounds`) is kept in the same way
    checkpoints           what was promised in the step under way; in training/ also removals

Rules: a step is one write of its vault (see `history.sealed.vault`), with the digests of the
dealings that were added up as its evidence, so that the log can be sent to a peer that was away.
Shares that were kept before are staged there, and not written again. Models and logs stay on disk,
and are read when they are asked for.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

import numpy as np

from pdlrecover.engines.peers.protocol.messages import Held, LogEntry
from pdlrecover.engines.peers.runs.standardising import standardising_run
from pdlrecover.field import Elements
from pdlrecover.history import Vault, VaultLayout
from pdlrecover.recovery.requests import Vector

TRAINING, FOUNDING, STANDARDISATION = "training", "founding", "standardisation"
_HELD, _DEALER = "held", struct.Struct("<H32s")


class Archive:
    """A peer's store, sealed."""

    def __init__(
        self,
        folder: Path,
        key: bytes,
        layout: VaultLayout,
        *,
        peers: int,
        keep: int | None = None,
        limit: int | None = None,
        founding: VaultLayout | None = None,
        standardisation: VaultLayout | None = None,
    ) -> None:
        """`layout` is the training's; `keep` and `limit` are as a vault takes them.

        The run of the other layouts' names is the founding's, and that which follows from the
        training's.
        """
        self._folder, self._key, self._layout, self._peers = folder, key, layout, peers
        self._keep, self._limit = keep, limit
        self._training = self._named = bytes.fromhex(layout.run)
        self._founding, self._standardisation = founding, standardisation
        self._vaults: dict[bytes, Vault] = {}
        self._vault(self._training)

    def close(self) -> None:
        """Let go of the files."""
        for vault in self._vaults.values():
            vault.close()

    def name_training(self, run: bytes) -> None:
        """Take this as a name of the training, besides the one in its layout."""
        self._named = run

    def founds(self, run: bytes) -> bool:
        """Say whether this is the run in which the epoch is agreed on."""
        return self._founding is not None and self._founding.run == run.hex()

    @property
    def size(self) -> int:
        """How many bytes everything has on disk."""
        return sum(vault.size for vault in list(self._vaults.values()))

    def log(self, run: bytes) -> Sequence[LogEntry]:
        """Return the entries of a run's log, each read when it is asked for."""
        return StoredLog(self._vault(run))

    def reserve(self, run: bytes) -> None:
        """Make room for the next step, or raise."""
        vault = self._vault(run)
        step = vault.layout.round_bytes(self._peers, evidence=[_DEALER.size * self._peers])
        vault.reserve(2 * step)  # what is promised in it takes no more than what it leaves

    def commit(
        self, run: bytes, entry: LogEntry, shares: dict[int, Elements], model: Vector | None
    ) -> None:
        """Append an entry, this peer's shares of it, and the model, as one write."""
        vault = self._vault(run)
        held = b"".join(_DEALER.pack(each.dealer, each.digest) for each in entry.dealers)
        vault.commit(
            round=len(vault),
            model=model,
            dealers=[each.dealer for each in entry.dealers],
            shares=shares,
            total=np.ascontiguousarray(entry.values, dtype=np.int64),
            evidence={_HELD: held},
            names={each.dealer: each.digest.hex() for each in entry.dealers},
        )

    def asked_at(self, run: bytes, step: int) -> Vector:
        """Return the model that a step asked for updates at."""
        return self._vault(run).model(step)

    def finish(self, run: bytes, model: Vector) -> Vector:
        """Keep the model that a run came to, unless it has come to one; return what is kept."""
        vault = self._vault(run)
        if not vault.finished:
            vault.finish(model)
        return vault.models[-1]

    def finished(self, run: bytes) -> bool:
        """Say whether a run has come to its model."""
        return self._vault(run).finished

    def models(self, run: bytes) -> Sequence[Vector]:
        """Return the models of a run, each read when it is asked for."""
        return self._vault(run).models

    def dealers(self, run: bytes, step: int) -> tuple[int, ...]:
        """Return whose dealings a step added up."""
        return self._vault(run).dealers(step)

    def shares_from(self, run: bytes) -> int:
        """Return from which step on shares are kept, besides those of step 0."""
        return self._vault(run).shares_from

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one.

        Damaged shares count as missing: this peer then does not answer, instead of answering wrong.
        """
        vault = self._vault(run)
        if not dealers or not 0 <= step < len(vault):
            return None
        found = vault.sum(step, dealers)
        return found.values if found.whole else None

    def remember(self, values: Mapping[str, bytes]) -> None:
        """Keep values under names, in one write."""
        self._vault(self._training).put_checkpoints(values, head=False)

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
        return self._vault(self._training).get_checkpoint(name)

    def promise(
        self, run: bytes, values: Mapping[str, bytes], shares: Mapping[Held, Elements]
    ) -> None:
        """Keep values of a run under names, and shares of its next step, in one write."""
        staged = {held.dealer: (held.digest.hex(), row) for held, row in shares.items()}
        self._vault(run).put_checkpoints(values, staged=staged, head=False)

    def promised(self, run: bytes, name: str) -> bytes | None:
        """Return what is kept of a run under a name."""
        return self._vault(run).get_checkpoint(name)

    def held(self, run: bytes, dealing: Held) -> Elements | None:
        """Return the shares of a dealing that were kept of a run's next step."""
        return self._vault(run).staged(dealing.dealer, dealing.digest.hex())

    def _vault(self, run: bytes) -> Vault:
        run = self._training if run == self._named else run
        if run not in self._vaults:
            trains = run == self._training
            name, layout = f"recovery-{run.hex()[:16]}", replace(self._layout, run=run.hex())
            if self._founding is not None and self.founds(run):
                name, layout = FOUNDING, self._founding
            elif self._standardisation and run == standardising_run(self._named):
                name, layout = STANDARDISATION, replace(self._standardisation, run=run.hex())
            self._vaults[run] = Vault(
                self._folder / (TRAINING if trains else name),
                self._key,
                layout,
                keep=self._keep if trains else None,
                limit=self._limit,
            )
        return self._vaults[run]


class StoredLog(Sequence[LogEntry]):
    """A run's log, in its vault."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __len__(self) -> int:
        return len(self._vault)

    @overload
    def __getitem__(self, index: int) -> LogEntry: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogEntry]: ...
    def __getitem__(self, index: int | slice) -> LogEntry | list[LogEntry]:
        """Return an entry, or a list of entries."""
        if isinstance(index, slice):
            return [self[t] for t in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"the log has {len(self)} entries, got index {index}")
        t = index % len(self)
        held = _DEALER.iter_unpack(self._vault.evidence(t, _HELD))
        dealers = tuple(Held(dealer=dealer, digest=digest) for dealer, digest in held)
        return LogEntry(dealers=dealers, values=self._vault.total(t))
