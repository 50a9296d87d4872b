import numpy as np
import pytest
import torch

from pdlrecover.errors import DataError
from pdlrecover.learning import FlatModel, correct_and_loss, hold_out, models, most_held_out


@pytest.mark.parametrize("samples", [2, 7, 100])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_what_is_held_out_and_what_is_trained_on_make_up_the_whole(samples, share):
    part = np.arange(1000, 1000 + samples)
    trained, held = hold_out(part, share, seed=4, peer=2)
    assert sorted([*trained, *held]) == part.tolist()
    assert len(held) == most_held_out(share, samples) >= 1
    assert len(trained) >= 1


def test_what_is_held_out_follows_from_seed_peer_and_size_alone():
    one, two = np.arange(50), np.arange(50) + 500
    places = hold_out(one, 0.2, seed=1, peer=3)[1]
    np.testing.assert_array_equal(hold_out(two, 0.2, seed=1, peer=3)[1] - 500, places)
    assert hold_out(one, 0.2, seed=1, peer=4)[1].tolist() != places.tolist()
    assert hold_out(one, 0.2, seed=2, peer=3)[1].tolist() != places.tolist()


def test_every_sample_is_held_out_about_equally_often():
    """2000 choices of 10 in 50: 400 each, with a deviation of 18; five of them to each side."""
    counts = np.zeros(50, dtype=int)
    for peer in range(2000):
        counts[hold_out(np.arange(50), 0.2, seed=9, peer=peer)[1]] += 1
    assert counts.sum() == 2000 * 10
    assert (abs(counts - 400) < 90).all()


def test_a_single_sample_is_trained_on_and_no_share_holds_nothing_out():
    assert [len(part) for part in hold_out(np.arange(1), 0.5, seed=0, peer=0)] == [1, 0]
    assert [len(part) for part in hold_out(np.arange(9), 0.0, seed=0, peer=0)] == [9, 0]


@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan")])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(DataError, match="must be from 0 to"):
        most_held_out(share, 10)


def test_a_diverged_model_gets_nothing_right_at_the_bound_of_the_loss():
    model = FlatModel(models.build("logistic", (3,), 4, 0), (3,))
    x, y = torch.ones(8, 3), torch.zeros(8, dtype=torch.int64)
    for broken in (np.nan, np.inf):
        w = np.full(model.size, broken)
        assert correct_and_loss(model, w, x, y, bound=16.0) == (0, 128.0)
