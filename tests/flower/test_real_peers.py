"""Real peers whose updates a Flower app computes."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from loopback import until
from typer.testing import CliRunner

from pdlrecover import Federation, PDLRecoverError
from pdlrecover.cli import app as command
from pdlrecover.engines.peers.federation.plan import EvaluationPlan
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.engines.peers.settings import Code, Data, Drill, History
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.flower import FlowerPeers
from pdlrecover.recovery.standardisation import Standardise

APP = "apps:clinics"
RUN = {"lr": 0.3}
EVALUATED = {"evaluation": EvaluationPlan(held_out=0.5, every=5)}
ALLOWED = Code(allowed=("whole_peers:model", APP))


@pytest.fixture(autouse=True)
def stores_are_closed():
    yield
    for each in whole_peers.MADE:
        each.runs.store.close()
    whole_peers.MADE.clear()


def write(place, name, code=ALLOWED, drill=Drill(), **data):  # noqa: B008 (frozen)
    history = History(key_file=f"../keys/{name}.key")
    usual = {"flower": APP, "run_config": RUN}
    settings = {"data": Data(**usual | data), "code": code, "drill": drill}
    whole_peers.write(place / name, history, **settings)


def settle(place, **agreed):
    federation = whole_peers.settle(place, **EVALUATED | agreed)
    for name in whole_peers.NAMES:
        write(place, name)
    return federation


@pytest.mark.slow
def test_real_peers_train_and_recover_to_the_bit_of_the_simulation(tmp_path):
    """They are on the loopback here, since nothing else runs in this environment meanwhile."""

    async def story():
        settle(tmp_path)
        folders = [tmp_path / name for name in whole_peers.NAMES]
        peers = [whole_peers.peer(me, tmp_path) for me in range(whole_peers.PEERS)]
        tasks = [asyncio.create_task(each.run()) for each in peers]
        await until(lambda: all((each / "trained.json").exists() for each in folders))
        removal = {"removed": ["elm", "birch"], "method": "retrain", "reason": "malicious"}
        proposed = await ask(folders[0] / "control", {"do": "propose-removal", **removal})
        name = proposed["removal"]
        for me in (2, 4):
            await until(lambda me=me: len(peers[me].control.status().removals) == 1)
            await ask(folders[me] / "control", {"do": "approve", "removal": name[:12]})
        kept = [folders[me] for me in (0, 2, 4)]
        await until(lambda: all(list(each.glob("recovered-*.json")) for each in kept))
        for each in peers:
            each.stop()
        await asyncio.gather(*tasks)
        return folders, kept, f"recovered-{name[:16]}"

    folders, kept, recovered = asyncio.run(story())
    training = whole_peers.training()
    simulated = FlowerPeers(
        APP,
        whole_peers.model(),
        peers=whole_peers.PEERS,
        run_config=RUN,
        rate=training.local_rate,
        samples=training.samples,
        seed=training.seed,
    )
    federation = Federation.of_peers(simulated, whole_peers.TOLERANCE, evaluate_every=5)
    wanted = federation.train(training.rounds, optimizer=training.steps(), progress=False)
    for folder in folders:
        found = whole_peers.weights(folder / "trained.safetensors")
        np.testing.assert_array_equal(found, wanted.weights.astype(np.float32))
        told = json.loads((folder / "trained.json").read_text())["evaluations"][-1]
        assert (told["accuracy"], told["samples"]) == (wanted.evaluations[-1].accuracy, 20)
    wanted = federation.recover([1, 3], "retrain", reason="malicious", progress=False)
    for folder in kept:
        found = whole_peers.weights(folder / f"{recovered}.safetensors")
        np.testing.assert_array_equal(found, wanted.weights.astype(np.float32))


def test_check_data_says_what_the_app_answers(tmp_path):
    federation = settle(tmp_path)
    arguments = ["peer", "check-data", str(tmp_path / "cedar")]
    shown = CliRunner().invoke(command, [*arguments, "--federation", str(federation)])
    assert shown.exit_code == 0, shown.output
    assert "the Flower app apps:clinics: 14 examples, an update of length" in shown.output
    assert "it returns the same again" in shown.output
    without = CliRunner().invoke(command, arguments)
    assert isinstance(without.exception, PDLRecoverError)
    assert "name the federation file by --federation" in str(without.exception)


@pytest.mark.parametrize(
    ("settings", "agreed", "said"),
    [
        ({"code": whole_peers.ALLOWED}, {}, "data.flower names code, 'apps:clinics', which is not"),
        ({"partition": 5}, {}, r"data.partition must be from 0 to 4, got 5"),
        ({"drill": Drill(attack="backdoor")}, {}, "a drill attacks with samples"),
        ({}, {"standardise": Standardise()}, "standardises inputs"),
        ({"run_config": {}}, {}, "as peer 2: its train raised KeyError: 'lr'"),
        ({}, {"samples": 13}, "its num-examples is 14, and no peer may have more than 13"),
        ({}, {"evaluation": EvaluationPlan(held_out=0.1)}, "evaluates on 4 samples"),
    ],
)
def test_what_does_not_fit_the_federation_is_refused_at_the_start(tmp_path, settings, agreed, said):
    if "samples" in agreed:
        agreed = {"training": replace(whole_peers.training(), samples=agreed["samples"])}
    federation = settle(tmp_path, **agreed)
    write(tmp_path, "cedar", **settings)
    with pytest.raises(PDLRecoverError, match=said):
        PeerFiles(federation, tmp_path / "cedar")


def test_what_says_nothing_of_an_app_is_refused():
    with pytest.raises(PDLRecoverError, match="part says nothing about flower"):
        Data(flower=APP, part=1)


def test_another_partition_can_be_named(tmp_path):
    federation = settle(tmp_path)
    write(tmp_path, "cedar", partition=0, partitions=7)
    found = PeerFiles(federation, tmp_path / "cedar")
    assert found.data.batch_size == 16
    assert "12 examples" in found.data.in_one_line()
