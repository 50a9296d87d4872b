"""An experiment in TensorBoard and MLflow, interrupted and taken up again."""

import json

import pytest
from curves import curve, curves, mlflow_client, text

from pdlrecover.cli.simulate import run_and_show
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.followed import Followed
from pdlrecover.experiments.experiment.run import run
from pdlrecover.tracking import MLflow, TensorBoard

CONFIG = Config(
    dataset="digits",
    model="mlp-8",
    peers=6,
    malicious=1,
    rounds=12,
    clear=True,
    methods=("retrain", "pdlrecover"),
    preparation=3,
    period=4,
    final=2,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An experiment that was followed: its folder, and where."""
    place = tmp_path_factory.mktemp("followed")
    observers = [TensorBoard(place / "runs"), MLflow(place / "mlruns")]
    result = run_and_show(CONFIG, place / "mini", None, observers)
    return place, result


def measured(one, rate):
    points = zip(one.curve.round, getattr(one.curve, rate), strict=True)
    return [(step, pytest.approx(value)) for step, value in points]


def test_every_method_has_its_curves_of_the_test_part(whole):
    place, result = whole
    for name, one in result.methods.items():
        for rate in ("accuracy", "attack_success"):
            assert curve(place / "runs" / "mini" / name, f"test/{rate}") == measured(one, rate)


def test_the_experiment_has_its_settings_and_all_final_numbers(whole):
    place, result = whole
    assert "| malicious | 1 |" in text(place / "runs" / "mini", "settings")
    for name, one in result.methods.items():
        ((_, found),) = curve(place / "runs" / "mini", f"final/{name}/accuracy")
        assert found == pytest.approx(one.accuracy)
    ((_, distance),) = curve(place / "runs" / "mini", "final/pdlrecover/distance_to_retrain")
    assert distance == pytest.approx(result.methods["pdlrecover"].distance_to_retrain)


def test_mlflow_has_methods_below_the_experiment_which_has_record_and_report(whole, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place, result = whole
    client = mlflow_client(place / "mlruns")
    found = client.get_experiment_by_name("pdlrecover")
    runs = {each.info.run_name: each for each in client.search_runs([found.experiment_id])}
    top = runs.pop("mini")
    assert runs.keys() == result.methods.keys()
    for name, each in runs.items():
        assert each.data.tags["mlflow.parentRunId"] == top.info.run_id
        assert each.data.metrics["final/accuracy"] == result.methods[name].accuracy
    kept = [each.path for each in client.list_artifacts(top.info.run_id)]
    assert sorted(kept) == ["curves.svg", "report.html", "result.json"]
    record = client.download_artifacts(top.info.run_id, "result.json", place)
    with open(record, encoding="utf-8") as file:
        assert json.load(file) == json.loads((place / "mini" / "result.json").read_text())


class InterruptAt:
    """An observer that presses ctrl-C in a round of a method."""

    def __init__(self, name, round):
        self.name, self.round = name, round

    def begin(self, run):
        def follow(event):
            if run.name == self.name and getattr(event, "round", 0) == self.round:
                raise KeyboardInterrupt

        return follow


@pytest.mark.parametrize("name", ["poisoned", "pdlrecover"])
def test_an_interrupted_experiment_goes_on_with_its_curves(tmp_path, whole, name):
    place, out = tmp_path / "runs", tmp_path / "mini"
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, out, followed=Followed([TensorBoard(place), InterruptAt(name, 7)]))
    assert len(curve(place / "mini" / name, "round/exact")) == 7
    followed = Followed([TensorBoard(place)])
    followed.end(run(CONFIG, out, followed=followed), [])
    names = ("poisoned", "retrain", "pdlrecover")
    assert {each.name for each in (place / "mini").iterdir() if each.is_dir()} == {*names}
    for each in names:
        assert curves(place / "mini" / each) == curves(whole[0] / "runs" / "mini" / each)


def test_an_experiment_in_a_new_folder_has_curves_of_its_own(tmp_path):
    short = Config(**{**vars(CONFIG), "rounds": 8, "methods": ("retrain",)})
    for each in ("one", "two"):
        followed = Followed([TensorBoard(tmp_path / "runs")])
        followed.end(run(short, tmp_path / each / "mini", followed=followed), [])
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == ["mini", "mini-2"]


class Fails:
    """An observer that fails in the middle."""

    def begin(self, run):
        def follow(event):
            raise OSError("the disk is gone")

        return follow


def test_an_observer_that_fails_is_spoken_of_once_and_the_result_is_the_same(tmp_path, whole):
    said = []
    found = run(CONFIG, tmp_path, followed=Followed([Fails()], said.append))
    assert said == [
        "Fails follows poisoned no further, and nothing else changes by that (OSError: the disk is "
        "gone)"
    ]
    for name, one in whole[1].methods.items():
        assert found.methods[name].curve == one.curve


def test_nobody_follows_by_default_and_no_file_says_so(tmp_path):
    short = Config(**{**vars(CONFIG), "rounds": 8, "methods": ("retrain",)})
    run(short, tmp_path)
    assert not (tmp_path / "tracking.json").exists()
