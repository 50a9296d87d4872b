"""A federation in a few lines: peers that train one model, and recover it without some of them.

    federation = Federation.simulate(model, datasets, Tolerance(colluders=6, dropouts=6))
    federation.train(rounds=300, learning_rate=0.1)
    recovered = federation.recover(remove=[3, 7])
    print(recovered)                        # how it came about, and what was opened for it
    recovered.predict(samples)              # in your own labels
    recovered.model                         # your torch module with the recovered weights
    recovered.save("recovered.safetensors")

Rules:

- Everything that peers deal is really secret-shared and opened. With `clear=True` nothing is
  shared, which gives the same numbers faster.
- Removal can be differenced: the sum over all peers, opened in training, minus the sum over the
  kept ones, opened in recovery, is the removed peers' sum. If one honest peer leaves, that is its
  own update. So removing fewer than two honest peers is refused unless the caller accepts it by
  name, and so are two recoveries whose kept peers differ by one.
- Colluders know their own part of a sum, so at least c + 2 peers take part in every sum.
- The history is kept for each peer alone where that fits the budget; else cohorts must be named.
- What cannot be done is refused in one sentence, by an error of `pdlrecover.errors`.
"""

from pdlrecover.federation.library import Federation
from pdlrecover.federation.simulated import SimulatedFederation
from pdlrecover.federation.terms import DEFAULT_BUDGET, NewModel

__all__ = ["DEFAULT_BUDGET", "Federation", "NewModel", "SimulatedFederation"]
