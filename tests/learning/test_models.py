import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from pdlrecover.errors import ModelError
from pdlrecover.learning import FlatModel, models

MODULE = """
from torch import nn

def sized(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))

def ready(weights=None, progress=True):
    return nn.Linear(5, 3)

def wrong():
    return "a model"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return "own_models"


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("logistic", (561,), 562 * 6),
        ("mlp", (561,), 562 * 100 + 101 * 6),
        ("mlp-7", (1, 8, 8), 65 * 7 + 8 * 6),
        ("cnn", (1, 28, 28), 160 + 4640 + 6 * (32 * 49 + 1)),
        ("cnn", (3, 9, 9), 448 + 4640 + 6 * (32 * 9 + 1)),
    ],
)
def test_a_named_model_takes_the_shape_and_has_its_size(name, shape, size) -> None:
    model = FlatModel(models.build(name, shape, 6, seed=0), shape)
    assert model.size == size
    assert model.vectorises
    w = torch.from_numpy(model.initial).float()
    assert model.logits(w, torch.zeros(4, *shape)).shape == (4, 6)


def test_initial_weights_are_a_function_of_the_seed_and_nothing_else() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (
        FlatModel(models.build("mlp", (5,), 2, seed), (5,)).initial for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", ["resnet", "mlp-", "mlp-0", "MLP", "mlp-3x", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError, match="known are logistic, mlp"):
        models.build(name, (5,), 2, 0)


def test_the_cnn_refuses_what_is_no_image() -> None:
    with pytest.raises(ModelError, match="needs images"):
        models.build("cnn", (561,), 6, 0)


def test_a_users_own_factory_is_called_with_shape_and_classes_if_it_asks(own: str) -> None:
    sized = models.build(f"{own}:sized", (4,), 2, 0)
    assert isinstance(sized, nn.Sequential)
    assert FlatModel(sized, (4,)).size == 10
    assert isinstance(models.build(f"{own}:ready", (4,), 2, 0), nn.Linear)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("own_models:absent", "cannot import"),
        ("no_such_package.models:build", "cannot import"),
        (":build", "cannot import"),
        ("own_models:wrong", "returned str"),
        ("os:path", "but TypeError: .* called as factory\\(shape, classes\\)"),
        ("math:log", "called as factory"),
    ],
)
def test_a_path_that_gives_no_module_is_refused(own: str, path: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        models.build(path, (4,), 2, 0)
