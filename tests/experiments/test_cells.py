import json
from dataclasses import replace

import pytest

from pdlrecover.experiments import cells
from pdlrecover.experiments.cells import key_of, run_cells
from pdlrecover.experiments.config import Config

TINY = Config(
    peers=8,
    malicious=2,
    rounds=12,
    learning_rate=0.3,
    model="mlp-8",
    clear=True,
    methods=("retrain",),
)


def test_the_key_is_of_the_config_without_its_methods_and_of_the_source(monkeypatch):
    assert key_of(TINY) == key_of(replace(TINY, methods=("historical",)))
    assert key_of(TINY) != key_of(replace(TINY, seed=1))
    before = key_of(TINY)
    monkeypatch.setattr(cells, "source_digest", lambda: "another")
    assert key_of(TINY) != before


@pytest.mark.slow
def test_cells_run_once_and_broken_entries_again(tmp_path, monkeypatch):
    seen = []
    configs = [TINY, replace(TINY, seed=1), replace(TINY, methods=("historical",))]
    first = run_cells(configs, tmp_path, watcher=seen.append)
    assert [r["config"]["seed"] for r in first] == [0, 1, 0]
    assert {"poisoned", "retrain", "historical"} == set(first[0]["methods"])
    assert seen[-1].done == seen[-1].total == 2

    monkeypatch.setattr(cells, "_run_missing", lambda *a: pytest.fail("it is all there"))
    assert run_cells(configs, tmp_path) == first
    monkeypatch.undo()

    place = tmp_path / key_of(TINY) / "result.json"
    for damage in ("{", json.dumps({**first[0], "config": {}}), json.dumps([1])):
        place.write_text(damage)
        again, before = run_cells([TINY], tmp_path)[0]["methods"], first[0]["methods"]
        assert again["retrain"]["accuracy"] == before["retrain"]["accuracy"]


@pytest.mark.slow
def test_what_is_borrowed_is_what_would_have_been_computed(tmp_path):
    methods = ("retrain", "accelerated-retrain:rounds=5", "historical")
    attacked = replace(TINY, attack="label-flip", methods=methods)
    left = replace(TINY, malicious=0, leavers=2, methods=methods)
    lent, borrowed = run_cells([left, attacked], tmp_path / "both", workers=1)
    (alone,) = run_cells([attacked], tmp_path / "alone", workers=1)
    for name, entry in borrowed["methods"].items():
        own = alone["methods"][name]
        for key in ("accuracy", "curve", "removed_loss", "remembered", "distance_to_retrain"):
            assert entry[key] == own[key], (name, key)
        assert entry.get("borrowed_from") == (key_of(left) if name in methods[:2] else None)
        assert "borrowed_from" not in own
    assert lent["methods"]["retrain"]["seconds"] == borrowed["methods"]["retrain"]["seconds"]


@pytest.mark.parametrize(
    "changes",
    [
        {"attack": "backdoor"},
        {"attack": "dba"},
        {"malicious": 0, "leavers": 2},
        {"undetected": 1, "attack": "label-flip"},
        {"accused": 1, "attack": "label-flip"},
    ],
)
def test_cells_that_must_not_borrow(changes):
    assert cells._lender(replace(TINY, **changes)) is None
