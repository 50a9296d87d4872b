"""Starts a peer from its folder and the federation file, and checks both first.

Steps: the keys, the federation and whether everybody has signed it, whether the code that it names
is allowed here, the data, the history's key, the history and whether it is whole. What
is wrong is said before anything is sent.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pdlrecover.engines.events import Observer
from pdlrecover.engines.peers.drills import attack_of
from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.federation.signatures import check_agreement
from pdlrecover.engines.peers.folder import HISTORY, IDENTITY
from pdlrecover.engines.peers.identity.keyring import Keyring
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import StorageKey
from pdlrecover.engines.peers.own_data import load_own
from pdlrecover.engines.peers.peer import Peer
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.engines.peers.runs.founding import NUMBERS
from pdlrecover.engines.peers.runs.run_factory import RunFactory, training_run
from pdlrecover.engines.peers.settings import AGREED, history_key, load_settings
from pdlrecover.engines.peers.transport.link import Limits, papers
from pdlrecover.errors import HistoryError
from pdlrecover.history import VaultLayout, Verification, verify
from pdlrecover.history.sealed.database import DATA
from pdlrecover.history.sealed.records import Kind
from pdlrecover.learning import Dataset, FlatModel, models

LOG = logging.getLogger("pdlrecover.peer")

Ask = Callable[[], str]


class PeerFiles:
    """One peer's files, read and checked."""

    def __init__(self, federation: Path, folder: Path) -> None:
        """Read keys, federation file and data; raise unless everybody has signed the file."""
        self.folder, self.settings = folder, load_settings(folder)
        self.identity = Identity.load(folder / IDENTITY)
        self.membership = load_federation(federation)
        self.me = self.membership.number_of(self.identity)
        check_agreement(federation, self.membership)
        model, seed = self.membership.model, self.membership.training.seed
        self.settings.code.check(model.name)  # before anything of it is imported
        module = models.build(model.name, model.shape, model.classes, seed)
        self.model = FlatModel(module, model.shape)
        self.data = load_own(self.settings, self.membership, self.me, folder)
        drill = self.settings.drill
        self.attack = attack_of(drill, self.data) if isinstance(self.data, Dataset) else None

    @property
    def has_history(self) -> bool:
        """Whether something was stored before."""
        return any((self.folder / HISTORY).glob(f"*/{DATA}"))

    def storage_key(self, ask: Ask | None = None) -> StorageKey:
        """Return the history's key."""
        return history_key(self.folder, self.settings, self.identity.salt, ask)

    def archive(self, key: StorageKey) -> Archive:
        """Open the history, having looked through it."""
        (self.folder / HISTORY).mkdir(mode=0o700, exist_ok=True)
        look_through(self.folder / HISTORY, key)
        layout = VaultLayout(
            federation=self.membership.run_digest,
            run=training_run(self.membership, self.model).hex(),
            peer=self.me,
            parameters=self.model.size,
            blocks=self.membership.scheme.quorums.blocks(self.model.size + 1),
        )
        founding = replace(
            layout,
            run=self.membership.founding_run.hex(),
            parameters=NUMBERS - 1,
            blocks=self.membership.scheme.quorums.blocks(NUMBERS),
        )
        terms = self.membership.standardisation
        scale = None
        if terms is not None:
            blocks = self.membership.scheme.quorums.blocks(terms.groups + 1)
            scale = replace(layout, parameters=2 * terms.groups, blocks=blocks)
        keep, limit_gb = self.settings.history.keep, self.settings.history.limit_gb
        limit = None if limit_gb is None else int(limit_gb * 1e9)
        place, peers = self.folder / HISTORY, len(self.membership.peers)
        return Archive(
            place,
            key.reveal(),
            layout,
            peers=peers,
            keep=keep,
            limit=limit,
            founding=founding,
            standardisation=scale,
        )

    def peer(
        self,
        archive: Archive,
        *,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        limits: Limits | None = None,
        observers: Sequence[Observer] = (),
    ) -> Peer:
        """Return the peer, ready to run on its history."""
        members = self.membership.peers
        runs = RunFactory(
            me=self.me,
            membership=self.membership,
            model=self.model,
            data=self.data,
            crypto=Keyring.of_peer(self.identity, members),
            store=archive,
            folder=self.folder,
            attack=self.attack,
        )
        listen = self.settings.network.listen
        return Peer(
            runs,
            tls=papers(self.identity, members),
            limits=limits,
            listen=listen,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            replaces_stalled=self.settings.recovery.fallback == AGREED,
            observers=observers,
        )


def verified(history: Path, key: StorageKey) -> dict[str, Verification]:
    """Look through every run of a history; return what was found, by the run's folder."""
    places = sorted(path.parent for path in history.glob(f"*/{DATA}"))
    return {place.name: verify(place, key.reveal()) for place in places}


def look_through(history: Path, key: StorageKey) -> None:
    """Refuse a history whose public part is damaged; say it if only shares are."""
    for name, found in verified(history, key).items():
        state = "all whole" if found.sound else f"{len(found.damage)} records damaged"
        about = {"facts": {"event": "history"}}
        LOG.info("history of %s: %s rounds, %s", name, found.rounds, state, extra=about)
        lost = [damage for damage in found.damage if damage.kind is not Kind.SHARE]
        for damage in found.damage:
            LOG.warning("history of %s: %s", name, damage, extra=about)
        if lost:
            raise HistoryError(
                f"the history in {history / name} is damaged ({lost[0]}); see all by `pdlrecover "
                f"history verify {history.parent}`, then put back the latest backup of the folder, "
                "or move it away: what is public then comes from the other peers, and this peer "
                "counts as absent in its past rounds"
            )
