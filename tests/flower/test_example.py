"""The example, in both of its forms, and an app under Flower's own simulation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import apps
import numpy as np
import pytest
import torch

from pdlrecover import Federation, Tolerance
from pdlrecover.flower import FlowerPeers

HERE = Path(__file__).parent
PATIENCE = 400
"""Seconds, also where other work keeps the machine busy."""
ENVIRONMENT = os.environ | {
    "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}",
    "OMP_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def test_a_numpy_client_deals_what_its_message_app_deals():
    from digits_app.task import Net

    torch.manual_seed(0)
    options = {
        "peers": 6,
        "run_config": {"local-epochs": 1, "batch-size": 64, "poisoned": "1"},
        "train_config": {"lr": 0.1},
    }
    module = Net()
    messages = FlowerPeers("digits_app.client_app:app", module, **options)
    records = FlowerPeers("digits_app.numpy_client:app", module, **options)
    w = messages.model.initial
    assert np.array_equal(records.sums(2, w, [[0, 1], [5]]), messages.sums(2, w, [[0, 1], [5]]))
    assert np.array_equal(records.tally(w, [0, 3]), messages.tally(w, [0, 3]))
    assert records.samples == 2 * 200  # the poisoned one has every sample twice


@pytest.mark.slow
def test_the_example_forgets_the_backdoor():
    done = subprocess.run(
        [sys.executable, "recover.py"],
        cwd=apps.EXAMPLE,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"accuracy (\d+)%, backdoor (\d+)%", done.stdout)
    (before, fooled), (after, forgotten) = [tuple(map(int, each)) for each in found]
    assert before > 85 < after
    assert fooled > 80
    assert forgotten < 10


@pytest.mark.slow
def test_flowers_own_simulation_of_an_app_comes_to_the_same_model(tmp_path):
    place = tmp_path / "model.npz"
    done = subprocess.run(
        [sys.executable, HERE / "flower_simulation.py", "3", place],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peers = FlowerPeers(apps.linear(), apps.FIRST, peers=len(apps.SAMPLES), rate=apps.RATE)
    federation = Federation.of_peers(peers, Tolerance(colluders=2, dropouts=2))
    trained = federation.train(rounds=3, progress=False)
    theirs = np.load(place)
    assert max(np.abs(each - theirs[name]).max() for name, each in trained.arrays.items()) < 1e-5
