"""Peers agree on the scale of their inputs, on a fake wire: that of the simulation, to the bit."""

import json
from dataclasses import replace

import numpy as np
import pytest
import small
import torch
import whole_peers
from memory_store import MemoryStore
from wire import KEYS, Network, Wire, same_models

from pdlrecover import Federation, Tolerance, load_model
from pdlrecover.engines.peers.federation.federation_file import read_federation, write_federation
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.engines.peers.runs.run_factory import RunFactory, training_run
from pdlrecover.engines.peers.runs.standardising import why_not
from pdlrecover.errors import MembershipError
from pdlrecover.history import VaultLayout
from pdlrecover.learning import Dataset, FlatModel
from pdlrecover.recovery.standardisation import Standardise

PEERS, ROUNDS, LIAR = 7, 3, 5
TOLERANCE = Tolerance(colluders=1, dropouts=2, liars=1)
MEMBERSHIP = Membership(
    name="clinics",
    peers=tuple(Identity.generate(n).member(f"{n}:7400") for n in whole_peers.TREES[:PEERS]),
    tolerance=TOLERANCE,
    model=Model(name="whole_peers:model", shape=(3,), classes=3),
    training=whole_peers.training(PEERS, ROUNDS),
    recovery=replace(whole_peers.RECOVERY, preparation=2, final=0),
    deadlines=Deadlines(dealing=5.0, view=3.0, receipts=1.0, resend=1.0),
    standardise=Standardise(),
)
MODEL = FlatModel(small.module(hidden=2), (3,))
EPOCH = bytes(32)
FACTOR, SHIFT = np.array([100, 1e-3, 1], np.float32), np.array([50, 7, 5], np.float32)
DATASETS = [(x * FACTOR + SHIFT, y) for x, y in whole_peers.datasets(PEERS)]


def factory(peer, store, folder, membership=MEMBERSHIP):
    x, y = map(torch.as_tensor, DATASETS[peer])
    folder = folder / str(peer)
    folder.mkdir(exist_ok=True)
    made = RunFactory(
        me=peer,
        membership=membership,
        model=MODEL,
        data=Dataset(
            name="own",
            train_x=x,
            train_y=y,
            test_x=x,
            test_y=y,
            classes=3,
            shape=(3,),
            mean=torch.zeros(3),
        ),
        crypto=KEYS[peer],
        store=store,
        folder=folder,
    )
    if not made.founded:
        made.settle_epoch(EPOCH)
    return made


def factories(folder, stores=None, membership=MEMBERSHIP):
    stores = stores or [MemoryStore() for _ in range(PEERS)]
    return [factory(p, store, folder, membership) for p, store in enumerate(stores)]


def standardisers(made, wire=None):
    return Network(wire or Wire(), {p: each.standardiser() for p, each in enumerate(made)})


def settled(made, network):
    for peer, each in enumerate(made):
        each.settle_inputs(network.sessions[peer])
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    made = factories(tmp_path_factory.mktemp("peers"))
    network = standardisers(made).run()
    settled(made, network)
    training = Network(Wire(), {p: each.trainer() for p, each in enumerate(made)}).run(500.0)
    for peer, each in enumerate(made):
        each.results.write_trained(training.sessions[peer])
    federation = Federation.simulate(
        whole_peers.model(),
        DATASETS,
        TOLERANCE,
        batch_size=4,
        seed=5,
        peer_by_peer=True,
        standardise=True,
    )
    model = federation.train(ROUNDS, optimizer=whole_peers.TRAINING.steps())
    return made, network, training, model


def test_scale_and_model_are_those_of_the_simulation_to_the_bit(trained):
    made, network, training, model = trained
    assert not network.blames
    assert {each._flat.inputs.digest for each in made} == {model.inputs.digest}
    np.testing.assert_array_equal(same_models(training), model.weights)


def test_result_files_and_the_saved_model_have_the_scale(trained):
    made, _, _, model = trained
    x, y = (np.concatenate(parts) for parts in zip(*DATASETS, strict=True))
    for each in made:
        told = json.loads((each.folder / "standardisation.json").read_text())
        assert told["inputs_sha256"] == model.inputs.digest
        np.testing.assert_array_equal(told["mean"], model.inputs.mean)
        opened = told["ledger"]["opened"]["statistics"]
        assert (opened["openings"], opened["numbers"]) == (2, 8)
        assert opened["of"] == "7 kept peers together"
        assert told["clipped_here"] == 0
        result = json.loads((each.folder / "trained.json").read_text())
        assert result["inputs_sha256"] == model.inputs.digest
        saved = load_model(each.folder / "trained.safetensors", whole_peers.model())
        assert saved.accuracy(x, y) == model.accuracy(x, y)


def test_nobody_stores_shares_of_the_statistics(trained):
    made, _, _, _ = trained
    store, run = made[0].store, made[0].standardising
    assert len(store.log(run)) == 2
    assert store.shares(run, 0, range(PEERS)) is None


def test_a_peer_that_was_away_fetches_the_scale_of_those_who_were_there(tmp_path):
    made = factories(tmp_path)
    network = standardisers(made, Wire(cut={4}))
    others = [p for p in range(PEERS) if p != 4]
    network.run(done=lambda: all(network.sessions[p].finished for p in others))
    assert not network.sessions[4].finished
    network.wire.cut = set()
    network.run(until=200.0)
    settled(made, network)
    (digest,) = {each._flat.inputs.digest for each in made}
    x = np.concatenate([DATASETS[p][0] for p in others]).astype(float)
    np.testing.assert_allclose(made[4]._flat.inputs.mean, x.mean(axis=0), rtol=1e-7)
    assert digest


@pytest.mark.parametrize("kind", ["Receipt", "Vote", "SubSecret"])
def test_peers_killed_in_the_midst_of_either_step_deal_the_same_and_agree(tmp_path, kind, trained):
    """All are killed when some have said so much in the second step, and started again."""
    stores = [MemoryStore() for _ in range(PEERS)]
    network = standardisers(factories(tmp_path, stores))

    def said():
        steps = [codec.decode(d).header.step for _, _, k, d in network.wire.sent if k == kind]
        return steps.count(1) >= 4

    network.run(done=said)
    assert not all(network.sessions[p].finished for p in range(PEERS))
    network.wire.queue.clear()
    again = factories(tmp_path, stores)
    for peer, each in enumerate(again):
        network.crash(peer, each.standardiser())
        network.start(peer)
    network.run()
    assert not network.blames
    settled(again, network)
    assert {each._flat.inputs.digest for each in again} == {trained[3].inputs.digest}


def test_a_peer_that_is_restarted_later_takes_the_scale_from_its_history(tmp_path, trained):
    stores = [MemoryStore() for _ in range(PEERS)]
    standardisers(factories(tmp_path, stores)).run()
    alone = factory(2, stores[2], tmp_path)
    session = alone.standardiser()
    session.start(0.0)
    assert session.finished
    alone.settle_inputs(session)
    assert alone._flat.inputs.digest == trained[3].inputs.digest


def test_in_sealed_histories_the_scale_has_a_folder_of_its_own(tmp_path, trained):
    terms = MEMBERSHIP.standardisation
    blocks = MEMBERSHIP.scheme.quorums.blocks
    (tmp_path / "histories").mkdir()

    def archive(peer):
        layout = VaultLayout(
            federation=MEMBERSHIP.run_digest,
            run=training_run(MEMBERSHIP, MODEL).hex(),
            peer=peer,
            parameters=MODEL.size,
            blocks=blocks(MODEL.size + 1),
        )
        scale = replace(layout, parameters=2 * terms.groups, blocks=blocks(terms.groups + 1))
        place = tmp_path / "histories" / str(peer)
        return Archive(place, bytes(32), layout, peers=PEERS, standardisation=scale)

    stores = [archive(peer) for peer in range(PEERS)]
    standardisers(factories(tmp_path, stores)).run()
    for store in stores:
        store.close()
    assert (tmp_path / "histories" / "3" / "standardisation").is_dir()
    store = archive(3)
    alone = factory(3, store, tmp_path)
    session = alone.standardiser()
    session.start(0.0)
    alone.settle_inputs(session)
    store.close()
    assert alone._flat.inputs.digest == trained[3].inputs.digest


def lying(session, order, lie):
    """Let a peer deal other numbers in the sum of this order."""
    driver = session.driver
    honest = driver._statistics.compute

    def compute(request):
        dealt = honest(request)
        return lie(dealt) if request.order == order else dealt

    driver._statistics = replace(driver._statistics, compute=compute)


def test_what_nobody_can_have_dealt_is_void_at_all_peers_and_also_after_a_restart(tmp_path):
    stores = [MemoryStore() for _ in range(PEERS)]
    made = factories(tmp_path, stores)
    sessions = {p: each.standardiser() for p, each in enumerate(made)}
    lying(sessions[LIAR], 2, lambda dealt: -dealt * 1000)
    network = Network(Wire(), sessions).run()
    for peer, each in enumerate(made):
        each.settle_inputs(network.sessions[peer])
        assert not each.standardised
        assert each._flat.inputs is None
        assert "void (somebody lied: " in each.inputs
        assert "nothing is trained" in each.inputs
        assert not (each.folder / "standardisation.json").exists()
    again = factory(1, stores[1], tmp_path).standardiser()
    again.start(0.0)
    assert again.finished
    assert why_not(again) == made[1].inputs


def test_clipped_numbers_are_told_to_the_peer_whose_they_are(tmp_path):
    membership = replace(MEMBERSHIP, standardise=Standardise(bound=200.0))
    made = factories(tmp_path, membership=membership)
    settled(made, standardisers(made).run())
    for (x, _), each in zip(DATASETS, made, strict=True):
        clipped = int((np.abs(x) > 200).sum())
        told = json.loads((each.folder / "standardisation.json").read_text())
        assert told["clipped_here"] == clipped
        assert (f"{clipped} numbers of this peer count as ±200" in each.inputs) is bool(clipped)
    assert any("count as" in each.inputs for each in made)


def test_a_file_that_leaves_the_table_out_has_the_digest_that_it_had():
    without = replace(MEMBERSHIP, standardise=None)
    assert not [path for path in without.facts() if "standardise" in path]
    assert "standardise" not in write_federation(without)
    facts = {k: v for k, v in MEMBERSHIP.facts().items() if k.startswith("standardise.")}
    assert facts == {"standardise.bound": 1000.0, "standardise.per": "feature"}
    assert without.digest != MEMBERSHIP.digest
    assert without.run_digest != MEMBERSHIP.run_digest
    text = write_federation(MEMBERSHIP)
    assert '[standardise]\nbound = 1000.0\nper = "feature"' in text
    assert read_federation(text).digest == MEMBERSHIP.digest
    short = text.replace('bound = 1000.0\nper = "feature"\n', "")
    assert read_federation(short).digest == MEMBERSHIP.digest


def test_a_plan_whose_sums_do_not_fit_is_refused_with_the_numbers():
    training = replace(MEMBERSHIP.training, samples=10**9)
    with pytest.raises(MembershipError, match=r"standardise: .*7 peers with 1000000000 samples"):
        replace(MEMBERSHIP, training=training, standardise=Standardise(bound=1e5))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("bound = 1000.0", "bound = 0.0", "standardise: the bound of inputs must be above 0"),
        ("bound = 1000.0", "bounds = 3.0", "unknown key 'bounds' in standardise; did you mean"),
        ('per = "feature"', 'per = "row"', "standardise.per must be one of 'feature', 'channel'"),
        ('per = "feature"', 'per = "channel"', "no channels"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(right, wrong, said):
    before, table = write_federation(MEMBERSHIP).split("[standardise]")
    with pytest.raises(MembershipError, match=said):
        read_federation(f"{before}[standardise]{table.replace(right, wrong, 1)}")
