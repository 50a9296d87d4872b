"""A Flower app as the peers of a federation, one for each partition of its data.

    gᵢ = (w − wᵢ)/r,    αᵢ = num-examples of i / samples,    dealt: αᵢ·gᵢ, clipped, and αᵢ

wᵢ is what the app returns for w. A step of SGD along the opened mean Σ αᵢgᵢ / Σ αᵢ with the rate r
is FedAvg, weighted by `num-examples`, as Flower's own strategy weights.

Rules:

- `samples` is public, and no app may say that it has more: a weight is in (0, 1]. In a simulation
  it is the most that any peer says when it is first called, unless it is given.
- An app must return the same arrays, to the bit, when it is called again for the same peer, model
  and round. The first peer is called twice to see that.
- Which samples an app takes in a round is its own affair, and so is how many steps it goes: a
  method that asks for other local steps, or for other labels, is refused.
"""

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.adversary import Phase
from pdlrecover.errors import DataError, PlanError, RangeError, Whom
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.flower.app import Config, FlowerApp, Terms, find_app
from pdlrecover.flower.replies import MOST_EXAMPLES, Evaluated
from pdlrecover.learning import clip
from pdlrecover.learning.array_model import ArrayModel
from pdlrecover.recovery.evaluation import LOSS_BOUND, encode_tally
from pdlrecover.recovery.requests import Individuals, LocalSteps, Teacher, Vector

USUAL = 16
Partitions = Sequence[tuple[int, int]]
"""For each peer here its number in the federation, and its partition of the data."""


class FlowerPeers:
    """Peers whose updates a Flower app computes.

    peers = FlowerPeers("my_app.client_app:app", Net(), peers=10, run_config={"lr": 0.1})
    federation = Federation.of_peers(peers, Tolerance(colluders=3, dropouts=3))
    """

    def __init__(
        self,
        app: Any,
        model: Any,
        *,
        peers: int,
        run_config: Config | None = None,
        train_config: Config | None = None,
        rate: float = 1.0,
        bound: float = 10.0,
        seed: int = 0,
        samples: int | None = None,
        evaluate: bool | None = None,
        accuracy: str | None = None,
        loss: str | None = None,
        fraction_bits: int = 20,
        partitions: Partitions | None = None,
        of_partitions: int | None = None,
    ) -> None:
        """Call the app once for each of so many peers, and twice for the first.

        - `app`: a `ClientApp`, or its name as in the app's pyproject.toml: `"package.module:app"`.
        - `model`: what the app's server would send at first: a torch module (its `state_dict` is
          sent), or arrays of numpy by name or in a list.
        - `peers`: how many there are; each gets one of as many partitions (`partition-id`).
        - `run_config`: the app's `context.run_config`; `train_config`: what is sent with the model.
        - `rate`: r. Updates of many local steps are long where it is small; `bound` is the L2 bound
          that they are clipped to.
        - `seed`: what the app draws follows from it.
        - `samples`: no peer has more; by default the most that any says.
        - `evaluate`: whether models are evaluated by the app's evaluate function; by default if it
          has one. `accuracy` and `loss` say what it calls these.

        `partitions` and `of_partitions` are for a real peer, which has one of them.
        """
        _check(peers, rate, bound, seed, samples)
        self._partitions = partitions or [(peer, peer) for peer in range(peers)]
        terms = Terms(
            seed=seed,
            partitions=of_partitions or peers,
            run_config=dict(run_config or {}),
            train_config=dict(train_config or {}),
            accuracy=accuracy,
            loss=loss,
        )
        self._app: FlowerApp = find_app(app, terms)
        self.model = ArrayModel(model)
        self.rate, self.bound, self.seed = float(rate), float(bound), seed
        self.clipped = 0
        self._check_repeats()
        every = range(len(self._partitions))
        sizes = [self._trained(0, self.model.initial, peer, 0)[1] for peer in every]
        self.samples = max(sizes) if samples is None else samples
        """No peer has more."""
        self.batch_size = max(USUAL, min(sizes))
        """How many samples an update is of; with fewer, `auto` would ask for local steps."""
        self._least = min(sizes)
        for peer, size in enumerate(sizes):
            self._weight(peer, size)
        self.most_held_out = self._find_evaluations(evaluate)
        self.code = FixedPoint(
            peers=peers,
            bound=float(np.hypot(self.bound, 1.0)),
            length=self.model.size + 1,
            fraction_bits=fraction_bits,
        )

    @property
    def peers(self) -> int:
        """How many peers are computed here."""
        return len(self._partitions)

    @property
    def name(self) -> str:
        """What the app is called."""
        return self._app.name

    @property
    def local(self) -> LocalSteps:
        """The app's own way to an update, as one step."""
        return LocalSteps(steps=1, rate=self.rate)

    @property
    def usual_rate(self) -> float:
        """The rate that makes SGD on opened means FedAvg."""
        return self.rate

    def facts(self) -> dict[str, Any]:
        """Return what makes a run of these peers what it is; the app's data it cannot know."""
        terms = self._app.terms
        return {
            "flower": self.name,
            "run_config": dict(terms.run_config),
            "train_config": dict(terms.train_config),
            "partitions": [list(each) for each in self._partitions],
            "of_partitions": terms.partitions,
            "samples": self.samples,
            "rate": self.rate,
            "bound": self.bound,
            "seed": self.seed,
            "held_out": self.most_held_out,
            "initial": hashlib.sha256(self.model.initial.tobytes()).hexdigest(),
        }

    def settings(self) -> dict[str, bool | float | int | str]:
        """Return how they were set up."""
        return {
            "flower": self.name,
            "rate": self.rate,
            "seed": self.seed,
            "bound": self.bound,
            "samples": self.samples,
        }

    def about(self) -> tuple[tuple[str, str], ...]:
        """Return what there is to say of them."""
        evaluated = "by the app" if self.most_held_out else "not at all"
        return (
            ("Flower app", f"{self.name or 'given'}, on {self._app.terms.partitions} partitions"),
            ("samples", f"{self._least} to {self.samples} a peer, which weight its updates"),
            ("evaluated", evaluated),
        )

    def in_one_line(self) -> str:
        """Return what the app did when it was first called."""
        examples = f"{self._least:,} examples" if self.peers == 1 else "several peers"
        length = f"an update of length {self.first_length:.3g}, where {self.bound:g} is the bound"
        return f"the Flower app {self.name}: {examples}, {length}; it returns the same again"

    def sums(
        self,
        round: int,
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase = "training",
        *,
        stream: int = 0,
        local: LocalSteps | None = None,
        teacher: Teacher | None = None,
    ) -> Integers:
        """Return each group's sum of rounded updates and weights, as (groups, d + 1) integers.

        The app is not told the phase.
        """
        self._refuse(local, teacher)
        out = np.zeros((len(groups), self.code.length), dtype=np.int64)
        for row, group in zip(out, groups, strict=True):
            for update, weight in self._dealt(round, at, group, stream):
                row[:-1] += np.rint(update.astype(np.float64) * self.code.scale).astype(np.int64)
                row[-1] += round_half_even(weight * self.code.scale)
        return out

    def individuals(
        self, round: int, at: Vector, peers: Sequence[int], phase: Phase, among: Sequence[int]
    ) -> Individuals:
        """Return what these peers deal at a model, each for itself."""
        dealt = list(self._dealt(round, at, peers, 0))
        return Individuals(
            values=np.stack([update for update, _ in dealt]),
            weights=np.array([weight for _, weight in dealt]),
        )

    def tally(self, at: Vector, peers: Sequence[int], phase: Phase = "training") -> Integers:
        """Return the sum of the three integers that each of these peers deals in an evaluation."""
        total: Integers = np.sum([self._tally(at, peer) for peer in peers], axis=0)
        return total

    def _tally(self, at: Vector, peer: int) -> Integers:
        """Return one peer's correct answers, clipped loss and number of samples.

        An app says means: its accuracy times its examples is rounded to a whole number, and its
        mean loss is bounded where a peer's own loss would be, sample by sample.
        """
        found = self._evaluated(at, peer)
        if found.examples > self.most_held_out:
            raise self._wrong(
                peer,
                f"it evaluates on {found.examples} samples, and at first none did on more than "
                f"{self.most_held_out}; evaluate on the same samples in every round",
            )
        correct = round_half_even(found.accuracy * found.examples)
        loss = min(found.loss, LOSS_BOUND) * found.examples
        return encode_tally(correct, loss, found.examples)

    def _dealt(
        self, round: int, at: Vector, peers: Sequence[int], stream: int
    ) -> Iterator[tuple[NDArray[np.float32], float]]:
        """Yield each peer's weighted and clipped update, and its weight."""
        for peer in peers:
            trained, examples = self._trained(round, at, peer, stream)
            weight = self._weight(peer, examples)
            update = torch.from_numpy(trained * weight).to(torch.float32)[None]
            try:
                update, clipped = clip(update, self.bound)
            except RangeError as error:  # it does not fit float32
                raise self._wrong(peer, "its update is not finite: it has diverged") from error
            self.clipped += clipped
            yield update[0].numpy(), weight

    def _trained(self, round: int, at: Vector, peer: int, stream: int) -> tuple[Vector, int]:
        """Return (w − wᵢ)/r, w as the app gets it, and its number of examples."""
        number, partition = self._partitions[peer]
        arrays = self.model.arrays(at)
        trained = self._app.train(
            self.model, arrays, peer=number, partition=partition, round=round, stream=stream
        )
        return (self.model.flat(arrays) - trained.weights) / self.rate, trained.examples

    def _evaluated(self, at: Vector, peer: int) -> Evaluated:
        number, partition = self._partitions[peer]
        return self._app.evaluate(self.model.arrays(at), peer=number, partition=partition)

    def _weight(self, peer: int, examples: int) -> float:
        """Return α."""
        if examples > self.samples:
            raise self._wrong(
                peer,
                f"its num-examples is {examples}, and no peer may have more than {self.samples}; "
                "allow more (samples=…)",
            )
        return examples / self.samples

    def _check_repeats(self) -> None:
        """Raise unless the app returns the same again for the first peer; warn of long updates."""
        first, again = (self._trained(0, self.model.initial, 0, 0) for _ in range(2))
        if not np.array_equal(first[0], again[0]) or first[1] != again[1]:
            apart = float(np.abs(first[0] - again[0]).max()) * self.rate
            raise self._wrong(
                0,
                f"it returned other weights when it was called again (up to {apart:.2g} apart), "
                "and a round must be repeatable; draw from the generators of torch, numpy or "
                "random, which are seeded before each call, give generators of your own a fixed "
                "seed, keep nothing from one call to the next, and compute with as many threads",
            )
        length = self.first_length = float(np.linalg.norm(first[0]))
        """How long the first peer's update was, before it was weighted and clipped."""
        if length > self.bound:
            warnings.warn(
                f"the first update of {self._app.title} has a length of {length:.3g} and "
                f"is clipped to {self.bound:g}; raise the bound, or the rate (now {self.rate:g})",
                stacklevel=3,
            )

    def _find_evaluations(self, wanted: bool | None) -> int:
        """Return on how many samples a peer evaluates at most; 0 if models are not evaluated."""
        number, partition = self._partitions[0]
        arrays = self.model.arrays(self.model.initial)
        has = wanted is not False and self._app.evaluates(arrays, peer=number, partition=partition)
        if wanted and not has:
            raise PlanError(
                f"{self._app.title} has no evaluate function, so it cannot evaluate "
                "models; give it one, or leave evaluate out"
            )
        if not has:
            return 0
        every = range(len(self._partitions))
        return max(self._evaluated(self.model.initial, peer).examples for peer in every)

    def _refuse(self, local: LocalSteps | None, teacher: Teacher | None) -> None:
        if teacher is not None:
            raise PlanError(
                "this method puts other labels in the place of the peers', and the labels of "
                "Flower peers are their app's; choose another method"
            )
        if local not in (None, self.local):
            raise PlanError(
                f"this method asks for {local.steps} local steps, and how Flower peers train is "
                "their app's; choose another method, or options without local steps"
            )

    def _wrong(self, peer: int, what: str) -> DataError:
        number, _ = self._partitions[peer]
        return DataError(f"{self._app.title}, as ", Whom((number,)), f": {what}")


def round_half_even(value: float) -> int:
    """Return the nearest whole number, as `numpy.rint` rounds."""
    return int(np.rint(value))


def _check(peers: int, rate: float, bound: float, seed: int, samples: int | None) -> None:
    """Raise unless these can be."""
    if peers < 1:
        raise PlanError(f"peers must be at least 1, got {peers}")
    for name, value in (("rate", rate), ("bound", bound)):
        if not (math.isfinite(value) and value > 0):
            raise RangeError(f"{name} must be positive and finite, got {value}")
    if seed < 0:
        raise PlanError(f"seed must be at least 0, got {seed}")
    if samples is not None and not 1 <= samples <= MOST_EXAMPLES:
        raise PlanError(f"samples must be from 1 to {MOST_EXAMPLES}, got {samples}")
