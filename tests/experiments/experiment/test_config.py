from dataclasses import replace

import pytest

from pdlrecover.errors import PDLRecoverError, PlanError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.sharing import Tolerance


def written(tmp_path, text):
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return path


def test_a_lone_leaver_is_no_differencing_if_every_method_starts_afresh():
    alone = Config(leavers=1, fresh_start=True, methods=("accelerated-retrain", "auto"))
    assert alone.accepts_differencing
    assert not replace(alone, methods=("auto", "retrain")).accepts_differencing
    assert not replace(alone, fresh_start=False).accepts_differencing


def test_a_file_says_the_same_as_flags(tmp_path):
    path = written(
        tmp_path, 'dataset = "mnist"\nbatch-size = 16\nmethods = ["retrain"]\npeers = 50'
    )
    config = Config.from_toml(path, {"peers": 60})
    assert config == Config(dataset="mnist", batch_size=16, methods=("retrain",), peers=60)


def test_a_key_that_does_not_exist_is_refused_with_the_nearest_one(tmp_path):
    path = written(tmp_path, "learning-rat = 0.1")
    with pytest.raises(PlanError, match="'learning_rat'; did you mean 'learning_rate'"):
        Config.from_toml(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peers = [", "is not TOML"),
        ('peers = "many"', "peers must be a whole number, got 'many'"),
        ("clear = 1", "clear must be true or false, got 1"),
        ("colluders = 1.5", "colluders must be a whole number or left out, got 1.5"),
        ("methods = [1]", r"methods\[0\] must be a text, got 1"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, text, message):
    with pytest.raises(PlanError, match=message):
        Config.from_toml(written(tmp_path, text))


def test_methods_may_be_a_text_with_commas(tmp_path):
    path = written(tmp_path, 'methods = "retrain, historical"')
    assert Config.from_toml(path).methods == ("retrain", "historical")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(PlanError, match="does not exist; name a TOML file"):
        Config.from_toml(tmp_path / "none.toml")


def test_a_key_may_be_written_once_only(tmp_path):
    path = written(tmp_path, "batch-size = 8\nbatch_size = 8")
    with pytest.raises(PlanError, match=r"experiment\.toml: batch_size is there twice"):
        Config.from_toml(path)
    assert Config.from_toml(path, {"batch_size": 4}).batch_size == 4


def test_what_makes_no_sense_in_a_file_is_said_with_its_name(tmp_path):
    for text in ('attack = "magic"', "malicious = 20", "colluders = 19"):
        path = written(tmp_path, text)
        with pytest.raises(PlanError) as caught:
            Config.from_toml(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"malicious": 20}, "malicious=20 of 20 peers leaves nobody"),
        ({"malicious": 25}, "malicious=25 of 20 peers leaves nobody"),
        ({"malicious": -1}, "malicious must be at least 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"bound": -10.0}, "bound must be positive"),
        ({"held_out": 0.6}, "held_out must be from 0 to 0.5"),
        ({"standardise_bound": 0.0}, "standardise_bound must be positive"),
        ({"standardise_per": "row"}, "per feature, channel or all, got 'row'"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"accelerated_rounds": 0}, "accelerated_rounds must be positive"),
        ({"lying": 1}, "more than the kept ones can be, or than the 0 liars"),
        ({"absent": 1, "clear": True}, "need shares"),
        ({"accused": 2}, "2 peers are accused with the malicious ones, and there are none"),
        ({"malicious": 5, "accused": 15}, "leaves nobody"),
        ({"malicious": 2, "leavers": 2}, "give one of malicious and leavers"),
        ({"undetected": -1}, "undetected must be at least 0"),
        (
            {"malicious": 12, "undetected": 8},
            "12 removed and 8 undetected of 20 peers leave nobody",
        ),
        ({"attack": "magic"}, "known are backdoor"),
        ({"attack": "trim:lie"}, "known are backdoor"),
        ({"attack": "bad-unlearn", "malicious": 2}, "give them as undetected"),
        ({"attack": "min-max", "undetected": 2, "attack_scale": 2.0}, "min-max has no strength"),
        ({"methods": ("magic",)}, "no method is called 'magic'"),
        ({"methods": ("fedrecover",)}, "fedrecover needs single peers' updates"),
        ({"methods": ("fed-eraser",)}, "fed-eraser needs single peers' updates"),
        ({"methods": ("crab",)}, "crab needs single peers' updates"),
        ({"methods": ("certified-removal",)}, "Hessians over peers' whole data, which are never"),
        ({"rounds": 10, "preparation": 8, "final": 8}, "do not fit a run of 10"),
        ({"attack": "label-flip", "malicious": 2, "attack_scale": 2.0}, "has no strength"),
        ({"block": 0}, "block must be at least 1"),
        ({"colluders": 19}, "20 peers cannot survive"),
    ],
)
def test_settings_that_cannot_be_are_refused(values, message):
    with pytest.raises(PDLRecoverError, match=message):
        Config(**values)


def test_defaults_follow_from_the_peers():
    assert Config(peers=200, malicious=40, rounds=1000).tolerance == Tolerance(
        colluders=66, dropouts=60, liars=5
    )
    assert Config(peers=20, malicious=9).tolerance.dropouts == 9


def test_short_runs_get_a_short_schedule():
    assert Config(rounds=1000).schedule.preparation == 25
    assert Config(rounds=80).schedule.preparation == 10


@pytest.mark.parametrize(
    ("attack", "name"),
    [
        ("backdoor", "scale"),
        ("dba", "scale"),
        ("sign-flip", "scale"),
        ("noise", "std"),
        ("trim", "factor"),
        ("trim-partial", "deviations"),
        ("lie", "z"),
        ("bad-unlearn", "factor"),
        ("bad-unlearn:lie", "z"),
    ],
)
def test_the_attacks_scale_is_its_own_strength(attack, name):
    config = Config(attack=attack, undetected=2, attack_scale=1.5)
    assert config.attack_strength == {name: 1.5}
    assert Config(attack=attack, attack_scale=1.5).attack_strength == {}


def test_attackers_are_the_found_ones_and_the_undetected_after_the_removed():
    assert Config(malicious=3).attackers == (0, 1, 2)
    assert Config(malicious=3, undetected=2).attackers == (0, 1, 2, 3, 4)
    assert Config(leavers=3, undetected=2).attackers == (3, 4)
    assert Config(leavers=3).attackers == ()


@pytest.mark.parametrize("methods", ["", ",", " , "])
def test_a_text_that_names_no_method_is_refused(methods):
    with pytest.raises(PlanError, match="methods must name at least one method"):
        Config.from_values({"methods": methods})
