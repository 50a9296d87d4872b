import json
from dataclasses import asdict

import msgspec

from pdlrecover.engines.peers.operator.status import PeerStatus, RemovalStatus, RunStatus

STATUS = PeerStatus(
    federation="demo",
    peer="ash",
    time=1.5,
    runs={"ab": RunStatus(kind="training", outcome="done", step=3, round=3, rounds=3, state=None)},
    removals=(
        RemovalStatus(
            removal="cd",
            removed=("fir",),
            reason="left",
            method="retrain",
            approvals=("ash", "elm"),
            needed=3,
        ),
    ),
    last_heard_seconds={"elm": 0.5, "fir": None},
    other_files={},
    history_bytes=7,
)
KEYS = (
    "federation peer time runs removals last_heard_seconds other_files started_over caught named "
    "blames history_bytes network inputs"
)
RUN_KEYS = (
    "kind outcome step round rounds state exact_rounds dealt withheld log evaluations void named "
    "waits"
)
REMOVAL_KEYS = "removal removed reason method approvals needed replaces replaced_by"


def test_what_scripts_read_of_a_status_keeps_its_names():
    written = json.loads(msgspec.json.encode(STATUS))
    assert [*written] == KEYS.split()
    assert [*written["runs"]["ab"]] == RUN_KEYS.split()
    (removal,) = written["removals"]
    assert [*removal] == REMOVAL_KEYS.split()


def test_a_status_is_read_as_it_was_written():
    assert msgspec.json.decode(msgspec.json.encode(STATUS), type=PeerStatus) == STATUS


def test_the_status_of_an_older_or_newer_peer_is_read():
    written = asdict(STATUS)
    for name in ("started_over", "caught", "named", "blames", "network", "inputs"):
        del written[name]
    for name in ("exact_rounds", "dealt", "withheld", "log", "evaluations"):
        del written["runs"]["ab"][name]
    for name in ("void", "named", "waits"):
        del written["runs"]["ab"][name]
    for name in ("replaces", "replaced_by"):
        del written["removals"][0][name]
    assert msgspec.convert(written | {"later": 1}, PeerStatus) == STATUS
