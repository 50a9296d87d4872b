"""What a peer checks before it starts."""

import sys

import pytest
import whole_peers

from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.settings import Code, History
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.errors import PlanError

NAME = "code_of_others:model"


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Return a federation whose file names a module that says so in a file when it is imported."""
    (tmp_path / "code_of_others.py").write_text(
        "from pathlib import Path\n"
        "from whole_peers import model\n"
        "Path(__file__).with_name('imported').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield whole_peers.settle(tmp_path, model=Model(name=NAME, shape=(3,), classes=3))
    sys.modules.pop("code_of_others", None)


@pytest.mark.parametrize("allowed", [(), ("code_of_others:other",), ("code_of_others",)])
def test_code_that_the_federation_file_names_is_not_imported_unless_it_is_allowed(
    named, tmp_path, allowed
):
    folder = tmp_path / "ash"
    whole_peers.write(folder, History(key_file="../keys/ash.key"), code=Code(allowed=allowed))
    with pytest.raises(PlanError) as caught:
        PeerFiles(named, folder)
    assert f'write allowed = ["{NAME}"] under [code] in peer.toml' in str(caught.value)
    assert not (tmp_path / "imported").exists()
    assert "code_of_others" not in sys.modules


def test_code_that_the_operator_allows_is_imported(named, tmp_path):
    folder = tmp_path / "ash"
    whole_peers.write(folder, History(key_file="../keys/ash.key"), code=Code(allowed=(NAME,)))
    size = sum(part.numel() for part in whole_peers.model().parameters())
    assert PeerFiles(named, folder).model.size == size
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("name", ["logistic", "mlp", "mlp-7"])
def test_models_that_are_built_in_need_no_permission(tmp_path, name):
    federation = whole_peers.settle(tmp_path, model=Model(name=name, shape=(3,), classes=3))
    folder = tmp_path / "ash"
    whole_peers.write(folder, History(key_file="../keys/ash.key"), code=Code())
    assert PeerFiles(federation, folder).membership.model.name == name
