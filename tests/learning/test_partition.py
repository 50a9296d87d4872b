import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.errors import DataError
from pdlrecover.learning import partition

KINDS = [
    lambda labels, peers, seed: partition.iid(labels, peers, seed),
    lambda labels, peers, seed: partition.fang(labels, peers, 0.5, seed),
    lambda labels, peers, seed: partition.fang(labels, peers, 1.0, seed),
    lambda labels, peers, seed: partition.dirichlet(labels, peers, 0.3, seed),
    lambda labels, peers, seed: partition.dirichlet(labels, peers, 1e-3, seed),
    lambda labels, peers, seed: partition.dirichlet(labels, peers, 1e-300, seed),
    lambda labels, peers, seed: partition.by_subject(labels, peers, seed),
]
LABELS = np.random.default_rng(0).integers(0, 10, 20_000)


@given(
    kind=st.sampled_from(KINDS),
    labels=st.lists(st.integers(0, 12), min_size=1, max_size=80),
    data=st.data(),
    seed=st.integers(0, 2**40),
)
def test_every_sample_is_dealt_once_and_no_peer_is_empty(kind, labels, data, seed) -> None:
    peers = data.draw(st.integers(1, len(labels)))
    parts = kind(labels, peers, seed)
    assert len(parts) == peers
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_is_a_function_of_its_seed(kind) -> None:
    np.random.seed(5)
    first, again, other = (kind(LABELS, 60, seed) for seed in (1, 1, 2))
    for x, y in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, y)
    assert any(len(x) != len(y) or (x != y).any() for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_samples_than_peers_are_refused_with_what_to_change(kind) -> None:
    with pytest.raises(DataError, match=r"3 samples cannot be dealt to 4 peers.*use fewer peers"):
        kind([0, 1, 2], 4, 0)
    with pytest.raises(DataError, match="0 peers"):
        kind([0, 1, 2], 0, 0)


@pytest.mark.parametrize("degree", [0.1, 0.5, 0.9])
def test_fangs_degree_is_the_share_of_a_class_that_its_group_holds(degree: float) -> None:
    # Each class has about 2,000 samples: five standard deviations are 0.056, a false alarm in
    # fewer than 1 of 10^4 choices of the seed.
    parts = partition.fang(LABELS, 10, degree, seed=3)
    held = np.array([np.bincount(LABELS[part], minlength=10) for part in parts]) / 2000
    np.testing.assert_allclose(np.sort(held.max(axis=0)), degree, atol=0.06 + 0.03 * (degree < 0.2))


def test_fangs_degree_one_gives_each_peer_one_class() -> None:
    for part in partition.fang(LABELS, 200, 1.0, seed=0):
        assert len(np.unique(LABELS[part])) == 1


def test_fangs_groups_share_peers_when_there_are_fewer_peers_than_classes() -> None:
    for part in partition.fang(LABELS, 3, 1.0, seed=0):
        assert 3 <= len(np.unique(LABELS[part])) <= 4


def test_a_small_alpha_gives_nearly_whole_classes_and_a_large_one_even_shares() -> None:
    concentrated = partition.dirichlet(LABELS, 10, 1e-3, seed=0)
    held = np.array([np.bincount(LABELS[part], minlength=10) for part in concentrated])
    assert (held.max(axis=0) / held.sum(axis=0)).min() > 0.9
    even = partition.dirichlet(LABELS, 10, 1e6, seed=0)
    assert max(map(len, even)) - min(map(len, even)) < 60


@pytest.mark.parametrize("peers", [30, 31, 100, 200])
def test_no_peer_holds_two_subjects_when_there_are_enough_peers(peers: int) -> None:
    subjects = np.repeat(np.arange(30), np.arange(100, 400, 10))
    parts = partition.by_subject(subjects, peers, seed=1)
    assert all(len(np.unique(subjects[part])) == 1 for part in parts)
    if peers == 200:
        assert max(map(len, parts)) < 2.1 * min(map(len, parts))


def test_with_fewer_peers_than_subjects_no_subject_is_divided() -> None:
    subjects = np.repeat(np.arange(30), 10)
    parts = partition.by_subject(subjects, 7, seed=1)
    owners = [set(subjects[part]) for part in parts]
    assert sum(map(len, owners)) == 30
    assert {len(part) for part in parts} == {40, 50}


def test_by_name_gives_what_the_functions_give() -> None:
    subjects = LABELS % 7
    pairs = [
        (partition.by_name("iid", LABELS, 9, 4), partition.iid(LABELS, 9, 4)),
        (
            partition.by_name("fang", LABELS, 9, 4, degree=0.7),
            partition.fang(LABELS, 9, 0.7, 4),
        ),
        (
            partition.by_name("dirichlet", LABELS, 9, 4, alpha=2),
            partition.dirichlet(LABELS, 9, 2, 4),
        ),
        (
            partition.by_name("subject", LABELS, 9, 4, subjects=subjects),
            partition.by_subject(subjects, 9, 4),
        ),
    ]
    for got, expected in pairs:
        assert [part.tolist() for part in got] == [part.tolist() for part in expected]
    with pytest.raises(DataError, match="'zipf'; known are iid, fang"):
        partition.by_name("zipf", LABELS, 9, 4)
    with pytest.raises(DataError, match="does not say whose"):
        partition.by_name("subject", LABELS, 9, 4)


@pytest.mark.parametrize("degree", [-0.1, 1.1, float("nan")])
def test_a_degree_that_is_no_probability_is_refused(degree: float) -> None:
    with pytest.raises(DataError, match="probability"):
        partition.fang(LABELS, 10, degree, 0)


@pytest.mark.parametrize("alpha", [0, -1, float("inf"), float("nan")])
def test_an_alpha_that_is_not_positive_is_refused(alpha: float) -> None:
    with pytest.raises(DataError, match="alpha must be positive"):
        partition.dirichlet(LABELS, 10, alpha, 0)


def test_labels_that_are_no_counts_are_refused() -> None:
    with pytest.raises(DataError, match="one integer per sample"):
        partition.iid(np.zeros(3), 2, 0)
    with pytest.raises(DataError, match="counted from 0"):
        partition.fang([-1, 0], 2, 0.5, 0)
