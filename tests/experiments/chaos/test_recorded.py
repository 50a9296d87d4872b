"""What is recorded of real peers under chaos: the page's table is made of these files."""

import json
from pathlib import Path

import pytest

from pdlrecover.experiments.chaos.cheats import CHEATS
from pdlrecover.experiments.chaos.verdict import may_not_end

RECORDS = sorted((Path(__file__).parents[3] / "results" / "chaos").glob("*.json"))


def problems(record):
    """Return what is wrong with a record, as a chaos run would judge it."""
    found = list(record["problems"])
    for trial in record["trials"]:
        found += trial["problems"]
        for end in trial["endings"]:
            if end["weights"] is None and not may_not_end(
                end["statement"], beyond=record["beyond"]
            ):
                found.append(f"{end['run']} of {trial['seed']} did not end")
        for peer, cheat in trial["cheats"].items():
            if CHEATS[cheat].is_named and not trial["named"].get(peer):
                found.append(f"{cheat} of {trial['seed']} was not named")
    return found


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_recorded_run_holds_by_what_it_says(path):
    record = json.loads(path.read_text())
    assert record["trials"]
    assert record["holds"] == (not problems(record))
    assert record["holds"]


def test_an_hour_of_five_and_of_seven_peers_is_recorded():
    hours = {5: 0.0, 7: 0.0}
    for path in RECORDS:
        record = json.loads(path.read_text())
        if record["peers"] in hours:
            hours[record["peers"]] += record["seconds"] / 3600
    assert min(hours.values()) >= 1


def test_all_cheats_are_recorded_at_ten_peers_and_a_falsified_record_is_seen():
    (record,) = (r for r in (json.loads(p.read_text()) for p in RECORDS) if r["peers"] == 10)
    played = {cheat for trial in record["trials"] for cheat in trial["cheats"].values()}
    assert played == set(CHEATS)
    assert not problems(record)
    record["trials"][0]["endings"][0]["weights"] = None
    assert problems(record)
