"""A federation in a few lines: peers that train one model, and recover it without some of them.

    federation = Federation.simulate(model, datasets, tolerance=Tolerance(colluders=6, dropouts=6))
    federation.train(rounds=300, learning_rate=0.1)
    recovered = federation.recover(remove=[3, 7])
    recovered.model      # your torch module with the recovered weights
    recovered.ledger     # what was opened, of whom, at what cost

Rules:

- Everything that peers deal is really secret-shared and opened. With `clear=True` nothing is
  shared, which gives the same numbers faster.
- Removal can be differenced: the sum over all peers, opened in training, minus the sum over the
  kept ones, opened in recovery, is the removed peers' sum. If one honest peer leaves, that is its
  own update. So removing fewer than two honest peers is refused unless the caller accepts it by
  name, and so are two recoveries whose kept peers differ by one.
- Colluders know their own part of a sum, so at least c + 2 peers take part in every sum.
- The history is kept for each peer alone where that fits the budget; else cohorts must be named.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from pdlrecover.adversary import Attack
from pdlrecover.engines.simulated_peers import SimulatedPeers, simulate_peers
from pdlrecover.engines.simulation import MethodOutcome, Observer, Simulation, sum_store
from pdlrecover.engines.sum_store import Faults
from pdlrecover.engines.trained_model import TrainedModel, as_tensors
from pdlrecover.errors import DataError, HistoryError, ModelError, PlanError
from pdlrecover.field import Source
from pdlrecover.files import read_json, write_json
from pdlrecover.history import FILES, Layout, RunHistory, complete_cohorts
from pdlrecover.learning import FlatModel, LocalTraining
from pdlrecover.recovery import methods, optimizers
from pdlrecover.recovery.evaluation import EvaluationTerms, evaluated
from pdlrecover.recovery.privacy import PrivacyGuard, trained_round
from pdlrecover.recovery.removal import Reason, check_removal, unprotected
from pdlrecover.recovery.requests import (
    FreshStart,
    Method,
    Optimizer,
    Original,
    Stepper,
    Tally,
    Vector,
)
from pdlrecover.recovery.retrain import train
from pdlrecover.sharing import Scheme, Tolerance

DEFAULT_BUDGET = 8 << 30
"""How many bytes of history may be written to disk, unless the caller allows more."""

FORMAT = 1

FIRST_ROUND = trained_round(0)
"""Whose sums every recovery opens that does not start afresh."""
UNTRAINED = "there is nothing to recover yet: train the federation first"

SAVED = ("batch_size", "seed", "bound", "l2", "malicious", "cohorts", "clear")
"""The settings that are saved as they are."""
SAVED_LATER = ("local_steps", "local_rate", "held_out", "evaluate_every")
"""Settings that earlier versions did not save; they had the defaults."""
NewModel = Callable[[int], torch.nn.Module]
"""Returns the module with first weights drawn from a seed."""


class _NotTrained:
    """The optimiser of a run that there is not."""

    def start(self) -> Stepper:
        raise PlanError(UNTRAINED)


class Federation:
    """Peers that train and recover one model together."""

    def __init__(
        self,
        simulated_peers: SimulatedPeers,
        scheme: Scheme,
        *,
        cohorts: Sequence[Sequence[int]] | None = None,
        clear: bool = False,
        source: Source | None = None,
        folder: Path | None = None,
        resume: bool = False,
        budget: int = DEFAULT_BUDGET,
        new_model: NewModel | None = None,
        evaluate_every: int = 10,
    ) -> None:
        self.simulated_peers, self.scheme, self.clear = simulated_peers, scheme, clear
        self._flat = simulated_peers.updates.model
        self._budget, self._new_model = budget, new_model
        self._terms = EvaluationTerms(
            every=evaluate_every,
            most=max(map(len, simulated_peers.held_out), default=0),
            peers=simulated_peers.peers,
        )
        self._evaluated: Tally | None = None
        """What the evaluation of the trained model opened."""
        whole = complete_cohorts(cohorts, simulated_peers.peers)
        blocks = scheme.quorums.blocks(simulated_peers.code.length)
        record = (simulated_peers.code.length,) if clear else (simulated_peers.peers, blocks)
        layout = Layout(
            parameters=self._flat.size, cohorts=whole, record=record, run=self._digest()
        )
        self.history = RunHistory(layout, folder, resume=resume)
        least = 1 if clear else scheme.quorums.tolerance.colluders + 2
        self._guard = PrivacyGuard(colluders=0, least=least)
        self._guard.open(FIRST_ROUND, frozenset(range(simulated_peers.peers)))
        self._simulation = Simulation(
            simulated_peers=simulated_peers,
            scheme=scheme,
            history=self.history,
            clear=clear,
            source=source,
            guard=self._guard,
        )
        self._optimizer: Optimizer | None = None
        self._planned: Optimizer | None = None
        self._recovered: list[frozenset[int]] = []

    @classmethod
    def simulate(
        cls,
        model: torch.nn.Module,
        datasets: Sequence[tuple[ArrayLike, ArrayLike]],
        tolerance: Tolerance,
        *,
        batch_size: int = 32,
        seed: int = 0,
        bound: float = 10.0,
        l2: float = 0.0,
        local_steps: int = 1,
        local_rate: float = 0.1,
        malicious: Sequence[int] = (),
        attack: Attack | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        clear: bool = False,
        peer_by_peer: bool = False,
        folder: Path | str | None = None,
        resume: bool = False,
        budget: int = DEFAULT_BUDGET,
        new_model: NewModel | None = None,
        held_out: float = 0.0,
        evaluate_every: int = 10,
    ) -> Self:
        """Set up a federation of your model and your data, one (samples, labels) for each peer.

        `bound` is the public L2 bound that updates are clipped to, `malicious` the peers that
        follow the `attack`, `folder` where the history goes (a temporary place if not given).
        With `local_steps` every peer takes that many steps of SGD by itself in a round, with the
        rate `local_rate`, each on a minibatch of its own. `new_model` returns your module with
        first weights drawn from a seed, for recoveries that start afresh; without it the module's
        layers draw them.
        With `held_out` every peer keeps that share of its samples apart, and models are evaluated
        on them after every `evaluate_every` rounds and at the end; only sums are opened.
        `resume` takes up the history that an interrupted training has left there.
        `peer_by_peer` computes to the bit what real peers would, and takes longer.
        """
        if not datasets:
            raise DataError("a federation needs at least one peer's dataset, got none")
        parts = [as_tensors(x, y) for x, y in datasets]
        shape = parts[0][0].shape[1:]
        for peer, (samples, labels) in enumerate(parts):
            if samples.shape[1:] != shape:
                raise DataError(
                    f"all peers' samples must have one shape; peer 0 has {tuple(shape)} and peer "
                    f"{peer} {tuple(samples.shape[1:])}"
                )
            if not len(labels) or len(samples) != len(labels):
                raise DataError(
                    f"peer {peer} has {len(samples)} samples and {len(labels)} labels; every peer "
                    "needs at least one, and as many of each"
                )
        ends = np.cumsum([len(labels) for _, labels in parts])
        partition = [np.arange(end - len(p[1]), end) for end, p in zip(ends, parts, strict=True)]
        simulated_peers = simulate_peers(
            model,
            torch.cat([x for x, _ in parts]),
            torch.cat([y for _, y in parts]),
            partition,
            batch_size=batch_size,
            seed=seed,
            bound=bound,
            local=LocalTraining(l2=l2, steps=local_steps, rate=local_rate),
            malicious=malicious,
            attack=attack,
            peer_by_peer=peer_by_peer,
            held_out=held_out,
        )
        scheme = Scheme.for_peers(len(parts), tolerance)
        place = None if folder is None else Path(folder)
        return cls(
            simulated_peers,
            scheme,
            cohorts=cohorts,
            clear=clear,
            folder=place,
            resume=resume,
            budget=budget,
            new_model=new_model,
            evaluate_every=evaluate_every,
        )

    def train(
        self,
        rounds: int,
        learning_rate: float | None = None,
        *,
        optimizer: str | Optimizer = "sgd",
        observer: Observer | None = None,
    ) -> TrainedModel:
        """Train for `rounds` rounds, with an optimiser by name and its rate, or with your own."""
        if rounds < 1:
            raise PlanError(f"training takes at least 1 round, got {rounds}")
        if isinstance(optimizer, str):
            optimizer = self.plan(rounds, learning_rate, optimizer=optimizer)
        elif learning_rate is not None:
            raise PlanError("give a learning rate, or an optimizer that has its own, not both")
        self._check_budget(rounds)
        done = len(self.history.sums)
        fits = done == rounds if self.history.finished else done <= rounds
        if self._optimizer is not None or not fits:
            raise PlanError(
                f"this federation has {done} rounds of training in its history, and {rounds} were "
                "asked for; set up another one, in another folder"
            )
        everybody = range(self.simulated_peers.peers)
        method = self._watched(train(self._flat.initial, optimizer, range(rounds)))
        result = self._simulation.drive(method, kept=everybody, record=True, observer=observer)
        self._evaluated = result.evaluations.last
        if not self.history.finished:
            self.history.finish(result.model)
        self._optimizer = optimizer
        return self._trained(result)

    def plan(self, rounds: int, learning_rate: float | None, *, optimizer: str) -> Optimizer:
        """Say how the training goes without doing it: recoveries that see nothing of it may ask."""
        layers = self._flat.layers
        self._planned = optimizers.build(optimizer, learning_rate, rounds=rounds, layers=layers)
        return self._planned

    def recover(
        self,
        remove: Sequence[int],
        method: str = methods.DEFAULT,
        *,
        reason: Reason = "left",
        settings: methods.Settings | None = None,
        faults: Faults | None = None,
        accept_differencing: bool = False,
        observer: Observer | None = None,
    ) -> TrainedModel:
        """Rebuild the model without these peers.

        `reason` says whether they are honest peers that left, whose data deserves protection even
        now, or malicious ones. `faults` makes kept peers absent or lying in the openings. A method
        that starts afresh (`accelerated-retrain:start=fresh`) needs no training to have ended.
        """
        methods.check(method, clear=self.clear)
        settings = settings or methods.Settings(
            batch_size=self.simulated_peers.batches.batch_size,
            local_steps=self.simulated_peers.updates.local.steps,
        )
        fresh = methods.starts_afresh(method, settings)
        original = self._known(method)
        kept = self.check_removal(
            remove, reason, accept_differencing=accept_differencing, fresh=fresh
        )
        exposed = unprotected(remove, reason, accepted=accept_differencing)
        methods.check_plan(method, settings, rounds=original.rounds, removed=len(remove))
        original = replace(original, peers=self.simulated_peers.peers, kept=tuple(kept))
        if fresh:
            original = replace(original, fresh=self._fresh_start(kept, method))
        else:
            self._remember(frozenset(kept), unprotected=exposed)
        original = replace(original, goal=self._goal(reason))
        result = self._simulation.drive(
            self._watched(methods.start(method, original, settings)),
            kept=kept,
            faults=faults,
            observer=observer,
            unprotected=exposed,
        )
        return self._trained(result)

    def reference(
        self, remove: Sequence[int], number: int, observer: Observer | None = None
    ) -> Vector:
        """Retrain without these peers from other first weights, with other minibatches.

        It shows what models come to that never saw these peers' data; it opens sums as any
        retraining does, so it is for simulations.
        """
        kept = [p for p in range(self.simulated_peers.peers) if p not in remove]
        fresh, run = self._fresh_start(kept, f"reference {number}"), self.original
        method = train(fresh.first, run.optimizer, range(run.rounds), stream=fresh.stream)
        return self._simulation.drive(method, kept=kept, observer=observer).model

    def check_removal(
        self,
        remove: Sequence[int],
        reason: Reason = "left",
        *,
        accept_differencing: bool = False,
        fresh: bool = False,
    ) -> list[int]:
        """Check that these peers can be removed; return who is kept.

        A recovery that does not start afresh opens their sum at models of the training: in the
        first round at least, and nowhere more sums than there.
        """
        tolerance, peers = self.scheme.quorums.tolerance, self.simulated_peers.peers
        kept = check_removal(remove, peers=peers, tolerance=tolerance, reason=reason)
        also = unprotected(remove, reason, accepted=accept_differencing)
        question = None if fresh else FIRST_ROUND
        self._guard.check(question, frozenset(kept), also=also)
        self.history.cohorts_of(kept)
        sum_store(self._simulation, kept, Faults())
        return kept

    def _remember(self, *recovered: frozenset[int], unprotected: frozenset[int]) -> None:
        """Take into account that sums over these kept peers are opened at the training's models.

        What `unprotected` peers dealt need not be hidden from now on.
        """
        self._recovered += recovered
        self._guard.unprotected |= unprotected
        self._guard.note(FIRST_ROUND, *recovered)

    @property
    def original(self) -> Original:
        """What everybody knows of the training run."""
        if self._optimizer is None or not self.history.finished:
            raise PlanError(UNTRAINED)
        return Original(
            models=self.history.models,  # type: ignore[arg-type] # indexed, and has a length
            optimizer=self._optimizer,
            code=self.simulated_peers.code,
            layers=self._flat.layers,
        )

    def _watched(self, method: Method) -> Method:
        """Return the method with evaluations, if peers hold samples out."""
        return evaluated(method, self._terms.every) if self._terms.most else method

    def _goal(self, reason: Reason) -> Vector | Tally | None:
        """Return what a recovery is to come up to, if that is known.

        After malicious peers the kept ones evaluate the trained model again. After leavers they do
        not: together with all peers' evaluation that would open the leavers' own.
        """
        if not self._terms.most or not self.history.finished:
            return None
        return self._evaluated if reason == "left" else self.original.models[-1]

    def _known(self, method: str) -> Original:
        """Return what a method may use: the training run, or first weights if that is enough."""
        trained = self._optimizer is not None and self.history.finished
        if trained or methods.entry_of(method).sees != "nothing":
            return self.original
        return Original(
            models=[self._flat.initial],
            optimizer=self._planned or _NotTrained(),
            code=self.simulated_peers.code,
            layers=self._flat.layers,
        )

    def _fresh_start(self, kept: Sequence[int], method: str) -> FreshStart:
        """Return what follows from the run's seed and first weights, who is kept, and the method.

        Between real peers it follows from the removal's digest. Who attacks is in neither.
        """
        seed, first = self.simulated_peers.batches.seed, self._flat.initial.tobytes()
        text = json.dumps([seed, hashlib.sha256(first).hexdigest(), list(kept), method])
        return FreshStart.drawn(hashlib.sha256(text.encode()).digest(), self._first_weights)

    def _first_weights(self, seed: int) -> Vector:
        if self._new_model is None:
            return self._flat.redrawn(seed)
        module = self._new_model(seed)
        if (size := FlatModel(module, self._flat.example_shape).size) != self._flat.size:
            raise ModelError(
                f"new_model returned a module of {size} weights, and the model has "
                f"{self._flat.size}; it must return the same module with other first weights"
            )
        return FlatModel(module, self._flat.example_shape).initial

    def unfinished(self, weights: Vector) -> TrainedModel:
        """Return a model that a recovery had come to when it failed, with its ledger so far."""
        ledger = self._simulation.latest
        if ledger is None:
            raise PlanError("no recovery was begun")
        return TrainedModel(weights=weights, ledger=ledger, _flat=self._flat)

    def _trained(self, result: MethodOutcome) -> TrainedModel:
        found = result.evaluations
        return TrainedModel(
            weights=result.model,
            ledger=result.ledger,
            evaluations=tuple(found.points),
            continued=tuple(found.continued),
            _flat=self._flat,
        )

    def _check_budget(self, rounds: int) -> None:
        layout = self.history.layout
        needed = rounds * layout.bytes_per_round()
        if needed > self._budget:
            raise HistoryError(
                f"the history of {rounds} rounds would take {needed / 1e9:.1f} GB for "
                f"{len(layout.cohorts)} cohorts, and {self._budget / 1e9:.1f} GB are allowed. Name "
                "cohorts of peers that will only be removed together (cohorts=[[0, 1, 2], …]), or "
                "allow more (budget=…)"
            )

    def _digest(self) -> str:
        """Return a digest of what makes this run what it is; sizes stand for the data."""
        simulated_peers = self.simulated_peers
        facts = {
            "weights": simulated_peers.updates.weights.tolist(),
            "batch_size": simulated_peers.batches.batch_size,
            "seed": simulated_peers.batches.seed,
            "bound": simulated_peers.updates.bound,
            "local": _local_of_earlier(simulated_peers.updates.local),
            "malicious": list(simulated_peers.malicious),
            "attack": re.sub(r" at 0x[0-9a-f]+", "", repr(simulated_peers.attack)),
            "tolerance": str(self.scheme.quorums.tolerance),
            "clear": self.clear,
            "initial": hashlib.sha256(self._flat.initial.tobytes()).hexdigest(),
        }
        if simulated_peers.held_out:
            facts["held_out"] = simulated_peers.held_out_share
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path | str) -> None:
        """Write the trained federation to a folder: its settings and its history, no data."""
        if self._optimizer is None:
            raise PlanError("there is nothing to save yet: train the federation first")
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if not place.samefile(self.history.folder):
            for name in FILES:
                shutil.copy2(self.history.folder / name, place / name)
        tolerance = self.scheme.quorums.tolerance
        settings = {
            "format": FORMAT,
            "tolerance": vars(tolerance),
            "batch_size": self.simulated_peers.batches.batch_size,
            "seed": self.simulated_peers.batches.seed,
            "bound": self.simulated_peers.updates.bound,
            "l2": (local := self.simulated_peers.updates.local).l2,
            "local_steps": local.steps,
            "local_rate": local.rate,
            "held_out": self.simulated_peers.held_out_share,
            "evaluate_every": self._terms.every,
            "evaluated": None if self._evaluated is None else vars(self._evaluated),
            "malicious": list(self.simulated_peers.malicious),
            "cohorts": [list(cohort) for cohort in self.history.layout.cohorts],
            "clear": self.clear,
            "optimizer": optimizers.as_record(self._optimizer),
            "recovered": [sorted(kept) for kept in self._recovered],
            "unprotected": sorted(self._guard.unprotected),
        }
        write_json(place / "federation.json", settings, HistoryError)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        model: torch.nn.Module,
        datasets: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        attack: Attack | None = None,
        new_model: NewModel | None = None,
    ) -> Self:
        """Take up a saved federation again, with the module and the data it was trained with.

        The module must have the weights that training started from.
        """
        path = Path(folder) / "federation.json"
        missing = "name the folder of a saved federation"
        settings = read_json(path, HistoryError, missing=missing, damaged="train it again")
        try:
            found = settings.pop("format")
            if found != FORMAT:
                raise HistoryError(f"{path} has format {found}, and this version reads {FORMAT}")
            optimizer = optimizers.from_record(settings.pop("optimizer"))
            tolerance = Tolerance(**settings.pop("tolerance"))
            recovered = [frozenset(kept) for kept in settings.pop("recovered")]
            exposed = frozenset(settings.pop("unprotected", ()))
            values = {key: settings.pop(key) for key in SAVED}
            values |= {key: settings.pop(key) for key in SAVED_LATER if key in settings}
            tally = settings.pop("evaluated", None)
            evaluated_as = None if tally is None else Tally(**tally)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HistoryError(f"{path} is damaged: {error}") from error
        federation = cls.simulate(
            model,
            datasets,
            tolerance,
            attack=attack,
            folder=folder,
            new_model=new_model,
            **values,
        )
        if not federation.history.finished:
            raise HistoryError(
                f"the history in {folder} is half-written: {len(federation.history.sums)} rounds "
                f"and {len(federation.history.models)} models; train it again"
            )
        federation._optimizer = optimizer
        federation._remember(*recovered, unprotected=exposed)
        federation._evaluated = evaluated_as
        return federation


def _local_of_earlier(local: LocalTraining) -> str:
    """Return local training as earlier versions wrote it, so that what they saved still loads."""
    rate = local.rate if local.steps > 1 else 0.01
    return f"LocalTraining(l2={local.l2!r}, steps={local.steps!r}, rate={rate!r})"
