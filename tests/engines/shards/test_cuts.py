import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.engines.shards.cuts import add_up, cut

groups = st.lists(st.lists(st.integers(0, 99), max_size=30), min_size=1, max_size=4).filter(any)


@given(groups=groups, piece=st.integers(1, 9), most=st.integers(1, 8))
def test_parts_are_whole_pieces_in_order_and_have_everybody_once(groups, piece, most):
    parts = cut(groups, piece, most)
    assert 1 <= len(parts) <= most
    sizes = [sum(map(len, part.peers)) for part in parts]
    assert all(size and size % piece == 0 for size in sizes[:-1])
    assert max(sizes) - min(sizes[:-1], default=0) <= piece or len(parts) == 1
    found = [[] for _ in groups]
    for part in parts:
        for group, peers in zip(part.groups, part.peers, strict=True):
            found[group] += peers.tolist()
    assert found == groups
    flat = [peer for part in parts for peers in part.peers for peer in peers.tolist()]
    assert flat == [peer for group in groups for peer in group]


@given(groups=groups, piece=st.integers(1, 9), most=st.integers(1, 8))
def test_what_parts_come_to_adds_up_to_the_whole(groups, piece, most):
    numbers = np.arange(200).reshape(100, 2) ** 2
    parts = cut(groups, piece, most)
    done = [(p, np.array([numbers[peers].sum(axis=0) for peers in p.peers])) for p in parts]
    expected = [numbers[group].sum(axis=0) if group else [0, 0] for group in groups]
    np.testing.assert_array_equal(add_up(done, len(groups)), expected)
