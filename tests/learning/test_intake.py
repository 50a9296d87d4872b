import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from pdlrecover.learning.intake import data_of, samples_and_labels, samples_of

X = np.array([[1.0, 2.5, 0.1], [3.0, 4.0, 1e-3], [5.0, 6.0, 7.0]])
Y = [0, 2, 1]


class Pairs(Dataset):
    """Pairs of a list of floats and a label, as users write their own."""

    def __len__(self):
        return len(X)

    def __getitem__(self, place):
        return X[place].tolist(), Y[place]


FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])
FORMS = {
    "arrays": (X, np.array(Y)),
    "float32": (X.astype(np.float32), np.array(Y, dtype=np.int8)),
    "backwards": (X[::-1][::-1], np.array(Y)[::-1][::-1]),
    "big-endian": (X.astype(">f8"), np.array(Y, dtype=">i4")),
    "lists": (X.tolist(), Y),
    "tensors": (torch.tensor(X), torch.tensor(Y)),
    "tensors with gradients": (torch.tensor(X, requires_grad=True), torch.tensor(Y).double()),
    "half labels": (torch.tensor(X), torch.tensor(Y).to(torch.bfloat16)),
    "list of tensors": ([torch.tensor(row) for row in X], [torch.tensor(y) for y in Y]),
    "list of arrays": (list(X), [np.int64(y) for y in Y]),
    "frame and series": (FRAME, pandas.Series(Y)),
    "frame and frame": (FRAME, pandas.DataFrame({"y": Y})),
    "nullable frame": (FRAME.convert_dtypes(), pandas.Series(Y, dtype="Int64")),
    "objects": (X.astype(object), np.array(Y, dtype=object)),
    "column of labels": (X, np.array(Y)[:, None]),
    "tensor dataset": TensorDataset(torch.tensor(X), torch.tensor(Y)),
    "subset": Subset(TensorDataset(torch.tensor(X), torch.tensor(Y)), [0, 1, 2]),
    "own dataset": Pairs(),
    "sparse tensor": (torch.tensor(X).to_sparse(), Y),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_comes_to_the_same_bits(form):
    x, y = data_of(FORMS[form], "peer 0")
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.tensor(X, dtype=torch.float32))
    assert y.dtype == np.int64
    assert y.tolist() == Y


def test_a_subset_is_read_in_its_own_order():
    x, y = data_of(Subset(Pairs(), [2, 0]), "peer 0")
    assert y.tolist() == [1, 0]
    assert torch.equal(x, torch.tensor(X[[2, 0]], dtype=torch.float32))


def test_images_keep_their_shape_and_truth_values_are_numbers():
    assert samples_of(np.zeros((2, 3, 4, 4), dtype=np.uint8)).shape == (2, 3, 4, 4)
    assert samples_of([[True, False]]).tolist() == [[1.0, 0.0]]


def test_texts_and_other_labels_are_left_as_they_are():
    for labels in (["b", "a", "c"], [("x", 1), ("x", 2), ("y", 1)], [True, False, True]):
        assert samples_and_labels(X, labels)[1] == labels
    column = pandas.Series(["b", "a", "b"], dtype="category")
    assert samples_and_labels(X, column)[1] == ["b", "a", "b"]
    assert samples_and_labels(X, np.array(["b", "a", "b"]))[1] == ["b", "a", "b"]
