"""A small federation for tests: 8 peers, three classes of points in the plane."""

import numpy as np
import torch

from pdlrecover import Federation, Tolerance
from pdlrecover.recovery.methods import METHODS, Settings
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.schedule import Schedule

PEERS = 8
REMOVED = (0, 1)
TOLERANCE = Tolerance(colluders=1, dropouts=3, liars=1)
SETTINGS = Settings(
    options=Options(schedule=Schedule(preparation=4, period=8, final=3, buffer=3)),
    batch_size=8,
    noise_seed=1,
)
PRIVATE = tuple(name for name, entry in METHODS.items() if entry.private)
"""The methods that run on shares."""


def points(seed=0, count=30):
    """Return samples and labels of one peer: three clusters, and a column that is always 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[2, 0, 1], [-1, 2, 1], [-1, -2, 1]])
    return (centres[labels] + rng.normal(0, 0.7, (count, 3))).astype(np.float32), labels


def module(seed=0, hidden=5):
    """Return a tiny network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Linear(3, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 3)
        )


def federation(**arguments):
    """Return the federation, not yet trained."""
    datasets = [points(seed=peer, count=20 + peer) for peer in range(PEERS)]
    defaults = {"batch_size": 8, "seed": 3}
    return Federation.simulate(module(), datasets, TOLERANCE, **{**defaults, **arguments})


def trained(rounds=40, rate=0.3, optimizer="sgd", **arguments):
    """Return the federation after training."""
    made = federation(**arguments)
    made.train(rounds, rate, optimizer=optimizer)
    return made
