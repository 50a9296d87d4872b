"""Whether the errors of what is remembered are right, in every recorded run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdlrecover.experiments.analysis.calibration import calibration, unseeing
from pdlrecover.experiments.analysis.results import averaged
from pdlrecover.experiments.batch.run_numbers import read_runs
from pdlrecover.experiments.experiment.forgetting import Estimate

RUNS = read_runs(Path(__file__).parents[3] / "results" / "reproductions" / "runs.jsonl")
MOST = 0.1
"""No larger share may be further than two errors from 0; 0.046 is expected."""


@pytest.mark.parametrize("over_seeds", [False, True])
def test_models_that_never_saw_the_data_are_at_zero_within_two_errors(over_seeds):
    found = calibration(unseeing(RUNS, over_seeds=over_seeds))
    assert found.among >= 30
    assert found.share <= MOST


def changed(factor=1.0, error=1.0):
    """Return the records with other excesses of models that never saw the data, or errors."""

    def other(name, one):
        if one.excess is None or name == "poisoned":
            return one
        return replace(one, excess=factor * one.excess, excess_error=error * one.excess_error)

    return [
        replace(run, methods={name: other(name, one) for name, one in run.methods.items()})
        for run in RUNS
    ]


@pytest.mark.parametrize("false", [changed(factor=2.0), changed(error=0.5)])
def test_errors_of_half_the_size_would_be_noticed(false):
    assert calibration(unseeing(false, over_seeds=False)).share > MOST


def test_methods_that_use_the_history_are_not_looked_at():
    with_history = {"pdlrecover", "historical", "poisoned"}
    without = [
        replace(
            run,
            methods={
                name: one
                for name, one in run.methods.items()
                if name not in with_history - {"poisoned"}
            },
        )
        for run in RUNS
    ]
    assert unseeing(without, over_seeds=False) == unseeing(RUNS, over_seeds=False)


def test_a_model_of_two_methods_counts_once():
    for run in RUNS:
        found = {one.excess for name, one in run.methods.items() if name != "poisoned"}
        assert len(unseeing([run], over_seeds=False)) <= len(found - {None})


def test_what_seeds_share_is_not_averaged_out():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        common = rng.normal()  # of the held-out samples
        seeds = [Estimate(value=common + 0.1 * rng.normal(), error=1.0) for _ in range(3)]
        mean = averaged(seeds)
        ratios.append(mean.value / mean.error)
    assert 0.9 < np.std(ratios) < 1.1  # errors of independent seeds would give 1.7
