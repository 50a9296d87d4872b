"""Five processes on the loopback: trained, killed, frozen, recovered."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
import whole_peers
from processes import Processes, same

PATIENT = replace(whole_peers.DEADLINES, dealing=60.0)
"""Nobody is left out, however busy the machine is."""


@pytest.fixture
def place(tmp_path, request):
    """Make a federation of processes, with the deadlines that a test asks for."""
    made = Processes(tmp_path, deadlines=getattr(request, "param", whole_peers.DEADLINES))
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize("place", [PATIENT], indirect=True, ids=["patient"])
def test_processes_train_and_recover_to_the_bit_though_one_is_killed_and_one_frozen(place):
    everybody = range(whole_peers.PEERS)
    for me in everybody:
        place.start(me)
    place.wait(place.have(everybody, "trained.safetensors"))
    simulation = whole_peers.simulation()
    trained = same([place.folder(me) / "trained.safetensors" for me in everybody])
    expected = simulation.original.models[whole_peers.ROUNDS].astype(np.float32)
    np.testing.assert_array_equal(trained, expected)

    place.send(3, signal.SIGSTOP)  # to be removed, and frozen
    name = place.remove((1, 3), by=(0, 2, 4))
    place.wait(lambda: place.step(2, "recovery") >= 2)
    place.kill(2)
    assert "nothing damaged, of 10 rounds" in place.verify(2)
    place.start(2)
    kept = (0, 2, 4)
    place.wait(place.have(kept, "recovered-*.json"))
    recovered = same([place.folder(me) / f"recovered-{name[:16]}.safetensors" for me in kept])
    wanted = simulation.recover(
        (1, 3), "pdlrecover", reason="malicious", settings=whole_peers.SETTINGS
    )
    told = [
        json.loads((place.folder(me) / f"recovered-{name[:16]}.json").read_text()) for me in kept
    ]
    assert len({each["log"] for each in told}) == 1
    np.testing.assert_array_equal(recovered, wanted.weights.astype(np.float32))
    for me in (0, 4):
        assert place.ask(me, do="status")["blames"] == []
        process = place.running[me]
        place.kill(me, signal.SIGTERM)
        assert process.returncode == 0
        found = place.verify(me)
        assert "rounds that are whole: 0–9" in found
        assert "rounds whose model is whole: 0–10" in found
