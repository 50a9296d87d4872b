"""Peers that keep their data in different forms train one model, over TLS on the loopback."""

import json
from dataclasses import replace

import formats
import pytest
import whole_peers
from processes import Processes

from pdlrecover import Federation, load_model, read_data
from pdlrecover.engines.classifier import weights_digest
from pdlrecover.engines.peers.federation.plan import DataPlan, Model
from pdlrecover.engines.peers.settings import Code, History
from pdlrecover.errors import DataError
from pdlrecover.learning.models import build

ROUNDS = 6
AGREED = {
    "tables": {
        "model": Model(name="mlp-4", shape=(3,), classes=3),
        "data": DataPlan(classes=formats.CLASSES, features=formats.COLUMNS),
    },
    "images": {
        "model": Model(name="cnn", shape=(1, formats.HEIGHT, formats.WIDTH), classes=3),
        "data": DataPlan(classes=formats.CLASSES),
    },
}
WRITE = {"tables": formats.write_table, "images": formats.write_pictures}
SAME = {"tables": lambda peer: whole_peers.datasets()[peer], "images": formats.as_arrays}
"""What each peer would have in an .npz file."""
OWN = {
    "tables": lambda folder: read_data(folder / "own.csv", label="kind", columns=formats.COLUMNS),
    "images": lambda folder: read_data(folder / "own"),
}
"""What the first peer has, as a user of its model reads it."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGREED)
def test_peers_with_data_in_different_forms_train_the_model_of_peers_with_arrays(
    tmp_path, forked_peers, kind
):
    everybody = range(whole_peers.PEERS)
    training = replace(whole_peers.TRAINING, rounds=ROUNDS)
    deadlines = replace(whole_peers.DEADLINES, dealing=60.0)
    place = Processes(
        tmp_path, forked_peers, training=training, deadlines=deadlines, **AGREED[kind]
    )
    for me in everybody:
        folder = place.folder(me)
        (folder / "own.npz").unlink()
        whole_peers.write(
            folder,
            History(key_file=f"../keys/{folder.name}.key"),
            code=Code(allowed=(formats.FUNCTION,)),
            data=WRITE[kind](folder, me),
        )
    try:
        place.start(*everybody)
        place.wait(place.have(everybody, "trained.json"))
    finally:
        place.end()
    files = [place.folder(me) / "trained.safetensors" for me in everybody]
    assert len({path.read_bytes() for path in files}) == 1
    told = [json.loads((place.folder(me) / "trained.json").read_text()) for me in everybody]
    assert {tuple(each["dealt"].values()) for each in told} == {(ROUNDS,) * len(everybody)}
    (found,) = {each["weights_sha256"] for each in told}

    model = AGREED[kind]["model"]
    arrays = Federation.simulate(
        build(model.name, model.shape, model.classes, training.seed),
        [SAME[kind](me) for me in everybody],
        whole_peers.TOLERANCE,
        batch_size=training.batch_size,
        seed=training.seed,
        peer_by_peer=True,
    )
    trained = arrays.train(ROUNDS, optimizer=training.steps())
    assert found == weights_digest(trained.weights)

    loaded = load_model(files[0], build(model.name, model.shape, model.classes, seed=0))
    samples, labels = OWN[kind](place.folder(0))
    assert loaded.classes == formats.CLASSES
    assert set(loaded.predict(samples)) <= set(formats.CLASSES)
    assert loaded.accuracy(samples, labels) == trained.accuracy(*SAME[kind](0))
    if kind == "tables":
        with pytest.raises(DataError, match="in another order"):
            loaded.predict(formats.table(0)[["c", "b", "a"]])
