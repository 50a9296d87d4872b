"""Mistakes that used to go through without a word, and gave wrong models or predictions."""

import numpy as np
import pandas
import pytest
import small
import torch

from pdlrecover import Federation, PDLRecoverError, load_model
from pdlrecover.errors import DataError, ModelError

COLUMNS = ["a", "b", "c"]
NAMES = [f"site-{place}" for place in range(small.PEERS)]


def table(peer, columns=COLUMNS):
    samples, labels = small.points(seed=peer)
    frame = pandas.DataFrame(np.asarray(samples), columns=COLUMNS)
    return frame[list(columns)], pandas.Series(np.asarray(labels))


def simulate(last=None, **arguments):
    datasets = {name: table(place) for place, name in enumerate(NAMES)}
    if last is not None:
        datasets[NAMES[-1]] = last
    options = {"batch_size": 8, **arguments}
    return Federation.simulate(small.module(), datasets, small.TOLERANCE, **options)


def trained():
    federation = simulate()
    federation.train(6, 0.3)
    return federation


def test_columns_of_one_peer_in_another_order_are_refused():
    with pytest.raises(DataError, match=r"site-7.*in another order"):
        simulate(table(7, columns=["c", "b", "a"]))


def test_columns_of_other_names_are_refused():
    samples, labels = table(7)
    with pytest.raises(DataError, match="with no 'b' at its place"):
        simulate((samples.rename(columns={"b": "z"}), labels))


def test_samples_and_labels_of_different_indices_are_refused():
    samples, labels = table(7)
    with pytest.raises(DataError, match="different indices"):
        simulate((samples, labels.sample(frac=1, random_state=0)))
    simulate((samples, labels.to_numpy()))


def test_a_model_of_tables_knows_their_columns_also_when_it_is_loaded(tmp_path):
    model = trained().recover([NAMES[0], NAMES[1]], rounds=2)
    samples, labels = table(3)
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", small.module())
    for each in (model, again):
        np.testing.assert_array_equal(each.predict(samples), each.predict(samples.to_numpy()))
        with pytest.raises(DataError, match="in another order"):
            each.predict(samples[["c", "a", "b"]])
        with pytest.raises(DataError, match="in another order"):
            each.accuracy(samples[["c", "a", "b"]], labels)


def test_a_mask_that_is_indexed_by_peers_is_taken_by_its_index():
    mask = pandas.Series([False] * 6 + [True] * 2, index=NAMES[::-1])
    assert trained().recover(mask, rounds=2).origin.removed == (NAMES[0], NAMES[1])


def test_classes_that_a_file_has_are_not_replaced(tmp_path):
    trained().recover([NAMES[0], NAMES[1]], rounds=2).save(tmp_path / "model.safetensors")
    for classes in (["x", "y"], [0]):
        with pytest.raises(ModelError, match="says that its classes are"):
            load_model(tmp_path / "model.safetensors", small.module(), classes=classes)


def test_a_model_that_has_diverged_says_so():
    assert "diverged" not in str(trained().recover([NAMES[0], NAMES[1]], rounds=2))
    federation = simulate()
    assert "diverged      weights reach" in str(federation.train(6, 1e9))


def test_samples_out_of_scale_are_warned_of():
    samples, labels = table(7)
    with pytest.warns(UserWarning, match="site-7.*reach 1e[+]06.*common scale"):
        simulate((samples * 0 + 1e6, labels))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles
@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: torch.nn.Sequential(small.module(), torch.nn.Softmax(dim=1)), "probabilities"),
        (lambda: torch.compile(small.module()), "compiled or scripted"),
    ],
)
def test_models_that_would_learn_otherwise_than_they_seem_to_are_refused(model, why):
    datasets = [table(peer) for peer in range(small.PEERS)]
    with pytest.raises(ModelError, match=why):
        Federation.simulate(model(), datasets, small.TOLERANCE)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"folder": ""}, "folder is empty"),
        ({"resume": True}, "give the folder of the interrupted training"),
        ({"bound": 1e-300}, "bound must be at least"),
        ({"batch_size": 10**9}, "batch_size must be at most 1,048,576"),
        ({"new_model": small.module()}, "new_model must be a function"),
    ],
)
def test_settings_that_do_nothing_or_too_much_are_refused(arguments, why):
    with pytest.raises(PDLRecoverError, match=why):
        simulate(**arguments)


def test_names_that_would_break_lines_are_refused():
    datasets = {f"site\n{peer}": table(peer) for peer in range(small.PEERS)}
    with pytest.raises(DataError, match="must be printable"):
        Federation.simulate(small.module(), datasets, small.TOLERANCE)
