"""`pdlrecover peer …` and `history verify`: what they say, and what newcomers get wrong."""

import contextlib
import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import numpy as np
import pytest
import typer
import whole_peers
from test_cli import run

from pdlrecover.cli import removals
from pdlrecover.cli.common import ask_passphrase
from pdlrecover.cli.peer_run import ask_new_passphrase
from pdlrecover.engines.peers.identity.invitation import invite
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import VARIABLE
from pdlrecover.engines.peers.operator.control import one_removal
from pdlrecover.engines.peers.operator.status import Proposed
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.settings import Data, PeerSettings, load_settings, write_settings
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.errors import PlanError
from pdlrecover.history.sealed.records import Kind, round_key

DEMO = Path(__file__).parents[4] / "examples" / "peers"
ASH = ("--name", "ash", "--address", "127.0.0.1:7999")


@pytest.fixture
def place(tmp_path):
    whole_peers.settle(tmp_path)
    return tmp_path


def started(place, me="ash", federation="federation.toml"):
    """Run a peer's command, which is expected to end at once."""
    return run("peer", "run", str(place / federation), str(place / me))


def refused(result, *words):
    """Check that a command said one sentence, without a traceback."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr.replace("\n", " "), result.stderr


def test_from_nothing_to_a_signed_federation(tmp_path):
    (tmp_path / "keys").mkdir()
    for name, port in (("a", 7501), ("b", 7502), ("c", 7503)):
        made = run(
            "peer", "init", str(tmp_path / name), "--name", name, "--address", f"127.0.0.1:{port}",
            "--key-file", str(tmp_path / "keys" / name),
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        assert made.stdout.strip() == (tmp_path / name / "invitation.txt").read_text().strip()
        assert made.stdout.startswith("pdlrecover-peer-1.")
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
        for path in (tmp_path / name / "identity").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
    file = str(tmp_path / "federation.toml")
    plan = tmp_path / "plan.toml"
    text = (DEMO / "plan.toml").read_text().replace("dropouts = 2", "dropouts = 0")
    plan.write_text(text.replace("samples = 300", "samples = 500"))
    invitations = [str(tmp_path / name / "invitation.txt") for name in "abc"]
    made = run("peer", "federate", *invitations, "--plan", str(plan), "--out", file)
    assert made.returncode == 0, made.stderr
    refused(
        run("peer", "federate", *invitations, "--plan", str(plan), "--out", file), "exists already"
    )
    refused(started(tmp_path, "a"), "nobody has signed", "pdlrecover peer sign")
    for name in "ab":
        assert run("peer", "sign", file, str(tmp_path / name)).returncode == 0
    refused(started(tmp_path, "a"), "c has not signed", "pdlrecover peer sign")
    signed = run("peer", "sign", file, str(tmp_path / "c"))
    assert "everybody has signed" in signed.stderr
    assert PeerFiles(Path(file), tmp_path / "a").me == 0


def test_federation_files_that_differ_are_told_by_field(place):
    here, there = place / "federation.toml", place / "theirs.toml"
    there.write_text(here.read_text().replace("rounds = 10", "rounds = 12"))
    differ = run("peer", "compare", str(here), str(there))
    assert differ.returncode == 1
    assert differ.stdout == "training.rounds: 10 here, 12 there\n"
    assert run("peer", "compare", str(here), str(here)).returncode == 0
    shutil.copy(place / "federation.signatures", place / "theirs.signatures")
    refused(
        started(place, federation="theirs.toml"), "have signed another version", "compare the files"
    )


def test_evidence_is_checked_by_the_public_keys_alone(place):
    signing = Identity.load(place / "elm" / "identity").signing
    header = m.Header(
        federation=bytes(32),
        run=bytes(32),
        step=2,
        round=2,
        sender=whole_peers.NAMES.index("elm"),
        recipient=m.EVERYBODY,
        log=bytes(32),
        asked=bytes(32),
    )
    files = []
    for choice in (b"a", b"b"):
        vote = m.Vote(view=0, final=True, choice=choice * 32)
        files.append(place / f"{choice.decode()}.bin")
        files[-1].write_bytes(codec.encode(header, vote, signing.sign))
    told = run("peer", "check-evidence", str(place / "federation.toml"), *map(str, files))
    assert told.returncode == 0, told.stderr
    assert told.stdout == "elm signed two different Votes for one purpose\n"
    check = ("peer", "check-evidence", str(place / "federation.toml"))
    refused(run(*check, str(files[0])), "proves nothing")
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"x")
    refused(run(*check, *map(str, files)), "not signed by peer 3")
    files[1].write_bytes(b"x")
    refused(run(*check, *map(str, files)), "b.bin is not an evidence file")
    refused(run(*check, str(place / "nowhere.bin")), "nowhere.bin does not exist")


def test_missing_and_open_files_are_named_with_what_to_do(place):
    refused(run("peer", "run", str(place / "nowhere.toml"), str(place / "ash")), "nowhere.toml")
    refused(started(place, "oak"), "peer init", "peer.toml")
    refused(run("peer", "status", str(place / "ash")), "no peer is running", "peer run")
    refused(run("peer", "approve", str(place / "ash"), "00"), "no peer is running")
    refused(run("peer", "recover", str(place / "ash")), "no peer is running")
    refused(run("history", "verify", str(place / "ash")), "there is no history")
    for command in (("history", "verify"), ("peer", "sign", str(place / "federation.toml"))):
        refused(run(*command, str(place / "oak")), "oak a peer's folder?", "pdlrecover peer init")
    (place / "ash" / "identity" / "signing.key").chmod(0o644)
    refused(started(place), "open to other users", "chmod 600")
    (place / "birch" / "identity").chmod(0o755)
    refused(started(place, "birch"), "open to other users", "chmod 700")
    (place / "cedar" / "identity" / "tls.key").unlink()
    refused(started(place, "cedar"), "tls.key is not there", "from a backup")
    (place / "keys" / "elm.key").unlink()
    refused(started(place, "elm"), "elm.key is not there", "key_file under [history]")
    (place / "fir" / "own.npz").unlink()
    refused(started(place, "fir"), "own.npz is not there", "data.source")


def test_a_peer_that_the_federation_does_not_know_is_told_so(place):
    made = run(
        "peer", "init", str(place / "oak"), "--name", "oak", "--address", "127.0.0.1:7999"
    )  # fmt: skip
    assert made.returncode == 0
    refused(started(place, "oak"), "no peer is called 'oak'", "there are ash")
    shutil.rmtree(place / "ash" / "identity")
    shutil.copytree(place / "birch" / "identity", place / "ash" / "identity")
    again = run("peer", "init", str(place / "new"), "--name", "elm", "--address", "127.0.0.1:7999")
    assert again.returncode == 0
    refused(started(place, "new"), "another signing key of elm")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "Ash", "--address", "127.0.0.1:7999"], "lower-case"),
        (["--name", "ash", "--address", "127.0.0.1"], "host:port"),
        ([*ASH, "--listen", "here"], "host:port"),
        ([*ASH, "--data", "nosuch"], "no file or folder nosuch"),
        ([*ASH, "--drill", "nosuch"], "a drill's attack is one of"),
        ([*ASH, "--key-file", "/nosuch/stick/ash.key"], "the folder /nosuch/stick is not there"),
        ([*ASH, "--key-file", __file__], "exists already"),
    ],
)
def test_init_makes_nothing_if_it_cannot_make_all(tmp_path, arguments, words):
    refused(run("peer", "init", str(tmp_path / "ash"), *arguments), words)
    assert not (tmp_path / "ash").exists()
    assert not Path("/nosuch").exists()


def test_what_federate_cannot_read_is_named_with_its_file(place):
    def federate(*files, plan=DEMO / "plan.toml"):
        out = ("--out", str(place / "federation.toml"))
        return run("peer", "federate", *map(str, files), "--plan", str(plan), *out)

    peers = [Identity.load(place / name / "identity") for name in whole_peers.NAMES]
    for number, peer in enumerate(peers):
        (place / f"{peer.name}.txt").write_text(invite(peer, f"127.0.0.1:{7501 + number}"))
    good = [place / f"{peer.name}.txt" for peer in peers]
    refused(federate(place / "nosuch" / "*.txt"), "nosuch/*.txt does not exist")
    refused(federate(place / "ash"), "ash is a folder", "invitation.txt")
    (empty := place / "empty.txt").write_text("\n")
    refused(federate(*good, empty), "empty.txt is empty")
    (bad := place / "bad.txt").write_text(good[0].read_text()[:-1])
    refused(federate(*good[1:], bad), "bad.txt: this invitation was cut")
    plan, text = place / "plan.toml", (DEMO / "plan.toml").read_text()
    nameless = text.replace('name = "demo"', "")
    for wrong, words in (("[" + text, "is not TOML"), (nameless, "name is missing")):
        plan.write_text(wrong)
        refused(federate(*good, plan=plan), "plan.toml", words)
    refused(federate(*good), "federation.toml exists already")


def test_keys_are_not_overwritten(place):
    key = place / "ash" / "identity" / "signing.key"
    before = key.read_bytes()
    refused(
        run("peer", "init", str(place / "ash"), "--name", "ash", "--address", "127.0.0.1:7999"),
        "not empty",
    )
    assert key.read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('source = "own.npz"', 'sauce = "own.npz"', "did you mean 'source'"),
        ('source = "own.npz"', "source = 3", "data.source must be a text"),
        ('source = "own.npz"', 'source = "digits"', "the federation's model takes [3]"),
        ("# keep =", "keep = 0", "history.keep must be at least 1"),
        ("[network]", '[drill]\nattack = "lie"\n[network]', "a drill's attack is one of"),
        ("[network]", "[network", "is not TOML"),
    ],
)
def test_settings_that_make_no_sense_are_refused(place, old, new, words):
    path = place / "ash" / "peer.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    refused(started(place), words)


def test_data_that_do_not_fit_the_federation_are_refused(place):
    x, y = whole_peers.datasets()[0]
    for arrays, words in (
        ({"x": x, "y": y + 1}, "labels are 1 to 3"),
        ({"x": np.tile(x, (5, 1)), "y": np.tile(y, 5)}, "at most 16"),
        ({"x": x}, "arrays x and y"),
        ({"x": x.astype(object), "y": y}, "arrays x and y of numbers"),
        ({"x": x, "y": y + 0.5}, "whole numbers"),
        ({"x": x[:3], "y": y}, "one label for each"),
    ):
        np.savez(place / "ash" / "own.npz", **arrays)
        refused(started(place), words)
    (place / "ash" / "own.npz").write_text("x,y\n1,2\n")
    csv = started(place)
    refused(csv, "numpy.savez")
    assert "pickle" not in csv.stderr


def test_a_port_in_use_is_said(place):
    text = (place / "federation.toml").read_text()
    port = int(re.search(r'"127\.0\.0\.1:(\d+)"', text)[1])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        told = started(place)
        refused(told, f"cannot listen on 127.0.0.1:{port} (Address already in use)", "[network]")
        assert len(told.stderr.splitlines()) == 1
        told = run(
            "peer", "run", str(place / "federation.toml"), str(place / "ash"), "--json-logs"
        )  # fmt: skip
    assert told.returncode == 2
    assert "cannot listen" in json.loads(told.stderr.splitlines()[-1])["text"]


def archived(place, name="ash"):
    """Give a peer a history of no rounds."""
    files = PeerFiles(place / "federation.toml", place / name)
    files.archive(files.storage_key()).close()
    return place / name / "history" / "training"


def test_a_wrong_key_does_not_open_a_history(place, monkeypatch):
    assert archived(place).parent.stat().st_mode & 0o777 == 0o700
    (place / "keys" / "ash.key").write_text("ab" * 32)
    refused(started(place), "the key does not open the history")
    refused(run("history", "verify", str(place / "ash")), "the key does not open the history")
    path = place / "ash" / "peer.toml"
    path.write_text(path.read_text().replace("key_file", "# key_file"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    refused(started(place), "the history's key is not there", VARIABLE, "[history] in peer.toml")


def test_a_damaged_history_is_found_before_the_peer_starts(place):
    files = PeerFiles(place / "federation.toml", place / "ash")
    archive = files.archive(files.storage_key())
    from pdlrecover.engines.peers.protocol.messages import LogEntry

    for t in range(3):
        entry = LogEntry(dealers=(), values=np.arange(3) + t)
        archive.commit(archive._training, entry, {}, np.zeros(files.model.size))
    archive.close()
    folder = place / "ash" / "history" / "training"
    whole = run("history", "verify", str(place / "ash"))
    assert whole.returncode == 0
    assert "rounds that are whole: 0–2" in whole.stdout
    with (
        lmdb.open(str(folder), map_size=1 << 26) as env,
        env.begin(write=True) as transaction,
    ):
        key = round_key(1, Kind.TOTAL)
        record = bytearray(transaction.get(key))
        record[-1] ^= 1
        transaction.put(key, bytes(record))
    found = run("history", "verify", str(place / "ash"))
    assert found.returncode == 1
    assert "round 1, opened sum: the record is damaged" in found.stdout
    assert "rounds that are whole: 0, 2" in found.stdout
    refused(started(place), "is damaged (round 1, opened sum", "history verify")


@pytest.mark.slow
def test_a_running_peer_answers_and_ctrl_c_stops_it(place):
    folder = str(place / "ash")
    command = [sys.executable, "-m", "pdlrecover", "peer", "run", str(place / "federation.toml")]
    with subprocess.Popen(
        [*command, folder, "--json-logs"],
        stderr=subprocess.PIPE,
        text=True,
        env=whole_peers.environment(),
    ) as process:
        while not (place / "ash" / "control").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        text = run("peer", "status", folder).stdout
        as_json = run("peer", "status", folder, "--json").stdout
        refused(run("history", "verify", folder), "another process is using the history")
        refused(started(place), "another process is at work in", "a peer runs once", "peer status")
        removal = ("--peers", "fir", "--reason", "malicious", "--method", "retrain")
        refused(run("peer", "propose-removal", folder, *removal), "training has not ended")
        refused(run("peer", "propose-removal", folder, "--peers", "elm"), "--reason; or which")
        refused(run("peer", "propose-removal", folder, "--replace", "1a"), "no removal is known")
        refused(run("peer", "recover", folder), "no removal is known here yet")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 0, said
    logged = [json.loads(line) for line in said.splitlines()]
    assert any(line["text"].startswith("stopping") for line in logged)
    assert "the same command goes on" in logged[-1]["text"]
    assert "ash of clinics: running" in text
    assert "founding: the peers agree on an epoch, running" in text
    assert "not heard for 30 s: birch, cedar, elm, fir" in text
    assert "caught lying: nobody" in text
    assert json.loads(as_json)["running"] is True
    assert "not running; as it was" in run("peer", "status", folder).stdout


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "federate",
        "sign",
        "compare",
        "check-evidence",
        "run",
        "status",
        "propose-removal",
        "approve",
        "recover",
    ],
)
def test_every_command_shows_an_example(command):
    told = run("peer", command, "--help")
    assert "Example:" in told.stdout
    assert f"pdlrecover peer {command}" in " ".join(told.stdout.split())


@pytest.mark.slow
def test_the_demonstration_ends_well_and_leaves_no_process(tmp_path):
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1] % 20000 + 20000
    environment = {**whole_peers.environment(), "PYTHON": sys.executable, "PORT": str(port)}
    command = ["bash", str(DEMO / "demo.sh"), str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the backdoor is gone" in done.stdout
    assert "all kept peers hold the same model" in done.stdout
    assert not list((tmp_path / "demo").glob("*/control"))


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (None, "The others approve by: pdlrecover peer approve FOLDER abab"),
        ("running", "pdlrecover peer recover ash abab"),
        ("done", "already recovered: ash/recovered-abab"),
    ],
)
def test_a_removal_that_is_proposed_again_is_said_to_be_done(monkeypatch, outcome, words):
    answer = Proposed(removal="ab" * 32, outcome=outcome)
    monkeypatch.setattr(removals, "command", lambda *_, **__: answer)
    told = run("peer", "propose-removal", "ash", "--peers", "fir", "--reason", "malicious")
    assert (told.returncode, told.stdout) == (0, "ab" * 8 + "\n")
    assert words in told.stderr


def test_a_removal_takes_a_file_of_suspects(monkeypatch, tmp_path):
    asked, file = [], tmp_path / "suspects.json"
    file.write_text('{"format": 1, "suspects": [{"peer": "fir", "score": 9.5}, {"peer": 3}]}')
    answer = Proposed(removal="ab" * 32, outcome=None)
    monkeypatch.setattr(removals, "command", lambda *_, **order: asked.append(order) or answer)
    given = run("peer", "propose-removal", "ash", "--peers", f"@{file}", "--reason", "malicious")
    assert given.returncode == 0, given.stderr
    assert asked[0]["removed"] == ["fir", 3]
    refused(
        run("peer", "propose-removal", "ash", "--peers", "@no.json", "--reason", "left"), "no.json"
    )


@pytest.mark.parametrize(
    ("names", "begins", "words"),
    [
        ([], "", "no removal is known here yet; propose one"),
        (["abc", "abd"], "dead", "no removal 'dead' is known here; known are abc, abd"),
        (["abc", "abd", "b"], "ab", "several removals begin with 'ab': abc, abd; say which"),
        (["abc", "abd"], "", "several removals are known here: abc, abd; say which"),
    ],
)
def test_a_removal_is_unknown_or_one_of_several(names, begins, words):
    with pytest.raises(PlanError, match=words):
        one_removal(names, begins)
    assert one_removal([*names, "dead"], "de") == "dead"


def test_a_signatures_file_that_is_no_text_is_said(place):
    (place / "federation.signatures").write_text("pdlrecover", encoding="utf-16")
    refused(
        run("peer", "sign", str(place / "federation.toml"), str(place / "ash")),
        "is not a text file",
    )


def test_a_metrics_port_that_is_none_is_refused(place):
    told = run(
        "peer", "run", str(place / "federation.toml"), str(place / "ash"), "--metrics-port", "99999"
    )  # fmt: skip
    assert told.returncode == 2
    assert "--metrics-port" in told.stderr
    assert "65535" in told.stderr
    assert "Traceback" not in told.stderr


def test_settings_with_quotes_and_backslashes_are_read_as_they_were_written(tmp_path):
    data = Data(source='C:\\own "data"\n\x7f.npz')
    (tmp_path / "peer.toml").write_text(write_settings(PeerSettings(data=data)))
    assert load_settings(tmp_path).data == data


def test_the_passphrase_of_a_new_history_is_asked_twice(monkeypatch):
    told = []
    monkeypatch.setattr(typer, "prompt", lambda *_, **how: told.append(how) or "words enough here")
    assert ask_new_passphrase() == ask_passphrase()
    assert [how.get("confirmation_prompt", False) for how in told] == [True, False]


def test_a_peer_knows_whether_it_has_a_history(place):
    assert not PeerFiles(place / "federation.toml", place / "ash").has_history
    archived(place)
    assert PeerFiles(place / "federation.toml", place / "ash").has_history
