import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.errors import ToleranceError
from pdlrecover.sharing import Tolerance

tolerances = st.builds(
    Tolerance,
    colluders=st.integers(0, 30),
    dropouts=st.integers(0, 30),
    liars=st.integers(0, 10),
)


def test_the_design_example_packs_32():
    quorums = Tolerance(colluders=66, dropouts=60, liars=5).quorums(200)
    assert quorums.packing == 32
    assert (quorums.vector_degree, quorums.dot_degree, quorums.product_degree) == (97, 128, 194)
    assert (quorums.vector, quorums.dot, quorums.product) == (108, 139, 205)


@given(tolerance=tolerances, peers=st.integers(1, 120), products=st.booleans())
def test_packing_is_the_largest_whose_openings_are_possible(tolerance, peers, products):
    answering = peers - tolerance.dropouts

    def needed(packing):
        c, e = tolerance.colluders, tolerance.liars
        return (2 * c if products else c) + 2 * packing - 1 + 2 * e

    try:
        quorums = tolerance.quorums(peers, products=products)
    except ToleranceError:
        assert needed(1) > answering
    else:
        assert needed(quorums.packing) <= answering < needed(quorums.packing + 1)
        assert (quorums.product if products else quorums.dot) == needed(quorums.packing)
        assert quorums.vector <= quorums.dot <= answering


@given(tolerance=tolerances, peers=st.integers(1, 60))
def test_every_way_out_that_a_refusal_names_works_and_is_the_nearest(tolerance, peers):
    try:
        tolerance.quorums(peers)
    except ToleranceError as refusal:
        ways = str(refusal).split("peers; ")[1].split(", or ")
        assert ways[0].startswith("have at least ")
        enough = int(ways[0].split()[3])
        tolerance.quorums(enough)
        with pytest.raises(ToleranceError):
            tolerance.quorums(enough - 1)
        for way in ways[1:]:
            _, name, _, value = way.split()
            Tolerance(**{**vars(tolerance), name: int(value)}).quorums(peers)
            with pytest.raises(ToleranceError):
                Tolerance(**{**vars(tolerance), name: int(value) + 1}).quorums(peers)


def test_a_refusal_reads_well():
    with pytest.raises(ToleranceError) as refusal:
        Tolerance(colluders=6, dropouts=10, liars=3).quorums(20)
    assert str(refusal.value) == (
        "20 peers cannot survive 6 colluders, 10 dropouts and 3 liars: that takes "
        "dropouts + colluders + 2·liars + 1 = 23 peers; have at least 23 peers, or lower "
        "colluders to 3, or lower dropouts to 7, or lower liars to 1"
    )


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3"])
def test_what_is_no_count_is_refused(bad):
    with pytest.raises(ToleranceError, match="colluders must be a whole number"):
        Tolerance(colluders=bad)
    with pytest.raises(ToleranceError, match="peers must be a whole number"):
        Tolerance(colluders=1).quorums(bad)


@pytest.mark.parametrize("bad", [0, 33, -2])
def test_a_packing_that_cannot_be_is_refused(bad):
    with pytest.raises(ToleranceError, match=f"between 1 and 32 .* got {bad}"):
        Tolerance(colluders=66, dropouts=60, liars=5).quorums(200, packing=bad)


def test_one_is_not_spoken_of_as_several():
    assert str(Tolerance(colluders=1, liars=1)) == "1 colluder, 0 dropouts and 1 liar"
    assert str(Tolerance(colluders=2, dropouts=1)) == "2 colluders, 1 dropout and 0 liars"


def test_blocks_cover_the_vector():
    quorums = Tolerance(colluders=2).quorums(10, packing=3)
    assert [quorums.blocks(d) for d in (1, 3, 4, 9, 10)] == [1, 1, 2, 3, 4]
