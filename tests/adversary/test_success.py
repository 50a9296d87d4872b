import dataclasses

import numpy as np
import pytest
import torch

from pdlrecover.adversary import Context, attack_success, build
from pdlrecover.errors import DataError
from pdlrecover.learning import (
    Batches,
    Dataset,
    FlatModel,
    Updates,
    accuracy,
    clip,
    data_weights,
    models,
    partition,
)

PEERS, MALICIOUS = 10, 3


@pytest.fixture(scope="module")
def model(digits: Dataset) -> FlatModel:
    return FlatModel(models.build("mlp-32", digits.shape, digits.classes, 0), digits.shape)


def always(model: FlatModel, answer: int) -> np.ndarray:
    w = np.zeros(model.size)
    w[-10 + answer] = 1.0
    return w


def test_success_is_counted_among_samples_of_other_classes(
    digits: Dataset, model: FlatModel
) -> None:
    attack = build("backdoor", digits, target=4)
    assert attack_success(model, always(model, 4), digits.test_x, digits.test_y, attack) == 1.0
    assert attack_success(model, always(model, 5), digits.test_x, digits.test_y, attack) == 0.0


@pytest.mark.parametrize("name", ["bad-unlearn:backdoor", "dba"])
def test_any_backdoor_is_measured_with_its_whole_trigger(
    digits: Dataset, model: FlatModel, name: str
) -> None:
    test = digits.test_x, digits.test_y
    whole = attack_success(model, model.initial, *test, build("backdoor", digits))
    assert whole is not None
    assert 0 < whole < 1
    assert attack_success(model, model.initial, *test, build(name, digits)) == whole


@pytest.mark.parametrize(
    "name", ["label-flip", "sign-flip", "noise", "trim", "bad-unlearn", "min-max", "none"]
)
def test_an_attack_without_a_target_has_no_success(
    digits: Dataset, model: FlatModel, name: str
) -> None:
    assert (
        attack_success(model, model.initial, digits.test_x, digits.test_y, build(name, digits))
        is None
    )


def test_no_samples_of_other_classes_are_refused(digits: Dataset, model: FlatModel) -> None:
    only = dataclasses.replace(digits, test_y=torch.full_like(digits.test_y, 4))
    with pytest.raises(DataError, match="choose another target"):
        attack_success(
            model, model.initial, only.test_x, only.test_y, build("backdoor", only, target=4)
        )


@pytest.mark.parametrize(("name", "strength"), [("backdoor", {}), ("dba", {"parts": MALICIOUS})])
def test_training_with_a_backdoor_learns_it_and_training_without_does_not(
    digits: Dataset, model: FlatModel, name: str, strength: dict[str, int]
) -> None:
    attack = build(name, digits, **strength)
    parts = partition.fang(digits.train_y, PEERS, 0.5, seed=0)
    batches = Batches(parts, 0, 32)
    updates = Updates(model=model, weights=data_weights(parts), bound=5.0)
    everyone = np.arange(PEERS)

    def train(*, poisoned: bool) -> np.ndarray:
        w = model.initial
        for t in range(120):
            x, y = batches.take(digits.train_x, digits.train_y, everyone, t)
            if poisoned:
                context = Context.of(seed=0, round=t, w=w, places=range(MALICIOUS))
                x[:MALICIOUS], y[:MALICIOUS] = attack.poison(x[:MALICIOUS], y[:MALICIOUS], context)
            g, _ = clip(updates.weighted(w, everyone, x, y), updates.bound)
            w = w - 0.3 * g.sum(0).double().numpy() / updates.weights.sum()
        return w

    clean, poisoned = train(poisoned=False), train(poisoned=True)
    for w in (clean, poisoned):
        assert accuracy(model, w, digits.test_x, digits.test_y) > 0.85
    clean_success = attack_success(model, clean, digits.test_x, digits.test_y, attack)
    success = attack_success(model, poisoned, digits.test_x, digits.test_y, attack)
    assert clean_success is not None
    assert clean_success < 0.2
    assert success is not None
    assert success > 0.9
