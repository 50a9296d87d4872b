"""The simulation engine: all peers in one process, requests answered for real.

Rules:

- By linearity the sum of dealt shares is the dealing of the sum, so one dealing per cohort and
  round serves all of its peers; what is opened is bit-identical to n separate dealings.
- Training is a method like any other, driven with everybody kept and with `record`: then each
  cohort's sum is dealt by itself and written to the history. Rounds that the history already has
  are answered from it, which is how an interrupted training goes on.
- The clock runs while a request is answered or a method computes, never while an observer runs.
- `observer` is a function that is called after every round, and may raise to end the run; `follow`
  is told what there is to keep, see `engines.events`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from pdlrecover.adversary import Phase
from pdlrecover.engines.bounds import Bounds, Void, checked_sum
from pdlrecover.engines.computing import Computing
from pdlrecover.engines.encoding import decode_dots, encode_direction, encode_vectors
from pdlrecover.engines.evaluations import Evaluations
from pdlrecover.engines.events import Follow
from pdlrecover.engines.following import Meter
from pdlrecover.engines.ledger import Ledger
from pdlrecover.engines.simulated_peers import SimulatedPeers
from pdlrecover.engines.sum_store import ClearSums, Faults, HeldSum, SharedSums, SumStore
from pdlrecover.engines.traffic import Traffic
from pdlrecover.engines.update_source import UpdateSource
from pdlrecover.errors import HistoryError, PlanError, RangeError
from pdlrecover.field import Integers, Source, SystemSource, one_blas_thread
from pdlrecover.history import RunHistory
from pdlrecover.recovery import requests
from pdlrecover.recovery.evaluation import NUMBERS
from pdlrecover.recovery.privacy import PrivacyGuard, trained_round
from pdlrecover.recovery.requests import (
    HeadSums,
    Individuals,
    Method,
    Moment,
    Request,
    Sum,
    Tally,
    Vector,
)
from pdlrecover.recovery.schedule import MAX_BUFFER
from pdlrecover.recovery.standardisation import StandardisationTerms
from pdlrecover.sharing import Scheme

Observer = Callable[[requests.Stepped], None]
_Opened = Sum | tuple[Sum | None, ...] | Vector | HeadSums | Integers | Tally | Moment | float
Answer = _Opened | Individuals


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodOutcome:
    """The model that a method came to, and what that took."""

    model: Vector
    ledger: Ledger
    evaluations: Evaluations
    void: tuple[Void, ...] = ()
    """Which of its sums were void, and why: see `engines.bounds`."""


@dataclass(kw_only=True, eq=False)
class Simulation:
    """A federation in one process."""

    simulated_peers: UpdateSource
    scheme: Scheme
    history: RunHistory
    guard: PrivacyGuard
    """Asked before every opening on shares."""
    clear: bool = False
    source: Source | None = None
    standard: StandardisationTerms | None = None
    """How inputs are standardised, if they are."""
    computing: Computing | None = None
    """What computes sums elsewhere, if not this process."""
    latest: Ledger | None = None
    """The ledger of the last method that was run, finished or not."""

    def __post_init__(self) -> None:
        one_blas_thread()

    def drive(
        self,
        method: Method,
        *,
        kept: Sequence[int],
        record: bool = False,
        faults: Faults | None = None,
        observer: Observer | None = None,
        follow: Follow | None = None,
        unprotected: frozenset[int] = frozenset(),
    ) -> MethodOutcome:
        """Run a method to its end, answering its requests for the kept peers.

        `unprotected` are removed peers whose updates need not be hidden.
        """
        store: SumStore[Any] = sum_store(self, sorted(kept), faults or Faults())  # of either kind
        tallies: SumStore[Any] = sum_store(self, sorted(kept), faults or Faults(), NUMBERS)
        run = _MethodRun(self, tuple(sorted(kept)), record, store, tallies, unprotected)
        ledger = self.latest = run.ledger
        meter = None if follow is None else Meter(ledger, follow, run.seconds)
        answer: Answer | None = None
        while True:
            try:
                with run.timed("estimation"):
                    request = method.send(answer)
            except StopIteration as end:
                model: Vector = end.value
                return MethodOutcome(
                    model=model,
                    ledger=ledger,
                    evaluations=run.evaluations,
                    void=tuple(run.void),
                )
            ledger.enter(request)
            if isinstance(request, requests.Stepped):
                answer = None
                if meter is not None:
                    meter.step(request)
                if observer:
                    observer(request)
            elif isinstance(request, requests.Continued):
                answer = None
                run.evaluations.go_on(request)
            else:
                stored = run.is_stored(request)
                answer = run.answer(request)
                if meter is not None:
                    meter.replays = stored
                    meter.take(answer)
                    meter.evaluate(run.evaluations.points)


class _MethodRun(Generic[HeldSum]):
    """One method's run: who is kept, what was dealt freshly, and the pairs made of it."""

    def __init__(
        self,
        simulation: Simulation,
        kept: tuple[int, ...],
        record: bool,
        sum_store: SumStore[HeldSum],
        tallies: SumStore[Any],
        unprotected: frozenset[int],
    ) -> None:
        self._simulation = simulation
        self._simulated_peers, self._history = simulation.simulated_peers, simulation.history
        self._computing = simulation.computing or simulation.simulated_peers
        self._code = self._simulated_peers.code
        self._bounds = Bounds.of(self._code)
        self.void: list[Void] = []
        self._kept, self._record = kept, record
        self._cohorts = self._history.cohorts_of(kept)
        self._clear, self._sum_store, self._tallies = simulation.clear, sum_store, tallies
        self.evaluations = Evaluations(most=self._simulated_peers.most_held_out)
        self._guard, self._unprotected = simulation.guard, unprotected
        traffic = Traffic(
            quorums=simulation.scheme.quorums,
            parameters=self._simulated_peers.model.size,
            rounds=1,
            taking_part=len(kept),
        )
        removed = self._simulated_peers.peers - len(kept)
        steps = self._simulated_peers.local.steps
        self.ledger = Ledger(kept=len(kept), removed=removed, traffic=traffic, local_steps=steps)
        if isinstance(sum_store, SharedSums):
            self.ledger.liars = tallies.caught = sum_store.caught
        self._fresh: OrderedDict[int, HeldSum] = OrderedDict()
        self._pairs: OrderedDict[int, HeldSum] = OrderedDict()

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start, used = time.perf_counter(), self._processor_seconds()
        try:
            yield
        finally:
            self.ledger.seconds[part] += time.perf_counter() - start
            self.ledger.processor_seconds += self._processor_seconds() - used

    def _processor_seconds(self) -> float:
        """Return the processor time that was used so far, here and elsewhere."""
        elsewhere = self._simulation.computing
        return time.process_time() + (elsewhere.processor_seconds if elsewhere else 0.0)

    def seconds(self) -> float:
        """Return the seconds so far."""
        return sum(self.ledger.seconds.values())

    def is_stored(self, request: Request) -> bool:
        """Say whether an interrupted training has this round already."""
        if not self._record or not isinstance(request, requests.Update):
            return False
        return request.round < self._history.rounds

    def answer(self, request: Request) -> Answer | None:
        match request:
            case requests.Update():
                return self._update(request)
            case requests.Past(rounds=rounds):
                return self._past(rounds)
            case requests.PastBlocks(blocks=blocks):
                return tuple(map(self._past, blocks))
            case requests.Dots():
                return self._dots(request)
            case requests.Direction():
                return self._direction(request)
            case requests.Removed(rounds=rounds):
                return self._removed(rounds)
            case requests.Evaluation():
                return self._evaluation(request)
            case requests.Moments():
                return self._moments(request)
            case requests.Individual():
                return self._individual(request)
            case requests.Loss(round=t):
                return self._loss(t)
            case requests.LastLayer():
                return self._computed("the model's last layer").head.places
            case requests.Head():
                return self._head(request)
            case _:
                raise PlanError(f"a simulation cannot answer a {type(request).__name__} request")

    def _update(self, request: requests.Update) -> Sum | None:
        """Compute and deal fresh updates, record them if this is training, open their sum."""
        t = request.round
        if self.is_stored(request):
            if not np.array_equal(self._history.models[t], request.at):
                raise HistoryError(
                    f"the history's model of round {t} is not the one that training came to; it "
                    "belongs to another run: train in another folder"
                )
            return self._past((t,))
        timed = nullcontext if request.before else self.timed
        with timed("gradient"):
            phase: Phase = "training" if self._record else "recovery"
            asked = self._asked(request.of)
            self._may_open(self._question(request), asked)
            groups = self._history.layout.cohorts if self._record else (asked,)
            sums = self._computing.sums(
                t,
                request.at,
                groups,
                phase,
                stream=request.stream,
                local=request.local,
                teacher=request.teacher,
            )
        with timed("dealing"):
            dealt = self._sum_store.deal(sums)
            if self._record:
                self._history.record(request.at, dealt)
        with timed("opening"):
            held = self._sum_store.total(self._sum_store.read(dealt, range(len(groups))))
            if request.of is None and request.teacher is None:
                self._fresh[t] = held
                while len(self._fresh) > MAX_BUFFER:
                    self._fresh.popitem(last=False)
            return self._opened(held, sum(map(len, groups)), about=t)

    def _asked(self, of: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return these of the kept peers."""
        return self._kept if of is None else tuple(self._kept[i] for i in of)

    def _question(self, request: requests.Update) -> Hashable:
        """Return what is asked of a peer: what the training asked, if it is that."""
        if self._record:
            return trained_round(request.round)
        t, models, usual = request.round, self._history.models, self._simulated_peers.local
        same = request.local in (None, usual) or request.local.steps == usual.steps == 1
        own = same and not request.stream and request.teacher is None
        if own and t < len(models) and np.array_equal(models[t], request.at):
            return trained_round(t)
        return replace(request, local=None if same else request.local).question

    def _may_open(self, question: Hashable, peers: Sequence[int]) -> None:
        """Ask the guard, where anything is private."""
        if not self._clear:
            self._guard.open(question, frozenset(peers), also=self._unprotected)

    def _past(self, rounds: tuple[int, ...]) -> Sum | None:
        """Open the stored sums of a block of rounds, added up."""
        with self.timed("opening"):
            held = self._sum_store.total([self._stored(t) for t in rounds])
            return self._opened(held, len(rounds) * len(self._kept), about=rounds[0])

    def _removed(self, rounds: tuple[int, ...]) -> Sum | None:
        """Open the removed peers' stored sums, added up."""
        others = [c for c in range(len(self._history.layout.cohorts)) if c not in self._cohorts]
        if not others:
            raise PlanError(
                "this method asks for the sums of the removed peers, and no peer is removed"
            )
        removed = set(range(self._simulated_peers.peers)) - set(self._kept)
        for t in rounds:
            self._may_open(trained_round(t), sorted(removed))
        size = len(rounds) * (self._simulated_peers.peers - len(self._kept))
        with self.timed("opening"):
            held = self._sum_store.total([self._stored(t, others) for t in rounds])
            return self._opened(held, size, about=rounds[0])

    def _evaluation(self, request: requests.Evaluation) -> Tally | None:
        """Deal and open what the kept peers count on their held-out samples."""
        if not self._simulated_peers.most_held_out:
            raise PlanError(
                "models can be evaluated only where peers hold samples out; set the federation up "
                "with held_out=0.1, say"
            )
        with self.timed("gradient"):
            phase: Phase = "training" if self._record else "recovery"
            tally = self._computing.tally(request.at, self._kept, phase)
        with self.timed("dealing"):
            dealt = self._tallies.deal(tally[None])
        with self.timed("opening"):
            opened = self._tallies.open(self._tallies.read(dealt, [0])[0])
        return self.evaluations.enter(request, opened, len(self._kept))

    def _moments(self, request: requests.Moments) -> Moment:
        """Deal and open the kept peers' sums of inputs; they are honest, so no sum is void."""
        terms = self._simulation.standard
        if terms is None:
            raise PlanError(
                "inputs are standardised only where that was agreed on; set the federation up with "
                "standardise=True"
            )
        self._may_open(("statistics", request.order), self._kept)
        store: SumStore[Any] = sum_store(
            self._simulation, self._kept, Faults(), len(request.at) + 1
        )
        with self.timed("gradient"):
            peers = self._simulation.computing or self._computed("the samples' own statistics")
            total = peers.statistics(request, self._kept, terms)
        with self.timed("dealing"):
            dealt = store.deal(total[None])
        with self.timed("opening"):
            opened = store.open(store.read(dealt, [0])[0])
        return terms.decode(request, opened, len(self._kept))

    def _individual(self, request: requests.Individual) -> Individuals:
        """Return single peers' updates, where nothing is private.

        Stored ones are computed again, from the stored model and the round's own minibatches; a
        real server would have kept them, so that time is not charged.
        """
        self._check_clear("single peers' updates, which are never opened on shares")
        kept = self._kept
        asked = kept if request.of is None else tuple(kept[i] for i in request.of)
        if request.at is None:
            at = self._history.models[request.round]
            everybody = range(self._simulated_peers.peers)
            return self._simulated_peers.individuals(
                request.round, at, everybody if request.everybody else asked, "training", everybody
            )
        with self.timed("gradient"):
            return self._simulated_peers.individuals(
                request.round, request.at, asked, "recovery", kept
            )

    def _loss(self, t: int) -> float:
        """Return the kept peers' training loss of a round; known in training, so not charged."""
        self._check_clear("training losses, which peers that share updates keep to themselves")
        return self._computed("training losses").loss(t, self._history.models[t], self._kept)

    def _head(self, request: requests.Head) -> HeadSums:
        """Return sums over whole datasets, where nothing is private.

        By linearity they could be dealt and opened like updates; this engine does not.
        """
        self._check_clear("Hessians over peers' whole data, which are never opened on shares")
        everybody = range(self._simulated_peers.peers)
        removed = [peer for peer in everybody if peer not in set(self._kept)]
        if not removed:
            raise PlanError(
                "this method asks for the data of the removed peers, and no peer is removed"
            )
        asked = {"kept": self._kept, "removed": removed, "all": everybody}[request.of]
        with self.timed("gradient"):
            return self._computed("Hessians over whole data").head_sums(
                request.at, request.head, asked
            )

    def _computed(self, what: str) -> SimulatedPeers:
        """Return the peers if they are computed from data that are here; else refuse."""
        return computed(self._simulated_peers, f"this method asks for {what}")

    def _check_clear(self, what: str) -> None:
        if not self._clear:
            raise PlanError(
                f"this method asks for {what}; run it in the clear (--clear), or choose another "
                "method"
            )

    def _dots(self, request: requests.Dots) -> Vector:
        """Open dot products; each vector is first scaled to 20 bits, by a power of two."""
        with self.timed("estimation"):
            encoded, scales = encode_vectors(self._code, request.vectors)
        with self.timed("opening"):
            opened = self._sum_store.dots([self._pair(b) for b in request.pairs], encoded)
        return decode_dots(self._code, opened, scales)

    def _direction(self, request: requests.Direction) -> Sum | None:
        """Open stored sums plus a combination of pairs, whose coefficients have f bits too."""
        with self.timed("estimation"):
            coefficients = encode_direction(self._code, request)
            stored = [self._stored(t) for t in request.rounds]
            pairs = [self._pair(b) for b in request.pairs]
            combined = self._sum_store.combine([*stored, *pairs], coefficients)
            one, weights = self._bounds.one, sum(coefficients[: len(stored)]) * len(self._kept)
            pairs_size = 2 * len(self._kept) * sum(map(abs, coefficients[len(stored) :]))
        with self.timed("opening"):
            return self._opened(
                combined,
                weights + pairs_size,
                about=request.rounds[0],
                weights=weights,
                scale=one,
            )

    def _stored(self, t: int, cohorts: Sequence[int] | None = None) -> HeldSum:
        """Return what the peers that answer hold of a round's stored sum, of the kept peers."""
        if not 0 <= t < len(self._history.sums):
            raise PlanError(
                f"round {t} was asked for, and the history has {len(self._history.sums)}"
            )
        if cohorts is None:
            self._may_open(trained_round(t), self._kept)
        chosen = self._cohorts if cohorts is None else cohorts
        return self._sum_store.total(self._sum_store.read(self._history.dealt(t), chosen))

    def _pair(self, b: int) -> HeldSum:
        """Return what is held of the pair of round b: its fresh sum minus its stored one."""
        if b not in self._pairs:
            if b not in self._fresh:
                raise PlanError(f"there is no pair of round {b}: ask for its update first")
            self._pairs[b] = self._sum_store.difference(self._fresh[b], self._stored(b))
        self._pairs.move_to_end(b)
        while len(self._pairs) > MAX_BUFFER:
            self._pairs.popitem(last=False)
        return self._pairs[b]

    def _opened(self, held: HeldSum, size: int, *, about: int, **terms: int) -> Sum | None:
        """Open a sum of `size` dealings; None if it is void."""
        try:
            return checked_sum(self._bounds, self._sum_store.open(held), size, **terms)
        except RangeError as error:
            self.void.append(Void(round=about, why=str(error)))
            return None


def computed(source: UpdateSource, why: str) -> SimulatedPeers:
    """Return the peers if they are computed from data that are here; else refuse, saying why."""
    if not isinstance(source, SimulatedPeers):
        raise PlanError(
            f"{why}, which needs the peers' samples or single gradients, and these peers' updates "
            f"come from a program of their own ({source.about()[0][1]}); choose what asks for "
            "updates only"
        )
    return source


def sum_store(
    simulation: Simulation, kept: Sequence[int], faults: Faults, length: int | None = None
) -> ClearSums | SharedSums:
    """Return where this simulation's sums are put: in shares, or in the clear.

    They have this length, by default that of an update and its weight.
    """
    if simulation.clear:
        if faults.absent or faults.liars:
            raise PlanError(
                "nothing is opened by peers in the clear, so none can be absent or lie; leave the "
                "faults out, or run on shares"
            )
        return ClearSums()
    return SharedSums(
        scheme=simulation.scheme,
        length=length or simulation.simulated_peers.code.length,
        responders=tuple(kept),
        faults=faults,
        source=simulation.source or SystemSource(),
        by=simulation.computing.deal if simulation.computing else None,
    )
