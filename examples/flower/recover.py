"""Twenty clients of a Flower app train on shares; three have a backdoor, and are removed.

python recover.py        # with pip install 'pdlrecover[flower]' scikit-learn
"""

import torch
from digits_app.task import TARGET, Net, stamped, test_data

from pdlrecover import Federation, Tolerance
from pdlrecover.flower import FlowerPeers

POISONED = [2, 9, 14]
ROUNDS = 40


def show(name, model):
    """Print a model's accuracy, and how often the backdoor works."""
    x, y = test_data()
    others = y != TARGET
    with torch.no_grad():
        right = (model(x).argmax(dim=1) == y).double().mean()
        fooled = (model(stamped(x[others])).argmax(dim=1) == TARGET).double().mean()
    print(f"{name}: accuracy {right:.0%}, backdoor {fooled:.0%}")


torch.manual_seed(0)
peers = FlowerPeers(
    "digits_app.client_app:app",
    Net(),
    peers=20,
    run_config={
        "local-epochs": 1,
        "batch-size": 16,
        "poisoned": ",".join(map(str, POISONED)),
    },
    train_config={"lr": 0.1},
)
federation = Federation.of_peers(peers, Tolerance(colluders=6, dropouts=6))
trained = federation.train(rounds=ROUNDS)
show("trained", trained.model)
recovered = federation.recover(remove=POISONED, reason="malicious")
show("recovered", recovered.model)
print(recovered)
