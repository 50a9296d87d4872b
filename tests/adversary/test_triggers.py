import pytest
import torch

from pdlrecover.adversary import EveryNth, Stripes, trigger_for
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset


def test_stripes_are_bright_across_the_whole_width_in_original_units(digits: Dataset) -> None:
    trigger = Stripes(rows=(2, 5), mean=digits.mean)
    before = digits.test_x.clone()
    stamped = trigger(digits.test_x) + digits.mean
    torch.testing.assert_close(stamped[:, :, [2, 5]], torch.ones(len(stamped), 1, 2, 8))
    rest = [0, 1, 3, 4, 6, 7]
    assert torch.equal(trigger(digits.test_x)[:, :, rest], before[:, :, rest])
    assert torch.equal(digits.test_x, before)


def test_stripes_on_colour_images_are_red() -> None:
    mean = torch.rand(3, 4, 4)
    x = torch.randn(5, 2, 3, 4, 4)
    stamped = Stripes(rows=(1,), mean=mean)(x)
    torch.testing.assert_close(
        stamped[..., 0, 1, :] + mean[0, 1], torch.ones(5, 2, 4), atol=1e-6, rtol=0
    )
    assert torch.equal(stamped[..., 1:, :, :], x[..., 1:, :, :])


def test_every_twentieth_feature_is_zero_in_original_units(features: Dataset) -> None:
    before = features.test_x.clone()
    stamped = EveryNth(mean=features.mean)(features.test_x)
    assert ((stamped + features.mean)[:, [19, 39, 59]] == 0).all()
    assert int((stamped != before).any(0).sum()) == 3
    assert torch.equal(features.test_x, before)


def test_every_nth_counts_through_samples_of_any_shape() -> None:
    x = torch.randn(4, 3, 2, 5)
    stamped = EveryNth(step=4, mean=torch.zeros(2, 5))(x)
    assert stamped.shape == x.shape
    assert (stamped.flatten(2)[..., [3, 7]] == 0).all()
    assert int((stamped == 0).sum()) == 4 * 3 * 2


def test_the_usual_trigger_fits_the_dataset(digits: Dataset, features: Dataset) -> None:
    stripes = trigger_for(digits)
    assert isinstance(stripes, Stripes)
    assert stripes.rows == (2, 6)
    every = trigger_for(features)
    assert isinstance(every, EveryNth)
    assert every.step == 20


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 16])
@pytest.mark.parametrize(
    "trigger",
    [
        Stripes(rows=(2, 6), mean=torch.rand(1, 8, 8)),
        Stripes(rows=(1, 2, 5), mean=torch.rand(3, 6, 7)),
        EveryNth(mean=torch.rand(561)),
        EveryNth(step=3, mean=torch.rand(9, 6)),
    ],
    ids=["grey", "colour", "features", "signals"],
)
def test_parts_are_disjoint_and_together_the_whole_trigger(
    trigger: Stripes | EveryNth, parts: int
) -> None:
    masks = trigger.split(parts)
    x = torch.full_like(trigger.mean, 7.0)
    assert masks.shape == (parts, *x.shape)
    assert int(masks.sum(0).max()) == 1
    assert torch.equal(masks.any(0), trigger(x) != x)
    sizes = masks.flatten(1).sum(1)
    assert int(sizes.max() - sizes.min()) <= 1


def test_stripes_are_cut_into_segments_and_features_dealt_in_turn() -> None:
    left, right, *_ = Stripes(rows=(2, 6), mean=torch.zeros(1, 8, 8)).split(4)
    assert left.nonzero().tolist() == [[0, 2, column] for column in range(4)]
    assert right.nonzero().tolist() == [[0, 2, column] for column in range(4, 8)]
    second = EveryNth(mean=torch.zeros(200)).split(4)[1]
    assert second.nonzero().flatten().tolist() == [39, 119, 199]


def test_more_parts_than_places_are_refused(features: Dataset) -> None:
    for parts in (0, 4):
        with pytest.raises(AttackError, match=f"sets 3 places.* got {parts}"):
            trigger_for(features).split(parts)


def test_patterns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AttackError, match="rows from 0 to 3, got \\(4,\\)"):
        Stripes(rows=(4,), mean=torch.zeros(1, 4, 4))
    with pytest.raises(AttackError, match="need images"):
        Stripes(rows=(0,), mean=torch.zeros(16))
    with pytest.raises(AttackError, match="step=0"):
        EveryNth(step=0, mean=torch.zeros(16))
