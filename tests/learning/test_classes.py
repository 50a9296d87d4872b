import numpy as np
import pytest
import torch

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import Classes, labels_of


def classes(*labels, outputs=3, given=None):
    """Return the classes of some peers' labels."""
    whose = [(f"peer {i}'s labels", labels_of(each, "")) for i, each in enumerate(labels)]
    return Classes.of(whose, outputs, given)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0], [2], [1.0, 2.0]])
def test_numbers_below_the_outputs_stand_for_themselves(labels):
    found = classes(labels)
    assert found.are_plain
    assert found.numbers(labels_of(labels, ""), "").tolist() == [int(each) for each in labels]
    assert found.named(torch.tensor([2, 0])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["dog", "cat", "eel"], ("cat", "dog", "eel")),
        ([3, 1, 2], (1, 2, 3)),
        ([10, -1, 9], (-1, 9, 10)),
        ([2**64 - 1, 2**63, 5], (5, 2**63, 2**64 - 1)),
        ([("b", 2), ("a", 3), ("b", 1)], (("a", 3), ("b", 1), ("b", 2))),
        (["x", 2, 1], (1, 2, "x")),
    ],
)
def test_other_labels_are_sorted_and_come_back_as_they_were(labels, names):
    found = classes(labels, list(reversed(labels)))
    assert found.names == names
    numbers = found.numbers(labels_of(labels, ""), "")
    assert [names[i] for i in numbers] == labels
    assert found.named(numbers).tolist() == labels


def test_truth_values_are_the_two_classes_of_a_model_with_two_outputs():
    found = classes([True, False], [False], outputs=2)
    assert found.names == (False, True)
    assert found.named(torch.tensor([1, 0])).dtype == np.bool_
    with pytest.raises(DataError, match=r"2 classes \(False, True\) and the model has 3 outputs"):
        classes([True, False])


def test_the_order_can_be_given_and_a_class_need_not_occur():
    found = classes(["low", "high"], given=["low", "middle", "high"])
    assert found.numbers(["high", "low"], "").tolist() == [2, 0]
    assert found.named(torch.tensor([1])).tolist() == ["middle"]
    with pytest.raises(DataError, match=r"name all classes in the order of its outputs"):
        classes(["low", "high"])


def test_sorting_does_not_depend_on_who_holds_which_label():
    assert classes(["b"], ["c", "a"]).names == classes(["a", "b"], ["c"]).names


def test_whole_numbers_that_are_too_large_are_labels_in_an_array_too():
    large = np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)
    assert classes(large).names == (5, 2**63, 2**64 - 1)
    assert classes(large % 3).are_plain
