"""A simulated federation by its parts: trained, and recovered by peers' numbers.

It is what a `Federation` is without names, files and defaults. Experiments use it as it is.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pdlrecover.cluster import LOCAL
from pdlrecover.engines.events import Follow
from pdlrecover.engines.ledger import Ledger
from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.engines.simulated_peers import SimulatedPeers
from pdlrecover.engines.simulation import (
    MethodOutcome,
    Observer,
    Simulation,
    computed,
    sum_store,
)
from pdlrecover.engines.sum_store import Faults
from pdlrecover.engines.trained_model import TRAINING, Origin, TrainedModel
from pdlrecover.engines.update_source import UpdateSource
from pdlrecover.errors import HistoryError, ModelError, PlanError
from pdlrecover.federation.progress import watched
from pdlrecover.federation.roster import Roster
from pdlrecover.federation.saved import run_digest
from pdlrecover.federation.terms import DEFAULT_BUDGET, NewModel
from pdlrecover.field import Source
from pdlrecover.history import Layout, RunHistory, complete_cohorts
from pdlrecover.learning.classes import Classes
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.intake import Columns
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
from pdlrecover.recovery.standardisation import StandardisationTerms, Standardise, standardising
from pdlrecover.sharing import Scheme

FIRST_ROUND = trained_round(0)
"""Whose sums every recovery opens that does not start afresh."""
UNTRAINED = "there is nothing to recover yet: train the federation first"


class _NotTrained:
    """The optimiser of a run that there is not."""

    def start(self) -> Stepper:
        raise PlanError(UNTRAINED)


class SimulatedFederation:
    """Peers in one process that train one model together, and recover it."""

    def __init__(
        self,
        update_source: UpdateSource,
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
        standardise: Standardise | None = None,
        roster: Roster | None = None,
        classes: Classes | None = None,
        columns: Columns | None = None,
        data: tuple[str, ...] | None = None,
    ) -> None:
        """Put a federation together from its parts; `simulate` is for your model and data.

        `data` are digests of the peers' data, which make the history that of these data only.
        """
        self.update_source, self.scheme, self.clear = update_source, scheme, clear
        self._flat = update_source.model
        self._budget, self._new_model, self._data = budget, new_model, data
        self.roster = roster or Roster(count=update_source.peers)
        self._columns = columns
        self._classes = classes or _numbered(self._flat.classes)
        self._terms = EvaluationTerms(
            every=evaluate_every,
            most=update_source.most_held_out,
            peers=update_source.peers,
        )
        self._evaluated: Tally | None = None
        """What the evaluation of the trained model opened."""
        self.standardise = standardise
        """How inputs are standardised, if they are."""
        self._standard = _terms_of(standardise, update_source)
        self._inputs_ledger: Ledger | None = None
        """What was opened to standardise inputs, in this process."""
        self.clipped_inputs: tuple[int, ...] = ()
        """How many numbers of each peer count as the bound on inputs in their means."""
        whole = complete_cohorts(cohorts, update_source.peers)
        blocks = scheme.quorums.blocks(update_source.code.length)
        record = (update_source.code.length,) if clear else (update_source.peers, blocks)
        tolerance = scheme.quorums.tolerance
        run = run_digest(update_source, tolerance, clear=clear, data=data, standardise=standardise)
        layout = Layout(parameters=self._flat.size, cohorts=whole, record=record, run=run)
        self.history = RunHistory(layout, folder, resume=resume)
        least = 1 if clear else tolerance.colluders + 2
        self._guard = PrivacyGuard(colluders=0, least=least)
        self._guard.open(FIRST_ROUND, frozenset(range(update_source.peers)))
        self._simulation = Simulation(
            simulated_peers=update_source,
            scheme=scheme,
            history=self.history,
            clear=clear,
            source=source,
            guard=self._guard,
            standard=self._standard,
        )
        self._optimizer: Optimizer | None = None
        self._planned: Optimizer | None = None
        self._recovered: list[frozenset[int]] = []

    @property
    def simulated_peers(self) -> SimulatedPeers:
        """The peers, where they are computed from data that are here; others are refused."""
        return computed(self.update_source, "data of peers were asked for")

    def run_training(
        self,
        rounds: int,
        optimizer: Optimizer,
        *,
        progress: bool = False,
        observer: Observer | None = None,
        follow: Follow | None = None,
    ) -> TrainedModel:
        """Train for so many rounds, and store what a recovery needs; see `Federation.train`."""
        self._check_budget(rounds)
        done = len(self.history.sums)
        fits = done == rounds if self.history.finished else done <= rounds
        if self._optimizer is not None or not fits:
            raise PlanError(
                f"this federation has {done} rounds of training in its history, and {rounds} were "
                "asked for; set up another one, in another folder"
            )
        everybody = range(self.update_source.peers)
        self.agree_on_inputs()
        method = self._watched(train(self._flat.initial, optimizer, range(rounds)))
        with watched(TRAINING, rounds, observer, show=progress) as seen:
            result = self._simulation.drive(
                method, kept=everybody, record=True, observer=seen, follow=follow
            )
        if self._inputs_ledger is not None:
            result.ledger.include(self._inputs_ledger)
        self._evaluated = result.evaluations.last
        if not self.history.finished:
            self.history.finish(result.model)
        self._optimizer = optimizer
        return self._trained(result, Origin(rounds=rounds, clear=self.clear))

    @contextmanager
    def sharded(
        self,
        shards: int,
        *,
        on: str = LOCAL,
        deal_on_shards: bool = False,
        mixed_processors: bool = False,
        say: Callable[[str], None] = warnings.warn,
    ) -> Iterator[Self]:
        """Have shards compute for the peers, within this: `with federation.sharded(4): …`.

        - `shards`: how many processes compute; each takes a core.
        - `on`: `"local"` starts them on this machine, `"auto"` or `"HOST:PORT"` on the nodes of a
          Ray cluster, which must be like this machine; see `docs/large-simulations.md`.
        - `deal_on_shards`: have them multiply by the dealing matrix, too. What is dealt is stored
          here in any case, so that no history is lost with a shard.
        - `mixed_processors`: accept nodes with other processors, and other last bits.
        - `say`: is told what there is to know, such as that a shard is lost.

        Models are the same to the bit as without shards.
        """
        from pdlrecover.engines.shards.sharded_peers import sharded

        asked = Sharding(
            shards=shards,
            on=on,
            deal_on_shards=deal_on_shards,
            mixed_processors=mixed_processors,
        )
        peers = computed(self.update_source, "shards were asked for")
        with sharded(peers, self.scheme, asked, say) as computing:
            self._simulation.computing = computing
            try:
                yield self
            finally:
                self._simulation.computing = None

    def agree_on_inputs(self) -> InputScale | None:
        """Standardise inputs by sums over all peers, unless that was done; return their scale.

        It is done once, before the first training or recovery, and kept whoever is removed.
        """
        terms = self._standard
        if terms is not None and self._flat.inputs is None:
            peers = self.simulated_peers
            everybody = range(peers.peers)
            self.clipped_inputs = tuple(peers.clipped_inputs(p, terms) for p in everybody)
            _warn_of_clipped(terms.bound, self.clipped_inputs, self.roster)
            outcome = self._simulation.drive(standardising(terms.groups), kept=everybody)
            self._inputs_ledger = outcome.ledger
            self._flat.inputs = InputScale.of(outcome.model, terms.scale_shape)
        return self._flat.inputs

    def plan(self, rounds: int, learning_rate: float | None, *, optimizer: str) -> Optimizer:
        """Say how the training goes without doing it: recoveries that see nothing of it may ask."""
        layers = self._flat.layers
        self._planned = optimizers.build(optimizer, learning_rate, rounds=rounds, layers=layers)
        return self._planned

    def run_method(
        self,
        removed: Sequence[int],
        method: str,
        *,
        settings: methods.Settings,
        reason: Reason = "left",
        faults: Faults | None = None,
        accept_differencing: bool = False,
        progress: bool = False,
        observer: Observer | None = None,
        follow: Follow | None = None,
    ) -> TrainedModel:
        """Run a method without these peers, by number; nobody need be removed.

        It is what `recover` does once it knows all, and for experiments.
        """
        methods.check(method, clear=self.clear)
        fresh = methods.starts_afresh(method, settings)
        original = self._known(method)
        kept = self.check_removal(
            removed, reason, accept_differencing=accept_differencing, fresh=fresh
        )
        exposed = unprotected(removed, reason, accepted=accept_differencing)
        methods.check_plan(method, settings, rounds=original.rounds, removed=len(removed))
        original = replace(original, peers=self.update_source.peers, kept=tuple(kept))
        self.agree_on_inputs()
        if fresh:
            original = replace(original, fresh=self._fresh_start(kept, method))
        else:
            self._remember(frozenset(kept), unprotected=exposed)
        original = replace(original, goal=self._goal(reason))
        length = methods.length(method, original, settings)
        with watched(f"recovery by {method}", length, observer, show=progress) as seen:
            result = self._simulation.drive(
                self._watched(methods.start(method, original, settings)),
                kept=kept,
                faults=faults,
                observer=seen,
                follow=follow,
                unprotected=exposed,
            )
        return self._trained(result, self._origin(method, removed))

    def reference(
        self, remove: Sequence[int], number: int, observer: Observer | None = None
    ) -> Vector:
        """Retrain without these peers from other first weights, with other minibatches.

        It shows what models come to that never saw these peers' data; it opens sums as any
        retraining does, so it is for simulations.
        """
        self.agree_on_inputs()
        kept = [p for p in range(self.update_source.peers) if p not in remove]
        fresh, run = self._fresh_start(kept, f"reference {number}"), self.original
        method = train(fresh.first, run.optimizer, range(run.rounds), stream=fresh.stream)
        return self._simulation.drive(method, kept=kept, observer=observer).model

    def check_removal(
        self,
        remove: Any,
        reason: Reason = "left",
        *,
        accept_differencing: bool = False,
        fresh: bool = False,
    ) -> list[int]:
        """Check that these peers can be removed; return the numbers of those who are kept.

        A recovery that does not start afresh (`fresh`) opens their sum at models of the training:
        in the first round at least, and nowhere more sums than there.
        """
        removed = self.roster.numbers(remove, "remove")
        tolerance, peers = self.scheme.quorums.tolerance, self.update_source.peers
        kept = check_removal(removed, peers=peers, tolerance=tolerance, reason=reason)
        also = unprotected(removed, reason, accepted=accept_differencing)
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
            code=self.update_source.code,
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
            code=self.update_source.code,
            layers=self._flat.layers,
        )

    def _fresh_start(self, kept: Sequence[int], method: str) -> FreshStart:
        """Return what follows from the run's seed and first weights, who is kept, and the method.

        Between real peers it follows from the removal's digest. Who attacks is in neither.
        """
        seed, first = self.update_source.seed, self._flat.initial.tobytes()
        text = json.dumps([seed, hashlib.sha256(first).hexdigest(), list(kept), method])
        return FreshStart.drawn(hashlib.sha256(text.encode()).digest(), self._first_weights)

    def _first_weights(self, seed: int) -> Vector:
        if self._new_model is None:
            return self._flat.redrawn(seed)
        first = self._flat.first_of(self._new_model(seed))
        if len(first) != self._flat.size:
            raise ModelError(
                f"new_model returned a module of {len(first)} weights, and the model has "
                f"{self._flat.size}; it must return the same module with other first weights"
            )
        return first

    def unfinished(self, weights: Vector) -> TrainedModel:
        """Return a model that a recovery had come to when it failed, with its ledger so far."""
        ledger = self._simulation.latest
        if ledger is None:
            raise PlanError("no recovery was begun")
        return TrainedModel(
            weights=weights,
            ledger=ledger,
            known=self._classes,
            columns=self._columns,
            _flat=self._flat,
        )

    def _trained(self, result: MethodOutcome, origin: Origin) -> TrainedModel:
        found = result.evaluations
        return TrainedModel(
            weights=result.model,
            ledger=result.ledger,
            evaluations=tuple(found.points),
            continued=tuple(found.continued),
            origin=origin,
            known=self._classes,
            columns=self._columns,
            _flat=self._flat,
        )

    def _origin(self, method: str, removed: Sequence[int]) -> Origin:
        names = tuple(self.roster.name(peer) for peer in removed)
        trained = len(self.history.sums) if self._optimizer is not None else 0
        return Origin(method=method, rounds=trained, removed=names, clear=self.clear)

    def _check_budget(self, rounds: int) -> None:
        layout = self.history.layout
        needed = rounds * layout.bytes_per_round()
        if needed > self._budget:
            raise HistoryError(
                f"the history of {rounds} rounds would take {_size(needed)} for "
                f"{len(layout.cohorts)} cohorts, and {_size(self._budget)} are allowed. Name "
                "cohorts of peers that will only be removed together (cohorts=[[0, 1, 2], …]), or "
                "allow more (budget=…)"
            )


def _terms_of(standardise: Standardise | None, source: UpdateSource) -> StandardisationTerms | None:
    """Return what peers agree on to standardise inputs; the largest of them bounds all."""
    if standardise is None:
        return None
    peers = computed(source, "inputs are to be standardised")
    sizes = [int(size) for size in peers.batches.sizes]
    held = [len(part) for part in peers.held_out] or [0] * len(sizes)
    most = max(map(sum, zip(sizes, held, strict=True)))
    shape = peers.updates.model.example_shape
    return standardise.terms(shape, peers=peers.peers, samples=most)


def _numbered(count: int | None) -> Classes | None:
    """Return the classes of a model with so many outputs; None if that is not known."""
    return None if count is None else Classes.numbered(count)


def _warn_of_clipped(bound: float, counts: Sequence[int], roster: Roster) -> None:
    """Warn of inputs beyond the bound."""
    if clipped := sum(counts):
        first = next(peer for peer, count in enumerate(counts) if count)
        warnings.warn(
            f"{clipped} numbers of {sum(map(bool, counts))} peers, {roster.title(first)} first, "
            f"are beyond ±{bound:g}, and count as that much in means and deviations; raise "
            "the bound (standardise=Standardise(bound=…)) if they are no mistakes",
            stacklevel=4,
        )


def _size(count: int) -> str:
    """Return so many bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.3g} MB"
