import contextlib
import io
import json
import sys

import pytest

from pdlrecover.cli import main
from pdlrecover.cli.simulate_many import planned, seeds_of
from pdlrecover.errors import PlanError
from pdlrecover.experiments.experiment.config import Config

SMALL = ("--peers", "8", "--malicious", "2", "--rounds", "12", "--model", "mlp-8", "--clear")


def run(*arguments):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["pdlrecover", "simulate", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), " ".join(err.getvalue().split())


@pytest.mark.parametrize(
    ("text", "seeds"), [("0,1,2", [0, 1, 2]), ("0-3", [0, 1, 2, 3]), ("7, 2-3", [7, 2, 3])]
)
def test_seeds_are_listed_or_from_and_to(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,", "3-1", "1-", "-1", "1,0-2", "0-99999999"])
def test_what_are_no_seeds_is_refused(text):
    with pytest.raises(PlanError, match="seeds"):
        seeds_of(text)


def test_every_run_has_a_folder(tmp_path):
    one, two = Config(), Config(seed=7)
    assert planned({"": one}, None, tmp_path) == {tmp_path: one}
    assert planned({"a": one, "b": two}, None, tmp_path) == {
        tmp_path / "a": one,
        tmp_path / "b": two,
    }
    assert planned({"a": one}, [7], tmp_path) == {tmp_path / "seed-7": two}
    assert [*planned({"a": one, "b": one}, [0, 1], tmp_path)] == [
        tmp_path / name / f"seed-{seed}" for name in "ab" for seed in (0, 1)
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--seeds", "0,1", "--seed", "1"), "give one of --seed and --seeds"),
        (("--workers", "2"), "--workers is for several runs; give --seeds as well"),
        (("--seeds", "0,1", "--tensorboard", "runs"), "--tensorboard follows a run of this"),
        (("--seeds", "0,1", "--mlflow", "runs"), "--mlflow follows a run of this process"),
        (("--seeds", "x"), "--seeds must be numbers such as 0,1,2 or 0-9, got 'x'"),
        (("--on", "somewhere"), "--on must be local, auto, or HOST:PORT"),
        (("--shards", "2", "--on", "somewhere"), "--on must be local, auto, or HOST:PORT"),
        (("--shards", "2", "--seeds", "0,1"), "--shards are for a single large run"),
        (("--deal-on-shards",), "--deal-on-shards needs shards: give --shards as well"),
        (("--config", "a/x.toml", "--config", "b/x.toml"), "two config files have one name"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path, monkeypatch, flags, said):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.toml").write_text("rounds = 12\n")
    code, out, err = run(*SMALL, "--methods", "retrain", "--out", tmp_path / "out", *flags)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.slow
def test_seeds_and_configs_are_run_and_shown_together_and_continued(tmp_path):
    for name, rate in (("slow", 0.1), ("fast", 0.3)):
        (tmp_path / f"{name}.toml").write_text(f'learning_rate = {rate}\nmethods = ["retrain"]\n')
    files = [word for name in ("slow", "fast") for word in ("--config", tmp_path / f"{name}.toml")]
    flags = (*SMALL, *files, "--seeds", "0-1", "--out", tmp_path / "out")
    code, out, _ = run(*flags)
    assert code == 0
    for name in ("slow", "fast"):
        assert out.count(f"{name}: Recovery on digits: 2 of 8 peers attacked") == 1
    assert out.count("±") >= 4
    assert (tmp_path / "out" / "report.html").exists()
    records = sorted(tmp_path.glob("out/*/seed-*/result.json"))
    assert [p.relative_to(tmp_path / "out").as_posix() for p in records] == [
        f"{name}/seed-{seed}/result.json" for name in ("fast", "slow") for seed in (0, 1)
    ]
    assert all(json.loads(path.read_text())["complete"] for path in records)
    assert not list(tmp_path.glob("out/**/*.lock"))
    before = [path.stat().st_mtime_ns for path in records]
    assert run(*flags)[:2] == (0, out)
    assert [path.stat().st_mtime_ns for path in records] == before
    code, _, err = run(*flags, "--batch-size", "16")
    assert code == 2
    assert "is the result of another config, which differs in batch_size" in err
    assert [path.stat().st_mtime_ns for path in records] == before
