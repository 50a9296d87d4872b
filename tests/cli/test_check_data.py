"""`pdlrecover peer check-data`, and what `peer init` makes of a path."""

import os
import re
from dataclasses import replace

import numpy as np
import pandas
import pytest
import whole_peers
from test_cli import run

from pdlrecover.engines.peers.federation.federation_file import found_federation
from pdlrecover.engines.peers.federation.plan import DataPlan, Model
from pdlrecover.engines.peers.identity.invitation import invite
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.settings import (
    Data,
    PeerSettings,
    load_settings,
    write_settings,
)

KINDS = ("north", "south", "west")
PLAN = """name = "clinics"
[tolerance]
colluders = 1
[training]
rounds = 5
samples = 100
"""


@pytest.fixture
def folder(tmp_path):
    """Return a peer's folder whose settings name a table."""
    x, y = whole_peers.datasets()[0]
    frame = pandas.DataFrame(x.astype(float), columns=["a", "b", "c"]).assign(c=7.0)
    frame["kind"] = [KINDS[label] for label in y]
    folder = tmp_path / "ash"
    folder.mkdir()
    frame.to_csv(folder / "own.csv", index=False)
    settings = PeerSettings(data=Data(file="own.csv", label="kind"))
    (folder / "peer.toml").write_text(write_settings(settings))
    return folder


def squeezed(text):
    return " ".join(text.split())


def test_it_shows_samples_classes_and_ranges_and_what_a_plan_might_say(folder):
    x, y = whole_peers.datasets()[0]
    result = run("peer", "check-data", str(folder))
    assert result.returncode == 0, result.stderr
    said = squeezed(result.stdout)
    assert "own.csv: 12 samples of 3 numbers" in said
    for number, name in enumerate(KINDS):
        count = int((y == number).sum())
        assert f"{name} {count} {count / 12:.1%}" in said
    for name, column in zip("ab", x.T[:2], strict=True):
        mean = column.mean(dtype=float)
        assert f"{name} {column.min():.6g} {mean:.6g} {column.max():.6g}" in said
    assert "c (constant) 7 7 7" in said
    assert re.match(r"read 12 rows of own\.csv in \d\.\d s\n$", result.stderr)
    plan = result.stdout[result.stdout.index("[model]") :]
    invitations = [
        invite(Identity.generate(name), f"127.0.0.1:{7400 + i}")
        for i, name in enumerate(whole_peers.NAMES)
    ]
    plan = PLAN + plan.replace("[model]", '[model]\nname = "logistic"')
    found = found_federation(plan, invitations)
    assert found.data == DataPlan(classes=KINDS, features=("a", "b", "c"))
    assert (found.model.shape, found.model.classes) == ((3,), 3)


def test_it_checks_the_data_against_a_federation_file(folder):
    federation = whole_peers.settle(
        folder.parent,
        model=Model(name="logistic", shape=(3,), classes=3),
        data=DataPlan(classes=(*KINDS[::-1],), features=("c", "b", "a")),
    )
    (folder / "peer.toml").write_text(
        write_settings(PeerSettings(data=Data(file="own.csv", label="kind")))
    )
    command = ("peer", "check-data", str(folder), "--federation", str(federation))
    result = run(*command)
    assert result.returncode == 0, result.stderr
    said = squeezed(result.stdout)
    assert said.index("west") < said.index("south") < said.index("north")
    assert said.index(" c (") < said.index(" b ") < said.index(" a ")
    table = (folder / "own.csv").read_text()
    (folder / "own.csv").write_text(table.replace("south", "east", 1))
    refused = run(*command)
    assert refused.returncode == 2
    assert re.search(r"error: own\.csv, line \d+ has the label 'east', and", refused.stderr)


def test_data_by_name_are_shown_as_the_part_that_this_peer_has(tmp_path):
    federation = whole_peers.settle(
        tmp_path,
        model=Model(name="logistic", shape=(1, 8, 8), classes=10),
        training=replace(whole_peers.TRAINING, samples=300),
    )
    folder = tmp_path / "ash"
    (folder / "peer.toml").write_text(write_settings(PeerSettings()))
    result = run("peer", "check-data", str(folder), "--federation", str(federation))
    assert result.returncode == 0, result.stderr
    assert re.search(r"digits: 28\d samples of 1 × 8 × 8 numbers", result.stdout)
    alone = run("peer", "check-data", str(folder))
    assert alone.returncode == 2
    assert "digits is dealt out among the peers" in alone.stderr


def test_what_cannot_be_read_is_one_sentence_and_exit_code_2(folder):
    (folder / "own.csv").unlink()
    result = run("peer", "check-data", str(folder))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "own.csv is not there" in result.stderr


def init(place, data, *more):
    target = place / "new"
    return target, run(
        "peer", "init", str(target), "--name", "ash", "--address", "ash:7400", "--data", data, *more
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "kind", "label"),
    [
        ("own.csv", "file", "kind"),
        ("own.parquet", "file", "kind"),
        ("own.npz", "source", None),
        ("arrays/x.npy", "source", None),
        ("pictures/cat/a.png", "folder", None),
        ("hf/dataset_info.json", "dataset", "kind"),
    ],
)
def test_init_finds_out_what_the_data_are(tmp_path, made, kind, label):
    (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / made).touch()
    path = tmp_path / made.split("/")[0]
    more = () if label is None else ("--label", label)
    folder, result = init(tmp_path, os.fspath(path), *more)
    assert result.returncode == 0, result.stderr
    assert load_settings(folder).data == Data(**{kind: str(path)}, label=label)


def test_init_refuses_a_label_where_there_is_no_table(tmp_path):
    np.savez(tmp_path / "own.npz", x=1)
    folder, result = init(tmp_path, str(tmp_path / "own.npz"), "--label", "kind")
    assert result.returncode == 2
    assert "label says nothing about source" in result.stderr
    assert not folder.exists()
