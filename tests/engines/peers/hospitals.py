"""Five hospitals that have agreed on a federation."""

from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.sharing import Tolerance

NAMES = ("hospital-c", "hospital-a", "hospital-b", "hospital-d", "hospital-e")
PEERS = [Identity.generate(name) for name in NAMES]
MEMBERS = tuple(p.member(f"{p.name}.example.org:7400") for p in PEERS)

HEART = Membership(
    name="heart",
    peers=MEMBERS,
    tolerance=Tolerance(colluders=1, dropouts=1, liars=1),
    model=Model(name="mlp-32", shape=(8, 8), classes=10),
    training=Training(rounds=300, samples=5000, optimizer="adam", learning_rate=0.003),
    recovery=Recovery(block=3),
    deadlines=Deadlines(dealing=90),
)
