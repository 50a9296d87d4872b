import json

import numpy as np
import pytest
import safetensors
import small

from pdlrecover import load_model
from pdlrecover.learning import FlatModel
from pdlrecover.learning.model_files import from_safetensors, to_safetensors


@pytest.mark.parametrize(
    "metadata", [None, {}, {"columns": '["Größe"]', "classes": '["a","b","c"]'}]
)
def test_a_models_file_has_its_weights_and_what_is_said_of_them(tmp_path, metadata):
    model = FlatModel(small.module(), (3,))
    weights = np.arange(model.size) / 8
    content = to_safetensors(model, weights, metadata)
    np.testing.assert_array_equal(from_safetensors(model, content), weights)
    (tmp_path / "a.safetensors").write_bytes(content)
    with safetensors.safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert (file.metadata() or {}) == (metadata or {})
    loaded = load_model(tmp_path / "a.safetensors", small.module(seed=1))
    assert loaded.classes == (("a", "b", "c") if metadata else None)
    assert loaded.columns == (("Größe",) if metadata else None)


def test_what_is_said_of_a_model_stands_in_one_order():
    model = FlatModel(small.module(), (3,))
    said = {"b": "1", "a": "2"}
    content = to_safetensors(model, model.initial, said)
    assert content == to_safetensors(model, model.initial, dict(reversed(said.items())))
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert list(json.loads(content[8 : 8 + length])["__metadata__"]) == ["a", "b"]
