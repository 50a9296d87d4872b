import numpy as np
import pytest
import torch

from pdlrecover.adversary import Context, DistributedBackdoor, EveryNth, build
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset


def context(*places: int) -> Context:
    return Context.of(seed=0, round=0, w=np.zeros(1), places=places)


def batch(dataset: Dataset, peers: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = dataset.train_x[: peers * size].clone().view(peers, size, *dataset.shape)
    return x, dataset.train_y[: peers * size].clone().view(peers, size)


def test_each_attacker_stamps_its_own_part_and_together_they_stamp_the_trigger(
    digits: Dataset,
) -> None:
    attack = build("dba", digits, target=3, fraction=0.5)
    assert isinstance(attack, DistributedBackdoor)
    x, y = batch(digits, 1, 8)
    x, y = x.expand(4, *x.shape[1:]), y.expand(4, -1)
    found, labels = attack.poison(x, y, context(0, 1, 2, 3))
    whole = attack.trigger(x[0, :4])
    changed = found[:, :4] != x[:, :4]
    assert int(changed.sum(0).max()) == 1
    assert changed.flatten(1).any(1).all()
    together = torch.where(changed, found[:, :4], 0).sum(0)
    torch.testing.assert_close(torch.where(changed.any(0), together, x[0, :4]), whole)
    assert torch.equal(found[:, 4:], x[:, 4:])
    assert (labels[:, :4] == 3).all()
    assert torch.equal(labels[:, 4:], y[:, 4:])


def test_an_attackers_part_follows_its_place_and_not_its_row(digits: Dataset) -> None:
    attack = build("dba", digits, parts=4)
    x, y = batch(digits, 6, 5)
    everybody, _ = attack.poison(x, y, context(0, 1, 2, 3, 4, 5))
    some, _ = attack.poison(x[[2, 5]], y[[2, 5]], context(2, 5))
    assert torch.equal(some, everybody[[2, 5]])
    moved, _ = attack.poison(x[[2, 5]], y[[2, 5]], context(0, 1))
    assert not torch.equal(moved, some)


def test_one_part_is_the_plain_backdoor(digits: Dataset) -> None:
    x, y = batch(digits, 3, 4)
    plain = build("backdoor", digits).poison(x, y, context(0, 1, 2))
    assert all(
        map(torch.equal, build("dba", digits, parts=1).poison(x, y, context(0, 1, 2)), plain)
    )


def test_a_distributed_backdoor_scales_its_updates(digits: Dataset) -> None:
    updates = torch.randn(2, 5)
    attack = build("dba", digits, scale=3.0)
    assert torch.equal(attack.corrupt(updates, updates, context(0, 1)), 3 * updates)


def test_a_trigger_too_small_to_be_split_is_refused() -> None:
    with pytest.raises(AttackError, match="sets 2 places"):
        DistributedBackdoor(trigger=EveryNth(mean=torch.zeros(40)))
