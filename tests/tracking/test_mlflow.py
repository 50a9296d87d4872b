import json
import os
import socket
import sys

import mlflow
import numpy as np
import pytest
import small
from curves import mlflow_client

from pdlrecover.engines.events import Ended, RoundDone, Run
from pdlrecover.engines.following import Guarded
from pdlrecover.errors import ExtraError, PlanError
from pdlrecover.tracking import MLflow

ROUNDS = 12
HELD_OUT = {"held_out": 0.2, "evaluate_every": 5}


@pytest.fixture
def reads(monkeypatch):
    """Return what reads the runs in a folder, the latest first; MLflow wants to be asked twice."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def read(place, experiment="pdlrecover"):
        client = mlflow_client(place)
        found = client.get_experiment_by_name(experiment)
        return client, client.search_runs([found.experiment_id])

    return read


def history(client, run, metric):
    points = client.get_metric_history(run.info.run_id, metric)
    return sorted((point.step, point.value) for point in points)


def test_a_training_and_a_recovery_are_runs_with_parameters_curves_and_ledgers(tmp_path, reads):
    observer = MLflow(tmp_path / "mlruns", experiment="clinics")
    federation = small.federation(**HELD_OUT)
    trained = federation.train(ROUNDS, 0.3, observer=observer)
    recovered = federation.recover([0, 1], rounds=6, observer=[observer])
    client, runs = reads(tmp_path / "mlruns", "clinics")
    assert [run.info.run_name for run in runs] == ["auto", "training"]
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED"]
    assert runs[1].data.params["learning_rate"] == "0.3"
    assert runs[0].data.params["removed"] == "0, 1"
    for run, model in zip(runs, (recovered, trained), strict=True):
        points = [p for p in model.evaluations if not p.original]
        expected = [(p.round, p.accuracy) for p in points]
        assert history(client, run, "held_out/accuracy") == expected
        exact = model.ledger.exact_rounds
        assert [s for s, _ in history(client, run, "round/exact")] == list(range(1, exact + 1))
        assert run.data.metrics["final/bytes_per_peer"] == model.ledger.bytes_per_peer
        place = client.download_artifacts(run.info.run_id, "ledger.json", tmp_path)
        with open(place, encoding="utf-8") as file:
            assert json.load(file)["exact_rounds"] == exact


def test_a_resumed_training_goes_on_in_its_run_and_doubles_no_point(tmp_path, reads):
    def interrupt(step):
        if step.round == 6:
            raise KeyboardInterrupt

    place, folder = tmp_path / "mlruns", tmp_path / "history"
    with pytest.raises(KeyboardInterrupt):
        small.federation(folder=folder).train(ROUNDS, 0.3, observer=[MLflow(place), interrupt])
    client, (run,) = reads(place)
    assert run.info.status == "KILLED"
    assert [step for step, _ in history(client, run, "round/exact")] == list(range(1, 8))
    small.federation(folder=folder, resume=True).train(ROUNDS, 0.3, observer=MLflow(place))
    client, (again,) = reads(place)
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    for metric in ("round/exact", "round/seconds", "round/update_norm"):
        points = history(client, again, metric)
        assert [step for step, _ in points] == list(range(1, ROUNDS + 1))


def test_a_run_below_another_names_it_and_one_that_fails_says_why(tmp_path, reads):
    observer = MLflow(tmp_path)
    experiment = Run(name="mnist", kind="experiment")
    top = observer.begin(experiment)
    observer.begin(Run(name="auto", kind="recovery", parent=experiment, whose="ada"))(
        Ended(outcome="failed", why="it diverged")
    )
    (tmp_path / "page.html").write_text("<p>")
    top(Ended(files=(tmp_path / "page.html",)))
    client, runs = reads(tmp_path)
    below, above = sorted(runs, key=lambda run: run.info.run_name)
    assert below.data.tags["mlflow.parentRunId"] == above.info.run_id
    assert below.info.run_name == "ada: auto"
    assert (below.info.status, below.data.tags["pdlrecover.why"]) == ("FAILED", "it diverged")
    assert [each.path for each in client.list_artifacts(above.info.run_id)] == ["page.html"]


def test_more_settings_and_points_than_mlflow_takes_at_once_all_arrive(tmp_path, reads):
    settings = {f"setting-{number}": number for number in range(250)}
    observer = MLflow(tmp_path)
    follow = observer.begin(Run(name="long", kind="training", settings=settings))
    for done in range(1, 701):
        follow(RoundDone(round=done, exact=True, update_norm=float(done)))
    follow(Ended())
    client, (run,) = reads(tmp_path)
    assert len(run.data.params) == 250
    assert history(client, run, "round/update_norm") == [(n, float(n)) for n in range(1, 701)]


def test_a_server_that_is_gone_is_said_once_and_changes_nothing(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        observer = MLflow(f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.warns(RuntimeWarning, match="MLflow follows training no further") as said:
            trained = small.federation().train(3, 0.3, observer=observer)
    assert len(said) == 1
    np.testing.assert_array_equal(trained.weights, small.federation().train(3, 0.3).weights)


def test_nothing_waits_for_a_server_that_does_not_answer():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        observer = MLflow(f"http://127.0.0.1:{silent.getsockname()[1]}", wait=0.2)
        said = []
        follow = Guarded(observer, said.append).begin(Run(name="training", kind="training"))
        for done in range(1, 100):
            follow(RoundDone(round=done, exact=True))
        assert not said
        follow(Ended())
        assert "has not taken everything within 0.2 s" in said[0]
        assert not observer.close(wait=0.0)


def test_credentials_in_the_address_are_in_no_message(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said = []
    with socket.socket() as closed, socket.socket() as silent:
        closed.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (closed.getsockname()[1], silent.getsockname()[1]):
            observer = MLflow(f"http://ada:secret@127.0.0.1:{port}", wait=1.0)
            Guarded(observer, said.append).begin(Run(name="training", kind="training"))(Ended())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlanError) as refused:
        MLflow("postgresql://ada:secret@host/x")
    said.append(str(refused.value))
    assert len(said) == 3
    for each in said:
        assert "…@" in each
        assert "secret" not in each
        assert "ada" not in each


def test_who_names_a_folder_has_mlflow_allow_it_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    before = mlflow.get_tracking_uri()
    observer = MLflow(tmp_path)
    observer.begin(Run(name="training", kind="training"))(Ended())
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    assert mlflow.get_tracking_uri() == before


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (None, "MLFLOW_TRACKING_URI is not set; give a server"),
        ("sqlite:///x.db", "pip install mlflow, which brings it"),
        ("postgresql+psycopg2://host/x", "pip install mlflow, which brings it"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_sentence(monkeypatch, uri, message):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlanError, match=message):
        MLflow(uri)


def test_the_place_may_come_from_mlflows_own_variable(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert MLflow().uri == "http://127.0.0.1:1"


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ExtraError, match=r"pip install 'pdlrecover\[mlflow\]'"):
        MLflow("http://127.0.0.1:1")
