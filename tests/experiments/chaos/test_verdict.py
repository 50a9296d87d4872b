import json

import pytest

from pdlrecover.engines.peers.removals.rule import NEEDLESS
from pdlrecover.experiments.chaos import verdict as v
from pdlrecover.experiments.chaos.campaign import record
from pdlrecover.experiments.chaos.peer_processes import PeerProcesses

NAMES = ("ash", "birch")


@pytest.fixture
def peers(tmp_path):
    """Two peers that were never started: what they left is written by the tests."""
    for name in NAMES:
        (tmp_path / name).mkdir()
    return PeerProcesses(tmp_path / "federation.toml", NAMES)


def logged(peers, name, *lines):
    with peers.log(name).open("a") as log:
        for level, text in lines:
            log.write(json.dumps({"level": level, "text": text}) + "\n")


def test_a_statement_is_a_warning_of_what_is_missing_and_not_that_a_peer_is_unreachable(peers):
    logged(peers, "ash", ("info", "round 3 waits for sub-secrets of birch"))
    logged(peers, "ash", ("warning", "cannot reach birch at 127.0.0.1:9 (no answer); check it"))
    assert v.statement(peers, NAMES, {}) is None
    assert v.unreached(peers, "ash", 0) == ["birch"]
    end = peers.log("ash").stat().st_size
    logged(peers, "ash", ("warning", "round 3 waits for sub-secrets of birch"))
    assert v.statement(peers, NAMES, {"ash": end}) == "ash: round 3 waits for sub-secrets of birch"
    assert v.statement(peers, NAMES, {"ash": peers.log("ash").stat().st_size}) is None


def test_errors_and_tracebacks_are_problems_and_lines_of_libraries_are_not(peers):
    logged(peers, "ash", ("error", "this should not have happened"), ("warning", "birch lies"))
    with peers.log("birch").open("a") as log:
        log.write('E0000 Handshake failed\n{"level": "war')
    assert v.bugs(peers, NAMES) == ["ash logged an error: this should not have happened"]
    with peers.log("birch").open("a") as log:
        log.write("\nTraceback (most recent call last):\n  File x\nKeyError: 3\n")
    logged(peers, "birch", ("info", "round 4"))
    _, found = v.bugs(peers, NAMES)
    assert found == (
        "birch logged an error: Traceback (most recent call last): | File x | KeyError: 3"
    )


def test_only_a_needless_removal_or_faults_beyond_the_tolerance_excuse_a_run_without_an_end():
    lacking, needless = "ash: round 3 lacks a majority", f"birch was away, {NEEDLESS}"
    assert v.may_not_end(lacking, beyond=True)
    assert not v.may_not_end(lacking, beyond=False)
    assert v.may_not_end(needless, beyond=False)
    assert not v.may_not_end(None, beyond=True)


def test_who_is_named_and_who_is_proven_is_told_apart(peers):
    status = {
        "named": [{"peer": "elm", "what": "sent a wrong sub-secret", "time": 1.0}],
        "caught": [{"peer": "elm", "what": "voted twice", "time": 1.0}],
    }
    (peers.folder("ash") / "status.json").write_text(json.dumps(status))
    expected = {"elm": {"sent a wrong sub-secret": False, "voted twice": True}}
    assert v.named(peers, NAMES) == expected


def test_models_are_those_that_are_there(peers):
    facts = {"weights_sha256": "ab", "rounds": 9, "ledger": {"exact_rounds": 4}}
    (peers.folder("birch") / "trained.json").write_text(json.dumps(facts))
    assert v.models(peers, NAMES, "trained") == {"birch": "ab"}
    assert v.facts_of(peers, "birch", "trained") == {"rounds": 9, "exact_rounds": 4}


def test_one_problem_of_one_federation_is_enough():
    def verdict(*problems):
        trial = v.TrialVerdict(
            seed="1-1", cheats={}, faults={}, endings=(), named={}, problems=problems
        )
        return v.ChaosVerdict(peers=5, seed=1, beyond=False, seconds=1.0, trials=(trial,))

    assert record(verdict())["holds"]
    found = record(verdict("two models"))
    assert not found["holds"]
    assert found["problems"] == ["federation 1: two models"]
