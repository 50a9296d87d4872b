"""Trains an app by Flower's own simulation, and writes the model: for a process of its own.

python flower_simulation.py ROUNDS FILE
"""

import sys

import apps
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

PEERS = len(apps.SAMPLES)
# Not in a Ray that others have started on this machine.
BACKEND = {
    "init_args": {"address": "local", "num_cpus": 2, "include_dashboard": False},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}
server = ServerApp()


@server.main()
def main(grid, context):
    """Train by Flower's FedAvg."""
    strategy = FedAvg(min_available_nodes=PEERS, min_train_nodes=PEERS, fraction_evaluate=0.0)
    first = ArrayRecord({name: Array(each) for name, each in apps.FIRST.items()})
    result = strategy.start(grid=grid, initial_arrays=first, num_rounds=int(sys.argv[1]))
    np.savez(sys.argv[2], **{name: each.numpy() for name, each in result.arrays.items()})


if __name__ == "__main__":
    run_simulation(server, apps.linear(), num_supernodes=PEERS, backend_config=BACKEND)
