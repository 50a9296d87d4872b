"""Options of a recovery as plain arguments: those of the command line, or refused."""

import numpy as np
import pytest
import small

from pdlrecover import Schedule
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.federation.plain_options import settings_of
from pdlrecover.recovery.accelerated import AcceleratedOptions
from pdlrecover.recovery.methods import METHODS, Settings

NONE = {"rounds": None, "schedule": None, "fresh_start": False, "optimizer": None, "settings": None}


def options(method, *, trained=100, **given):
    return settings_of(method, trained=trained, batch_size=32, local_steps=1, **{**NONE, **given})


@pytest.fixture(scope="module")
def federation():
    return small.trained(rounds=40)


@pytest.mark.parametrize("rounds", [8, 20, 100, 400, 1000])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_defaults_are_those_of_the_command_line(rounds, fresh):
    """Except for noise, which the library takes from the system and an experiment from its seed."""
    config = Config(rounds=rounds, fresh_start=fresh, methods=("auto",))
    theirs = config.settings
    mine = options("auto", trained=rounds, fresh_start=fresh)
    assert mine == Settings(
        options=theirs.options, accelerated=theirs.accelerated, batch_size=32, local_steps=1
    )


@pytest.mark.parametrize("method", ["pdlrecover", "retrain-k"])
def test_a_short_run_is_recovered_in_a_few_exact_rounds(method):
    """It used to take 25 at the start and 25 at the end, whatever the length."""
    federation = small.trained(rounds=20)
    assert federation.recover([0, 1], method).ledger.exact_rounds <= 6
    long = small.trained(rounds=100)
    assert long.recover([0, 1], method).ledger.exact_rounds <= 27


def test_rounds_and_optimizer_are_as_in_a_variant_of_the_name(federation):
    for method, given, variant in (
        ("auto", {"rounds": 3}, "auto:rounds=3"),
        ("retrain-k", {"rounds": 3}, "retrain-k:rounds=3"),
        (
            "accelerated-retrain",
            {"rounds": 4, "optimizer": "adam"},
            "accelerated-retrain:rounds=4+optimizer=adam",
        ),
        (
            "pdlrecover",
            {"schedule": Schedule(preparation=4, final=2, period=9)},
            "pdlrecover:preparation=4+final=2+period=9",
        ),
    ):
        plain = federation.recover([0, 1], method, **given)
        np.testing.assert_array_equal(plain.weights, federation.recover([0, 1], variant).weights)


def test_rounds_are_what_is_asked_for_after_muon_too():
    federation = small.trained(rounds=6, optimizer="muon", rate=0.04)
    assert federation.recover([0, 1], rounds=3).ledger.exact_rounds == 3


def test_a_fresh_start_lets_one_honest_peer_leave_alone(federation):
    alone = federation.recover([3], fresh_start=True, rounds=3)
    assert alone.ledger.exact_rounds == 3
    assert not np.array_equal(alone.weights, federation.recover([3], reason="malicious").weights)


def test_every_method_takes_its_rounds_or_refuses_them():
    for method, entry in METHODS.items():
        if entry.varies.get("rounds") is int:
            assert options(method, rounds=7) != options(method)
        else:
            with pytest.raises(ValueError, match=f"{method} sets its own number of rounds"):
                options(method, rounds=7)


def test_settings_of_experts_are_taken_as_they_are():
    settings = Settings(accelerated=AcceleratedOptions(rounds=3))
    assert options("accelerated-retrain", settings=settings) is settings
