"""What one peer deals in a round, computed by `engines.dealers` from its own data.

To the bit what a simulation computes for this peer, where that computes peer by peer. A program of
the peer's own may compute it instead (`by`), such as a Flower app.
"""

from typing import Self

import numpy as np
import torch

from pdlrecover.adversary import Attack, NoAttack, Phase
from pdlrecover.engines.dealers import Dealers
from pdlrecover.engines.update_source import Dealing
from pdlrecover.errors import DataError, PlanError
from pdlrecover.field import Integers
from pdlrecover.learning import Batches, FlatModel, LocalTraining, Updates, data_weights, hold_out
from pdlrecover.learning.updates import ONE_STEP
from pdlrecover.recovery.requests import Evaluation, Moments, Update
from pdlrecover.recovery.standardisation import StandardisationTerms


class Contribution:
    """One peer's data, and what follows from it."""

    def __init__(
        self,
        *,
        peer: int,
        peers: int,
        model: FlatModel,
        x: torch.Tensor,
        y: torch.Tensor,
        size_bound: int,
        batch_size: int,
        seed: int,
        bound: float,
        local: LocalTraining = ONE_STEP,
        fraction_bits: int = 20,
        attack: Attack | None = None,
        held_out: float = 0.0,
    ) -> None:
        """Take this peer's samples and labels, and what the federation has agreed on.

        No peer holds more than `size_bound` samples. All draw their minibatches from the one seed.
        `attack` is what this peer does to its own update, in a drill. The share `held_out` of its
        samples is only evaluated on.
        """
        if not 1 <= len(y) <= size_bound or len(x) != len(y):
            raise DataError(
                f"a peer holds 1 to {size_bound} samples (the size bound) and as many labels, "
                f"got {len(x)} and {len(y)}"
            )
        trained, held = hold_out(np.arange(len(y)), held_out, seed=seed, peer=peer)
        own = [trained]
        self._dealers: Dealing = Dealers(
            x=x,
            y=y,
            batches=Batches(own, seed, batch_size, first=peer),
            updates=Updates(
                model=model,
                weights=data_weights(own, size_bound),
                bound=bound,
                local=local,
                chunk=1,
            ),
            held_out=[held],
            malicious=() if attack is None else (0,),
            attack=attack or NoAttack(),
            federation_size=peers,
            fraction_bits=fraction_bits,
        )
        self.code = self._dealers.code

    @classmethod
    def by(cls, program: Dealing) -> Self:
        """Take what a program computes for this peer alone, which is its number 0."""
        made = cls.__new__(cls)
        made._dealers, made.code = program, program.code
        return made

    def __call__(self, asked: Update, phase: Phase = "training") -> Integers:
        """Return the d + 1 integers of this peer's update at a model, and of its weight."""
        own: Integers = self._dealers.sums(
            asked.round,
            asked.at,
            [[0]],
            phase,
            stream=asked.stream,
            local=asked.local,
            teacher=asked.teacher,
        )[0]
        return own

    def evaluate(self, asked: Evaluation, phase: Phase = "training") -> Integers:
        """Return the three integers of this peer's evaluation of a model."""
        return self._dealers.tally(asked.at, [0], phase)

    def statistics(self, asked: Moments, terms: StandardisationTerms) -> Integers:
        """Return what this peer deals of its inputs, as they are."""
        return self._computed().statistics(asked, [0], terms)

    def clipped_inputs(self, terms: StandardisationTerms) -> int:
        """Return how many numbers of its samples count as the bound in these statistics."""
        return self._computed().clipped_inputs(0, terms)

    def _computed(self) -> Dealers:
        if not isinstance(self._dealers, Dealers):
            raise PlanError(
                "inputs are standardised by statistics of samples, and this peer's samples are its "
                "own program's; take part in federations that do not standardise"
            )
        return self._dealers
