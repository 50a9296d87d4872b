from dataclasses import replace

import pytest
import simulated

from pdlrecover.experiments.batch import cache
from pdlrecover.experiments.batch.cache import cached, key_of, run_cells
from pdlrecover.experiments.batch.recorded import Recorded, lacking
from pdlrecover.experiments.batch.run_numbers import add_runs, identity_of
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import model_file, needs_original
from pdlrecover.experiments.experiment.run import run

MUON = Config(
    peers=8,
    malicious=2,
    rounds=12,
    optimizer="muon",
    learning_rate=0.04,
    model="mlp-8",
    clear=True,
    methods=("retrain", "historical"),
)
QUICK = ("accelerated-retrain:rounds=3", "auto:rounds_after_muon=4")
"""Methods that see nothing of the original run; `auto` asks by what it was trained."""


def recorded(tmp_path, *results):
    add_runs(results, tmp_path)
    return Recorded.read(tmp_path)


def test_a_run_is_what_it_computes():
    settings = MUON.record()
    assert identity_of(settings) == identity_of({**settings, "methods": ["auto"]})
    shorter = {key: value for key, value in settings.items() if key != "fresh_start"}
    assert identity_of(shorter) == identity_of(settings), "a setting that was added later"
    assert identity_of({**settings, "fresh_start": True}) != identity_of(settings)
    assert identity_of({**settings, "once": 3}) != identity_of(settings), "one that there was"


def test_only_what_is_not_recorded_is_left_to_run(tmp_path):
    known = {name: simulated.entry(0.9, 0.1) for name in ("poisoned", "retrain")}
    result = simulated.result(known)
    found = recorded(tmp_path, result)

    def rest(*methods):
        return found.rest(replace(result.config, methods=methods))

    assert rest("retrain") is None
    assert rest("retrain", "auto").config.methods == ("auto",)
    assert rest("retrain", "auto").original is False, "it sees nothing of the original run"
    assert rest("pdlrecover", "auto").original is True
    assert Recorded().rest(result.config).original is True
    assert found.rest(replace(result.config, seed=7)).asked == ("poisoned", "retrain")
    asked = [replace(result.config, methods=("retrain", "auto"))]
    assert lacking(asked, found) == "auto of 1 runs"


def test_what_is_recorded_comes_back_with_its_commit_and_without_a_curve(tmp_path):
    opened = {"fresh sums": simulated.openings(3)}
    one = simulated.entry(0.9, 0.1, opened=opened, commit="abc")
    result = simulated.result({"poisoned": simulated.entry(0.9, 0.8), "retrain": one})
    found = recorded(tmp_path, replace(result, dataset_note="made up")).joined(result.config)
    retrain = found.methods["retrain"]
    assert (retrain.commit, retrain.opened, retrain.curve.round) == ("abc", opened, [])
    assert found.methods["poisoned"].attack_success_above_retrain == pytest.approx(0.7)
    assert found.dataset_note == "made up"
    assert Recorded().joined(result.config) is None


@pytest.mark.slow
def test_methods_that_see_nothing_are_added_without_training_the_original(tmp_path, monkeypatch):
    asked = replace(MUON, methods=(*MUON.methods, *QUICK))
    (whole,) = run_cells([asked], tmp_path / "whole")
    known = recorded(tmp_path, run(MUON, tmp_path / "first"))
    (found,) = run_cells([asked], tmp_path / "cache", recorded=known)
    place = tmp_path / "cache" / key_of(asked)
    assert sorted(path.stem for path in (place / "models").iterdir()) == sorted(QUICK)
    for name in QUICK:
        ours, theirs = (
            model_file(folder, name).read_bytes()
            for folder in (place, tmp_path / "whole" / key_of(asked))
        )
        assert ours == theirs, "the same bits as with the original run"
        assert found.methods[name].accuracy == whole.methods[name].accuracy
        assert found.methods[name].exact_rounds == whole.methods[name].exact_rounds
        assert found.methods[name].attack_success_above_retrain == pytest.approx(
            whole.methods[name].attack_success_above_retrain, abs=1e-5
        )
    assert found.methods["retrain"].accuracy == pytest.approx(whole.methods["retrain"].accuracy)
    monkeypatch.setattr(cache, "run_errands", None)  # nothing is run again
    assert run_cells([asked], tmp_path / "cache", recorded=known) == [found]
    assert cached([asked], tmp_path / "cache") == [None], "the cache has no part of the record"


def test_with_held_out_samples_the_original_is_trained_for_every_method():
    config = Config(malicious=2, methods=("auto",))
    assert not needs_original(config, ("auto",))
    assert needs_original(config, ("auto", "historical"))
    held_out = replace(config, held_out=0.1)
    assert needs_original(held_out, ("auto",))
    assert not needs_original(held_out, ())
