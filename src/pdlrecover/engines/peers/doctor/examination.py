"""Looks at everything that a peer needs, with the peer stopped or running.

A peer that runs is asked for what it knows: its history is not opened, its port is not taken, and
torch is not imported. Nothing is written in either case.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from pdlrecover.decode import convert
from pdlrecover.engines.peers.doctor.finding import Finding, Report, ok, problem, refused, warning
from pdlrecover.engines.peers.doctor.machine import (
    look_at_descriptors,
    look_at_disk,
    look_at_port,
    look_at_versions,
)
from pdlrecover.engines.peers.doctor.own_files import (
    OwnFiles,
    look_at_data,
    look_at_history_key,
    read_own,
)
from pdlrecover.engines.peers.folder import CONTROL
from pdlrecover.engines.peers.operator.local_socket import NoPeerError, ask
from pdlrecover.engines.peers.operator.status import PeerFacts
from pdlrecover.errors import ExtraError, PDLRecoverError, PlanError
from pdlrecover.files import held


def examine(
    folder: Path,
    federation: Path | None = None,
    *,
    seconds: float = 5.0,
    say: Callable[[str], None] = lambda what: None,
) -> Report:
    """Look at a peer and at all others; `say` is told what is looked at.

    Others have so many seconds to answer.
    """
    say("asking the peer")
    facts, at_work, asked = _ask(folder)
    say("reading its files")
    files, found = read_own(folder, federation)
    found = [*asked, *look_at_versions(facts), *found, *_same_file(files, facts)]
    found += look_at_history_key(files, running=at_work)
    parameters, used = None, None
    if facts is not None:
        parameters, used = facts.parameters, facts.history_bytes
    elif not at_work:
        say("loading model and data")
        parameters, data = look_at_data(files)
        found += data
    found += look_at_disk(files, parameters, used)
    if files.membership is not None:
        found += look_at_descriptors(len(files.membership.peers), facts)
    if facts is not None or not at_work:
        found += look_at_port(files, facts, seconds)
    say("calling the other peers")
    found += _others(files, seconds)
    peer = files.identity.name if files.identity else str(folder)
    return Report(peer=peer, running=at_work, findings=tuple(found))


def _ask(folder: Path) -> tuple[PeerFacts | None, bool, list[Finding]]:
    """Return what the running peer says, whether a process is at work there, and what was found."""
    if not folder.is_dir():
        remedy = "name the folder that `pdlrecover peer init` has made"
        return None, False, [problem("folder", f"{folder} is no folder", remedy)]
    try:
        answer = asyncio.run(ask(folder / CONTROL, {"do": "facts"}))
    except NoPeerError:
        return None, *_at_work(folder)
    except PlanError as error:
        return None, True, [refused("process", error)]
    try:
        if "error" in answer:
            raise msgspec.ValidationError(str(answer["error"]))
        facts = convert(PeerFacts, answer)
    except msgspec.ValidationError:
        remedy = "restart it with the version that is installed, to have it looked at whole"
        return None, True, [warning("process", "it runs, and is of another version", remedy)]
    return facts, True, [ok("process", "it runs, and answers")]


def _at_work(folder: Path) -> tuple[bool, list[Finding]]:
    try:
        with held(folder, PlanError, "it may be starting"):
            return False, [ok("process", "it does not run")]
    except PlanError as error:
        remedy = "look again in a minute; a history is gone through first, which takes a while"
        return True, [warning("process", f"{error}", remedy)]


def _same_file(files: OwnFiles, facts: PeerFacts | None) -> list[Finding]:
    if facts is None or files.membership is None:
        return []
    if facts.greeting.federation == files.membership.digest.hex():
        return []
    what = f"the peer that runs was started with another federation file than {files.federation}"
    remedy = "restart it with this file if all have signed it, or name the other one"
    return [problem("federation file", what, remedy)]


def _others(files: OwnFiles, seconds: float) -> list[Finding]:
    if files.membership is None:
        return []
    if files.identity is None or files.me is None:
        what = "they were not called: this peer's keys cannot be used, or are not the federation's"
        return [warning("peers", what, "mend the keys, and look again")]
    try:
        from pdlrecover.engines.peers.doctor import others
    except ExtraError as error:
        return [refused("peers", error)]
    try:
        visits = asyncio.run(
            others.visit_all(files.membership, files.me, files.identity, files.folder, seconds)
        )
    except PDLRecoverError as error:
        return [refused("peers", error)]
    return [*others.judge_clocks(visits), *others.judge_all(files.membership, visits)]
