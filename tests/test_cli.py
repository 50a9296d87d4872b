import json
import subprocess
import sys

import pytest

import pdlrecover

PLAN = ["plan", "--peers", "200", "--colluders", "66", "--dropouts", "60", "--liars", "5"]


def run(*arguments):
    command = [sys.executable, "-m", "pdlrecover", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
    assert run("--version").stdout.strip() == pdlrecover.__version__
