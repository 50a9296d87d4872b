import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.experiments.batch import cache, errand
from pdlrecover.experiments.batch.cache import key_of, run_cells
from pdlrecover.experiments.batch.recorded import Cell
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import as_record, read_result
from pdlrecover.experiments.experiment.run import run
from pdlrecover.files import alone
from pdlrecover.recovery.methods import METHODS, MethodEntry

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
    monkeypatch.setattr(errand, "source_digest", lambda: "another")
    assert key_of(TINY) != before


@pytest.mark.slow
def test_cells_run_once_and_broken_entries_again(tmp_path, monkeypatch):
    seen = []
    configs = [TINY, replace(TINY, seed=1), replace(TINY, seed=2)]
    more = replace(TINY, methods=("historical",))
    first = run_cells([*configs, more], tmp_path, watcher=seen.append)
    assert [r.config.seed for r in first] == [0, 1, 2, 0]
    assert list(first[0].methods) == ["poisoned", "retrain"], "only what was asked for"
    assert list(first[3].methods) == ["poisoned", "historical"]
    assert seen[-1].done == seen[-1].total == 3

    monkeypatch.setattr(cache, "run_errands", lambda *a: pytest.fail("it is all there"))
    assert run_cells([*configs, more], tmp_path) == first
    monkeypatch.undo()
    first.pop()

    damaged = ("{", json.dumps({**as_record(first[1]), "config": {}}), json.dumps([1]))
    for config, damage in zip(configs, damaged, strict=True):
        (tmp_path / key_of(config) / "result.json").write_text(damage)
    for again, before in zip(run_cells(configs, tmp_path), first, strict=True):
        assert again.methods["retrain"].accuracy == before.methods["retrain"].accuracy


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(tmp_path):
    lacking = replace(TINY, dataset="mnist")
    with pytest.raises(PlanError, match=r"1 of 2 runs failed, the others are kept: .*mnist, sgd"):
        run_cells([lacking, TINY], tmp_path, data_dir=tmp_path)
    lost, found = cache.cached([lacking, TINY], tmp_path)
    assert lost is None
    assert found.complete


def test_a_run_that_fails_loses_nothing(tmp_path, monkeypatch):
    def failing(*args, **more):
        raise PlanError("the Hessian is not positive")

    kept = tmp_path / "cell" / "result.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    monkeypatch.setattr("pdlrecover.experiments.experiment.run.run", failing)
    with pytest.raises(PlanError, match="not positive"):
        errand.run_one(Cell(config=TINY), kept.parent, None)
    assert kept.exists()


@pytest.mark.parametrize("mistake", [ValueError("shapes"), KeyError("a"), TypeError("none")])
def test_a_mistake_in_a_method_deletes_nothing(tmp_path, monkeypatch, mistake):
    def mistaken(run, settings):
        raise mistake

    monkeypatch.setitem(METHODS, "mistaken", MethodEntry(mistaken))
    place = tmp_path / "cell"
    quick = replace(TINY, rounds=2, methods=("historical",))
    found = errand.run_one(Cell(config=quick), place, None)
    kept = place / "models" / "historical.safetensors"
    before = kept.stat().st_mtime_ns
    more = Cell(config=replace(quick, methods=("historical", "mistaken")))
    with pytest.raises(type(mistake)):
        errand.run_one(more, place, None)
    assert kept.stat().st_mtime_ns == before
    left = read_result(json.loads((place / "result.json").read_text()))
    assert left.methods["historical"] == found.methods["historical"]


@pytest.mark.parametrize(
    "damaged", ["models/historical.safetensors", "history/layout.json", "result.json"]
)
def test_what_is_damaged_is_computed_again(tmp_path, damaged):
    def interrupted(*args):
        raise KeyboardInterrupt

    quick = replace(TINY, rounds=2, methods=("historical",))
    more = replace(quick, methods=("historical", "retrain"))
    whole = errand.run_one(Cell(config=more), tmp_path / "whole", None)
    place = tmp_path / "cell"
    errand.run_one(Cell(config=quick), place, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pdlrecover.experiments.experiment.run._recover", interrupted)
        with pytest.raises(KeyboardInterrupt):
            errand.run_one(Cell(config=more), place, None)
    assert (place / damaged).exists()
    (place / damaged).write_text("[1]")
    again = errand.run_one(Cell(config=more), place, None)
    for name in ("poisoned", *more.methods):
        for key in ("accuracy", "curve", "distance_to_retrain"):
            assert getattr(again.methods[name], key) == getattr(whole.methods[name], key)


def test_a_full_disk_deletes_nothing(tmp_path, monkeypatch):
    def failing(*args, **more):
        raise HistoryError("round 3 could not be written") from OSError(28, "no space left")

    (tmp_path / "cell").mkdir()
    monkeypatch.setattr("pdlrecover.experiments.experiment.run.run", failing)
    with pytest.raises(HistoryError, match="round 3"):
        errand.run_one(Cell(config=TINY), tmp_path / "cell", None)
    assert (tmp_path / "cell").exists()


def test_an_entry_is_trusted_as_it_was_written_and_no_other(tmp_path):
    quick = replace(TINY, rounds=2, methods=("historical",))
    place = tmp_path / key_of(quick)
    result = run(quick, place)
    assert cache.cached([quick], tmp_path) == [result]
    changed = as_record(result)
    changed["methods"]["historical"]["accuracy"] = None
    bare = {"config": quick.record(), "format": 1, "complete": True}
    for entry in (changed, {**bare, "methods": {"historical": {"accuracy": None}}}, bare):
        (place / "result.json").write_text(json.dumps(entry))
        assert cache.cached([quick], tmp_path) == [None]


@pytest.mark.slow
def test_a_second_command_waits_for_a_cell_that_the_first_is_at(tmp_path):
    place = tmp_path / key_of(TINY)
    with ThreadPoolExecutor(1) as pool:
        with alone(place):
            second = pool.submit(errand.run_one, Cell(config=TINY), place, None)
            with pytest.raises(TimeoutError):
                second.result(timeout=1)
            assert not place.exists()
            first = run(TINY, place)
        assert second.result() == first


@pytest.mark.slow
def test_what_is_borrowed_is_what_would_have_been_computed(tmp_path):
    methods = ("retrain", "accelerated-retrain:rounds=5", "historical")
    attacked = replace(TINY, attack="label-flip", methods=methods)
    left = replace(TINY, malicious=0, leavers=2, methods=methods)
    lent, borrowed = run_cells([left, attacked], tmp_path / "both", workers=1)
    (alone,) = run_cells([attacked], tmp_path / "alone", workers=1)
    for name, entry in borrowed.methods.items():
        own = alone.methods[name]
        for key in ("accuracy", "curve", "removed_loss", "remembered", "distance_to_retrain"):
            assert getattr(entry, key) == getattr(own, key), (name, key)
        assert entry.borrowed_from == (key_of(left) if name in methods[:2] else None)
        assert own.borrowed_from is None
    assert lent.methods["retrain"].seconds == borrowed.methods["retrain"].seconds


@pytest.mark.parametrize(
    "changes",
    [
        {"attack": "backdoor"},
        {"attack": "dba"},
        {"malicious": 0, "leavers": 2},
        {"undetected": 1, "attack": "label-flip"},
        {"accused": 1, "attack": "label-flip"},
        {"held_out": 0.2, "attack": "label-flip"},
    ],
)
def test_cells_that_must_not_borrow(changes):
    assert errand.lender_of(replace(TINY, **changes)) is None
