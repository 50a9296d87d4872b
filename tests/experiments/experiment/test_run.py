import json
from dataclasses import replace

import numpy as np
import pytest
import small

from pdlrecover.adversary import BadUnlearn, LittleIsEnough
from pdlrecover.engines.ledger import PARTS
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.experiments.batch.run_numbers import identity_of
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import model_file
from pdlrecover.experiments.experiment.result import as_record, read_result
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.experiment.world import build
from pdlrecover.experiments.report.figures import draw_panels
from pdlrecover.experiments.report.simulation_document import documents_from_result
from pdlrecover.experiments.reproductions.theorem1 import BOUND, measure_bound
from pdlrecover.recovery.methods import METHODS, MethodEntry
from pdlrecover.recovery.requests import Stepped, Update

SMALL = Config(
    peers=10,
    malicious=2,
    rounds=40,
    learning_rate=0.3,
    model="mlp-8",
    clear=True,
    methods=("retrain", "pdlrecover", "retrain-k"),
)


class Interrupting:
    """A progress that is interrupted, as by ctrl-C, in one round of one method."""

    def __init__(self, name, at):
        self.name, self.at, self.seen = name, at, []

    def start(self, name, rounds):
        self.seen.append(name)

    def step(self, name, round, accuracy):
        if (name, round) == (self.name, self.at):
            raise KeyboardInterrupt

    def end(self, name):
        pass


def test_undetected_attackers_stay_when_the_others_are_removed():
    config = replace(SMALL, malicious=0, leavers=3, undetected=2, attack="bad-unlearn:lie")
    world = build(replace(config, attack_scale=1.5))
    assert world.removed == (0, 1, 2)
    assert world.federation.simulated_peers.malicious == (3, 4)
    assert world.attack == BadUnlearn(then=LittleIsEnough(z=1.5))
    found = build(replace(SMALL, undetected=1, attack="dba"))
    assert (found.removed, found.federation.simulated_peers.malicious) == ((0, 1), (0, 1, 2))


def test_peers_that_hold_samples_out_have_a_curve_of_their_own_in_record_and_report(tmp_path):
    config = replace(SMALL, held_out=0.1, evaluate_every=15, methods=("auto",))
    result = run(config, tmp_path)
    assert read_result(json.loads((tmp_path / "result.json").read_text())) == result
    training, recovery = result.methods["poisoned"], result.methods["auto"]
    assert [point.round for point in training.evaluations] == [15, 30, 40]
    assert recovery.evaluations[0].original
    assert recovery.opened["evaluations"].openings == len(recovery.evaluations)
    (document,) = documents_from_result(result)
    figure = document.figures[-1]
    assert "what they hold out" in figure.title
    assert figure.series[0].y[-1] == pytest.approx(100 * training.evaluations[-1].accuracy)
    rows = {row["method"]: row for row in document.tables[0].by_key()}
    last = recovery.evaluations[-1].accuracy
    assert rows["auto"]["held_out_accuracy"] == pytest.approx(100 * last)
    assert ("went on" in document.tables[0].note) == (recovery.continued is not None)


def test_without_held_out_samples_record_and_report_are_as_before(tmp_path):
    result = run(replace(SMALL, methods=("auto",)), tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert "evaluations" not in written["methods"]["auto"]
    (document,) = documents_from_result(result)
    assert not [figure for figure in document.figures if "hold out" in figure.title]
    assert "held_out_accuracy" not in document.tables[0].keys


def test_a_record_from_before_there_were_evaluations_is_gone_on_with(tmp_path):
    config = replace(SMALL, methods=("auto",))
    run(config, tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert not {"held_out", "evaluate_every"} & written["config"].keys()
    assert run(config, tmp_path).methods["auto"]
    with pytest.raises(HistoryError, match="differs in held_out"):
        run(replace(config, held_out=0.1), tmp_path)


@pytest.mark.slow
def test_a_record_has_everything_that_is_promised(tmp_path):
    config = replace(SMALL, methods=small.PRIVATE, clear=False, colluders=1)
    result = run(config, tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert read_result(written) == result
    assert {"config", "seed", "versions", "commit", "methods", "digest"} <= set(written)
    assert set(written["methods"]) == {"poisoned", *small.PRIVATE}
    for entry in written["methods"].values():
        assert {
            "accuracy",
            "attack_success",
            "exact_rounds",
            "gradient_evaluations",
            "fallback_rounds",
            "seconds",
            "bytes_per_peer",
            "distance_to_retrain",
            "opened",
            "curve",
        } <= set(entry)
        assert 0 <= entry["accuracy"] <= 1
        assert set(entry["seconds"]) == {*PARTS, "total", "processor"}
        assert len(entry["curve"]["round"]) == len(entry["curve"]["accuracy"])
    assert result.methods["retrain"].distance_to_retrain == 0
    assert result.methods["pdlrecover"].distance_to_retrain > 0
    used = result.methods["pdlrecover"].exact_rounds
    assert result.methods["retrain-k"].exact_rounds == used
    assert not (tmp_path / "history").exists()
    figures = documents_from_result(result)[0].figures
    figure = draw_panels(figures, tmp_path / "curves.svg").read_text()
    assert figure.startswith("<svg")
    assert "pdlrecover" in figure


def test_rivals_with_noise_give_the_same_result_again(tmp_path):
    rivals = ("fedrecovery", "fedrecovery-noise", "certified-removal")
    config = replace(SMALL, rounds=8, methods=("retrain", *rivals))
    results = [run(config, tmp_path / name) for name in ("first", "second")]
    for name in rivals:
        first, second = (result.methods[name] for result in results)
        assert first.distance_to_retrain == second.distance_to_retrain > 0
        assert first.exact_rounds == 0
        assert first.curve.round == [1]  # they end in one step
    assert results[0].methods["certified-removal"].gradient_evaluations > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), [("poisoned", 11), ("pdlrecover", 20)])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path, name, at):
    whole = run(SMALL, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path / "parts", progress=Interrupting(name, at))
    rest = Interrupting(None, None)
    parts = run(SMALL, tmp_path / "parts", progress=rest)
    for method in ("poisoned", *SMALL.methods):
        for key in ("accuracy", "exact_rounds", "distance_to_retrain"):
            assert getattr(parts.methods[method], key) == getattr(whole.methods[method], key)
    assert ("retrain" in rest.seen) == (name == "poisoned")
    assert run(SMALL, tmp_path / "parts", progress=Interrupting("poisoned", 1)) == parts


def test_a_result_of_another_config_is_not_overwritten(tmp_path):
    run(replace(SMALL, methods=("historical",)), tmp_path)
    with pytest.raises(HistoryError, match="another config, which differs in seed"):
        run(replace(SMALL, seed=7), tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(HistoryError, match="is damaged"):
        run(SMALL, tmp_path)


def test_more_methods_can_be_added_to_a_result(tmp_path):
    first = run(replace(SMALL, methods=("historical",)), tmp_path)
    both = run(replace(SMALL, methods=("historical", "retrain-k")), tmp_path)
    assert both.methods["historical"].accuracy == first.methods["historical"].accuracy
    assert "retrain-k" in both.methods


def test_a_single_leaver_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pdlrecover.experiments.experiment.run._train", lambda *a: pytest.fail("trained")
    )
    with pytest.raises(PlanError, match="would reveal the updates of peer"):
        run(replace(SMALL, malicious=0, leavers=1), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_results_do_not_depend_on_sharing(tmp_path):
    clear = run(SMALL, tmp_path / "clear")
    shared = run(replace(SMALL, clear=False), tmp_path / "shared")
    for method in ("poisoned", *SMALL.methods):
        assert clear.methods[method].curve == shared.methods[method].curve
        kept = [model_file(tmp_path / mode, method).read_bytes() for mode in ("clear", "shared")]
        assert kept[0] == kept[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_theorem_1_holds(seed):
    bound = measure_bound(replace(BOUND, rounds=120, seed=seed))
    assert bound.holds()
    assert bound.z > 0
    assert bound.distance[-1] > 0
    assert bound.rate <= min(1 / bound.convexity, 1 / bound.smoothness)


def test_theorem_1_is_only_claimed_where_it_applies():
    with pytest.raises(PlanError, match="L2-regularised logistic regression"):
        measure_bound(replace(BOUND, model="mlp"))
    with pytest.raises(PlanError, match="needs a learning rate of at most"):
        measure_bound(replace(BOUND, learning_rate=5.0))


def test_what_was_half_trained_by_another_config_is_not_taken_up(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path, progress=Interrupting("poisoned", 5))
    with pytest.raises(HistoryError, match="another config, which differs in rounds"):
        run(replace(SMALL, rounds=30), tmp_path)


def test_budgets_do_not_depend_on_the_order_of_methods(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(
        "pdlrecover.experiments.experiment.run._recover",
        lambda world, name, *rest: (order.append(name), 1 / 0)[0],
    )
    with pytest.raises(ZeroDivisionError):
        run(replace(SMALL, methods=("retrain-k", "pdlrecover")), tmp_path)
    assert order == ["pdlrecover"]


def test_budgets_do_not_depend_on_what_was_run_before(tmp_path):
    guarded = replace(SMALL, malicious=4, attack="sign-flip", attack_scale=4.0, learning_rate=0.5)
    alone = replace(guarded, methods=("retrain-k",))
    both = replace(guarded, methods=("pdlrecover", "retrain-k"))
    run(alone, tmp_path / "parts")
    parts, whole = run(both, tmp_path / "parts"), run(both, tmp_path / "whole")
    planned = guarded.options.schedule.exact_rounds(guarded.rounds)
    used = whole.methods["pdlrecover"].exact_rounds
    assert used != planned
    for result in (parts, whole):
        assert result.methods["pdlrecover"].exact_rounds == used
        assert result.methods["retrain-k"].exact_rounds == used
    own = run(replace(guarded, methods=("retrain-k:rounds=5",)), tmp_path / "own")
    assert set(own.methods) == {"poisoned", "retrain-k:rounds=5"}


@pytest.mark.slow
def test_absent_and_lying_peers_change_nothing(tmp_path):
    quiet = replace(SMALL, clear=False, colluders=2, liars=1, dropouts=4, methods=("pdlrecover",))
    first = run(quiet, tmp_path / "quiet")
    second = run(replace(quiet, absent=1, lying=1), tmp_path / "faulty")
    models = [model_file(tmp_path / name, "pdlrecover") for name in ("quiet", "faulty")]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert first.methods["pdlrecover"].liars == []
    assert second.methods["pdlrecover"].liars == [8]


def wild(run):
    """Step to a model that is not finite, and ask for an exact round there."""
    model = run.models[0]
    for t in range(3):
        total = yield Update(round=t, at=model)
        model = model - 0.1 * total.values if t < 1 else np.full_like(model, np.nan)
        yield Stepped(round=t, model=model, exact=True)
    return model


def test_a_method_that_diverges_is_a_result_and_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "wild", MethodEntry(lambda run, settings: wild(run)))
    result = run(replace(SMALL, methods=("wild", "retrain")), tmp_path)
    entry = result.methods["wild"]
    assert "not finite" in entry.diverged
    assert entry.accuracy < 0.3
    assert entry.exact_rounds == 3  # the last was asked for, and could not be answered
    assert entry.removed_loss is entry.remembered is entry.distance_to_retrain is None
    assert "diverged" not in as_record(result)["methods"]["retrain"]
    json.dumps(as_record(result), allow_nan=False)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("retrain:rounds=5", "has none"),
        ("historical:polish=3", "has none"),
        ("auto:polish=5", "with KEY of rounds"),
        ("pdlrecover:preparation=900", "do not fit a run of 40"),
        ("pdlrecover:preparation=4,final=4", "KEY=VALUE"),
    ],
)
def test_variants_that_cannot_be_are_refused_before_anything_runs(method, message):
    with pytest.raises(PlanError, match=message):
        replace(SMALL, methods=(method,))


def test_methods_about_the_removed_need_some():
    with pytest.raises(PlanError, match="nobody is removed"):
        replace(SMALL, malicious=0, methods=("fedrecovery",))


def test_variants_with_several_keys_are_written_with_a_plus():
    text = "retrain,auto:rounds=4+samples=3"
    config = Config.from_values({"rounds": 40, "methods": text})
    assert config.methods == ("retrain", "auto:rounds=4+samples=3")


def test_an_experiment_on_standardised_inputs_goes_on_where_it_was_with_the_same_numbers(tmp_path):
    config = replace(
        SMALL, standardise=True, standardise_bound=0.9, methods=("retrain", "auto"), held_out=0.1
    )
    whole = run(config, tmp_path / "whole")
    assert whole.methods["poisoned"].opened["statistics"].openings == 2
    assert whole.clipped_inputs > 0, "pixels of digits go up to 1"
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "parts", progress=Interrupting("auto", 3))
    parts = run(config, tmp_path / "parts")
    assert parts.clipped_inputs == whole.clipped_inputs
    for name, one in whole.methods.items():
        assert parts.methods[name].accuracy == one.accuracy
        assert parts.methods[name].evaluations == one.evaluations
    assert read_result(as_record(parts)) == parts


def test_inputs_as_they_are_leave_record_and_identity_as_they_were(tmp_path):
    written = as_record(run(replace(SMALL, methods=("auto",)), tmp_path))
    assert not [key for key in (*written, *written["config"]) if "standardise" in key]
    assert "clipped_inputs" not in written
    assert identity_of(written["config"]) == identity_of(SMALL.record())
    assert identity_of(replace(SMALL, standardise=True).record()) != identity_of(SMALL.record())
