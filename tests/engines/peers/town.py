"""Whole peers on the loopback, for tests in one process and in many."""

import base64
import json

import numpy as np
import small
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from office import certificates, free_addresses

from pdlrecover import Federation, Tolerance
from pdlrecover.engines.peers.deadlines import Deadlines
from pdlrecover.engines.peers.keys import Keyring, PublicKeys
from pdlrecover.engines.peers.network import Limits, Tls
from pdlrecover.engines.peers.peer import Peer
from pdlrecover.engines.peers.run_plan import Plan
from pdlrecover.engines.peers.runs import Runs
from pdlrecover.engines.peers.store import PlainFolder
from pdlrecover.recovery.methods import Settings
from pdlrecover.recovery.optimizers import SGD, Rate
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.schedule import Schedule

PEERS, ROUNDS = 5, 10
SIZES = [12 + peer for peer in range(PEERS)]
PLAN = Plan(
    peers=PEERS,
    tolerance=Tolerance(colluders=1, dropouts=2),
    rounds=ROUNDS,
    optimizer=SGD(rate=Rate(peak=0.3)),
    batch_size=4,
    seed=5,
    size_bound=max(SIZES),
    settings=Settings(
        options=Options(schedule=Schedule(preparation=3, period=5, final=2, buffer=2)), batch_size=4
    ),
)
DEADLINES = Deadlines(dealing=6.0, receipts=1.0, view=3.0, resend=0.7, behind=0.4)
LIMITS = Limits(deadline=5.0, pause=0.1)


def datasets():
    return [small.points(seed=peer, count=SIZES[peer]) for peer in range(PEERS)]


def papers():
    """Return everything that the peers need, as plain values."""
    signing = [Ed25519PrivateKey.generate() for _ in range(PEERS)]
    sealing = [X25519PrivateKey.generate() for _ in range(PEERS)]
    tls = certificates(PEERS)
    return {
        "addresses": free_addresses(PEERS),
        "signing": [key.private_bytes_raw().hex() for key in signing],
        "sealing": [key.private_bytes_raw().hex() for key in sealing],
        "authority": _text(tls[0].authority),
        "certificates": [_text(each.certificate) for each in tls],
        "keys": [_text(each.key) for each in tls],
        "names": list(tls[0].names),
    }


def peer(me, papers, folder, **arguments):
    """Return a peer, ready to run."""
    signing = [Ed25519PrivateKey.from_private_bytes(bytes.fromhex(k)) for k in papers["signing"]]
    sealing = [X25519PrivateKey.from_private_bytes(bytes.fromhex(k)) for k in papers["sealing"]]
    public = [
        PublicKeys(
            signing=s.public_key().public_bytes_raw(), sealing=e.public_key().public_bytes_raw()
        )
        for s, e in zip(signing, sealing, strict=True)
    ]
    tls = Tls(
        authority=base64.b64decode(papers["authority"]),
        certificate=base64.b64decode(papers["certificates"][me]),
        key=base64.b64decode(papers["keys"][me]),
        names=tuple(papers["names"]),
    )
    x, y = datasets()[me]
    runs = Runs(
        me=me,
        federation=bytes(32),
        plan=PLAN,
        module=small.module(hidden=2),
        x=torch.as_tensor(x),
        y=torch.as_tensor(y),
        crypto=Keyring(signing[me], sealing[me], public),
        store=PlainFolder(folder / "store"),
        folder=folder,
        deadlines=DEADLINES,
    )
    return Peer(runs, addresses=papers["addresses"], tls=tls, limits=LIMITS, **arguments)


def simulation():
    """Return the same federation in one process, trained."""
    federation = Federation.simulate(
        small.module(hidden=2),
        datasets(),
        PLAN.tolerance,
        batch_size=PLAN.batch_size,
        seed=PLAN.seed,
        peer_by_peer=True,
    )
    federation.train(ROUNDS, optimizer=PLAN.optimizer)
    return federation


def weights(path):
    """Return the model in a file as one vector."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    names = [name for name, _ in small.module(hidden=2).named_parameters()]
    return np.concatenate([tensors[name].ravel() for name in names])


def status(folder):
    return json.loads((folder / "status.json").read_text())


def _text(data):
    return base64.b64encode(data).decode()
