"""Saving a federation, and taking it up again: in a new process, with the same data only."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small
import torch

from pdlrecover import Federation, load_model
from pdlrecover.adversary import Backdoor
from pdlrecover.engines.simulated_peers import _local_of_earlier
from pdlrecover.errors import DataError, HistoryError, ModelError, PlanError
from pdlrecover.learning import LocalTraining

OLD = Path(__file__).parent / "saved-in-format-1"
"""What version 0.1 saved of `small.trained(rounds=4, clear=True)`."""


def datasets():
    return [small.points(seed=peer, count=20 + peer) for peer in range(small.PEERS)]


@pytest.fixture(scope="module")
def trained():
    return small.trained(rounds=12)


@pytest.fixture
def saved(tmp_path, trained):
    trained.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_freshly_built_module_is_enough_to_recover_the_same(saved, trained):
    again = Federation.load(saved, small.module(seed=1), datasets())
    np.testing.assert_array_equal(
        again.recover([0, 1], "historical").weights, trained.recover([0, 1], "historical").weights
    )


def test_the_users_own_module_is_left_as_it_was(saved):
    module = small.module(seed=1)
    Federation.load(saved, module, datasets())
    for before, after in zip(small.module(seed=1).parameters(), module.parameters(), strict=True):
        assert torch.equal(before, after)


def test_federation_and_model_load_in_another_process(saved):
    code = f"""
import small
from pdlrecover import Federation
datasets = [small.points(seed=peer, count=20 + peer) for peer in range(small.PEERS)]
federation = Federation.load({str(saved)!r}, small.module(seed=7), datasets)
recovered = federation.recover([0, 1], rounds=2)
print(recovered)
recovered.save({str(saved / "model.safetensors")!r})
"""
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tests)
    assert done.returncode == 0, done.stderr
    assert "2, where the training had 12" in done.stdout
    x, y = small.points(seed=99)
    here = Federation.load(saved, small.module(seed=1), datasets()).recover([0, 1], rounds=2)
    loaded = load_model(saved / "model.safetensors", small.module(seed=1))
    assert loaded.accuracy(x, y) == here.accuracy(x, y)


def test_other_data_of_the_same_sizes_are_refused_by_name(saved):
    reversed_ = datasets()
    reversed_[5] = (reversed_[5][0][::-1], reversed_[5][1])
    with pytest.raises(DataError, match="the data of peer 5 are not those that this federation"):
        Federation.load(saved, small.module(), reversed_)
    relabelled = datasets()
    relabelled[2] = (relabelled[2][0], 2 - relabelled[2][1])
    with pytest.raises(DataError, match="the data of peer 2 are not those that this federation"):
        Federation.load(saved, small.module(), relabelled)
    with pytest.raises(DataError, match="was trained by 8 peers, and the data of 7 were given"):
        Federation.load(saved, small.module(), datasets()[:7])


def test_a_module_that_computes_something_else_is_refused(saved):
    with pytest.raises(ModelError, match=r"is another one than that in .*first\.safetensors"):
        Federation.load(saved, small.module(hidden=6), datasets())
    module = small.module()
    module[1] = torch.nn.ReLU()
    with pytest.raises(ModelError, match="computes something else with the same weights"):
        Federation.load(saved, module, datasets())
    module = torch.nn.Sequential(torch.nn.Linear(3, 3))
    with pytest.raises(ModelError, match="it does not have; build it as for the training"):
        Federation.load(saved, module, datasets())


def test_what_is_frozen_in_a_module_is_saved_with_it(tmp_path):
    def frozen(seed):
        made = small.module(seed)
        made[0].requires_grad_(False)
        return made

    made = Federation.simulate(frozen(3), datasets(), small.TOLERANCE, batch_size=8)
    made.train(4, 0.3)
    made.save(tmp_path)
    again = Federation.load(tmp_path, frozen(4), datasets())
    assert torch.equal(again.recover([0, 1], rounds=1).model[0].weight, frozen(3)[0].weight)


def test_names_and_labels_are_saved_and_the_order_of_a_mapping_does_not_matter(tmp_path):
    labels = np.array(["cat", "dog", "eel"])
    named = {f"site-{i}": (x, labels[y]) for i, (x, y) in enumerate(datasets())}
    made = Federation.simulate(small.module(), named, small.TOLERANCE, batch_size=8)
    made.train(4, 0.3)
    made.save(tmp_path)
    shuffled = dict(sorted(named.items(), reverse=True))
    again = Federation.load(tmp_path, small.module(seed=1), shuffled)
    assert again.peers == tuple(named)
    assert again.classes == ("cat", "dog", "eel")
    first, second = (each.recover(["site-3", "site-4"], rounds=2) for each in (made, again))
    np.testing.assert_array_equal(first.weights, second.weights)
    del shuffled["site-2"]
    with pytest.raises(DataError, match="the data of 7 were given"):
        Federation.load(tmp_path, small.module(), shuffled)


def test_the_attack_must_be_given_again(tmp_path):
    attack = Backdoor(trigger=abs, target=1)
    made = small.federation(malicious=[0, 1], attack=attack)
    made.train(4, 0.3)
    made.save(tmp_path)
    with pytest.raises(HistoryError, match=r"with the attack Backdoor\(.*got NoAttack\(\); load"):
        Federation.load(tmp_path, small.module(), datasets())
    other = Backdoor(trigger=abs, target=2)
    with pytest.raises(
        HistoryError, match=r"trained with the attack Backdoor\(.*target=1.*load it"
    ):
        Federation.load(tmp_path, small.module(), datasets(), attack=other)
    Federation.load(tmp_path, small.module(), datasets(), attack=attack)


def test_an_interrupted_training_goes_on_with_the_same_data_only(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(step):
        if step.round == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        small.federation(folder=tmp_path).train(8, 0.3, observer=stop)
    other = datasets()
    other[0] = (other[0][0] + 1, other[0][1])
    with pytest.raises(HistoryError, match="is another run's: its run differs; give another"):
        Federation.simulate(
            small.module(), other, small.TOLERANCE, batch_size=8, seed=3, folder=tmp_path
        )
    small.federation(folder=tmp_path, resume=True).train(8, 0.3)


def test_a_folder_with_another_federation_is_not_written_over(saved, trained):
    other = small.trained(rounds=3)
    before = (saved / "sums.bin").read_bytes()
    with pytest.raises(HistoryError, match="holds another federation; choose another folder"):
        other.save(saved)
    assert (saved / "sums.bin").read_bytes() == before
    trained.save(saved)


def test_what_format_1_saved_loads_with_a_warning(tmp_path):
    """Its first weights are in its history."""
    shutil.copytree(OLD, tmp_path / "saved")
    with pytest.warns(UserWarning, match="saved by an earlier version, which kept no digests"):
        loaded = Federation.load(tmp_path / "saved", small.module(seed=1), datasets())
    again = small.trained(rounds=4, clear=True)
    np.testing.assert_array_equal(
        loaded.recover([0, 1], "historical").weights, again.recover([0, 1], "historical").weights
    )


def test_numbers_of_numpy_are_taken_and_saved(tmp_path):
    made = small.federation(
        batch_size=np.int64(8), seed=np.int64(3), held_out=np.float64(0.1), bound=np.float64(5)
    )
    made.train(np.int64(4), np.float64(0.3))
    made.save(tmp_path)
    again = Federation.load(tmp_path, small.module(seed=1), datasets())
    np.testing.assert_array_equal(
        made.recover([0, 1], rounds=np.int64(2)).weights, again.recover([0, 1], rounds=2).weights
    )


def test_another_format_is_refused(saved):
    values = json.loads((saved / "federation.json").read_text())
    (saved / "federation.json").write_text(json.dumps({**values, "format": 9}))
    with pytest.raises(HistoryError, match="has format 9, and this version reads 1 and 2"):
        Federation.load(saved, small.module(), datasets())


def test_loading_what_is_not_there_or_broken_says_so(tmp_path, trained):
    with pytest.raises(HistoryError, match="does not exist; name the folder of a saved federation"):
        Federation.load(tmp_path, small.module(), datasets())
    trained.save(tmp_path)
    models = tmp_path / "models.bin"
    whole = models.read_bytes()
    models.write_bytes(whole[: -38 * 8])
    with pytest.raises(HistoryError, match="half-written: 12 rounds and 12 models"):
        Federation.load(tmp_path, small.module(), datasets())
    models.write_bytes(whole[:-3])
    with pytest.raises(HistoryError, match="ends in the middle of record 12"):
        Federation.load(tmp_path, small.module(), datasets())
    (tmp_path / "federation.json").write_text("{")
    with pytest.raises(HistoryError, match=r"federation.json is damaged"):
        Federation.load(tmp_path, small.module(), datasets())


def test_saved_federations_remember_their_recoveries(tmp_path):
    federation = small.trained(rounds=12)
    federation.recover([3, 7], "historical")
    federation.save(tmp_path)
    loaded = Federation.load(tmp_path, small.module(), datasets())
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        loaded.recover([3, 5, 7], "historical")


def test_what_earlier_versions_saved_has_the_same_digest():
    local = LocalTraining(l2=0.1, steps=1, rate=0.1)
    assert _local_of_earlier(local) == "LocalTraining(l2=0.1, steps=1, rate=0.01)"
    assert _local_of_earlier(LocalTraining(steps=2, rate=0.1)).endswith("steps=2, rate=0.1)")


def test_classes_that_a_file_cannot_have_are_given_again(tmp_path):
    names = [("high", 2), ("low", 0), ("middle", 1)]
    data = [(x, [names[label] for label in y]) for x, y in datasets()]
    made = Federation.simulate(
        small.module(), data, small.TOLERANCE, batch_size=8, classes=(order := names[::-1])
    )
    made.train(4, 0.3)
    made.save(tmp_path)
    again = Federation.load(tmp_path, small.module(), data, classes=order)
    assert again.classes == tuple(order)
