"""What users get wrong, and what they are told: one sentence, and never a raw traceback."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest
import small
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pdlrecover import Federation, PDLRecoverError, Schedule, Tolerance, load_model
from pdlrecover.adversary import Backdoor
from pdlrecover.engines.sum_store import Faults
from pdlrecover.recovery.methods import Settings
from pdlrecover.tracking import TensorBoard

NAMES = [f"hospital-{letter}" for letter in "abcdefgh"]


@cache
def trained():
    return small.trained(rounds=8)


@cache
def recovered():
    return trained().recover([0, 1], rounds=2)


@cache
def by_name():
    datasets = {name: small.points(seed=i) for i, name in enumerate(NAMES)}
    made = Federation.simulate(small.module(), datasets, small.TOLERANCE, batch_size=8)
    made.train(4, 0.3)
    return made


def simulate(seventh=None, *, peers=None, model=None, tolerance=small.TOLERANCE, **arguments):
    """Set up eight peers, of which the last may have data of its own."""
    good = [small.points(seed=peer) for peer in range(7)]
    last = small.points(seed=7) if seventh is None else seventh
    datasets = [*good, last] if peers is None else peers
    return Federation.simulate(model or small.module(), datasets, tolerance, **arguments)


def x(*shape):
    return np.zeros(shape or (4, 3), dtype=np.float32)


def with_nan():
    found = x()
    found[2, 0] = np.nan
    return found


class NoLength(Dataset):
    def __getitem__(self, place):
        return x(3), 0


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


class Dicts(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        return {"x": x(3), "y": 0}


class Images(Dicts):
    def __getitem__(self, place):
        return "cat.png", 0


class Ragged(Dicts):
    def __getitem__(self, place):
        return x(3 + place), 0


class OneLogit(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(3, 1))


class Raises(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 3)

    def forward(self, x):
        raise IndexError


SIMULATE = {
    "no-peers": (lambda: simulate(peers=[]), "at least one peer's dataset, got none"),
    "datasets-is-a-pair": (
        lambda: simulate(peers=(x(), [0, 1, 2, 0])),
        "peer 0's data must be a pair (samples, labels) or a torch Dataset of such pairs, "
        "got one ndarray of shape (4, 3)",
    ),
    "datasets-is-an-array": (
        lambda: simulate(peers=x(8, 4, 3)),
        "datasets must be a list with the data of one peer after the other, or a mapping from "
        "peers' names to their data, got a ndarray of shape (8, 4, 3)",
    ),
    "datasets-is-one-dataset": (
        lambda: simulate(peers=TensorDataset(torch.zeros(4, 3), torch.zeros(4))),
        "got one TensorDataset; give one for each peer",
    ),
    "datasets-is-a-frame": (
        lambda: simulate(peers=pandas.DataFrame({"a": [1.0], "y": [0]})),
        "datasets must be a list",
    ),
    "names-are-numbers": (
        lambda: simulate(peers={1: small.points()}),
        "the peers have names, texts, got 1; give a list for peers by number",
    ),
    "peer-gave-a-frame-alone": (
        lambda: simulate(pandas.DataFrame({"a": [1.0], "y": [0]})),
        "peer 7's data must be a pair (samples, labels) or a torch Dataset of such pairs, "
        "got a DataFrame",
    ),
    "peer-gave-a-path": (lambda: simulate("data.csv"), "peer 7's data must be a pair"),
    "peer-gave-nothing": (lambda: simulate(peers=[None]), "of such pairs, got None"),
    "peer-gave-a-loader": (
        lambda: simulate(DataLoader(TensorDataset(torch.zeros(4, 3), torch.zeros(4)))),
        "peer 7 gave a DataLoader; give the dataset in it (loader.dataset)",
    ),
    "dataset-without-length": (lambda: simulate(NoLength()), "peer 7's NoLength has no length"),
    "dataset-without-end": (lambda: simulate(Endless()), "peer 7 gave an IterableDataset"),
    "dataset-of-dicts": (
        lambda: simulate(Dicts()),
        "item 0 of peer 7's Dicts must be a pair (sample, label), got a dict",
    ),
    "dataset-of-images": (
        lambda: simulate(Images()),
        "sample 0 of peer 7's Images must be a tensor or an array, got 'cat.png'; images need",
    ),
    "dataset-of-ragged-samples": (
        lambda: simulate(Ragged()),
        "peer 7's samples must all have the same shape, and differ",
    ),
    "tensor-dataset-of-three": (
        lambda: simulate(TensorDataset(torch.zeros(4, 3), torch.zeros(4), torch.zeros(4))),
        "item 0 of peer 7's TensorDataset must be a pair (sample, label), got a tuple of 3",
    ),
    "samples-of-text": (
        lambda: simulate((np.array([["a", "b", "c"]]), [0])),
        "peer 7's samples must be numbers, got an array of <U1",
    ),
    "samples-of-text-columns": (
        lambda: simulate((pandas.DataFrame({"age": [1.0], "sex": ["f"], "z": [1]}), [0])),
        "peer 7's samples must be numbers, and these columns are not: 'sex'; encode them",
    ),
    "samples-ragged": (
        lambda: simulate(([[1.0, 2.0, 3.0], [1.0]], [0, 1])),
        "peer 7's samples must all have the same shape, and differ",
    ),
    "samples-in-one-row": (
        lambda: simulate((x(4), [0, 1, 2, 0])),
        "peer 7's samples have the shape (4,), and must have one row for each sample",
    ),
    "samples-with-nan": (
        lambda: simulate((with_nan(), [0, 1, 2, 0])),
        "peer 7's samples must be finite numbers; sample 2 has NaN or infinite ones",
    ),
    "samples-missing-in-a-frame": (
        lambda: simulate((pandas.DataFrame({"a": [1, None], "b": [1, 2], "c": [1, 2]}), [0, 1])),
        "peer 7's samples must be finite numbers; sample 1 has NaN",
    ),
    "samples-too-large-for-float32": (
        lambda: simulate((np.full((1, 3), 1e300), [0])),
        "peer 7's samples must be finite numbers; sample 0 has NaN or infinite ones (in float32)",
    ),
    "samples-complex": (
        lambda: simulate((torch.zeros(2, 3, dtype=torch.complex64), [0, 1])),
        "peer 7's samples must be real numbers, got torch.complex64",
    ),
    "samples-of-other-shape": (
        lambda: simulate((x(4, 5), [0, 1, 2, 0])),
        "one shape; peer 0 has (3,) and peer 7 (5,)",
    ),
    "samples-none": (
        lambda: simulate(peers=[(x(0, 3), [])]),
        "peer 0 has 0 samples and 0 labels; give at least one",
    ),
    "labels-too-few": (
        lambda: simulate((x(), [0, 1])),
        "peer 7 has 4 samples and 2 labels; give at least one, and as many of each",
    ),
    "labels-one-hot": (
        lambda: simulate((x(), np.eye(4, 3))),
        "peer 7's labels have the shape (4, 3), and must be one label for each sample; "
        "of one-hot labels give y.argmax(axis=1)",
    ),
    "labels-one-hot-list": (
        lambda: simulate((x(2, 3), [[0, 1, 0], [1, 0, 0]])),
        "peer 7's labels must be one label for each sample, and sample 0 has [0, 1, 0]",
    ),
    "labels-not-whole": (
        lambda: simulate((x(1, 3), [0.5])),
        "or names of classes; peer 7's labels have 0.5",
    ),
    "labels-nan": (
        lambda: simulate((x(2, 3), [0.0, float("nan")])),
        "peer 7's labels lack the one of sample 1 (nan)",
    ),
    "labels-none": (
        lambda: simulate((x(2, 3), ["a", None])),
        "peer 7's labels lack the one of sample 1 (None)",
    ),
    "labels-beyond-the-model": (
        lambda: simulate((x(2, 3), [0, 9])),
        "labels must be whole numbers from 0 to 2, which is what the model tells apart, or 3 "
        "different ones of any kind; got 4 different ones, and 9 among peer 7's labels",
    ),
    "labels-beyond-64-bits": (
        lambda: simulate((x(1, 3), [10**30])),
        "peer 7's labels are of other kinds, and peer 0's labels are whole numbers",
    ),
    "labels-are-a-text": (
        lambda: simulate((x(3, 3), "abc")),
        "peer 7's labels must be one label for each sample, in a list",
    ),
    "labels-of-two-kinds": (
        lambda: simulate((x(3, 3), ["a", "b", "c"])),
        "peer 7's labels are texts, and peer 0's labels are whole numbers",
    ),
    "labels-too-many-texts": (
        lambda: simulate(peers=[(x(), list("abcd"))] * 8),
        "the labels have 4 classes ('a', 'b', 'c', 'd') and the model has 3 outputs",
    ),
    "classes-too-few": (
        lambda: simulate(classes=["a", "b"]),
        "classes must name the model's 3 outputs, each once, got 'a', 'b'",
    ),
    "classes-without-a-label": (
        lambda: simulate((x(1, 3), ["d"]), classes=["a", "b", "c"]),
        "peer 0's labels have 2, and the model's classes are 'a', 'b', 'c'",
    ),
    "classes-is-a-text": (lambda: simulate(classes="abc"), "classes must be a list, one for each"),
    "model-is-a-class": (
        lambda: simulate(model=OneLogit),
        "the model must be a torch module, got the class OneLogit; make one of it: OneLogit(…)",
    ),
    "model-is-a-dict": (
        lambda: simulate(model=small.module().state_dict()),
        "the model must be a torch module, got a OrderedDict",
    ),
    "model-with-one-output": (
        lambda: simulate(model=OneLogit()),
        "the model has 1 output for each sample, and needs one for each class; for two classes "
        "give it two outputs",
    ),
    "model-with-lazy-layers": (
        lambda: simulate(model=torch.nn.Sequential(torch.nn.LazyLinear(3))),
        "Sequential has lazy layers without weights; call it once on a sample",
    ),
    "model-that-raises": (
        lambda: simulate(model=Raises()),
        "Raises does not take samples of shape (3,): IndexError",
    ),
    "model-of-another-width": (
        lambda: simulate(model=torch.nn.Linear(5, 3)),
        "Linear does not take samples of shape (3,)",
    ),
    "tolerance-is-a-number": (
        lambda: simulate(tolerance=3),
        "tolerance must be Tolerance(colluders=…, dropouts=…), got 3",
    ),
    "tolerance-beyond-the-peers": (
        lambda: simulate(tolerance=Tolerance(colluders=6, dropouts=6)),
        "8 peers cannot survive 6 colluders, 6 dropouts and 0 liars",
    ),
    "malicious-without-attack": (
        lambda: simulate(malicious=[3]),
        "malicious names 1 peer, and there is no attack for them; give one",
    ),
    "attack-by-nobody": (
        lambda: simulate(attack=Backdoor(trigger=lambda x: x)),
        "there is an attack (Backdoor) and nobody to play it; name the peers",
    ),
    "attack-by-name": (
        lambda: simulate(malicious=[3], attack="backdoor"),
        "attack must be an attack of pdlrecover.adversary, such as Backdoor(…), got 'backdoor'",
    ),
    "malicious-is-a-number": (
        lambda: simulate(malicious=3, attack=Backdoor(trigger=lambda x: x)),
        "malicious must be a list of peers, such as [3, 7], one truth value for each peer, or "
        '"@suspects.json", got 3; write malicious=[3]',
    ),
    "batch-size-zero": (
        lambda: simulate(batch_size=0),
        "batch_size must be a whole number of at least 1, got 0",
    ),
    "batch-size-of-text": (lambda: simulate(batch_size="32"), "batch_size must be a whole number"),
    "seed-of-text": (lambda: simulate(seed="one"), "seed must be a whole number"),
    "bound-of-nothing": (lambda: simulate(bound=0), "bound must be a finite number above 0, got 0"),
    "held-out-too-much": (lambda: simulate(held_out=0.9), "a share from 0 to 0.5, got 0.9"),
    "cohorts-of-a-number": (lambda: simulate(cohorts=3), "cohorts must be a list of groups, got 3"),
    "cohorts-unknown": (lambda: simulate(cohorts=[[0, 9]]), "there is no peer 9 (cohorts)"),
    "folder-is-a-file": (lambda: simulate(folder=__file__), "cannot be written"),
    "folder-is-a-number": (lambda: simulate(folder=3), "folder must be the path of a folder"),
    "new-model-is-a-module": (
        lambda: simulate(new_model=3),
        "new_model must be a function that returns the module for a seed, got 3",
    ),
}

TRAIN = {
    "no-rounds": (lambda: simulate().train(0), "must be a whole number of at least 1, got 0"),
    "half-rounds": (lambda: simulate().train(2.5), "must be a whole number of at least 1, got 2.5"),
    "rounds-of-text": (lambda: simulate().train("many"), "at least 1, got 'many'"),
    "negative-rate": (
        lambda: simulate().train(2, -0.1),
        "learning_rate must be a finite number above 0, got -0.1",
    ),
    "rate-of-text": (lambda: simulate().train(2, "fast"), "learning_rate must be a finite number"),
    "torch-optimizer": (
        lambda: simulate().train(2, optimizer=torch.optim.SGD(small.module().parameters(), lr=0.1)),
        "got torch's SGD, which steps by gradients of its own and not by opened sums; "
        "give a name and a learning_rate",
    ),
    "torch-optimizer-class": (
        lambda: simulate().train(2, optimizer=torch.optim.Adam),
        "optimizer must be sgd, momentum, adam or muon",
    ),
    "unknown-optimizer": (
        lambda: simulate().train(2, optimizer="adamw"),
        "no optimizer is called 'adamw'; there are sgd, momentum, adam, muon",
    ),
    "twice": (lambda: trained().train(8, 0.3), "has 8 rounds of training in its history"),
    "observer-of-text": (
        lambda: simulate().train(2, observer="yes"),
        'observer must be a function that takes a Stepped, an observer such as TensorBoard("runs"),'
        " or a list of these, got 'yes'",
    ),
    "observer-of-a-list-with-text": (
        lambda: simulate().train(2, observer=[print, "yes"]),
        "or a list of these, got 'yes'",
    ),
    "observer-that-is-a-class": (
        lambda: simulate().train(2, observer=TensorBoard),
        "or a list of these, got the class TensorBoard",
    ),
}

RECOVER = {
    "before-training": (lambda: simulate().recover([0, 1]), "train the federation first"),
    "nobody": (
        lambda: trained().recover([]),
        "remove names no peer, so nobody is removed and there is nothing to recover from; name at "
        "least one of 0 to 7",
    ),
    "nobody-by-mask": (lambda: trained().recover([False] * 8), "remove names no peer"),
    "mask-too-short": (
        lambda: trained().recover(np.array([True, True, False])),
        "remove has 3 truth values and there are 8 peers; give one for each peer",
    ),
    "mask-mixed-with-numbers": (
        lambda: trained().recover([True, 3]),
        "remove mixes truth values with peers; give either of them",
    ),
    "number": (lambda: trained().recover(3), "got 3; write remove=[3]"),
    "name-alone": (
        lambda: by_name().recover("hospital-a"),
        "got 'hospital-a'; write remove=['hospital-a']",
    ),
    "none": (lambda: trained().recover(None), "remove must be a list of peers, such as [3, 7]"),
    "name-without-names": (
        lambda: trained().recover(["a"]),
        "there is no peer 'a': these peers have numbers, 0 to 7",
    ),
    "name-misspelt": (
        lambda: by_name().recover(["hospitel-a", "hospital-b"]),
        "there is no peer 'hospitel-a'; did you mean 'hospital-a'?",
    ),
    "floats": (
        lambda: trained().recover([0.0, 1.0]),
        "remove must name peers by number or name, and has 0.0",
    ),
    "negative": (lambda: trained().recover([-1, 2]), "there is no peer -1"),
    "unknown": (lambda: trained().recover([2, 9]), "numbered 0 to 7; there is no peer 9 (remove)"),
    "matrix": (lambda: trained().recover(x(2, 2)), "got an array of shape (2, 2)"),
    "too-many": (lambda: trained().recover([0, 1, 2, 3]), "survive 3 dropouts; remove fewer"),
    "everybody": (lambda: trained().recover(range(8)), "nobody is left to recover"),
    "suspects-missing": (
        lambda: trained().recover("@nowhere.json"),
        "nowhere.json does not exist; name a file of suspects",
    ),
    "unknown-reason": (
        lambda: trained().recover([0, 1], reason="bad"),
        "the reason is one of left, malicious, got 'bad'",
    ),
    "unknown-method": (
        lambda: trained().recover([0, 1], "magic"),
        "no method is called 'magic'; there are retrain,",
    ),
    "method-of-a-number": (lambda: trained().recover([0, 1], 3), "must be the name of a method"),
    "unknown-variant": (lambda: trained().recover([0, 1], "auto:speed=9"), "is no variant of auto"),
    "method-that-needs-single-updates": (
        lambda: trained().recover([0, 1], "fedrecover"),
        "fedrecover needs single peers' updates, which are never opened on shares",
    ),
    "no-rounds": (
        lambda: trained().recover([0, 1], rounds=0),
        "rounds must be a whole number of at least 1, got 0",
    ),
    "rounds-of-retraining": (
        lambda: trained().recover([0, 1], "retrain", rounds=4),
        "retrain sets its own number of rounds, so rounds=4 has no place",
    ),
    "schedule-of-auto": (
        lambda: trained().recover([0, 1], schedule=Schedule(preparation=2, final=2)),
        "auto follows no schedule",
    ),
    "schedule-of-numbers": (
        lambda: trained().recover([0, 1], "pdlrecover", schedule=(2, 2)),
        "schedule must be a Schedule(preparation=…, final=…), got (2, 2)",
    ),
    "mask-with-another-index": (
        lambda: trained().recover(pandas.Series([True] * 2 + [False] * 6, index=list("abcdefgh"))),
        "remove is a mask whose index is not that of the peers (0 to 7); index it by them",
    ),
    "mask-of-numbers": (
        lambda: trained().recover([0, 1, 0, 1, 0, 0, 0, 0]),
        "remove names peer 0 more than once; name each peer once, or give truth values",
    ),
    "schedule-that-does-not-fit": (
        lambda: trained().recover([0, 1], "pdlrecover", schedule=Schedule()),
        "do not fit a run of 8; lower preparation and final to 2 each",
    ),
    "optimizer-of-auto": (
        lambda: trained().recover([0, 1], optimizer="adam"),
        "auto takes no optimizer, got 'adam'; leave it out, or choose accelerated-retrain",
    ),
    "torch-optimizer": (
        lambda: trained().recover([0, 1], "accelerated-retrain", optimizer=torch.optim.SGD),
        "accelerated-retrain takes no optimizer, got",
    ),
    "fresh-start-of-retraining": (
        lambda: trained().recover([0, 1], "retrain", fresh_start=True),
        "retrain cannot start afresh; leave fresh_start out, or choose one of auto,",
    ),
    "settings-and-rounds": (
        lambda: trained().recover([0, 1], rounds=3, settings=Settings()),
        "give rounds, or settings, which have all options of a recovery; not both",
    ),
    "settings-of-a-dict": (
        lambda: trained().recover([0, 1], settings={"rounds": 3}),
        "settings must be Settings(…), got {'rounds': 3}",
    ),
    "faults-of-a-list": (
        lambda: trained().recover([0, 1], faults=[3]),
        "faults must be Faults(absent=(…), liars=(…)), got [3]",
    ),
    "faults-of-unknown-peers": (
        lambda: trained().recover([0, 1], faults=Faults(absent=(9,))),
        "there is no peer 9 (faults.absent)",
    ),
    "faults-in-the-clear": (
        lambda: small.trained(rounds=2, clear=True).recover([0, 1], faults=Faults(liars=(2,))),
        "none can be absent or lie; leave the faults out",
    ),
    "single-leaver-by-name": (
        lambda: by_name().recover(["hospital-d"]),
        "this would reveal the updates of peer 'hospital-d'",
    ),
    "single-leaver": (
        lambda: trained().recover([3]),
        "this would reveal the updates of peer 3",
    ),
}

MODELS = {
    "accuracy-of-other-shape": (
        lambda: recovered().accuracy(x(4, 5), [0, 1, 2, 0]),
        "the model takes samples of shape (3,), got (5,); prepare them as in the training",
    ),
    "accuracy-of-one-sample": (
        lambda: recovered().accuracy(x(3), [0]),
        "the samples have the shape (3,), and must have one row for each sample",
    ),
    "accuracy-of-too-few-labels": (
        lambda: recovered().accuracy(x(), [0]),
        "there are 4 samples and 1 labels; give at least one, and as many of each",
    ),
    "accuracy-of-nothing": (
        lambda: recovered().accuracy(x(0, 3), []),
        "there are 0 samples and 0 labels; give at least one",
    ),
    "accuracy-of-one-hot-labels": (
        lambda: recovered().accuracy(x(), np.eye(4, 3)),
        "the labels have the shape (4, 3)",
    ),
    "accuracy-of-unknown-labels": (
        lambda: recovered().accuracy(x(1, 3), ["cat"]),
        "the labels have 'cat', and the model's classes are 0, 1, 2; write labels as in the "
        "training",
    ),
    "predict-of-text": (
        lambda: recovered().predict("cat.png"),
        "the samples must be a tensor, an array, a list or a table of numbers, got 'cat.png'",
    ),
    "predict-nothing": (lambda: recovered().predict(x(0, 3)), "there are no samples to classify"),
    "attack-success-by-name": (
        lambda: recovered().attack_success(x(), [0, 1, 2, 0], "backdoor"),
        "attack_success needs the attack, such as Backdoor(…), got str",
    ),
    "save-as-pt": (
        lambda: recovered().save("model.pt"),
        "models are saved as .safetensors files, got 'model.pt'; name it so",
    ),
    "save-without-a-path": (lambda: recovered().save(None), "given by its path, got None"),
    "load-without-a-path": (lambda: load_model(3, small.module()), "by its path, got 3"),
    "save-nowhere": (
        lambda: recovered().save("nowhere/model.safetensors"),
        "nowhere/model.safetensors cannot be written: No such file or directory",
    ),
    "load-nothing": (
        lambda: load_model("nowhere.safetensors", small.module()),
        "nowhere.safetensors does not exist; name a .safetensors file",
    ),
    "load-something-else": (
        lambda: load_model(__file__, small.module()),
        "is no safetensors file, or it is damaged",
    ),
    "load-without-a-module": (
        lambda: load_model("nowhere.safetensors", small.module),
        "load_model needs a torch module to put the weights in, got function",
    ),
}

FOLDERS = {
    "save-untrained": (lambda: simulate().save("saved"), "there is nothing to save yet"),
    "save-in-a-file": (lambda: trained().save(__file__), "cannot be written"),
    "save-in-a-number": (lambda: trained().save(3), "folder must be the path of a folder, got 3"),
    "load-nowhere": (
        lambda: Federation.load("nowhere", small.module(), [small.points()] * 8),
        "does not exist; name the folder of a saved federation",
    ),
    "load-a-number": (
        lambda: Federation.load(3, small.module(), [small.points()] * 8),
        "folder must be the path of a folder, got 3",
    ),
}

TABLE = {
    f"{part}-{name}": case
    for part, cases in {
        "simulate": SIMULATE,
        "train": TRAIN,
        "recover": RECOVER,
        "model": MODELS,
        "folder": FOLDERS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", TABLE)
def test_misuse_is_answered_in_a_sentence(name):
    call, fragment = TABLE[name]
    with pytest.raises(PDLRecoverError, match=re.escape(fragment)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("[3]", 'must be a JSON object with a list "suspects"'),
        ('{"format": 1, "suspects": {}}', 'must be a JSON object with a list "suspects"'),
        ('{"suspects": [{"peer": 3}]}', 'must say "format": 1, got None'),
        ('{"format": 1, "suspects": []}', "names no suspect, so there is nobody to remove"),
        ('{"format": 1, "suspects": [3]}', 'suspect 0 in .* must be {"peer": name or number}'),
        ('{"format": 1, "suspects": [{"peer": true}]}', "suspect 0 in"),
        ('{"format": 1, "suspects": [{"peer": 12}]}', "there is no peer 12"),
        ("{", "is no JSON file: .*; name a file of suspects"),
    ],
)
def test_a_file_of_suspects_that_is_not_right_is_refused(tmp_path, content, fragment):
    path = Path(tmp_path / "suspects.json")
    path.write_text(content)
    with pytest.raises(PDLRecoverError, match=fragment):
        trained().recover(path)


def test_nothing_is_changed_by_a_refused_recovery():
    """What was refused is in no list of recoveries, and no later one is refused for it."""
    federation = small.trained(rounds=4)
    for call in ([], 3, [True, 3], ["a"]):
        with pytest.raises(PDLRecoverError):
            federation.recover(call)
    assert json.dumps(repr(federation)) == '"<Federation: 8 peers, trained for 4 rounds>"'
    federation.recover([0, 1], rounds=2)
