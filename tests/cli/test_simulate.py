"""`pdlrecover simulate`: one process at a time, files before words, models that can be loaded."""

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from simulated import entry, result
from test_cli import run

from pdlrecover.cli.simulate import _loading, run_and_show
from pdlrecover.cli.tables import results_table
from pdlrecover.errors import PlanError, Setting
from pdlrecover.experiments.experiment import run as experiment
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import model_file
from pdlrecover.experiments.experiment.result import read_result

FLAGS = "--rounds 12 --peers 6 --malicious 1 --model mlp-8 --clear --methods retrain,pdlrecover"
SIMULATE = ["simulate", *FLAGS.split()]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A simulation that is done: its folder, and what was printed."""
    out = tmp_path_factory.mktemp("done")
    told = run(*SIMULATE, "--out", str(out))
    assert told.returncode == 0, told.stderr
    return out, told.stdout


def test_a_second_process_in_one_folder_is_refused(tmp_path):
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    told = run(*SIMULATE, "--out", str(tmp_path))
    os.close(holder)
    assert told.returncode == 2
    assert told.stderr == (
        f"error: another process is at work in {tmp_path}; wait until it is done, or give another "
        "--out\n"
    )
    assert told.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_process_leaves_its_folder_free_and_the_next_comes_to_the_same(tmp_path, done):
    command = [sys.executable, "-m", "pdlrecover", *SIMULATE, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "poisoned: begins\n"
        second = run(*SIMULATE, "--out", str(tmp_path))
        process.send_signal(signal.SIGKILL)
    assert "another process is at work" in second.stderr
    again = run(*SIMULATE, "--out", str(tmp_path))
    assert again.returncode == 0, again.stderr
    for name in ("poisoned", "retrain", "pdlrecover"):
        assert model_file(tmp_path, name).read_bytes() == model_file(done[0], name).read_bytes()


def test_models_load_by_the_lines_that_are_printed(done):
    out, printed = done
    told = printed[printed.index("\nModels: ") :]
    lines = re.findall(r"^    (.*)$", told, re.MULTILINE)
    names = {}
    exec("\n".join(lines), names)  # noqa: S102 (it is what the user pastes)
    x, y = names["data"].test_x, names["data"].test_y
    with torch.no_grad():
        right = (names["module"](x).argmax(1) == y).double().mean().item()
    record = json.loads((out / "result.json").read_text())
    assert right == pytest.approx(record["methods"]["pdlrecover"]["accuracy"])


def test_the_lines_that_load_a_model_name_the_users_data_folder(done):
    result = read_result(json.loads((done[0] / "result.json").read_text()))
    assert "data = load('digits', 'my data')\n" in _loading(result, done[0], Path("my data"))


def test_models_of_an_earlier_version_are_taken_up(tmp_path, monkeypatch):
    config = Config(rounds=4, peers=4, model="mlp-8", clear=True, methods=("retrain", "auto"))
    whole = experiment.run(config, tmp_path / "whole")

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_forgetting", interrupted)
        with pytest.raises(KeyboardInterrupt):
            experiment.run(config, tmp_path / "again")
    world = experiment.build(config)
    for path in list((tmp_path / "again" / "models").glob("*.safetensors")):
        np.save(path.with_suffix(".npy"), experiment._kept(world, tmp_path / "again", path.stem))
        path.unlink()
    again = experiment.run(config, tmp_path / "again")
    assert again.complete
    for name, one in whole.methods.items():
        assert again.methods[name].distance_to_retrain == one.distance_to_retrain


def test_nothing_is_said_to_go_on_before_a_refusal(done):
    told = run(*SIMULATE, "--out", str(done[0]), "--seed", "4")
    assert told.returncode == 2
    assert told.stdout == ""
    assert "the result of another config, which differs in seed" in told.stderr


def test_a_history_over_budget_is_refused_in_flags_and_leaves_nothing(tmp_path):
    told = run(*SIMULATE, "--out", str(tmp_path), "--budget-gb", "0.0001")
    assert told.returncode == 2
    needed, allowed, enough = re.search(
        r"takes (\S+) GB, and (\S+) GB are allowed; give --budget-gb (\S+), or fewer --rounds, or "
        r"a smaller --model$",
        told.stderr.strip(),
    ).groups()
    assert float(allowed) == 0.0001 < float(needed) < float(enough)
    assert not list(tmp_path.iterdir())
    assert run(*SIMULATE, "--out", str(tmp_path), "--budget-gb", enough).returncode == 0


@pytest.mark.slow
def test_whoever_reads_may_go_and_every_file_is_written(tmp_path):
    command = [sys.executable, "-m", "pdlrecover", *SIMULATE, "--out", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, "")
    written = {path.name for path in tmp_path.iterdir()}
    assert {"result.json", "report.html", "curves.svg", "models"} <= written


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_the_same_command_goes_on(tmp_path):
    command = [sys.executable, "-m", "pdlrecover", *SIMULATE, "--rounds", "5000"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert out.strip().splitlines()[-1].startswith("interrupted; results so far are in")


@pytest.mark.parametrize("malicious", [0, 1])
def test_a_rate_at_which_training_diverges_is_said_to(tmp_path, malicious):
    told = run(
        *[
            "simulate",
            "--rounds",
            "12",
            "--peers",
            "6",
            "--model",
            "mlp-8",
            "--clear",
            "--learning-rate",
            "1e9",
        ],
        *("--methods", "retrain", "--malicious", str(malicious), "--out", str(tmp_path)),
    )
    assert told.returncode == 0, told.stderr
    said = " ".join(told.stdout.split())
    original = "poisoned" if malicious else "trained"
    assert f"{original} diverged, and its numbers are of the last model it had come to" in said
    assert "retrain diverged" in said


def test_the_row_of_the_best_recovery_is_bold():
    log = io.StringIO()
    known = {"poisoned": 0.9, "retrain": 0.9, "pdlrecover": 0.89, "auto": 0.91}
    methods = {name: entry(accuracy) for name, accuracy in known.items()}
    console = Console(file=log, width=100, force_terminal=True, color_system="standard")
    console.print(results_table(result(methods)))
    rows = {name: [r for r in log.getvalue().splitlines() if f"{name} " in r] for name in known}
    bold = {name for name, lines in rows.items() if any("\x1b[1m" + name in r for r in lines)}
    assert bold == {"auto"}


def table(methods, **settings):
    log = io.StringIO()
    Console(file=log, width=100).print(results_table(result(methods, **settings)))
    return " ".join(log.getvalue().split())


def test_where_nobody_was_removed_the_flags_for_it_are_named():
    methods = {"poisoned": entry(0.9), "retrain": entry(0.9)}
    assert "Nobody was removed; --malicious or" in table(methods, malicious=0)
    assert "--leavers" not in table(methods, malicious=2)


def test_the_table_says_what_its_headings_mean(tmp_path):
    attacked = {"poisoned": entry(0.9, 1.0), "retrain": entry(0.9, 0.1)}
    shown = table(attacked, clear=True)
    assert "bytes are what each peer would send on shares" in shown
    known = [entry(0.9, excess=each, excess_error=0.1) for each in (1.0, 0.5)]
    left = dict(zip(("poisoned", "retrain-k"), known, strict=True))
    shown = table(left, malicious=0, leavers=2)
    assert "retrain-k – 90.0 0.50 ± 0.11" in shown, "with its standard error"
    assert "Remembered, of the data of the peers that left: the original 1" in shown
    assert "would send" not in shown


def test_a_short_run_says_which_rounds_it_chose_to_be_exact(done):
    assert "has 2 exact rounds first and 2 last; --preparation and --final" in done[1]


def test_a_setting_keeps_its_name_where_the_command_has_no_such_option():
    error = PlanError("lower ", Setting("magic"), ", or ", PlanError("give ", Setting("x", "3")))
    assert str(error) == "lower magic, or give x=3"
    assert error.said(lambda setting: f"<{setting.name}>") == "lower <magic>, or give <x>"


def test_a_run_that_is_done_is_shown_again_without_being_run(done, capsys):
    config = Config(**json.loads((done[0] / "result.json").read_text())["config"])
    before = (done[0] / "result.json").read_bytes()
    assert config.methods == ["retrain", "pdlrecover"]
    run_and_show(Config(**{**vars(config), "methods": tuple(config.methods)}), done[0], None)
    assert "begins" not in capsys.readouterr().out
    assert (done[0] / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("ends", "said"),
    [("raise KeyError('a mistake')", "KeyError: 'a mistake'"), ("pass", "error: standard output:")],
)
def test_a_full_disk_below_standard_output_hides_no_mistake(ends, said):
    text = f"from pdlrecover import cli\ndef app(**_):\n    print('x')\n    {ends}\ncli.app = app\n"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"{text}cli.main()"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=buffered,
        )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(said)
