import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.errors import DataError
from pdlrecover.learning import Batches
from pdlrecover.learning.batches import draws

PARTITION = [
    np.array([4, 9]),
    np.array([0]),
    np.arange(10, 60),
    np.array([1, 2, 3]),
    np.arange(60, 1060),
]
MASK = (1 << 64) - 1


def mixed(z: int) -> int:
    """SplitMix64's finaliser in plain integers."""
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@given(
    seed=st.integers(-(2**70), 2**70),
    peer=st.integers(0, 10**6),
    size=st.integers(1, 2**31),
    round_=st.integers(0, 10**6),
)
def test_a_draw_is_the_hash_of_seed_peer_round_and_position(seed, peer, size, round_) -> None:
    h = mixed(mixed(mixed(seed & MASK) ^ peer) ^ round_)
    expected = [((mixed(h ^ position) >> 32) * size) >> 32 for position in range(4)]
    assert draws(seed, [peer], [size], round_, 4).tolist() == [expected]


def test_what_a_seed_means_does_not_change() -> None:
    pinned = [[18, 13, 70, 49, 10], [343, 459, 677, 43, 693]]
    assert draws(7, [0, 3], [100, 1000], 12, 5).tolist() == pinned


@given(
    peers=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    round_=st.integers(0, 1000),
    seed=st.integers(0, 100),
)
def test_a_peers_batch_is_the_same_alone_and_among_others(peers, round_, seed) -> None:
    batches = Batches(PARTITION, seed, 6)
    together = batches.indices(peers, round_)
    assert together.shape == (len(peers), 6)
    for row, peer in zip(together, peers, strict=True):
        np.testing.assert_array_equal(row, batches.indices([peer], round_)[0])
        assert set(row) <= set(PARTITION[peer])


def test_draws_are_uniform_over_a_peers_samples() -> None:
    # χ² with 49 degrees of freedom at a fixed seed: over 99 for 1 of 30,000 seeds.
    batches = Batches(PARTITION, 1, 32)
    drawn = np.concatenate([batches.indices([2], t)[0] for t in range(500)])
    counts = np.bincount(drawn - 10, minlength=50)
    expected = len(drawn) / 50
    assert ((counts - expected) ** 2 / expected).sum() < 99


def test_rounds_peers_and_seeds_have_unrelated_batches() -> None:
    one = Batches([np.arange(10**6)] * 2, 0, 64)
    other = Batches([np.arange(10**6)] * 2, 1, 64)
    drawn = [one.indices([0], 0), one.indices([1], 0), one.indices([0], 1), other.indices([0], 0)]
    assert len(np.unique(np.concatenate(drawn))) > 250


def test_take_returns_fresh_samples_and_labels() -> None:
    x, y = torch.arange(1060.0)[:, None].repeat(1, 3), torch.arange(1060)
    before = x.clone()
    batches = Batches(PARTITION, 0, 4)
    batch_x, batch_y = batches.take(x, y, [4, 0], 3)
    assert batch_x.shape == (2, 4, 3)
    np.testing.assert_array_equal(batch_y.numpy(), batches.indices([4, 0], 3))
    assert torch.equal(batch_x[..., 0].long(), batch_y)
    batch_x += 1
    assert torch.equal(x, before)


def test_no_peers_have_no_batches() -> None:
    assert Batches(PARTITION, 0, 4).indices([], 0).shape == (0, 4)


def test_unknown_and_empty_peers_are_refused() -> None:
    with pytest.raises(DataError, match="0 to 4, got 5"):
        Batches(PARTITION, 0, 4).indices([5], 0)
    with pytest.raises(DataError, match="0 to 4, got -1"):
        Batches(PARTITION, 0, 4).indices([-1], 0)
    with pytest.raises(DataError, match="1 of them empty"):
        Batches([*PARTITION, np.array([], dtype=np.int64)], 0, 4)
    with pytest.raises(DataError, match="batch size of 0"):
        Batches(PARTITION, 0, 0)


def test_everything_that_a_peer_holds_is_its_part():
    parts = [np.array([4, 1]), np.array([0]), np.array([5, 2, 3])]
    batches = Batches(parts, seed=0, batch_size=2)
    for peer, part in enumerate(parts):
        np.testing.assert_array_equal(batches.samples_of([peer]), part)
