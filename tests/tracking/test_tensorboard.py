import json
import subprocess
import sys

import numpy as np
import pytest
import small
from curves import curve, curves, tensorboard, text
from tensorboard.plugins.hparams import metadata

from pdlrecover.engines.events import Ended, RoundDone, Run
from pdlrecover.errors import ExtraError, PlanError
from pdlrecover.tracking import TensorBoard
from pdlrecover.tracking.tensorboard import _new_file

ROUNDS = 12
HELD_OUT = {"held_out": 0.2, "evaluate_every": 5}


class InterruptError(Exception):
    pass


def interrupt_at(rounds):
    def interrupt(step):
        if step.round + 1 == rounds:
            raise InterruptError

    return interrupt


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A training and two recoveries by one method: where they were tracked, and their models."""
    runs = tmp_path_factory.mktemp("tracked") / "deep" / "runs"
    federation = small.federation(**HELD_OUT)
    trained = federation.train(ROUNDS, 0.3, observer=TensorBoard(runs))
    seen = []
    both = [TensorBoard(str(runs)), seen.append]
    first = federation.recover([0, 1], rounds=6, observer=both)
    assert len(seen) == first.ledger.exact_rounds
    with pytest.raises(PlanError, match="would reveal"):  # which is no run
        federation.recover([0, 1, 2], rounds=4, observer=TensorBoard(runs))
    federation.recover([0, 1, 2], rounds=4, fresh_start=True, observer=TensorBoard(runs))
    return runs, trained, first


def test_every_run_has_a_folder_of_its_own(tracked):
    runs, _, _ = tracked
    assert sorted(place.name for place in runs.iterdir()) == ["auto", "auto-2", "training"]
    for each in ("auto", "auto-2"):
        ((rounds, total),) = curve(runs / each, "final/exact_rounds")
        assert len(curve(runs / each, "round/exact")) == rounds == total


def test_the_curves_are_what_was_evaluated_after_which_round(tracked):
    runs, trained, recovered = tracked
    for name, model in (("training", trained), ("auto", recovered)):
        points = [point for point in model.evaluations if not point.original]
        for kind in ("accuracy", "loss"):
            expected = [(p.round, np.float32(getattr(p, kind))) for p in points]
            assert curve(runs / name, f"held_out/{kind}") == expected
    assert [step for step, _ in curve(runs / "training", "held_out/accuracy")] == [5, 10, 12]


def test_rounds_add_up_to_the_ledger(tracked):
    runs, trained, _ = tracked
    steps = [step for step, _ in curve(runs / "training", "round/bytes_per_peer")]
    assert steps == list(range(1, ROUNDS + 1))
    fresh = curve(runs / "training", "opened/fresh_sums")
    assert sum(count for _, count in fresh) == trained.ledger.openings["fresh sums"] == ROUNDS
    ((last, total),) = curve(runs / "training", "final/bytes_per_peer")
    assert (last, total) == (ROUNDS, trained.ledger.bytes_per_peer)
    ledger = text(runs / "training", "ledger.json")
    assert json.loads(ledger.strip("`json\n"))["opened"]["fresh sums"]["openings"] == ROUNDS


def test_the_norm_is_that_of_the_mean_that_moved_the_model(tmp_path):
    """Plain SGD: the model moves by the rate times the opened mean."""
    federation, models = small.federation(), []
    federation.train(
        5, 0.25, observer=[TensorBoard(tmp_path), lambda step: models.append(step.model)]
    )
    before = [federation.history.models[0], *models]
    moved = [np.linalg.norm(b - a) / 0.25 for a, b in zip(before, models, strict=False)]
    told = [value for _, value in curve(tmp_path / "training", "round/update_norm")]
    np.testing.assert_allclose(told, moved, rtol=1e-5)


def test_settings_are_a_text_and_what_runs_are_compared_by(tracked):
    runs, _, _ = tracked
    assert "| learning_rate | 0.3 |" in text(runs / "training", "settings").splitlines()
    assert "| removed | 0, 1 |" in text(runs / "auto", "settings").splitlines()
    content = tensorboard(runs / "training").SummaryMetadata(metadata.SESSION_START_INFO_TAG)
    start = metadata.parse_session_start_info_plugin_data(content.plugin_data.content)
    assert start.hparams["learning_rate"].number_value == 0.3
    assert start.hparams["optimizer"].string_value == "SGD"


def interrupted(folder, runs, **arguments):
    federation = small.federation(folder=folder, **HELD_OUT)
    with pytest.raises(InterruptError):
        federation.train(ROUNDS, 0.3, observer=[TensorBoard(runs), interrupt_at(7)])


def test_a_resumed_training_goes_on_with_its_curves_and_doubles_no_point(tmp_path, tracked):
    runs = tmp_path / "runs"
    interrupted(tmp_path / "history", runs)
    place = runs / "training"
    assert len(curve(place, "round/exact")) == 7
    resumed = small.federation(folder=tmp_path / "history", resume=True, **HELD_OUT)
    resumed.train(ROUNDS, 0.3, observer=TensorBoard(runs))
    assert [each.name for each in runs.iterdir()] == ["training"]
    assert curves(place) == curves(tracked[0] / "training")
    assert [step for step, _ in curve(place, "round/seconds")] == list(range(1, ROUNDS + 1))


def test_files_that_are_begun_within_one_second_are_read_in_their_order(tmp_path):
    names = []
    for _ in range(12):
        with _new_file(tmp_path) as file:
            names.append(file.name)
    assert sorted(names) == names


def test_a_torn_file_costs_no_point(tmp_path, tracked):
    interrupted(tmp_path / "history", tmp_path / "runs")
    (path,) = (tmp_path / "runs" / "training").glob("events.*")
    path.write_bytes(path.read_bytes()[:-300])
    resumed = small.federation(folder=tmp_path / "history", resume=True, **HELD_OUT)
    resumed.train(ROUNDS, 0.3, observer=TensorBoard(tmp_path / "runs"))
    found = curve(tmp_path / "runs" / "training", "held_out/accuracy")
    assert found == curve(tracked[0] / "training", "held_out/accuracy")


def test_the_same_training_from_the_beginning_has_curves_of_its_own(tmp_path):
    for each in ("one", "two"):
        interrupted(tmp_path / each, tmp_path / "runs")
    assert len(curve(tmp_path / "runs" / "training", "round/exact")) == 7
    assert len(curve(tmp_path / "runs" / "training-2", "round/exact")) == 7


def test_a_run_that_is_there_whole_gets_no_further_file(tmp_path):
    run = Run(name="training", kind="training", identity="a", continues=True)
    for _ in range(2):
        follow = TensorBoard(tmp_path).begin(run)
        for done in (1, 2):
            follow(RoundDone(round=done, exact=True))
        follow(Ended(numbers={"exact_rounds": 2.0}))
    assert len(list((tmp_path / "training").glob("events.*"))) == 1
    other = Run(name="training", kind="training", identity="b", continues=True)
    TensorBoard(tmp_path).begin(other)(Ended())
    assert (tmp_path / "training-2").is_dir()


def test_a_place_that_cannot_be_written_is_said_once_and_changes_nothing(tmp_path):
    (tmp_path / "runs").write_text("a file")
    federation = small.federation()
    with pytest.warns(RuntimeWarning, match="TensorBoard follows training no further") as said:
        trained = federation.train(3, 0.3, observer=TensorBoard(tmp_path / "runs"))
    assert len(said) == 1
    np.testing.assert_array_equal(trained.weights, small.federation().train(3, 0.3).weights)


FULL = """
import resource, sys, warnings
sys.path.insert(0, sys.argv[2])
from pdlrecover.engines.events import RoundDone, Run
from pdlrecover.engines.following import Guarded
from pdlrecover.tracking import TensorBoard, tensorboard
tensorboard.FLUSH_SECONDS = 0.0
follow = Guarded(TensorBoard(sys.argv[1]), print).begin(Run(name="long", kind="training"))
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
for done in range(1, 200):
    follow(RoundDone(round=done, exact=True, update_norm=1.0))
print("went on")
"""


def test_a_disk_that_becomes_full_is_said_once_and_what_was_written_can_be_read(tmp_path):
    """A limit on the size of files takes the place of a full disk."""
    command = [sys.executable, "-W", "error", "-c", FULL, tmp_path, small.__file__]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    said, last = done.stdout.splitlines()
    assert said.startswith("TensorBoard follows long no further")
    assert "File too large" in said
    assert last == "went on"
    points = curve(tmp_path / "long", "round/update_norm")
    assert [step for step, _ in points] == list(range(1, len(points) + 1))
    assert points


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(ExtraError, match=r"pip install 'pdlrecover\[tensorboard\]'"):
        TensorBoard("runs")


LAZY = """
import sys
import pdlrecover.tracking
from pdlrecover import Federation
from pdlrecover.cli.simulate import simulate
assert not {"tensorboard", "mlflow", "tensorflow"} & sys.modules.keys()
pdlrecover.tracking.TensorBoard("runs")
assert "tensorboard" in sys.modules
assert not {"mlflow", "tensorflow"} & sys.modules.keys()
"""


def test_nothing_is_imported_that_is_not_used():
    command = [sys.executable, "-W", "error", "-c", LAZY]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
