"""What people get wrong at the command line: each is one sentence and its exit code.

    pytest tests/cli/test_misuses.py -k simulate-rate

A misuse is quoted by its id. `{there}` is a folder with what the arguments name; nothing in it may
change, and the sentence speaks of the user's own words: flags, file names, names of peers.
"""

import hashlib
import shutil
import socket
from dataclasses import dataclass

import pytest
import whole_peers
from test_cli import run

from pdlrecover.engines.peers.identity.own_keys import Identity


@dataclass(frozen=True)
class Misuse:
    name: str
    command: str
    said: str
    code: int = 2


PLAN = "plan --peers 20 --colluders 6"
SIMULATE = "simulate --out {there}/out --rounds 40 --peers 10"
FEDERATION = "{there}/federation.toml"
MISUSES = [
    # No command, or none that there is.
    Misuse("none", "", "Usage: pdlrecover"),
    Misuse("unknown-command", "simulat", "No such command 'simulat'"),
    Misuse("unknown-peer-command", "peer start", "No such command 'start'"),
    Misuse("unknown-flag", "plan --peer 20", "No such option: --peer"),
    Misuse("flag-without-value", "plan --peers", "Option '--peers' requires an argument"),
    # plan
    Misuse("plan-without-peers", "plan", "Missing option '--peers'"),
    Misuse(
        "plan-words-for-numbers", "plan --peers many --colluders 1", "Invalid value for '--peers'"
    ),
    Misuse("plan-half-a-peer", "plan --peers 2.5 --colluders 1", "Invalid value for '--peers'"),
    Misuse("plan-negative-colluders", "plan --peers 20 --colluders -1", "--colluders must be a wh"),
    Misuse("plan-nobody", "plan --peers 0 --colluders 0", "--peers must be a whole number of at"),
    Misuse("plan-too-much", PLAN + " --dropouts 10 --liars 3", "lower --liars to 1"),
    Misuse("plan-no-rounds", PLAN + " --rounds 0", "--rounds must be at least 1, got 0"),
    Misuse("plan-no-parameters", PLAN + " --parameters 0", "--parameters must be at least 1"),
    # simulate: its flags
    Misuse("simulate-no-methods", SIMULATE + " --methods=", "--methods must name at least one"),
    Misuse("simulate-mistyped-method", SIMULATE + " --methods retrian", "did you mean retrain? "),
    Misuse("simulate-unknown-method", SIMULATE + " --methods magic", "no method is called 'magic'"),
    Misuse(
        "simulate-method-in-the-clear-only",
        SIMULATE + " --methods fedrecover",
        "run it in the clear (--clear), or leave it out",
    ),
    Misuse(
        "simulate-more-exact-rounds-than-there-are",
        SIMULATE + " --methods retrain-k:rounds=500",
        "'retrain-k:rounds=500' cannot have 500 exact rounds, for the run has 40; lower it",
    ),
    Misuse("simulate-no-rounds", SIMULATE + " --rounds 0", "--rounds must be at least 1, got 0"),
    Misuse("simulate-one-peer", SIMULATE + " --peers 1", "--peers must be at least 2, got 1"),
    Misuse("simulate-all-leave", SIMULATE + " --leavers 10", "--leavers 10 of 10 peers leaves nob"),
    Misuse(
        "simulate-attack-and-leave",
        SIMULATE + " --malicious 1 --leavers 2",
        "give one of --malicious and --leavers",
    ),
    Misuse("simulate-accused-alone", SIMULATE + " --accused 1", "give --malicious, too"),
    Misuse("simulate-one-leaves", SIMULATE + " --leavers 1", "accept it (--accept-differencing)"),
    Misuse(
        "simulate-too-many-to-remove",
        SIMULATE + " --malicious 4 --dropouts 3",
        "remove fewer, or set it up with --dropouts 4",
    ),
    Misuse(
        "simulate-attack-without-attackers",
        SIMULATE + " --attack lie",
        "--attack lie needs attackers: give --malicious, or --undetected",
    ),
    Misuse(
        "simulate-unknown-attack", SIMULATE + " --attack x --malicious 1", "no attack is called"
    ),
    Misuse(
        "simulate-strength-of-nothing",
        SIMULATE + " --attack min-max --malicious 1 --attack-scale 2",
        "has no strength to set with --attack-scale",
    ),
    Misuse(
        "simulate-rate-negative", SIMULATE + " --learning-rate -1", "--learning-rate must be po"
    ),
    Misuse("simulate-rate-nan", SIMULATE + " --learning-rate nan", "--learning-rate must be posit"),
    Misuse("simulate-unknown-optimizer", SIMULATE + " --optimizer lion", "muon (--optimizer)"),
    Misuse("simulate-unknown-dataset", SIMULATE + " --dataset cats", "no dataset is called 'cats'"),
    Misuse(
        "simulate-no-data",
        SIMULATE + " --dataset mnist --data-dir {there}/nowhere",
        "pdlrecover download mnist --data-dir",
    ),
    Misuse("simulate-unknown-model", SIMULATE + " --model gpt", "no model is called 'gpt'"),
    Misuse("simulate-model-of-nowhere", SIMULATE + " --model a.b:c", "cannot import the model"),
    Misuse("simulate-unknown-partition", SIMULATE + " --partition x", "subject (--partition)"),
    Misuse("simulate-degree", SIMULATE + " --degree 3", "--degree of fang is a probability"),
    Misuse("simulate-split", SIMULATE + " --split subject", "set --split to random"),
    Misuse("simulate-more-peers-than-data", SIMULATE + " --peers 5000", "samples cannot be dealt"),
    Misuse("simulate-held-out", SIMULATE + " --held-out 0.9", "--held-out must be from 0 to 0.5"),
    Misuse(
        "simulate-no-room", SIMULATE + " --preparation 30 --final 30", "lower --preparation and"
    ),
    Misuse("simulate-buffer", SIMULATE + " --buffer 99", "--buffer must be at most 16, got 99"),
    Misuse("simulate-absent-in-the-clear", SIMULATE + " --absent 1 --clear", "leave --clear out"),
    Misuse("simulate-liars", SIMULATE + " --lying 3", "or raise --liars"),
    Misuse("simulate-seed", SIMULATE + " --seed -1", "--seed must be at least 0, got -1"),
    Misuse("simulate-budget", SIMULATE + " --budget-gb 0.0001", "give --budget-gb 0.0"),
    Misuse("simulate-tolerance", SIMULATE + " --colluders 9", "lower --colluders to"),
    # simulate: its files
    Misuse("simulate-no-config", "simulate --config {there}/none.toml", "none.toml does not exist"),
    Misuse("simulate-config-folder", "simulate --config {there}/empty", "empty is a folder; name"),
    Misuse("simulate-config-no-toml", "simulate --config {there}/no.toml", "this is not TOML"),
    Misuse("simulate-config-binary", "simulate --config {there}/binary", "is not a text file"),
    Misuse("simulate-config-key", "simulate --config {there}/key.toml", "did you mean 'rounds'?"),
    Misuse("simulate-config-type", "simulate --config {there}/type.toml", "rounds must be a whole"),
    Misuse(
        "simulate-config-value",
        "simulate --config {there}/value.toml",
        "value.toml: rounds must be at least 1, got 0",
    ),
    Misuse(
        "simulate-config-method-in-the-clear-only",
        "simulate --config {there}/shared.toml",
        "run it in the clear (clear = true), or leave it out",
    ),
    Misuse(
        "simulate-flag-over-config",
        "simulate --config {there}/fine.toml --rounds 0",
        "fine.toml: --rounds must be at least 1, got 0",
    ),
    Misuse("simulate-out-is-a-file", "simulate --out {there}/file", "/file cannot be written: "),
    Misuse("simulate-out-in-a-device", "simulate --out /dev/null/x", "Not a directory"),
    Misuse("simulate-damaged-record", "simulate --out {there}/damaged", "result.json is damaged"),
    # demo, download, report, reproduce
    Misuse("demo-out-is-a-file", "demo --out {there}/file", "; choose another place"),
    Misuse("download-nothing", "download", "Missing argument"),
    Misuse("download-unknown", "download cats --data-dir {there}", "known are mnist, fashion-mni"),
    Misuse("report-nothing", "report", "Missing argument"),
    Misuse("report-empty", "report {there}/empty", "has no document.json or result.json"),
    Misuse("report-nowhere", "report {there}/nowhere", "nowhere"),
    Misuse("report-no-json", "report {there}/fine.toml", "fine.toml is no JSON file: "),
    Misuse(
        "propose-suspects-that-are-no-json",
        "peer propose-removal {there}/ash --peers @{there}/fine.toml --reason malicious",
        "fine.toml is no JSON file: ",
    ),
    Misuse("report-damaged", "report {there}/damaged", "damaged"),
    Misuse("reproduce-unknown", "reproduce table3", "did you mean table-3?"),
    Misuse(
        "reproduce-without-data",
        "reproduce table-3 --data-dir {there}/empty",
        "mnist, fashion-mnist and har are not in the data folder",
    ),
    Misuse(
        "reproduce-out-is-a-file",
        "reproduce bound --quick --out {there}/file/x",
        "x cannot be written: Not a directory; choose another place",
    ),
    Misuse("reproduce-workers", "reproduce bound --workers 0", "Invalid value for '--workers'"),
    Misuse("reproduce-not-recorded", "reproduce table-1 --documents --out {there}/empty", "not wr"),
    # peers
    Misuse("init-name", "peer init {there}/new --name A! --address h:1", "lower-case"),
    Misuse("init-address", "peer init {there}/new --name a --address host", "host:port"),
    Misuse("init-twice", "peer init {there}/ash --name ash --address h:1", "is not empty"),
    Misuse(
        "init-drill", "peer init {there}/new --name a --address h:1 --drill lie", "attack is one"
    ),
    Misuse("federate-no-plan", "peer federate {there}/ash.txt", "Missing option '--plan'"),
    Misuse("federate-folder", "peer federate {there}/ash --plan {there}/fine.toml", "is a folder"),
    Misuse("sign-no-folder", "peer sign " + FEDERATION + " {there}/oak", "pdlrecover peer init"),
    Misuse(
        "compare-nowhere", "peer compare " + FEDERATION + " {there}/none", "none does not exist"
    ),
    Misuse("run-plan", "peer run {there}/plan.toml {there}/ash", "this is a plan, without peers"),
    Misuse(
        "run-other-toml", "peer run {there}/fine.toml {there}/ash", "this is no federation file"
    ),
    Misuse("run-swapped", "peer run {there}/ash " + FEDERATION, "federation.toml"),
    Misuse("run-no-folder", "peer run " + FEDERATION + " {there}/oak", "pdlrecover peer init"),
    Misuse("run-stranger", "peer run " + FEDERATION + " {there}/stranger", "no peer is called"),
    Misuse("run-wrong-key", "peer run " + FEDERATION + " {there}/cedar", "cedar.key must hold 64"),
    Misuse(
        "run-metrics-port",
        "peer run " + FEDERATION + " {there}/ash --metrics-port 0",
        "Invalid value for '--metr",
    ),
    Misuse(
        "run-port-in-use", "peer run " + FEDERATION + " {there}/birch", "Address already in use"
    ),
    Misuse("status-not-running", "peer status {there}/ash", "no peer is running in"),
    Misuse("doctor-nowhere", "peer doctor {there}/oak", "oak is no folder"),
    Misuse("approve-nothing", "peer approve {there}/ash", "Missing argument"),
    Misuse("approve-not-running", "peer approve {there}/ash 00", "no peer is running in"),
    Misuse("propose-nobody", "peer propose-removal {there}/ash", "--peers and --reason"),
    Misuse("evidence-nowhere", "peer check-evidence " + FEDERATION + " {there}/x", "x does not ex"),
    Misuse("verify-nothing", "history verify {there}/ash", "there is no history"),
    Misuse("verify-nowhere", "history verify {there}/oak", "peer init"),
    Misuse("chaos-cheat", "peer chaos --cheats rob", "cheats are"),
    Misuse("chaos-few", "peer chaos --peers 2", "a chaos run has 5 to"),
]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder with good and bad files, and a signed federation."""
    place = tmp_path_factory.mktemp("there")
    whole_peers.settle(place)
    Identity.create(place / "stranger" / "identity", "stranger")
    shutil.copy(place / "ash" / "peer.toml", place / "stranger")
    (place / "keys" / "cedar.key").write_text("not a key")
    (place / "empty").mkdir()
    (place / "file").write_text("")
    (place / "binary").write_bytes(b"\xff\xfe\x00")
    (place / "no.toml").write_text("rounds = = 3")
    (place / "key.toml").write_text("round = 3")
    (place / "type.toml").write_text('rounds = "many"')
    (place / "value.toml").write_text("rounds = 0")
    (place / "shared.toml").write_text('methods = ["fedrecover"]')
    (place / "fine.toml").write_text("rounds = 40\npeers = 10\n")
    text = (place / "federation.toml").read_text()
    (place / "plan.toml").write_text(text[: text.index("[peers.")])
    (place / "damaged").mkdir()
    (place / "damaged" / "result.json").write_text('{"format": 1')
    return place


def contents(place):
    """Return what is in a folder, by path; what peers write of themselves is not looked at."""
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    own = {"status.json", "signing.key"}
    found = {path: path.read_bytes() for path in files if path.name not in own}
    kept = {p: d for p, d in found.items() if "history" not in p.parts}
    return {path: hashlib.sha256(data).hexdigest() for path, data in kept.items()}


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.name)
def test_a_misuse_is_one_sentence_and_loses_nothing(misuse, there, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(there / "empty")
    before = contents(there)
    with socket.socket() as taken:
        if misuse.name == "run-port-in-use":
            taken.bind(("127.0.0.1", port_of(there, "birch")))
            taken.listen()
        result = run(*misuse.command.format(there=there).split())
    said = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == misuse.code, said
    assert misuse.said in said
    assert "Traceback" not in said
    if result.stderr.startswith("error: "):
        assert result.stderr.count("\n") == 1
    assert contents(there) == before


def port_of(place, name):
    text = (place / "federation.toml").read_text().partition(f"[peers.{name}]")[2]
    return int(text.partition('address = "127.0.0.1:')[2].partition('"')[0])


def test_there_are_many_misuses_and_each_has_a_name_of_its_own():
    assert len(MISUSES) >= 50
    assert len({misuse.name for misuse in MISUSES}) == len(MISUSES)
