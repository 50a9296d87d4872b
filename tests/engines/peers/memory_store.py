"""A store in memory: it survives the peer that uses it, not the process."""

from collections.abc import Mapping, Sequence

from pdlrecover.engines.peers.protocol.messages import Held, LogEntry
from pdlrecover.field import F61, Elements
from pdlrecover.recovery.requests import Vector


class MemoryStore:
    """Everything that a peer keeps, in memory."""

    def __init__(self) -> None:
        self._logs: dict[bytes, list[LogEntry]] = {}
        self._shares: dict[tuple[bytes, int], dict[int, Elements]] = {}
        self._models: dict[bytes, list[Vector]] = {}
        self._asked_at: dict[tuple[bytes, int], Vector] = {}
        self._finished: set[bytes] = set()
        self._memory: dict[str, bytes] = {}
        self._promises: dict[tuple[bytes, str], bytes] = {}
        self._held: dict[bytes, dict[Held, Elements]] = {}

    @property
    def size(self) -> int:
        """Nothing is on disk."""
        return 0

    def name_training(self, run: bytes) -> None:
        """A run is kept under whatever name it is given."""

    def log(self, run: bytes) -> Sequence[LogEntry]:
        """Return the entries of a run's log."""
        return self._logs.setdefault(run, [])

    def reserve(self, run: bytes) -> None:
        """Memory is taken as it comes."""

    def commit(
        self, run: bytes, entry: LogEntry, shares: dict[int, Elements], model: Vector | None
    ) -> None:
        """Append an entry, this peer's shares of it, and the model."""
        log = self._logs.setdefault(run, [])
        self._shares[run, len(log)] = dict(shares)
        self._held.pop(run, None)
        if model is not None:
            self._asked_at[run, len(log)] = model.copy()
            self._models.setdefault(run, []).append(model.copy())
        log.append(entry)

    def asked_at(self, run: bytes, step: int) -> Vector:
        """Return the model that a step asked for updates at."""
        return self._asked_at[run, step]

    def finish(self, run: bytes, model: Vector) -> Vector:
        """Keep the model that a run came to, unless it has come to one; return what is kept."""
        if run not in self._finished:
            self._finished.add(run)
            self._models.setdefault(run, []).append(model.copy())
        return self._models[run][-1]

    def finished(self, run: bytes) -> bool:
        """Say whether a run has come to its model."""
        return run in self._finished

    def models(self, run: bytes) -> Sequence[Vector]:
        """Return the models of a run."""
        return self._models.setdefault(run, [])

    def dealers(self, run: bytes, step: int) -> tuple[int, ...]:
        """Return whose dealings a step added up."""
        return tuple(held.dealer for held in self._logs[run][step].dealers)

    def shares_from(self, run: bytes) -> int:
        """All shares are kept."""
        return 0

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one."""
        held = self._shares.get((run, step), {})
        if not dealers or any(dealer not in held for dealer in dealers):
            return None
        return F61.combine([1] * len(dealers), [held[dealer] for dealer in dealers])

    def remember(self, values: Mapping[str, bytes]) -> None:
        """Keep values under names."""
        self._memory.update(values)

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
        return self._memory.get(name)

    def promise(
        self, run: bytes, values: Mapping[str, bytes], shares: Mapping[Held, Elements]
    ) -> None:
        """Keep values of a run, and shares of its next step."""
        self._promises.update({(run, name): value for name, value in values.items()})
        self._held.setdefault(run, {}).update(shares)

    def promised(self, run: bytes, name: str) -> bytes | None:
        """Return what is kept of a run under a name."""
        return self._promises.get((run, name))

    def held(self, run: bytes, dealing: Held) -> Elements | None:
        """Return the shares of a dealing that were kept of a run's next step."""
        return self._held.get(run, {}).get(dealing)
