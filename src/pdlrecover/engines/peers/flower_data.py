"""A peer whose updates a Flower app computes, from samples that only the app knows.

    [data]
    flower = "my_app.client_app:app"
    partition = 3
    run_config = {local-epochs = 1}

The app trains from the federation's model, and returns its `state_dict`. Where a federation says
how peers train by themselves, it says so of the app, too:

    g = (w − w')/(r·E),    α = num-examples / training.samples

with r = training.local_rate and E = training.local_steps, so a learning rate of r·E is FedAvg. How
many steps the app goes, and on which samples, is its own affair; training.batch_size, training.l2
and the share evaluation.held_out say nothing to it. It evaluates on at most as many samples as that
share is of training.samples.
"""

from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.settings import PeerSettings
from pdlrecover.errors import DataError, ModelError, PlanError
from pdlrecover.flower import FlowerPeers
from pdlrecover.learning import FlatModel, models, most_held_out


def load_flower(settings: PeerSettings, membership: Membership, me: int) -> FlowerPeers:
    """Return this peer as its Flower app computes it, having called the app."""
    data, training, model = settings.data, membership.training, membership.model
    if data.flower is None:
        raise PlanError("data.flower names no Flower app; set it in peer.toml")
    settings.code.check(data.flower, "data.flower")  # before anything of it is imported
    if membership.standardisation is not None:
        raise PlanError(
            "the federation standardises inputs by statistics of samples, and those of a Flower "
            "app are its own; take part in federations that do not standardise"
        )
    if settings.drill.attack is not None:
        raise PlanError(
            "a drill attacks with samples that are read here, and a Flower app has its own; let "
            "the app poison them, or leave [drill] out"
        )
    module = models.build(model.name, model.shape, model.classes, training.seed)
    count = len(membership.peers)
    partitions = count if data.partitions is None else data.partitions
    partition = me if data.partition is None else data.partition
    if not 0 <= partition < partitions:
        raise DataError(f"data.partition must be from 0 to {partitions - 1}, got {partition}")
    held_out = membership.evaluation.held_out
    peers = FlowerPeers(
        data.flower,
        module,
        peers=count,
        run_config=data.run_config,
        train_config=data.train_config,
        rate=training.local_rate * training.local_steps,
        bound=training.bound,
        seed=training.seed,
        samples=training.samples,
        evaluate=bool(held_out),
        fraction_bits=training.fraction_bits,
        partitions=[(me, partition)],
        of_partitions=partitions,
    )
    flat = FlatModel(module, model.shape)
    if list(peers.model.shapes.items()) != [(name, tuple(shape)) for name, shape in flat.shapes]:
        raise ModelError(
            f"the state_dict of {model.name} is not the weights that the federation trains: it has "
            "frozen, shared or additional arrays; leave them out"
        )
    most = most_held_out(held_out, training.samples)
    if peers.most_held_out > most:
        raise DataError(
            f"the Flower app evaluates on {peers.most_held_out} samples, and the federation agreed "
            f"on at most {most} (evaluation.held_out of training.samples); use fewer, or agree on "
            "more"
        )
    peers.most_held_out = most
    return peers
