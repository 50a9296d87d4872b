import pytest

from pdlrecover.errors import PDLRecoverError, PlanError
from pdlrecover.experiments.config import Config
from pdlrecover.sharing import Tolerance


def written(tmp_path, text):
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return path


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
        ("methods = [1]", "methods must be a list of texts"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, text, message):
    with pytest.raises(PlanError, match=message):
        Config.from_toml(written(tmp_path, text))


def test_methods_may_be_a_text_with_commas(tmp_path):
    path = written(tmp_path, 'methods = "retrain, historical"')
    assert Config.from_toml(path).methods == ("retrain", "historical")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        Config.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"malicious": 20}, "malicious = 20 of 20 peers leaves nobody"),
        ({"malicious": 25}, "malicious = 25 of 20 peers leaves nobody"),
        ({"malicious": -1}, "malicious must be at least 0"),
        ({"malicious": 2, "leavers": 2}, "give one of the two"),
        ({"attack": "magic"}, "known are backdoor"),
        ({"methods": ("magic",)}, "no method is called 'magic'"),
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
