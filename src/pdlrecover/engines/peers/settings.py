"""A peer's own settings, `peer.toml` in its folder: not shared with others, and nothing secret.

    [data]     file = "patients.csv"  label = "diagnosis"
    [history]  key_file = "/media/key/history.key"
    [network]  listen = "0.0.0.0:7400"
    [code]     allowed = ["package.module:factory"]
    [recovery] fallback = "none"
    [tracking] tensorboard = "runs"
    [drill]    attack = "backdoor"

Paths are meant from the peer's folder. A drill makes this peer attack the others on purpose, to
practise a removal: never set it where the model matters.

Others wrote the federation file, and what it names runs as this peer. So code that it names is
imported only if it is allowed here, by the same name, letter by letter; so is a function that reads
this peer's data, and a Flower app that trains on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from pdlrecover.decode import decode, parse_toml, toml_table
from pdlrecover.engines.peers.folder import SETTINGS
from pdlrecover.engines.peers.identity.member import split_address
from pdlrecover.engines.peers.identity.storage_key import StorageKey, find_storage_key
from pdlrecover.errors import PlanError
from pdlrecover.files import about, read_text
from pdlrecover.learning.reading.source import KEYS, Source

AGREED = "agreed"
DIGITS = "digits"
"""The dataset of a peer whose settings name no data."""
NO_FALLBACK = "none"
"""Says that a stalled recovery waits until people decide."""


@dataclass(frozen=True, kw_only=True)
class Data(Source):
    """Where this peer's samples are: a dataset by name, or its own, in one of many forms."""

    source: str | None = None
    """A dataset's name, or an .npz file with x and y, or a folder with x.npy and y.npy."""
    part: int | None = None
    """Of a dataset by name: which part is this peer's; by default its number."""
    parts: int | None = None
    """Of a dataset by name: how many parts it is divided into; by default one for each peer."""

    flower: str | None = None
    """package.module:app, a Flower app that trains on samples of its own: see `flower_data`."""
    partition: int | None = None
    """Of a Flower app: its partition-id; by default this peer's number."""
    partitions: int | None = None
    """Of a Flower app: its num-partitions; by default one for each peer."""
    run_config: dict[str, bool | int | float | str] | None = None
    """Of a Flower app: its context.run_config."""
    train_config: dict[str, bool | int | float | str] | None = None
    """Of a Flower app: what is sent with the model."""

    @classmethod
    def kinds(cls) -> Mapping[str, tuple[str, ...]]:
        """Return the kinds of places, and what may be said of each."""
        app = ("partition", "partitions", "run_config", "train_config")
        return {"source": ("part", "parts"), "flower": app, **KEYS}

    @classmethod
    def usual(cls) -> tuple[str, ...]:
        """Return what may be said where no place is named: that is a dataset by name."""
        return ("part", "parts")


@dataclass(frozen=True, kw_only=True)
class History:
    """How the history is kept."""

    key_file: str | None = None
    """The private file with its key; else the environment variable, else somebody is asked."""
    keep: int | None = None
    """For how many of the last rounds shares are kept, besides the first; by default for all."""
    limit_gb: float | None = None
    """No run's history may take more on disk."""

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise PlanError(f"history.keep must be at least 1, got {self.keep}")
        if self.limit_gb is not None and not self.limit_gb > 0:
            raise PlanError(f"history.limit_gb must be above 0, got {self.limit_gb}")


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where this peer listens."""

    listen: str | None = None
    """host:port, if not the address that the others know: behind a router, say."""

    def __post_init__(self) -> None:
        if self.listen is not None:
            split_address(self.listen)


@dataclass(frozen=True, kw_only=True)
class Code:
    """Which code the federation file, or a function or app under [data], may name."""

    allowed: tuple[str, ...] = ()
    """Each as package.module:factory; models that are built in need not be here."""

    def check(self, name: str, where: str = "the federation file") -> None:
        """Raise unless a model is built in, or is code that the operator allows by this name."""
        if ":" in name and name not in self.allowed:
            raise PlanError(
                f"{where} names code, {name!r}, which is not imported unless this "
                f"peer allows it: read that code, and if it may run here write allowed = "
                f'["{name}"] under [code] in peer.toml'
            )


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """Whether this peer approves by itself what replaces a stalled recovery."""

    fallback: str = AGREED
    """agreed: as the federation file says in recovery.fallback; none: its operator decides."""

    def __post_init__(self) -> None:
        if self.fallback not in (AGREED, NO_FALLBACK):
            raise PlanError(
                f"recovery.fallback of a peer is {AGREED} or {NO_FALLBACK}, got {self.fallback!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Where this peer keeps curves of what is public: see `runs.published`."""

    tensorboard: str | None = None
    """A folder for TensorBoard."""
    mlflow: str | None = None
    """An MLflow server's address, a database, or a folder."""


@dataclass(frozen=True, kw_only=True)
class Drill:
    """An attack by this peer itself, for drills only."""

    attack: str | None = None
    """backdoor, label-flip, sign-flip, noise: an attack that does not need other peers' updates."""
    strength: float | None = None
    """How strong: the backdoor's and the sign flip's factor, or the noise's deviation."""


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """All tables."""

    data: Data = field(default_factory=Data)
    history: History = field(default_factory=History)
    network: Listening = field(default_factory=Listening)
    code: Code = field(default_factory=Code)
    recovery: Replacing = field(default_factory=Replacing)
    tracking: Tracking = field(default_factory=Tracking)
    drill: Drill = field(default_factory=Drill)


def load_settings(folder: Path) -> PeerSettings:
    """Read the settings in a peer's folder."""
    path = folder / SETTINGS
    missing = "name the folder that `pdlrecover peer init` has made"
    text = read_text(path, PlanError, missing=missing)
    with about(path, PlanError):
        return decode(PeerSettings, parse_toml(text, PlanError), PlanError)


def write_settings(settings: PeerSettings) -> str:
    """Return the file, with what may be set and is not as comments."""
    lines = ["# This peer's own settings; see docs/peers.md. Nobody else sees them."]
    for table in fields(settings):
        chosen = getattr(settings, table.name)
        if chosen != Drill():
            lines += toml_table(table.name, chosen)
    return "\n".join(lines) + "\n"


def history_key(
    folder: Path, settings: PeerSettings, salt: bytes, ask: Callable[[], str] | None
) -> StorageKey:
    """Return the key of the history in a peer's folder, from where its settings say."""
    named = settings.history.key_file
    return find_storage_key(file=None if named is None else folder / named, ask=ask, salt=salt)
