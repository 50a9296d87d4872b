import pytest

from pdlrecover.engines.peers.settings import (
    Code,
    Data,
    Drill,
    History,
    Listening,
    PeerSettings,
    Tracking,
    load_settings,
    write_settings,
)
from pdlrecover.errors import PlanError


def test_settings_are_read_as_they_were_written(tmp_path):
    settings = PeerSettings(
        data=Data(source="own.npz", part=2),
        history=History(key_file="/media/key", keep=5, limit_gb=1.5),
        network=Listening(listen="0.0.0.0:7400"),
        code=Code(allowed=("ours.nets:small", "ours.nets:large")),
        tracking=Tracking(tensorboard="runs", mlflow="http://127.0.0.1:5000"),
        drill=Drill(attack="backdoor", strength=2.0),
    )
    (tmp_path / "peer.toml").write_text(write_settings(settings))
    assert load_settings(tmp_path) == settings


def test_an_empty_file_is_all_defaults_and_a_drill_is_written_only_if_there_is_one(tmp_path):
    (tmp_path / "peer.toml").write_text("")
    assert load_settings(tmp_path) == PeerSettings()
    assert "drill" not in write_settings(PeerSettings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data", "this is not TOML"),
        ("[dta]", "unknown key 'dta'; did you mean 'data'"),
        ("[data]\nsorce = 1", "unknown key 'sorce' in data; did you mean 'source'"),
        ("[data]\nsource = 1", "data.source must be a text or left out, got 1"),
        ("data = 1", "data must be a table of keys and values, got 1"),
        ('[recovery]\nfallback = "x"', "recovery.fallback of a peer is agreed or none, got 'x'"),
        ("[history]\nkeep = 0", "history.keep must be at least 1, got 0"),
        ("[history]\nlimit-gb = -1", "history.limit_gb must be above 0, got -1"),
        ("[code]\nallowed = 'x:y'", "code.allowed must be a list of texts, got 'x:y'"),
        ("[network]\nlisten = 'x'", "network: an address is host:port"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_files_name(tmp_path, text, message):
    path = tmp_path / "peer.toml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert str(caught.value).count("peer.toml") == 1


def test_a_folder_without_settings_is_no_peers_folder(tmp_path):
    with pytest.raises(PlanError, match=r"peer\.toml does not exist; name the folder that"):
        load_settings(tmp_path)
