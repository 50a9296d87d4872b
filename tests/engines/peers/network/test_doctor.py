"""`peer doctor` beside real peers over TLS, with one thing wrong at a time.

Birch, cedar and elm run all the while; ash is looked at; fir is down, or something else is there.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import whole_peers
from hospitals import PEERS
from loopback import pinned, until
from test_cli import run

from pdlrecover.engines.peers.doctor.examination import examine
from pdlrecover.engines.peers.doctor.finding import Verdict
from pdlrecover.engines.peers.doctor.machine import is_kept
from pdlrecover.engines.peers.doctor.others import Visit, judge_clocks
from pdlrecover.engines.peers.federation.federation_file import load_federation, write_federation
from pdlrecover.engines.peers.federation.signatures import add_signature, sign_federation
from pdlrecover.engines.peers.folder import CONTROL, IDENTITY, signatures_path
from pdlrecover.engines.peers.greeting import encode, greeting
from pdlrecover.engines.peers.identity.member import split_address
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.settings import Data, History, PeerSettings, write_settings
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.engines.peers.transport.network import Network
from pdlrecover.engines.peers.transport.ping import Echo, How
from pdlrecover.files import held

ASH, BIRCH, FIR = 0, 1, 4
UP = ("birch", "cedar", "elm")
KEY = "../keys/ash.key"


class Loop:
    """An event loop in a thread, for peers that run while a test looks at them."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory, loop):
    """A federation with three of five peers running."""
    place = tmp_path_factory.mktemp("clinics")
    federation = whole_peers.settle(place)
    peers = []
    for name in UP:
        files = PeerFiles(federation, place / name)
        peers.append(files.peer(files.archive(files.storage_key())))

    async def start():
        tasks = [asyncio.create_task(peer.run()) for peer in peers]
        await until(lambda: all((place / name / CONTROL).exists() for name in UP))
        return tasks

    tasks = loop.do(start())
    yield place

    async def stop():
        for peer in peers:
            peer.stop()
        await asyncio.gather(*tasks)

    loop.do(stop())
    for peer in peers:
        peer.runs.store.close()


@pytest.fixture
def mine(place, tmp_path):
    """A copy of ash's files, to spoil."""
    for name in ("federation.toml", "federation.signatures"):
        shutil.copy(place / name, tmp_path)
    for name in ("ash", "keys"):
        shutil.copytree(place / name, tmp_path / name)
    return tmp_path


def look(place, name="ash"):
    return examine(place / name, place / "federation.toml", seconds=2.0)


def of(report, check):
    """Return what was found of one thing."""
    return [each for each in report.findings if each.check == check]


def trouble(report):
    """Return what is wrong besides fir, which is down, by what was looked at."""
    usual = {"peer fir"}
    return {
        each.check: each
        for each in report.findings
        if each.verdict is not Verdict.OK and each.check not in usual
    }


def agreed(mine, place, **changed):
    """Let ash have another federation file, signed by all."""
    membership = replace(load_federation(place / "federation.toml"), **changed)
    (mine / "federation.toml").write_text(write_federation(membership))
    text = ""
    for name in whole_peers.NAMES:
        line = sign_federation(Identity.load(place / name / IDENTITY), membership)
        text = add_signature(text, line)
    signatures_path(mine / "federation.toml").write_text(text)
    return membership


@contextmanager
def standing_in(loop, place, *, show="fir", greet=None, without=()):
    """Have a network at fir's address, with the papers of some peer, that knows some of them."""
    membership = load_federation(place / "federation.toml")
    identities = [Identity.load(place / name / IDENTITY) for name in whole_peers.NAMES]
    fakes = [Identity.generate(i.name) if i.name in without else i for i in identities]
    me = whole_peers.NAMES.index(show)

    async def receive(source, data):
        pass

    async def start():
        network = Network(
            me=me,
            addresses=[peer.address for peer in membership.peers],
            tls=pinned(fakes)[me],
            receive=receive,
            listen=membership.peers[FIR].address,
            greet=greet,
        )
        await network.start()
        return network

    network = loop.do(start())
    try:
        yield
    finally:
        loop.do(network.stop())


def test_a_sound_peer_is_found_so_and_one_that_is_down_is_a_warning(place, mine):
    report = look(mine)
    assert trouble(report) == {}
    (fir,) = of(report, "peer fir")
    assert fir.verdict is report.verdict is Verdict.WARNING
    assert "nobody listens" in fir.what
    assert "start it" in fir.remedy
    checks = [each.check for each in report.findings]
    wanted = "process versions settings keys federation file membership signatures history's key "
    wanted += "model data disk descriptors port clock peers peer birch peer cedar peer elm"
    assert all(check in wanted for check in {*checks} - {"peer fir"})
    assert len(checks) == len(set(checks)) == 19
    assert (
        "AVX" in of(report, "peer birch")[0].what or "DEFAULT" in of(report, "peer birch")[0].what
    )
    assert not report.running
    assert not (mine / "ash" / "history").exists(), "nothing was written"


def test_a_running_peer_is_looked_at_from_outside_without_torch(place):
    script = """
import sys
from pdlrecover.cli import main
sys.argv = ["pdlrecover", "peer", "doctor", sys.argv[1], "--json", "--seconds", "2"]
try:
    main()
except SystemExit as end:
    heavy = {"torch"} & set(sys.modules)
    sys.exit(f"{heavy} is imported" if heavy else end.code)
"""
    command = [sys.executable, "-c", script, str(place / "birch")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=whole_peers.environment(), timeout=60
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["peer"], told["running"], told["verdict"]) == ("birch", True, "warning")
    wrong = {each["check"] for each in told["findings"] if each["verdict"] != "ok"}
    assert wrong == {"peer ash", "peer fir"}
    assert all(each["remedy"] for each in told["findings"] if each["check"] in wrong)
    found = {each["check"]: each["what"] for each in told["findings"]}
    assert "it runs" in found["process"]
    assert "shows its certificate" in found["port"]
    assert "model" not in found


def test_a_health_check_is_sound_only_while_the_peer_runs(place, mine):
    check = ("peer", "status", "--require-running")
    assert run(*check, str(place / "birch")).returncode == 0
    deadline = time.monotonic() + 20
    while not (place / "birch" / "status.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    shutil.copy(place / "birch" / "status.json", mine / "ash")
    stopped = run(*check, str(mine / "ash"))
    assert stopped.returncode == 1
    assert "not running" in stopped.stdout
    assert run("peer", "status", str(mine / "ash")).returncode == 0


def test_a_running_peer_that_has_another_file_than_the_one_named_is_told(place, mine):
    deadlines = replace(whole_peers.DEADLINES, message=7.0)
    agreed(mine, place, deadlines=deadlines)
    report = examine(place / "birch", mine / "federation.toml", seconds=2.0)
    assert "restart it with this file" in trouble(report)["federation file"].remedy


@pytest.mark.parametrize("name", ["signing.key", "tls.key"])
def test_a_key_that_others_may_read_is_a_problem(mine, name):
    (mine / "ash" / "identity" / name).chmod(0o644)
    found = trouble(look(mine))
    assert found["keys"].verdict is Verdict.PROBLEM
    assert f"{name} is open to other users (mode 0644)" in found["keys"].what
    assert "chmod 600" in found["keys"].remedy
    assert found["peers"].what.startswith("they were not called")


def test_a_key_that_is_missing_or_of_another_peer_is_a_problem(place, mine):
    identity = mine / "ash" / "identity"
    shutil.copy(place / "birch" / "identity" / "sealing.key", identity)
    assert "another sealing key" in trouble(look(mine))["membership"].what
    shutil.copy(place / "birch" / "identity" / "signing.key", identity)
    assert "do not fit together" in trouble(look(mine))["keys"].what
    (identity / "signing.key").unlink()
    assert "signing.key is not there" in trouble(look(mine))["keys"].what
    assert "backup" in trouble(look(mine))["keys"].remedy


def test_the_key_of_another_history_is_a_problem(mine):
    files = PeerFiles(mine / "federation.toml", mine / "ash")
    files.archive(files.storage_key()).close()
    assert "opens the history of 1 runs" in of(look(mine), "history's key")[0].what
    shutil.copy(mine / "keys" / "birch.key", mine / "keys" / "ash.key")
    found = trouble(look(mine))
    assert "the key does not open the history" in found.pop("history's key").what
    assert found == {}
    (mine / "keys" / "ash.key").unlink()
    assert "ash.key is not there" in trouble(look(mine))["history's key"].what


def test_a_passphrase_that_somebody_has_to_type_is_a_warning(mine):
    whole_peers.write(mine / "ash", History())
    found = trouble(look(mine))["history's key"]
    assert found.verdict is Verdict.WARNING
    assert "unattended" in found.remedy


def test_a_missing_signature_is_a_problem(mine):
    path = mine / "federation.signatures"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("elm ")))
    found = trouble(look(mine))
    assert "elm has not signed" in found["signatures"].what
    assert list(found) == ["signatures"]


def test_a_federation_file_that_is_not_there_is_a_problem(mine, monkeypatch):
    monkeypatch.chdir(mine / "keys")
    for name in ("federation.toml", "federation.signatures"):
        (mine / name).rename(mine / "keys" / name)
    assert trouble(examine(mine / "ash", seconds=2.0)) == {}, "it is in the folder of the command"
    (mine / "keys" / "federation.toml").unlink()
    found = trouble(examine(mine / "ash", seconds=2.0))
    assert "--federation" in found["federation file"].remedy


def test_data_and_settings_that_cannot_be_used_are_problems(mine):
    (mine / "ash" / "own.npz").unlink()
    assert "own.npz is not there" in trouble(look(mine))["data"].what
    settings = PeerSettings(data=Data(source="own.npz"), history=History(key_file=KEY))
    (mine / "ash" / "peer.toml").write_text(write_settings(settings))
    assert "names code" in trouble(look(mine))["model"].what, "it is not allowed any more"
    (mine / "ash" / "peer.toml").write_text("[dta]\n")
    assert "unknown key 'dta'" in trouble(look(mine))["settings"].what


def test_a_port_that_another_program_has_is_a_problem(place, mine):
    address = load_federation(place / "federation.toml").peers[ASH].address
    with socket.create_server(split_address(address)):
        found = trouble(look(mine))
    assert found["port"].what == f"another program listens on {address}"
    assert "ss -ltnp" in found["port"].remedy
    whole_peers.write(
        mine / "ash",
        History(key_file=KEY),
        network=whole_peers.Listening(listen="192.0.2.1:7400"),
    )
    assert "cannot listen on 192.0.2.1:7400" in trouble(look(mine))["port"].what


def test_a_folder_where_a_process_is_at_work_is_left_alone(mine):
    with held(mine / "ash", ValueError, ""):
        report = look(mine)
    assert report.running
    assert trouble(report)["process"].verdict is Verdict.WARNING
    assert of(report, "port") == of(report, "data") == []


def test_a_peer_with_another_federation_file_is_a_problem(place, mine):
    agreed(mine, place, deadlines=replace(whole_peers.DEADLINES, message=7.0))
    found = trouble(look(mine))
    assert {"peer birch", "peer cedar", "peer elm"} == set(found)
    assert "another federation file" in found["peer birch"].what
    assert "peer compare" in found["peer birch"].remedy


def test_a_disk_too_small_for_all_rounds_is_a_problem(place, mine):
    agreed(mine, place, training=replace(whole_peers.training(), rounds=10**12))
    found = trouble(look(mine))["disk"]
    assert found.verdict is Verdict.PROBLEM
    assert "1000000000000 rounds" in found.what
    assert "keep" in found.remedy
    whole_peers.write(mine / "ash", History(key_file=KEY, keep=5))
    assert "TB for 1000000000000 rounds" in trouble(look(mine))["disk"].what, "models are kept"
    shutil.copy(place / "federation.toml", mine)
    shutil.copy(place / "federation.signatures", mine)
    whole_peers.write(mine / "ash", History(key_file=KEY, limit_gb=0.0001))
    assert "limit_gb = 0.0001" in trouble(look(mine))["disk"].what


def test_a_clock_that_is_off_is_named_with_its_peer(place, mine, loop):
    def late():
        said = greeting(load_federation(place / "federation.toml").digest)
        return encode(replace(said, time=said.time - 3600))

    with standing_in(loop, place, greet=late):
        report = look(mine)
    found = trouble(report)
    assert list(found) == ["clock"]
    assert "the clock of fir is 3600.0 s behind the others'" in found["clock"].what
    assert of(report, "peer fir")[0].verdict is Verdict.OK
    assert of(report, "peers")[0].what == "5 of 5 are there, this one included"


def test_another_certificate_at_an_address_is_a_problem(place, mine, loop):
    with standing_in(loop, place, show="birch"):
        (fir,) = of(look(mine), "peer fir")
    assert fir.verdict is Verdict.PROBLEM
    assert "shows a certificate of birch-" in fir.what
    assert "not the one in the federation file" in fir.what


def test_a_peer_that_has_another_certificate_of_ours_turns_us_away(place, mine, loop):
    with standing_in(loop, place, without=("ash",)):
        (fir,) = of(look(mine), "peer fir")
    assert fir.verdict is Verdict.PROBLEM
    assert "turns our certificate away" in fir.what


def test_an_older_peer_is_named_so_and_nothing_is_wrong_with_it(place, mine, loop):
    with standing_in(loop, place):
        report = look(mine)
    assert report.verdict is Verdict.OK
    assert "does not say its version" in of(report, "peer fir")[0].what


def test_a_newer_peer_is_a_warning(place, mine, loop):
    def newer():
        said = greeting(load_federation(place / "federation.toml").digest)
        return encode(replace(said, version="99.0"))

    with standing_in(loop, place, greet=newer):
        (fir,) = of(look(mine), "peer fir")
    assert fir.verdict is Verdict.WARNING
    assert "pdlrecover 99.0" in fir.what
    assert "upgrade" in fir.remedy


def test_what_speaks_no_tls_and_what_says_nothing_are_told_apart(place, mine):
    where = split_address(load_federation(place / "federation.toml").peers[FIR].address)

    def answer(server, ends):
        while not ends.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    ends = threading.Event()
    with socket.create_server(where) as server:
        server.settimeout(0.1)
        thread = threading.Thread(target=answer, args=(server, ends))
        thread.start()
        (fir,) = of(look(mine), "peer fir")
        ends.set()
        thread.join()
    assert fir.verdict is Verdict.PROBLEM
    assert "speaks no TLS" in fir.what
    with socket.create_server(where):
        began = time.monotonic()
        (fir,) = of(look(mine), "peer fir")
    assert fir.verdict is Verdict.WARNING
    assert "nothing is said" in fir.what
    assert "frozen" in fir.what
    assert time.monotonic() - began < 15, "it is waited for as long as was said, at each step"


def test_addresses_that_lead_nowhere_are_told_apart(place, mine):
    membership = load_federation(place / "federation.toml")
    fir = replace(membership.peers[FIR], address="fir.invalid:7400")
    agreed(mine, place, peers=(*membership.peers[:FIR], fir))
    (found,) = of(look(mine), "peer fir")
    assert found.verdict is Verdict.PROBLEM
    assert found.what == "fir.invalid:7400: its name cannot be found"


def test_too_few_peers_for_a_round_are_a_problem(place, mine):
    membership = load_federation(place / "federation.toml")
    away = [replace(p, address=f"{p.name}.invalid:7400") for p in membership.peers[2:]]
    agreed(mine, place, peers=(*membership.peers[:2], *away), deadlines=whole_peers.DEADLINES)
    found = trouble(look(mine))["peers"]
    assert found.verdict is Verdict.PROBLEM
    assert "2 of 5 peers are there, this one included, and 3 are needed" in found.what


def clocks(**ahead):
    """Return what is said of clocks that are so far ahead of this one."""
    visits = [
        Visit(
            member=PEERS[i].member(f"{name}:7400"),
            echo=Echo(how=How.ANSWERED, greeting=greeting(bytes(32)), seconds=0.1, ahead=seconds),
        )
        for i, (name, seconds) in enumerate(ahead.items())
    ]
    return [(each.verdict, each.what) for each in judge_clocks(visits)]


def test_a_clock_is_judged_by_the_median_and_two_alone_cannot_tell():
    ((verdict, what),) = clocks(a=100.0, b=100.1, c=99.9)
    assert verdict is Verdict.WARNING
    assert "this clock is 100.0 s behind the median of 3 others" in what
    ((verdict, what),) = clocks(a=0.0, b=0.1, c=-60.0)
    assert "the clock of hospital-b is 60.0 s behind the others'" in what
    ((verdict, what),) = clocks(a=-7.0)
    assert "there is no third to tell" in what
    ((verdict, what),) = clocks(a=0.5, b=-0.5)
    assert verdict is Verdict.OK
    assert "within 0.500 s of 2 others'" in what
    ((_, what),) = clocks(a=0.5)
    assert "within 0.500 s of 1 other's" in what


def test_a_clock_outside_of_the_certificates_dates_is_a_problem(place):
    member = load_federation(place / "federation.toml").peers[BIRCH]
    visit = Visit(member=member, echo=Echo(how=How.UNREACHABLE))
    (found,) = judge_clocks([visit], datetime(1970, 1, 1, tzinfo=UTC))
    assert found.verdict is Verdict.PROBLEM
    assert "certificate of birch is valid from" in found.what
    assert is_kept() in (True, False, None)
