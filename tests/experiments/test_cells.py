import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.experiments import cells
from pdlrecover.experiments.cells import key_of, run_cells
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.files import alone
from pdlrecover.experiments.run import run

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
    configs = [TINY, replace(TINY, seed=1), replace(TINY, seed=2)]
    more = replace(TINY, methods=("historical",))
    first = run_cells([*configs, more], tmp_path, watcher=seen.append)
    assert [r["config"]["seed"] for r in first] == [0, 1, 2, 0]
    assert {"poisoned", "retrain", "historical"} == set(first[0]["methods"])
    assert seen[-1].done == seen[-1].total == 3

    monkeypatch.setattr(cells, "_run_missing", lambda *a: pytest.fail("it is all there"))
    assert run_cells([*configs, more], tmp_path) == first
    monkeypatch.undo()
    first.pop()

    damaged = ("{", json.dumps({**first[1], "config": {}}), json.dumps([1]))
    for config, damage in zip(configs, damaged, strict=True):
        (tmp_path / key_of(config) / "result.json").write_text(damage)
    for again, before in zip(run_cells(configs, tmp_path), first, strict=True):
        assert again["methods"]["retrain"]["accuracy"] == before["methods"]["retrain"]["accuracy"]


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(tmp_path):
    lacking = replace(TINY, dataset="mnist")
    with pytest.raises(PlanError, match=r"1 of 2 runs failed, the others are kept: .*mnist, sgd"):
        run_cells([lacking, TINY], tmp_path, data_dir=tmp_path)
    lost, found = cells.cached([lacking, TINY], tmp_path)
    assert lost is None
    assert found["complete"]


def test_a_run_that_fails_loses_nothing(tmp_path, monkeypatch):
    def failing(*args, **more):
        raise PlanError("the Hessian is not positive")

    kept = tmp_path / "cell" / "result.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    monkeypatch.setattr(cells, "run", failing)
    with pytest.raises(PlanError, match="not positive"):
        cells._run_one(TINY, kept.parent, None)
    assert kept.exists()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HistoryError("round 3 is damaged"), True),
        (ValueError("no array"), True),
        (FileNotFoundError(2, "no model"), True),
        (OSError(28, "no space left"), False),
        (PlanError("it did not come to its optimum"), False),
    ],
)
def test_only_damage_is_thrown_away(error, expected):
    assert cells._is_damage(error) is expected
    full = HistoryError("round 3 could not be written")
    full.__cause__ = OSError(28, "no space left")
    assert not cells._is_damage(full)


@pytest.mark.slow
def test_a_second_command_waits_for_a_cell_that_the_first_is_at(tmp_path):
    place = tmp_path / key_of(TINY)
    with ThreadPoolExecutor(1) as pool:
        with alone(place):
            second = pool.submit(cells._run_one, TINY, place, None)
            with pytest.raises(TimeoutError):
                second.result(timeout=1)
            assert not place.exists()
            first = run(TINY, place)
        assert second.result() == json.loads(json.dumps(first))


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
