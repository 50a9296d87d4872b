"""The same client as a `NumPyClient`, which is how apps were written before there were messages."""

import torch
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, test, train


class FlowerClient(NumPyClient):
    """One client, with its data."""

    def __init__(self, trainloader, valloader, local_epochs):
        self.net = Net()
        self.trainloader, self.valloader = trainloader, valloader
        self.local_epochs = local_epochs

    def fit(self, parameters, config):
        """Train the model on local data."""
        set_weights(self.net, parameters)
        train_loss = train(self.net, self.trainloader, self.local_epochs, config["lr"])
        return get_weights(self.net), len(self.trainloader.dataset), {"train_loss": train_loss}

    def evaluate(self, parameters, config):
        """Evaluate the model on local data."""
        set_weights(self.net, parameters)
        loss, accuracy = test(self.net, self.valloader)
        return loss, len(self.valloader.dataset), {"accuracy": accuracy}


def get_weights(net):
    """Return the model's weights as a list of arrays."""
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net, parameters):
    """Give the model these weights."""
    named = zip(net.state_dict(), parameters, strict=True)
    net.load_state_dict({name: torch.tensor(value) for name, value in named})


def client_fn(context: Context):
    """Return the client of a partition."""
    loaders = load_data(
        context.node_config["partition-id"],
        context.node_config["num-partitions"],
        context.run_config["batch-size"],
        context.run_config["poisoned"],
    )
    return FlowerClient(*loaders, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)
