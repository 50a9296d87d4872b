"""Looks at the machine: versions, disk, descriptors, the port, and the clock's keeper."""

import ctypes
import errno
import os
import platform
import socket
from pathlib import Path

from pdlrecover import descriptors
from pdlrecover.engines.peers.doctor.finding import Finding, ok, problem, warning
from pdlrecover.engines.peers.doctor.knock import Step, knock
from pdlrecover.engines.peers.doctor.own_files import OwnFiles
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.folder import HISTORY
from pdlrecover.engines.peers.greeting import NOT_INSTALLED, installed
from pdlrecover.engines.peers.identity.member import Member, split_address
from pdlrecover.engines.peers.operator.status import PeerFacts
from pdlrecover.engines.peers.transport.door import least_descriptors, try_to_bind
from pdlrecover.history.sealed.database import DATA
from pdlrecover.history.sealed.records import VaultLayout

RECOVERY_ROUNDS = 25
"""Steps of a recovery by the default method, each stored as a round is."""
DIGEST_BYTES = 34
"""Stored of each dealing beside its share: who dealt, and the digest."""
_UNSYNCHRONISED = 5
"""What adjtimex(2) returns of a clock that nothing keeps."""


def look_at_versions(facts: PeerFacts | None) -> list[Finding]:
    """Look at what is installed here, and whether a running peer was started with it."""
    own, torch, grpc = (installed(name) for name in ("pdlrecover", "torch", "grpcio"))
    if missing := [n for n, v in (("torch", torch), ("grpcio", grpc)) if v == NOT_INSTALLED]:
        remedy = "pip install 'pdlrecover[peers]', in the environment that the peer runs in"
        return [problem("versions", f"{' and '.join(missing)} cannot be found", remedy)]
    here = f"pdlrecover {own}, Python {platform.python_version()}, torch {torch}, grpcio {grpc}"
    if facts is None:
        return [ok("versions", here)]
    there = facts.greeting
    if (there.version, there.torch) != (own, torch):
        what = f"the peer that runs is {there.software}, and installed is {here}"
        return [warning("versions", what, "restart the peer where its run may change versions")]
    suffix = f", {there.processor}" if there.processor else ""
    return [ok("versions", here + suffix)]


def look_at_disk(files: OwnFiles, parameters: int | None, used: int | None) -> list[Finding]:
    """Compare the free room with what all rounds of the training, and a recovery, will take."""
    membership, settings = files.membership, files.settings
    if membership is None or settings is None or parameters is None:
        return []
    full, bare = _round_bytes(membership, parameters)
    rounds, keep = membership.training.rounds, settings.history.keep
    kept = rounds if keep is None else min(rounds, keep + 1)
    training, recovery = kept * full + (rounds - kept) * bare, RECOVERY_ROUNDS * full
    place = files.folder / HISTORY
    used = _used(place) if used is None else used
    more = max(0, training - used) + recovery
    free = _free(place)
    plan = (
        f"{_size(full)} a round, {_size(training)} for {rounds} rounds and {_size(recovery)} for a "
        f"recovery; {_size(used)} are used and {_size(free)} free"
    )
    lasts = "keep the shares of fewer rounds (keep under [history] in peer.toml)"
    limit = settings.history.limit_gb
    if limit is not None and limit * 1e9 < training:
        what = f"limit_gb = {limit:g} under [history] ends the training early: {plan}"
        return [problem("disk", what, f"allow more, or {lasts}")]
    if free < max(0, training - used):
        return [problem("disk", plan, f"make room, move the folder to a larger disk, or {lasts}")]
    if free < more:
        return [warning("disk", plan, "make room before a recovery; the training itself fits")]
    return [ok("disk", plan)]


def _round_bytes(membership: Membership, parameters: int) -> tuple[int, int]:
    """Return what a round takes at most, with all shares and when they were dropped."""
    peers = len(membership.peers)
    layout = VaultLayout(
        federation=membership.run_digest,
        run="",
        peer=0,
        parameters=parameters,
        blocks=membership.scheme.quorums.blocks(parameters + 1),
    )
    evidence = [DIGEST_BYTES * peers]
    return layout.round_bytes(peers, evidence=evidence), layout.round_bytes(0, evidence=evidence)


def _used(place: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in place.glob(f"*/{DATA}"))


def _free(place: Path) -> int:
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def _size(count: int) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"


def look_at_descriptors(peers: int, facts: PeerFacts | None) -> list[Finding]:
    """Look at how many files and connections the peer may have."""
    if facts is not None:
        limit, used = facts.descriptors, facts.descriptors_in_use
        what = f"the peer that runs has {used} files and connections of {limit} that it may have"
        if used > 0.9 * limit:
            remedy = "let only the other peers through the firewall, or raise LimitNOFILE="
            return [warning("descriptors", what, remedy)]
        return [ok("descriptors", what)]
    limit = descriptors.raise_limit()
    needs = descriptors.in_use() + least_descriptors(peers)
    what = f"this shell allows {limit} files and connections, and {peers} peers need {needs}"
    if limit < needs:
        remedy = "raise it by `ulimit -n`, or LimitNOFILE= of a systemd unit"
        return [problem("descriptors", what, remedy)]
    return [ok("descriptors", what)]


def look_at_port(files: OwnFiles, facts: PeerFacts | None, seconds: float) -> list[Finding]:
    """Look whether the peer can listen; if it runs, whether it is this peer that listens there."""
    if files.membership is None or files.me is None or files.settings is None:
        return []
    own = files.membership.peers[files.me]
    where = files.settings.network.listen or own.address
    if facts is not None:
        return [_own_port(own, files.folder, facts.listens_on, seconds)]
    try:
        try_to_bind(where)
    except socket.gaierror as error:
        return [problem("port", f"{where}: {error.strerror}", _ELSEWHERE)]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"another program listens on {where}"
            remedy = "see which by `ss -ltnp`, and stop it, or say where else to listen by listen "
            return [problem("port", what, remedy + "under [network] in peer.toml")]
        return [problem("port", f"cannot listen on {where}: {error.strerror}", _ELSEWHERE)]
    return [ok("port", f"{where} is free")]


_ELSEWHERE = (
    "say where this machine can listen by listen under [network] in peer.toml, as 0.0.0.0:7400"
)
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (where a peer that listens there is)


def _own_port(own: Member, folder: Path, where: str, seconds: float) -> Finding:
    host, port = split_address(where)
    seen = knock(_LOCAL.get(host, host), port, folder, seconds)
    if seen.step is Step.MET and seen.certificate == own.certificate:
        return ok("port", f"this peer listens on {where}, and shows its certificate")
    what = f"the peer says that it listens on {where}, and there {seen.said}"
    return problem("port", what, "look at its log; stop it, and start it again")


def is_kept() -> bool | None:
    """Say whether something keeps this machine's clock, as NTP does; None if that is unknown."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # only reads
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONISED
