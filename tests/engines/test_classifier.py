"""Models in files: written and read back, told apart, and never damaged in silence."""

import hashlib
import json

import numpy as np
import pandas
import pytest
import safetensors.torch
import small
import torch

from pdlrecover import Federation, load_model
from pdlrecover.errors import DataError, ModelError

X, Y = small.points(seed=99, count=200)
KINDS = np.array(["cat", "dog", "eel"])


@pytest.fixture(scope="module")
def recovered():
    datasets = [small.points(seed=peer) for peer in range(small.PEERS)]
    named = [(x, KINDS[y].tolist()) for x, y in datasets]
    made = Federation.simulate(small.module(), named, small.TOLERANCE, batch_size=8)
    made.train(12, 0.3)
    return made.recover([0, 1])


@pytest.fixture
def path(tmp_path, recovered):
    recovered.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_predictions_are_in_the_users_own_labels(recovered):
    with torch.no_grad():
        best = recovered.model(torch.from_numpy(X)).argmax(dim=1).numpy()
    assert recovered.predict(X).tolist() == KINDS[best].tolist()
    assert recovered.accuracy(X, KINDS[Y]) == pytest.approx((best == Y).mean())
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    assert recovered.accuracy(frame, pandas.Series(KINDS[Y])) == recovered.accuracy(X, KINDS[Y])


def test_a_saved_model_is_back_in_one_line(path, recovered):
    loaded = load_model(path, small.module(seed=1))
    assert loaded.classes == recovered.classes == ("cat", "dog", "eel")
    assert loaded.predict(X).tolist() == recovered.predict(X).tolist()
    assert loaded.accuracy(X, KINDS[Y]) == recovered.accuracy(X, KINDS[Y])
    for mine, theirs in zip(loaded.model.parameters(), recovered.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(DataError, match=r"takes samples of shape \(3,\), got \(4,\)"):
        loaded.predict(np.zeros((2, 4)))


def test_a_loaded_model_can_be_saved_again(path, tmp_path):
    loaded = load_model(path, small.module())
    loaded.save(tmp_path / "again.safetensors")
    again = load_model(tmp_path / "again.safetensors", small.module())
    assert again.predict(X).tolist() == loaded.predict(X).tolist()


def test_the_file_says_how_the_model_came_about(path, recovered):
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pdlrecover 1"
    digest = hashlib.sha256(recovered.weights.astype("<f8").tobytes()).hexdigest()
    assert metadata["weights_sha256"] == digest
    assert load_model(path, small.module()).made_by == (
        "recovered by auto without peers 0 and 1, in 25 exact rounds"
    )


def test_the_users_module_is_left_as_it_was(path):
    module = small.module(seed=1)
    load_model(path, module)
    for mine, theirs in zip(small.module(seed=1).parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_damaged_file_is_refused(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is damaged: the digest of its weights is"):
        load_model(path, small.module())
    path.write_bytes(content[:100])
    with pytest.raises(ModelError, match="is no safetensors file, or it is damaged"):
        load_model(path, small.module())


def test_a_module_with_other_layers_is_refused(path):
    with pytest.raises(ModelError, match=r"its 0\.weight has the shape \(6, 3\), and there it has"):
        load_model(path, small.module(hidden=6))
    with pytest.raises(ModelError, match=r"is there, which it does not have"):
        load_model(path, torch.nn.Sequential(torch.nn.Linear(3, 5)))


def test_a_real_peers_file_loads_and_the_digest_beside_it_is_checked(tmp_path):
    path = tmp_path / "recovered-0123456789abcdef.safetensors"
    content = safetensors.torch.save(small.module(seed=2).state_dict())
    path.write_bytes(content)
    facts = {"file_sha256": hashlib.sha256(content).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(facts))
    loaded = load_model(path, small.module())
    assert loaded.classes is None
    with torch.no_grad():
        best = small.module(seed=2)(torch.from_numpy(X)).argmax(dim=1)
    assert loaded.predict(X).tolist() == best.tolist()
    assert loaded.accuracy(X, Y) == pytest.approx((best.numpy() == Y).mean())
    named = load_model(path, small.module(), classes=KINDS.tolist())
    assert named.predict(X).tolist() == KINDS[best].tolist()
    path.with_suffix(".json").write_text(json.dumps({"file_sha256": "0" * 64}))
    with pytest.raises(ModelError, match="is damaged: the digest"):
        load_model(path, small.module())


@pytest.mark.parametrize("wrong", [["cat", "dog"], "cat"])
def test_classes_that_are_not_those_of_the_model_are_refused(tmp_path, wrong):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.torch.save(small.module().state_dict()))
    with pytest.raises((DataError, ModelError), match="must"):
        load_model(path, small.module(), classes=wrong).predict(X)
