import dataclasses
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace

import pytest
import simulated

import pdlrecover
from pdlrecover.adversary import ATTACKS
from pdlrecover.cli import COMMANDS, HISTORY_COMMANDS, PEER_COMMANDS, main
from pdlrecover.errors import PlanError
from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.batch.run_numbers import add_runs
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.reproductions import Reproduction
from pdlrecover.recovery.methods import METHODS

PLAN = ["plan", "--peers", "200", "--colluders", "66", "--dropouts", "60", "--liars", "5"]
EMPTY = simulated.result({})
"""The result of a run without any method."""


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments):
    """Run a command in this process: starting another one takes seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pdlrecover", *arguments])
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Result(code, out.getvalue(), err.getvalue())


def test_plan_prints_a_table():
    result = run(*PLAN, "--parameters", "79510", "--rounds", "1000")
    assert result.returncode == 0
    for part in ("packing", "32", "108 peers", "139 peers", "exact round", "7.9 MB", "4.6 GB"):
        assert part in result.stdout


def test_plan_prints_json():
    result = run(*PLAN, "--parameters", "79510", "--rounds", "1000", "--json")
    record = json.loads(result.stdout)
    assert record["packing"] == 32
    assert (record["quorum_vector"], record["quorum_dot"]) == (108, 139)
    assert (record["quorum_product"], record["product_possible"]) == (205, False)
    share = 8 * -(-79511 // 32)
    assert record["exact_round_bytes"] == 2 * 199 * share
    assert record["estimated_round_bytes"] == 199 * share + 2 * 199 * 4 * 8
    assert record["history_bytes"] == 1000 * (200 * share + 8 * 79510)


def test_a_plan_that_cannot_be_had_is_one_sentence_and_exit_code_2():
    result = run("plan", "--peers", "20", "--colluders", "6", "--dropouts", "10", "--liars", "3")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: 20 peers cannot survive")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("bad", [["--colluders", "-1"], ["--rounds", "0"], ["--peers", "many"]])
def test_bad_numbers_give_exit_code_2(bad):
    result = run(*PLAN, *bad)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_help_has_an_example():
    result = run("plan", "--help")
    assert result.returncode == 0
    assert "pdlrecover plan --peers 200" in result.stdout


def test_version():
    command = [sys.executable, "-m", "pdlrecover", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == pdlrecover.__version__


def test_the_help_of_simulate_lists_every_attack_and_method(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = run("simulate", "--help").stdout
    (attacks,) = [line for line in shown.splitlines() if line.startswith("│ --attack ")]
    (methods,) = [line for line in shown.splitlines() if line.startswith("│ --methods ")]
    assert all(name in attacks for name in ATTACKS)
    assert all(name in methods for name in METHODS)


def test_every_setting_is_an_option_with_its_default_and_an_explanation(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = run("simulate", "--help").stdout.splitlines()
    for field in dataclasses.fields(Config):
        flag = f"--{field.name.replace('_', '-')} "
        (place,) = [i for i, line in enumerate(shown) if line.startswith(f"│ {flag}")]
        assert re.search(r"(> +|--[a-z-]+ {2,})\S.*\w+.*\.", shown[place]), flag
        if isinstance(field.default, int | float | str) and field.default is not False:
            assert f"[default: {field.default}]" in shown[place] + shown[place + 1]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"peers": 30, "clear": True}),
        (["--peers", "20"], {"peers": 20, "clear": True}),
        (["--methods", "retrain, historical,"], {"methods": ("retrain", "historical")}),
        (["--learning-rate", "1", "--open-pairs"], {"learning_rate": 1.0, "open_pairs": True}),
    ],
)
def test_flags_that_are_given_win_over_the_file(tmp_path, monkeypatch, flags, expected):
    seen = []
    module = importlib.import_module("pdlrecover.cli.simulate")
    monkeypatch.setattr(module, "run_and_show", lambda config, *_: seen.append(config))
    config = tmp_path / "some.toml"
    config.write_text("peers = 30\nclear = true\n")
    assert run("simulate", "--config", str(config), *flags).returncode == 0
    (chosen,) = seen
    assert chosen == dataclasses.replace(Config(peers=30, clear=True), **expected)


@pytest.mark.slow
def test_simulate_writes_a_result(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text('peers = 10\nmalicious = 2\nrounds = 30\nmodel = "mlp-8"\nclear = true\n')
    out = tmp_path / "out"
    flags = ["--config", str(config), "--methods", "retrain,pdlrecover", "--out", str(out)]
    result = run("simulate", *flags, "--seed", "3")
    assert result.returncode == 0, result.stderr
    record = json.loads((out / "result.json").read_text())
    assert record["seed"] == record["config"]["seed"] == 3
    assert list(record["methods"]) == ["poisoned", "retrain", "pdlrecover"]
    assert str(out / "curves.svg") in result.stdout
    assert (out / "curves.svg").exists()
    assert f"Report: {out / 'report.html'}" in result.stdout
    assert "PDLRecover reached" in (out / "report.html").read_text()
    again = run("simulate", *flags, "--seed", "3")
    assert again.returncode == 0
    other = run("simulate", *flags, "--seed", "4")
    assert other.returncode == 2
    assert "another config, which differs in seed" in other.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--malicious", "30"], "leaves nobody to recover"),
        (["--methods", "magic"], "no method is called 'magic'"),
        (["--leavers", "1"], "would reveal the updates of peer"),
        (["--dataset", "mnist", "--data-dir", "nowhere"], "nowhere"),
        (["--config", "none.toml"], "does not exist"),
        (["--attack", "lie"], "needs attackers"),
    ],
)
def test_simulations_that_cannot_be_are_one_sentence_and_exit_code_2(tmp_path, flags, message):
    result = run("simulate", "--rounds", "20", "--out", str(tmp_path), *flags)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_reproduce_lists_what_it_knows():
    result = run("reproduce", "table-99")
    assert result.returncode == 2
    assert "known are all, table-1, table-2, table-3, figure-attack-curves" in result.stderr
    assert "did you mean table-3?" in run("reproduce", "table3").stderr


@pytest.mark.parametrize(("flags", "theirs"), [(["--quick"], ""), ([], " --quick")])
def test_full_and_quick_reproductions_are_not_mixed(tmp_path, flags, theirs):
    table = {"title": "a", "columns": [], "rows": [], "command": f"pdlrecover reproduce x{theirs}"}
    kept = tmp_path / "x.json"
    record = {**Document(name="x", title="X", summary=[]).record(), "tables": [table]}
    kept.write_text(json.dumps(record))
    before = kept.read_text()
    result = run("reproduce", "bound", "--out", str(tmp_path), *flags)
    assert result.returncode == 2
    assert "give another --out" in result.stderr
    assert ("is a quick reproduction" if theirs else "is a full reproduction") in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert kept.read_text() == before


@pytest.mark.parametrize("where", ["in the runs", "in a document"])
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt(), 130, "interrupted; the same"), (PlanError("no rate"), 2, "no rate")],
)
def test_what_stops_a_reproduction_loses_no_document(
    tmp_path, monkeypatch, where, error, code, said
):
    def stopped(*args, **more):
        raise error

    def made(draft, results):
        draft.summary.append("It is made.")

    def one(name, write, *cells):
        return Reproduction(name=name, title=name, cells=lambda scale: cells, write=write)

    command = importlib.import_module("pdlrecover.cli.reproduce")
    known = [one("bound", stopped), one("other", made, Config()), one("last", stopped)]
    monkeypatch.setattr(command, "REPRODUCTIONS", {each.name: each for each in known})
    runs = stopped if where == "in the runs" else lambda *args, **more: None
    monkeypatch.setattr(command, "run_cells", runs)
    monkeypatch.setattr(command, "cached", lambda cells, *_: [EMPTY for _ in cells])
    result = run("reproduce", "all", "--quick", "--out", str(tmp_path))
    assert result.returncode == code
    assert said in result.stdout + result.stderr
    assert "It is made." in result.stdout
    assert (tmp_path / "other.json").exists()
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_an_interrupted_reproduction_ends_soon(tmp_path):
    cache = tmp_path / "cache"
    text = (
        "import signal\nfrom pdlrecover.cli import main\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n    main()\n"
    )
    (tmp_path / "command.py").write_text(text)
    flags = ["--quick", "--out", str(tmp_path / "out"), "--cache", str(cache), "--workers", "1"]
    command = [sys.executable, str(tmp_path / "command.py"), "reproduce", "attacks", *flags]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **streams) as process:
        try:
            end = time.monotonic() + 120
            while not list(cache.glob("*/progress")) and time.monotonic() < end:
                time.sleep(0.1)
            before = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert time.monotonic() - before < 10
    assert process.returncode == 130
    assert all(line.startswith("attacks: ") for line in err.splitlines()), err
    assert "interrupted; the same command goes on" in out
    assert len(list(cache.glob("*/result.json"))) <= 2


@pytest.mark.slow
def test_the_bound_is_reproduced(tmp_path):
    result = run("reproduce", "bound", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "Theorem 1 holds with 3 of 3 seeds" in " ".join(result.stdout.split())
    document = json.loads((tmp_path / "bound.json").read_text())
    assert len(document["figures"][0]["series"]) == 6
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_the_demo_tells_the_whole_story(tmp_path):
    result = run("demo", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    methods = json.loads((tmp_path / "result.json").read_text())["methods"]
    assert methods["poisoned"]["attack_success"] >= 0.9
    assert methods["pdlrecover"]["attack_success"] <= 0.1
    assert methods["pdlrecover"]["accuracy"] >= methods["retrain"]["accuracy"] - 0.01
    assert methods["pdlrecover"]["exact_rounds"] <= 0.25 * 240
    assert "Record:" in result.stdout
    assert f"Report: {tmp_path / 'report.html'}" in result.stdout
    assert (tmp_path / "report.html").exists()


def test_a_report_of_nothing_is_one_sentence_and_exit_code_2(tmp_path):
    result = run("report", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path} has no document.json or result.json")
    assert result.stderr.count("\n") == 1


def test_brackets_in_the_folder_of_a_download_are_only_brackets(tmp_path, monkeypatch):
    module = importlib.import_module("pdlrecover.cli.download")
    monkeypatch.setattr(module, "fetch", lambda name, folder, show: show(1, 2))
    result = run("download", "mnist", "--data-dir", str(tmp_path / "a[/b]"))
    assert result.returncode == 0, result.stderr
    assert f"mnist is in {tmp_path / 'a[/b]'}" in result.stdout


def test_digits_are_said_to_need_no_download(tmp_path):
    result = run("download", "digits", "--data-dir", str(tmp_path))
    assert result.returncode == 0
    assert result.stdout == (
        "digits are bundled: they come with this package, and nothing is fetched\n"
    )


def test_a_key_in_the_folder_that_it_protects_is_warned_of(tmp_path):
    for key, warned in ((tmp_path / "ash" / "key", True), (tmp_path / "oak.key", False)):
        folder = tmp_path / ("ash" if warned else "oak")
        made = [str(folder), "--name", folder.name, "--address", "h:1", "--key-file", str(key)]
        result = run("peer", "init", *made)
        assert result.returncode == 0
        assert ("warning: the key is in the folder" in result.stderr) == warned
        assert result.stdout.count("\n") == 1


def test_download_knows_what_it_can_fetch(tmp_path):
    result = run("download", "imagenet", "--data-dir", str(tmp_path))
    assert result.returncode == 2
    assert "known are mnist, fashion-mnist, har" in result.stderr


def test_a_missing_dataset_says_which_command_fetches_it(tmp_path):
    result = run("simulate", "--dataset", "mnist", "--data-dir", str(tmp_path), "--rounds", "20")
    assert result.returncode == 2
    assert "pdlrecover download mnist --data-dir" in result.stderr


@pytest.mark.parametrize("name", ["[/x]", "[bold]"])
def test_what_looks_like_markup_is_printed_as_it_is(name, tmp_path):
    result = run("simulate", "--dataset", name, "--out", str(tmp_path))
    assert result.returncode == 2
    assert name in result.stderr
    assert not list(tmp_path.iterdir())  # nothing that would stand in the way of the next try


def test_what_the_operating_system_refuses_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("simulate", "--rounds", "20", "--out", str(tmp_path / "file"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "file cannot be written: File exists; choose another place" in result.stderr


@pytest.mark.parametrize("table", [COMMANDS, PEER_COMMANDS, HISTORY_COMMANDS])
def test_a_listed_command_is_the_one_that_runs(table):
    for name, command in table.items():
        loaded = command.load(name)
        assert loaded.name == name
        assert loaded.help == command.listed(name).help
        assert command.example in loaded.epilog


def recorded(folder, monkeypatch, *methods):
    """Make `other` a reproduction of one run, of which these methods are recorded."""

    def made(draft, results):
        (result,) = results
        draft.table("Found", [{"accuracy": result.methods["auto"].accuracy}])

    command = importlib.import_module("pdlrecover.cli.reproduce")
    cell = Config(methods=("retrain", "auto"))
    one = Reproduction(name="other", title="Other", cells=lambda scale: [cell], write=made)
    monkeypatch.setattr(command, "REPRODUCTIONS", {"other": one})
    found = {name: simulated.entry(0.123456789) for name in ("poisoned", *methods)}
    add_runs([replace(EMPTY, config=cell, methods=found)], folder)


def test_documents_are_written_of_recorded_runs_without_running_any(tmp_path, monkeypatch):
    recorded(tmp_path, monkeypatch, "retrain", "auto")
    result = run("reproduce", "other", "--quick", "--documents", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "other.json").read_text())
    assert found["tables"][0]["rows"] == [[0.123457]]


def test_without_retraining_no_document_is_written_and_what_is_missing_is_named(
    tmp_path, monkeypatch
):
    recorded(tmp_path, monkeypatch, "auto")
    result = run("reproduce", "other", "--quick", "--documents", "--out", str(tmp_path))
    assert result.returncode == 2
    assert "other (retrain of 1 runs)" in " ".join(result.stderr.split())
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize(
    ("flags", "taken"), [((), True), (("--recorded",), True), (("--fresh",), False)]
)
def test_finished_runs_are_taken_from_where_documents_go(tmp_path, monkeypatch, flags, taken):
    recorded(tmp_path, monkeypatch, "retrain", "auto")
    command = importlib.import_module("pdlrecover.cli.reproduce")
    asked = []

    def runs(cells, folder, *, recorded, **more):
        asked.extend(rest for cell in cells if (rest := recorded.rest(cell)) is not None)

    monkeypatch.setattr(command, "run_cells", runs)
    where = ["--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    result = run("reproduce", "other", "--quick", *where, *flags)
    assert bool(asked) is not taken
    assert ("3 of 3 trainings and recoveries are taken from" in result.stdout) is taken
