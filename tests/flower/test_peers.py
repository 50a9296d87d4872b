"""Peers whose updates a Flower app computes."""

import random

import apps
import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict

from pdlrecover import Federation, PDLRecoverError, Tolerance
from pdlrecover.flower import FlowerPeers
from pdlrecover.flower.seeding import seeded

PEERS = len(apps.SAMPLES)
TOLERANCE = Tolerance(colluders=2, dropouts=2)


def flower(app=None, **options):
    return FlowerPeers(app or apps.linear(), apps.FIRST, peers=PEERS, rate=apps.RATE, **options)


def flat(arrays):
    return np.concatenate([each.ravel() for each in arrays.values()])


def fed_avg(kept, rounds):
    """Return what plain federated averaging comes to, weighted by samples."""
    arrays = {name: each.copy() for name, each in apps.FIRST.items()}
    weights = np.array([apps.SAMPLES[peer] for peer in kept], dtype=float)
    for _ in range(rounds):
        each = [apps.gradient(arrays, *apps.data(peer)) for peer in kept]
        for name in arrays:
            mean = np.tensordot(weights, np.stack([one[name] for one in each]), 1) / weights.sum()
            arrays[name] -= apps.RATE * mean
    return arrays


def test_training_on_shares_is_fed_avg_weighted_by_examples():
    federation = Federation.of_peers(flower(), TOLERANCE)
    trained = federation.train(rounds=12, progress=False)
    wanted = fed_avg(range(PEERS), 12)
    assert list(trained.arrays) == ["w", "b"]
    assert np.abs(trained.weights - flat(wanted)).max() < 1e-4
    assert "each of 8 kept peers together; no update of a single peer" in str(trained)


@pytest.mark.parametrize("method", ["retrain", "historical", "pdlrecover", "auto", "fedrecover"])
def test_every_kind_of_method_recovers(method):
    clear = method == "fedrecover"  # it reads single peers' updates
    federation = Federation.of_peers(flower(), TOLERANCE, clear=clear)
    federation.train(rounds=24, progress=False)
    removed = [1, 6]
    recovered = federation.recover(removed, method, reason="malicious", progress=False)
    wanted = fed_avg([peer for peer in range(PEERS) if peer not in removed], 24)
    limits = {"retrain": 1e-4, "historical": 1.0}  # that goes astray by design
    assert np.abs(recovered.weights - flat(wanted)).max() < limits.get(method, 0.1)


def test_a_fresh_start_takes_first_weights_from_new_model_and_draws_of_its_own():
    def drawn(arrays, metrics, message, context):
        return {name: each + 1e-3 * torch.rand(()).item() for name, each in arrays.items()}, metrics

    peers = flower(apps.linear(drawn))
    again = peers.sums(3, peers.model.initial, [[0, 1]])
    assert np.array_equal(again, peers.sums(3, peers.model.initial, [[0, 1]]))
    assert not np.array_equal(again, peers.sums(4, peers.model.initial, [[0, 1]]))
    assert not np.array_equal(again, peers.sums(3, peers.model.initial, [[0, 1]], stream=7))

    def new_model(seed):
        return {name: each + 1 for name, each in apps.FIRST.items()}

    federation = Federation.of_peers(peers, TOLERANCE, new_model=new_model)
    federation.train(rounds=4, progress=False)
    recovered = federation.recover([1, 6], "auto", fresh_start=True, progress=False)
    assert recovered.ledger.exact_rounds >= 25
    without = Federation.of_peers(flower(), TOLERANCE)
    without.train(rounds=2, progress=False)
    with pytest.raises(PDLRecoverError, match=r"bare arrays cannot be drawn.*new_model"):
        without.recover([1, 6], "auto", fresh_start=True, progress=False)


def test_models_are_evaluated_by_the_app():
    federation = Federation.of_peers(flower(apps.linear(evaluates=True)), TOLERANCE)
    trained = federation.train(rounds=10, progress=False)
    last = trained.evaluations[-1]
    assert (last.accuracy, last.loss, last.samples) == (0.75, 0.5, 4 * sum(range(1, PEERS + 1)))
    assert not Federation.of_peers(flower(), TOLERANCE).train(2, progress=False).evaluations
    assert flower(apps.linear(evaluates=True), evaluate=False).most_held_out == 0
    with pytest.raises(PDLRecoverError, match="has no evaluate function"):
        flower(evaluate=True)


def test_a_training_is_taken_up_from_its_folder(tmp_path):
    class EndError(Exception):
        pass

    def end(step):
        if step.round == 3:
            raise EndError

    federation = Federation.of_peers(flower(), TOLERANCE, folder=tmp_path)
    with pytest.raises(EndError):
        federation.train(rounds=8, progress=False, observer=end)
    federation = Federation.of_peers(flower(), TOLERANCE, folder=tmp_path, resume=True)
    trained = federation.train(rounds=8, progress=False)
    whole = Federation.of_peers(flower(), TOLERANCE).train(rounds=8, progress=False)
    assert np.array_equal(trained.weights, whole.weights)
    with pytest.raises(PDLRecoverError, match="another run"):
        Federation.of_peers(flower(seed=1), TOLERANCE, folder=tmp_path, resume=True)


def test_what_needs_samples_is_refused():
    federation = Federation.of_peers(flower(), TOLERANCE, clear=True)
    federation.train(rounds=4, progress=False)
    with pytest.raises(PDLRecoverError, match="which needs the peers' samples"):
        federation.recover([1, 6], "certified-removal", reason="malicious", progress=False)
    with pytest.raises(PDLRecoverError, match="labels of Flower peers"):
        federation.recover([1, 6], "distillation", reason="malicious", progress=False)
    with pytest.raises(PDLRecoverError, match="asks for 4 local steps"):
        federation.recover(
            [1, 6], "accelerated-retrain:local_steps=4", reason="malicious", progress=False
        )
    with pytest.raises(PDLRecoverError, match="data of peers were asked for"):
        federation.save("nowhere")
    assert "Flower app" in str(federation)


def test_global_random_states_are_left_as_they_were():
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    wanted = random.random(), np.random.rand(), torch.rand(()).item()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    with seeded(1):
        first = random.random(), np.random.rand(), torch.rand(()).item()
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == wanted
    with seeded(1):
        assert (random.random(), np.random.rand(), torch.rand(()).item()) == first
    with seeded(2):
        assert random.random() != first[0]


def test_the_app_gets_what_flower_would_send():
    seen = []

    def look(arrays, metrics, message, context):
        seen.append((message, context))

    peers = flower(
        apps.linear(look), run_config={"lr": 0.5, "name": "x"}, train_config={"local": 2}
    )
    seen.clear()
    peers.sums(4, peers.model.initial, [[3]])
    message, context = seen[0]
    assert context.node_config == {"partition-id": 3, "num-partitions": PEERS}
    assert context.run_config == {"lr": 0.5, "name": "x"}
    assert dict(message.content["config"]) == {"local": 2, "server-round": 5}
    assert message.metadata.message_type == "train"
    assert message.metadata.group_id == "5"
    sent = message.content["arrays"]
    assert [(name, sent[name].dtype, sent[name].shape) for name in sent] == [
        ("w", "float64", (3, 2)),
        ("b", "float64", (3,)),
    ]


def test_an_app_that_is_not_repeatable_is_refused():
    own = np.random.default_rng()

    def draws(arrays, metrics, message, context):
        return {name: each + own.normal() for name, each in arrays.items()}, metrics

    with pytest.raises(PDLRecoverError, match=r"peer 0: it returned other weights.*fixed seed"):
        flower(apps.linear(draws))

    def keeps(arrays, metrics, message, context):
        context.state["mine"] = MetricRecord({"round": 1})

    with pytest.raises(PDLRecoverError, match=r"keeps 'mine' in context\.state"):
        flower(apps.linear(keeps))


def only(peer, wrong):
    """Return a change by one peer alone."""

    def change(arrays, metrics, message, context):
        if context.node_config["partition-id"] == peer:
            return wrong(arrays, metrics, message)
        return None

    return apps.linear(change)


def raises(arrays, metrics, message):
    raise KeyError("lr")


def loads(arrays, metrics, message):
    raise RuntimeError("Error(s) in loading:\n\tsize mismatch for out.weight" + 300 * "!")


def replies(content):
    return lambda arrays, metrics, message: Message(content, reply_to=message)


WRONG = {
    "raised KeyError: 'lr'; if that is a setting, give it in run_config or train_config": raises,
    "raised RuntimeError: Error(s) in loading: size mismatch for out.weight!!": loads,
    "replied with error 7: no disk": lambda a, m, message: Message(
        Error(7, "no disk"), reply_to=message
    ),
    "returned a int": lambda a, m, message: 5,
    "has 0 records of arrays": replies(RecordDict({"metrics": MetricRecord({"num-examples": 1})})),
    "has 2 records of arrays": replies(RecordDict({"a": ArrayRecord(), "b": ArrayRecord()})),
    "has 0 records of metrics": lambda a, m, message: Message(
        RecordDict({"arrays": ArrayRecord([a["w"]])}), reply_to=message
    ),
    "its num-examples is not there": lambda a, m, message: (a, {"train_loss": 1.0}),
    "its num-examples is 0,": lambda a, m, message: (a, {"num-examples": 0}),
    "its num-examples is 2.5": lambda a, m, message: (a, {"num-examples": 2.5}),
    "num-examples is 41, and no peer may have more than 40": lambda a, m, message: (
        a,
        {"num-examples": 41},
    ),
    "w has the shape (2, 3)": lambda a, m, message: ({**a, "w": a["w"].T.copy()}, m),
    "w has the shape (3, 2) and the type int64": lambda a, m, message: (
        {**a, "w": np.zeros((3, 2), dtype=np.int64)},
        m,
    ),
    "it has no array b": lambda a, m, message: ({"w": a["w"]}, m),
    "it has an array c": lambda a, m, message: ({**a, "c": a["b"]}, m),
    "in another order: b where w": lambda a, m, message: ({"b": a["b"], "w": a["w"]}, m),
    "b is not finite": lambda a, m, message: ({**a, "b": a["b"] * np.nan}, m),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_an_app_does_wrong_is_said_with_the_peer(said):
    with pytest.raises(PDLRecoverError) as caught:
        flower(only(3, WRONG[said]), samples=40)
    assert said in str(caught.value)
    assert "as peer 3: " in str(caught.value)


def test_a_peer_is_named_by_its_name():
    names = [f"clinic-{peer}" for peer in range(PEERS)]

    def later(arrays, metrics, message, context):
        if context.node_config["partition-id"] == 3 and message.metadata.group_id == "3":
            raise OSError("no disk")

    federation = Federation.of_peers(flower(apps.linear(later)), TOLERANCE, names=names)
    with pytest.raises(PDLRecoverError, match="as peer 'clinic-3': its train raised OSError"):
        federation.train(rounds=4, progress=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"app": "apps:nothing"}, "cannot import 'apps:nothing'"),
        ({"app": "antigravity"}, "is named as package.module:app, got 'antigravity'"),
        ({"app": 5}, "must be a ClientApp"),
        ({"model": torch.nn.Sequential(torch.nn.BatchNorm1d(2))}, "GroupNorm instead"),
        ({"model": {"n": np.zeros(2, dtype=int)}}, "only floating-point arrays"),
        ({"model": []}, "has no weights"),
        ({"model": 5}, "must be a torch module, or arrays"),
        ({"model": [np.array([np.nan])]}, "not finite"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"peers": 0}, "peers must be at least 1"),
        ({"samples": 0}, "samples must be from 1"),
        ({"samples": 39}, "no peer may have more than 39"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    usual = {"app": apps.linear(), "model": apps.FIRST, "peers": PEERS, "rate": apps.RATE}
    with pytest.raises(PDLRecoverError, match=said):
        FlowerPeers(**(usual | options))


def test_updates_that_are_clipped_at_once_are_warned_of():
    with pytest.warns(UserWarning, match="is clipped to 0.01; raise the bound"):
        peers = flower(bound=0.01)
    peers.sums(0, peers.model.initial, [[0]])
    assert peers.clipped == 1
