import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.adversary import (
    ATTACKS,
    Attack,
    Backdoor,
    BadUnlearn,
    Context,
    EveryNth,
    GaussianNoise,
    LabelFlip,
    LittleIsEnough,
    NoAttack,
    PartialTrim,
    Phase,
    SignFlip,
    Trim,
    build,
)
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset

MALICIOUS, BATCH, D = 3, 10, 50


def batch(dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    count = MALICIOUS * BATCH
    return (
        dataset.train_x[:count].clone().view(MALICIOUS, BATCH, *dataset.shape),
        dataset.train_y[:count].clone().view(MALICIOUS, BATCH),
    )


def context(round_: int = 0, seed: int = 0, phase: Phase = "training") -> Context:
    places = range(MALICIOUS)
    return Context.of(seed=seed, round=round_, w=np.zeros(D), places=places, phase=phase)


@pytest.mark.parametrize("name", [*ATTACKS, "bad-unlearn:backdoor", "bad-unlearn:min-max"])
def test_no_attack_changes_what_it_was_given(digits: Dataset, name: str) -> None:
    attack = build(name, digits)
    x, y = batch(digits)
    updates, benign = torch.randn(MALICIOUS, D), torch.randn(7, D)
    before = [tensor.clone() for tensor in (x, y, updates, benign)]
    poisoned_x, poisoned_y = attack.poison(x, y, context(phase="recovery"))
    corrupted = attack.corrupt(updates, benign, context(phase="recovery"))
    assert poisoned_x.shape == x.shape
    assert poisoned_y.shape == y.shape
    assert poisoned_y.dtype == y.dtype
    assert corrupted.shape == updates.shape
    assert corrupted.dtype == updates.dtype
    for tensor, was in zip((x, y, updates, benign), before, strict=True):
        assert torch.equal(tensor, was)


def test_no_attack_is_honest(digits: Dataset) -> None:
    x, y = batch(digits)
    updates = torch.ones(MALICIOUS, D)
    attack = build("none", digits)
    assert attack == NoAttack()
    assert all(map(torch.equal, attack.poison(x, y, context()), (x, y)))
    assert torch.equal(attack.corrupt(updates, updates, context()), updates)


@pytest.mark.parametrize(("fraction", "count"), [(0.01, 1), (0.3, 3), (0.5, 5), (1.0, 10)])
def test_a_backdoor_stamps_its_share_and_leaves_the_rest_clean(
    digits: Dataset, fraction: float, count: int
) -> None:
    attack = build("backdoor", digits, target=7, fraction=fraction)
    assert isinstance(attack, Backdoor)
    x, y = batch(digits)
    poisoned_x, poisoned_y = attack.poison(x, y, context())
    assert torch.equal(poisoned_x[:, :count], attack.trigger(x[:, :count]))
    assert (poisoned_y[:, :count] == 7).all()
    assert torch.equal(poisoned_x[:, count:], x[:, count:])
    assert torch.equal(poisoned_y[:, count:], y[:, count:])
    poisoned_x.zero_()
    assert x.any()


def test_a_scaled_backdoor_multiplies_its_update(digits: Dataset) -> None:
    updates = torch.randn(MALICIOUS, D)
    attack = build("backdoor", digits, scale=3.0)
    assert torch.equal(attack.corrupt(updates, updates, context()), 3 * updates)


@given(classes=st.integers(2, 50), data=st.data())
def test_flipping_labels_twice_gives_them_back(classes: int, data: st.DataObject) -> None:
    y = torch.tensor([data.draw(st.lists(st.integers(0, classes - 1), min_size=1))])
    attack = LabelFlip(classes=classes)
    _, flipped = attack.poison(y.float(), y, context())
    assert ((flipped >= 0) & (flipped < classes)).all()
    assert torch.equal(flipped + y, torch.full_like(y, classes - 1))
    assert torch.equal(attack.poison(y.float(), flipped, context())[1], y)


def test_sign_flip_climbs() -> None:
    updates = torch.randn(MALICIOUS, D)
    assert torch.equal(SignFlip(scale=2).corrupt(updates, updates, context()), -2 * updates)


def test_noise_has_its_spread_and_is_a_function_of_seed_and_round() -> None:
    updates = torch.zeros(20, 5000)
    attack = GaussianNoise(std=3.0)
    first = attack.corrupt(updates, updates, context(4))
    # 10^5 normal numbers: the mean is off by 5 standard deviations, 0.047, for 1 seed in 10^6.
    assert abs(float(first.mean())) < 0.047
    assert float(first.std()) == pytest.approx(3.0, rel=0.02)
    assert torch.equal(first, attack.corrupt(updates, updates, context(4)))
    assert not torch.equal(first, attack.corrupt(updates, updates, context(5)))
    assert not torch.equal(first, attack.corrupt(updates, updates, context(4, seed=1)))
    assert torch.isfinite(attack.corrupt(updates, updates, context(4, seed=-1))).all()


def test_an_attack_can_see_the_honest_updates_and_wait_for_recovery() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mirror(Attack):
        def corrupt(
            self, updates: torch.Tensor, benign: torch.Tensor, context: Context
        ) -> torch.Tensor:
            if context.phase == "training":
                return updates
            return -benign.mean(0).expand_as(updates)

    updates, benign = torch.ones(MALICIOUS, D), torch.full((7, D), 2.0)
    later = context(phase="recovery")
    assert torch.equal(Mirror().corrupt(updates, benign, context()), updates)
    assert torch.equal(Mirror().corrupt(updates, benign, later), torch.full((MALICIOUS, D), -2.0))


@pytest.mark.parametrize("name", ["backdoor", "label-flip", "sign-flip", "trim", "lie"])
def test_bad_unlearn_is_honest_in_training_and_the_other_attack_in_recovery(
    digits: Dataset, name: str
) -> None:
    attack, other = build(f"bad-unlearn:{name}", digits), build(name, digits)
    assert attack == BadUnlearn(then=other) or name == "backdoor"
    (x, y), updates, benign = batch(digits), torch.randn(MALICIOUS, D), torch.randn(7, D)
    assert all(map(torch.equal, attack.poison(x, y, context()), (x, y)))
    assert torch.equal(attack.corrupt(updates, benign, context()), updates)
    found = attack.poison(x, y, context(phase="recovery"))
    assert all(map(torch.equal, found, other.poison(x, y, context())))
    corrupted = attack.corrupt(updates, benign, context(phase="recovery"))
    assert torch.equal(corrupted, other.corrupt(updates, benign, context()))
    assert not (all(map(torch.equal, found, (x, y))) and torch.equal(corrupted, updates))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_impossible_strengths_are_refused(digits: Dataset, value: float) -> None:
    trigger = EveryNth(mean=torch.zeros(40))
    for make in (
        lambda: SignFlip(scale=value),
        lambda: GaussianNoise(std=value),
        lambda: Backdoor(trigger=trigger, scale=value),
        lambda: Backdoor(trigger=trigger, fraction=value),
        lambda: LabelFlip(classes=1),
        lambda: Trim(factor=value),
        lambda: PartialTrim(deviations=value),
        lambda: LittleIsEnough(z=value),
    ):
        with pytest.raises(AttackError, match="got"):
            make()
