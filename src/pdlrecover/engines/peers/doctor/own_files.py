"""Looks at a peer's own files: settings, keys, federation file, signatures, history's key, data.

Rules: nothing is written. The history is opened, for reading, only while no peer runs on it. What
needs torch (the model and the data) is looked at only then, too: a peer that runs has read them.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pdlrecover.engines.peers.doctor.finding import Finding, ok, problem, refused, warning
from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.signatures import check_agreement
from pdlrecover.engines.peers.folder import FEDERATION, HISTORY, IDENTITY
from pdlrecover.engines.peers.identity import own_keys
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.private_files import read_file
from pdlrecover.engines.peers.settings import PeerSettings, history_key, load_settings
from pdlrecover.errors import IdentityError, MembershipError, PDLRecoverError, PlanError
from pdlrecover.history.sealed.database import DATA
from pdlrecover.history.sealed.verification import check_key

KEYS = (
    own_keys.SIGNING,
    own_keys.SEALING,
    own_keys.TLS_KEY,
    own_keys.TLS_CERTIFICATE,
    own_keys.SALT,
)


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """A peer's files, as far as they can be read."""

    folder: Path
    settings: PeerSettings | None = None
    identity: Identity | None = None
    federation: Path | None = None
    membership: Membership | None = None
    me: int | None = None
    """Its number, if the federation knows its keys."""


def read_own(folder: Path, federation: Path | None) -> tuple[OwnFiles, list[Finding]]:
    """Read the small files; without a federation file it is looked for where it often is."""
    files, found = OwnFiles(folder=folder), []
    try:
        files = replace(files, settings=load_settings(folder))
        found.append(ok("settings", f"{folder / 'peer.toml'} can be read"))
    except PlanError as error:
        found.append(refused("settings", error))
    identity, keys = _keys(folder)
    files = replace(files, identity=identity)
    found += keys
    path = federation or _near(folder)
    if path is None:
        what = f"no federation file was named, and there is no {FEDERATION} in or near {folder}"
        remedy = "name it by --federation; what needs it was not looked at"
        return files, [*found, problem("federation file", what, remedy)]
    try:
        membership = load_federation(path)
    except MembershipError as error:
        return files, [*found, refused("federation file", error)]
    files = replace(files, federation=path, membership=membership)
    files, more = _membership(files, membership, path)
    return files, found + more


def _near(folder: Path) -> Path | None:
    places = (folder / FEDERATION, folder.absolute().parent / FEDERATION, Path(FEDERATION))
    return next((path for path in places if path.is_file()), None)


def _keys(folder: Path) -> tuple[Identity | None, list[Finding]]:
    """Look at every file of the identity, and whether they belong together."""
    place, found = folder / IDENTITY, []
    if place.is_dir():
        for name in KEYS:
            try:
                read_file(place / name, "restore the folder from a backup")
            except IdentityError as error:
                found.append(refused("keys", error))
    if found:
        return None, found
    try:
        identity = Identity.load(place)
    except IdentityError as error:
        return None, [refused("keys", error)]
    end = f"{identity.certificate.not_valid_after_utc:%Y-%m-%d}"
    what = f"{identity.id}: private, of this user or root, and of one peer; valid to {end}"
    return identity, [ok("keys", what)]


def _membership(
    files: OwnFiles, membership: Membership, path: Path
) -> tuple[OwnFiles, list[Finding]]:
    """Look at the federation file, whether it is this peer's, and who has signed it."""
    identity, found = files.identity, []
    peers, digest = len(membership.peers), membership.digest.hex()[:16]
    found.append(ok("federation file", f"{path}: {peers} peers, digest {digest}…"))
    if identity is not None:
        try:
            files = replace(files, me=membership.number_of(identity))
            found.append(ok("membership", f"the federation knows the keys of {identity.name}"))
        except MembershipError as error:
            found.append(refused("membership", error))
    try:
        check_agreement(path, membership)
        found.append(ok("signatures", f"all {peers} peers have signed this version"))
    except MembershipError as error:
        found.append(refused("signatures", error))
    return files, found


def look_at_history_key(files: OwnFiles, *, running: bool) -> list[Finding]:
    """Look whether the history's key is there without anybody typing it, and opens the history."""
    if files.settings is None or files.identity is None:
        return []
    check, place = "history's key", files.folder / HISTORY
    try:
        key = history_key(files.folder, files.settings, files.identity.salt, None)
    except IdentityError as error:
        typed = files.settings.history.key_file is None and "is not there" in str(error)
        if typed and running:
            return [ok(check, "not known to this command; the peer that runs has it")]
        if typed:
            what = "the history's key is neither in a file nor in the environment of this command"
            remedy = (
                "type the passphrase at every start; or, so that the peer starts unattended, name "
                "a file by key_file under [history] in peer.toml (docs/identity.md has more ways)"
            )
            return [warning(check, what, remedy)]
        return [refused(check, error)]
    if running:
        return [ok(check, "it is there; the history is open, by the peer that runs")]
    runs = sorted(path.parent for path in place.glob(f"*/{DATA}"))
    try:
        for each in runs:
            check_key(each, key.reveal())
    except PDLRecoverError as error:
        return [refused(check, error)]
    opened = f"opens the history of {len(runs)} runs" if runs else "is there; no history yet"
    return [ok(check, f"it {opened}")]


def look_at_data(files: OwnFiles) -> tuple[int | None, list[Finding]]:
    """Look at the model and the data, as `peer run` does; return how many numbers the model has."""
    membership, settings = files.membership, files.settings
    if membership is None or settings is None or files.me is None:
        return None, []
    try:
        settings.code.check(membership.model.name)  # before anything of it is imported
        from pdlrecover.engines.peers.own_data import load_own
        from pdlrecover.learning import Dataset, FlatModel, models

        model = membership.model
        module = models.build(model.name, model.shape, model.classes, membership.training.seed)
        size = FlatModel(module, model.shape).size
    except PDLRecoverError as error:
        return None, [refused("model", error)]
    found = [ok("model", f"{model.name}, {size:,} numbers")]
    try:
        data = load_own(settings, membership, files.me, files.folder)
    except PDLRecoverError as error:
        return size, [*found, refused("data", error)]
    if not isinstance(data, Dataset):
        return size, [*found, ok("data", data.in_one_line())]
    what = f"{data.name}: {len(data.train_y):,} samples of shape {list(data.shape)}"
    return size, [*found, ok("data", what)]
