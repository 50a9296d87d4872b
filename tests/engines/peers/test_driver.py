import numpy as np
import pytest
from wire import SETTINGS, TRAINING, Setup, same_models

from pdlrecover import Tolerance

ROUNDS = 14
TOLERANCE = Tolerance(colluders=1, dropouts=2)


@pytest.fixture(scope="module")
def setting():
    setup = Setup(6, TOLERANCE)
    assert setup.scheme.quorums.packing == 2
    return setup, setup.train(rounds=ROUNDS), setup.simulation(ROUNDS)


def test_peers_train_the_model_of_the_simulation_to_the_bit(setting):
    setup, network, simulation = setting
    np.testing.assert_array_equal(same_models(network), simulation.original.models[ROUNDS])
    for t, model in enumerate(setup.stores[3].models(TRAINING)):
        np.testing.assert_array_equal(model, simulation.original.models[t])
    assert not network.blames


@pytest.mark.parametrize("method", ["pdlrecover", "retrain", "historical", "auto"])
def test_every_method_recovers_the_model_of_the_simulation_to_the_bit(setting, method):
    setup, network, simulation = setting
    recovered = setup.recover(network, (1, 4), method=method)
    expected = simulation.recover((1, 4), method, reason="malicious", settings=SETTINGS)
    np.testing.assert_array_equal(same_models(recovered), expected.weights)
    assert not recovered.blames
    ours = recovered.participants[0].driver.ledger.record()
    theirs = expected.ledger.record()
    assert {**ours, "seconds": None} == {**theirs, "seconds": None}
