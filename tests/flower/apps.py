"""Small Flower apps, and the example's."""

import sys
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))

SAMPLES = (40, 20, 30, 40, 10, 40, 40, 40)
"""How many each of the peers of `linear` has."""
RATE = 0.5
FIRST = {"w": np.zeros((3, 2)), "b": np.full(3, 0.2)}
"""The first weights of `linear`."""


def data(peer):
    """Return one peer's samples and targets."""
    draw = np.random.default_rng(peer)
    return draw.normal(size=(SAMPLES[peer], 2)), draw.normal(size=(SAMPLES[peer], 3))


def gradient(arrays, x, y):
    """Return the gradient of half the mean squared error."""
    error = x @ arrays["w"].T + arrays["b"] - y
    return {"w": error.T @ x / len(x), "b": error.mean(axis=0)}


def reply(message, arrays, metrics):
    """Return what an app answers."""
    records = {"metrics": MetricRecord(metrics)}
    if arrays is not None:
        torch_arrays = {name: torch.as_tensor(each) for name, each in arrays.items()}
        records["arrays"] = ArrayRecord(torch_arrays)
    return Message(RecordDict(records), reply_to=message)


def linear(change=None, *, evaluates=False):
    """Return an app whose clients take one step along the gradient over all of their data.

    `change` gets what it would return (arrays, metrics) with message and context, and may return
    something else.
    """
    app = ClientApp()

    @app.train()
    def train(message, context):
        peer = context.node_config["partition-id"]
        arrays = {name: each.numpy() for name, each in message.content["arrays"].items()}
        along = gradient(arrays, *data(peer))
        arrays = {name: each - RATE * along[name] for name, each in arrays.items()}
        metrics = {"train_loss": 0.0, "num-examples": SAMPLES[peer]}
        if change is not None:
            changed = change(arrays, metrics, message, context)
            if isinstance(changed, tuple):
                arrays, metrics = changed
            elif changed is not None:
                return changed
        return reply(message, arrays, metrics)

    if evaluates:

        @app.evaluate()
        def evaluate(message, context):
            peer = context.node_config["partition-id"]
            metrics = {"eval_loss": 0.5, "eval_acc": 0.75, "num-examples": 4 * (peer + 1)}
            return reply(message, None, metrics)

    return app


def clinics_app(most=4):
    """Return an app that trains the network of `whole_peers` on the data of its peers."""
    import whole_peers

    app = ClientApp()

    def taken(message, context):
        x, y = whole_peers.datasets()[context.node_config["partition-id"]]
        model = whole_peers.model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return model, torch.as_tensor(x), torch.as_tensor(y)

    @app.train()
    def train(message, context):
        model, x, y = taken(message, context)
        optimizer = torch.optim.SGD(model.parameters(), lr=context.run_config["lr"])
        for rows in torch.randperm(len(y)).split(4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        return reply(message, model.state_dict(), {"num-examples": len(y)})

    @app.evaluate()
    def evaluate(message, context):
        model, x, y = taken(message, context)
        with torch.no_grad():
            logits = model(x[:most])
        loss = torch.nn.functional.cross_entropy(logits, y[:most]).item()
        right = (logits.argmax(dim=1) == y[:most]).double().mean().item()
        metrics = {"eval_loss": loss, "eval_acc": right, "num-examples": most}
        return reply(message, None, metrics)

    return app


def __getattr__(name):
    """Make `clinics` when it is named: it needs the tests of peers on the path."""
    if name != "clinics":
        raise AttributeError(name)
    return clinics_app()
