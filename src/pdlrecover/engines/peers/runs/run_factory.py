"""Makes a peer's runs: founding, standardisation, training, recoveries and namings."""

import copy
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pdlrecover.adversary import Attack, Phase
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.protocol.contracts import Crypto, Store
from pdlrecover.engines.peers.protocol.messages import NOTHING, RemovalProposal
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.run_protocol import ANSWER_BYTES
from pdlrecover.engines.peers.protocol.step_memory import PROMISE_NAME
from pdlrecover.engines.peers.removals.rule import UNTRAINED
from pdlrecover.engines.peers.removals.terms import RemovalTerms
from pdlrecover.engines.peers.removals.votes import Removal
from pdlrecover.engines.peers.runs import founding, standardising
from pdlrecover.engines.peers.runs.contribution import Contribution
from pdlrecover.engines.peers.runs.driver import Driver, Statistics
from pdlrecover.engines.peers.runs.result_files import ResultFiles
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.engines.peers.runs.void_rounds import VoidRound
from pdlrecover.engines.update_source import Dealing
from pdlrecover.errors import PlanError, RangeError
from pdlrecover.learning import Dataset, FlatModel, LocalTraining, most_held_out
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.models import build
from pdlrecover.recovery import methods
from pdlrecover.recovery.evaluation import NUMBERS, EvaluationTerms, decode_tally, evaluated
from pdlrecover.recovery.naming import naming
from pdlrecover.recovery.removal import unprotected
from pdlrecover.recovery.requests import FreshStart, LocalSteps, Method, Original, Tally, Vector
from pdlrecover.recovery.retrain import train


def training_run(membership: Membership, model: FlatModel) -> bytes:
    """Return a digest of all that the training depends on in public, but for its epoch.

    It is the name of the training where that was begun before there were epochs.
    """
    initial = hashlib.sha256(model.initial.astype("<f8").tobytes()).digest()
    return hashlib.sha256(b"pdlrecover training" + membership.run_digest + initial).digest()


class RunFactory:
    """Makes this peer's part in each run; `results` writes down what it came to."""

    def __init__(
        self,
        *,
        me: int,
        membership: Membership,
        model: FlatModel,
        data: Dataset | Dealing,
        crypto: Crypto,
        store: Store,
        folder: Path,
        attack: Attack | None = None,
    ) -> None:
        """Take `data`, its training part, as this peer's own; `attack` is for drills.

        A program may deal for this peer instead.
        """
        self.me, self.membership, self.folder, self.store = me, membership, folder, store
        self.peers, self.rounds = len(membership.peers), membership.training.rounds
        self._crypto, self._flat = crypto, copy.copy(model)
        self.results = ResultFiles(folder, membership, self._flat)
        self._standard = membership.standardisation
        self.inputs = ""
        """The scale of inputs in a few words, once it is agreed on, or why there is none."""
        self.standardised = self._standard is None
        """Whether the scale of inputs is known here, or none is needed."""
        training, held_out = membership.training, membership.evaluation.held_out
        most = most_held_out(held_out, training.samples)
        self._terms = (
            EvaluationTerms(every=membership.evaluation.every, most=most, peers=self.peers)
            if most
            else None
        )
        self._optimizer = training.steps(model.layers)
        self._contribution = (
            _from_samples(me, membership, self._flat, data, attack)
            if isinstance(data, Dataset)
            else Contribution.by(data)
        )
        self.bounds = training.bounds(model.size)
        """Of what peers deal."""
        self._without_epoch = training_run(membership, model)
        self.founding = membership.founding_run
        """The name of the run in which the epoch is agreed on."""
        self.founded = False
        """Whether the epoch is known here, so that the training can begin."""
        self._name(self._without_epoch)
        if named := founding.recall_name(store):
            self._name(named)
            self.founded = True
        else:
            self.founded = self._began_without_epoch()

    def _name(self, training: bytes) -> None:
        self.training = training
        """The name of the training run."""
        self.store.name_training(training)
        self.standardising = standardising.standardising_run(training)
        """The name of the run in which the scale of inputs is agreed on."""
        self.history = TrainingRounds(
            self.store, training, rounds=self.rounds, terms=self._terms, bounds=self.bounds
        )
        """The training by its rounds, as far as it is stored here."""

    def _began_without_epoch(self) -> bool:
        """Say whether the history is of before there were epochs: it keeps its name."""
        store, run = self.store, self._without_epoch
        return bool(store.log(run)) or store.promised(run, PROMISE_NAME) is not None

    def settle_epoch(self, epoch: bytes) -> None:
        """Name the training by the epoch that the founding run came to."""
        self.join(founding.epoch_named(self._without_epoch, epoch))

    def join(self, training: bytes) -> None:
        """Take part in the training of this name."""
        self._name(training)
        self.founded = True
        founding.remember_name(self.store, training)

    @property
    def epoch_name(self) -> bytes:
        """The name of the training if it has an epoch, `NOTHING` otherwise: see `RemovalTerms`."""
        return NOTHING if self.training == self._without_epoch else self.training

    def founder(self) -> RunSession | None:
        """Return this peer's part in the founding run; None if it has none."""
        if self.founded and not self.store.log(self.founding):
            return None
        return founding.found(self.context(self.founding, range(self.peers)), self.store)

    def standardiser(self) -> RunSession | None:
        """Return this peer's part in agreeing on the scale of inputs; None if there is none."""
        if self._standard is None:
            return None
        statistics = Statistics(
            terms=self._standard,
            compute=partial(self._contribution.statistics, terms=self._standard),
        )
        context = self.context(self.standardising, range(self.peers))
        return standardising.standardiser(context, self.store, statistics)

    def settle_inputs(self, session: RunSession) -> None:
        """Bring inputs to the scale that was agreed on, if it was, and write it down."""
        driver, terms = session.driver, self._standard
        if terms is None or driver.model is None:
            raise PlanError("there is no scale of inputs to take: it is not agreed on")
        if why := standardising.why_not(session):
            self.inputs = why
            return
        scale = self._flat.inputs = InputScale.of(driver.model, terms.scale_shape)
        self.standardised = True
        clipped = self._contribution.clipped_inputs(terms)
        self.inputs = f"standardised, {terms.groups} per {terms.per}, digest {scale.digest[:16]}"
        if clipped:
            self.inputs += f"; {clipped} numbers of this peer count as ±{terms.bound:g} in it"
        self.results.write_scale(session, terms, scale, clipped)

    @property
    def largest_message(self) -> int:
        """No honest peer sends more bytes at once: fetched answers, or a share with its proof."""
        most = max(self._contribution.code.length, self._standard.groups if self._standard else 0)
        update = 8 * most
        return 2 * ANSWER_BYTES + 4 * update + 1000 * self.peers

    def context(self, run: bytes, peers: Sequence[int]) -> RunContext:
        """Return the peers of a run, as this one sees it."""
        return RunContext(
            me=self.me,
            peers=tuple(peers),
            scheme=self.membership.scheme,
            crypto=self._crypto,
            federation=self.membership.digest,
            run=run,
            deadlines=self.membership.deadlines,
            names=tuple(peer.name for peer in self.membership.peers),
        )

    def trainer(self) -> RunSession:
        """Return this peer's part in the training."""
        method = train(self._flat.initial, self._optimizer, range(self.rounds))
        return self._session(method, self.context(self.training, range(self.peers)), self.rounds)

    def recoverer(self, removal: Removal, closed: frozenset[int] = frozenset()) -> RunSession:
        """Return this peer's part in the recovery that a removal asks for.

        The stored sums of `closed` rounds must not be opened.
        """
        proposal = removal.proposal
        settings = RemovalTerms.from_line(proposal.settings).recovery.settings(
            self.membership.training, accept_differencing=proposal.accept_differencing
        )
        afresh = methods.starts_afresh(proposal.method, settings)
        models = self.history.models
        if not afresh and not self.history.finished:
            raise PlanError(UNTRAINED)
        original = Original(
            models=[self._flat.initial] if afresh else models,
            optimizer=self._optimizer,
            code=self._contribution.code,
            layers=self._flat.layers,
            fresh=FreshStart.drawn(self.training + proposal.digest, self._first_weights)
            if afresh
            else None,
            closed=closed,
            goal=self._goal(proposal),
            peers=self.peers,
            kept=tuple(removal.kept),
            void=() if afresh else self.history.void,
        )
        method = methods.start(proposal.method, original, settings)
        context = self.context(proposal.digest, removal.kept)
        rounds = methods.length(proposal.method, original, settings)
        hidden = unprotected(
            proposal.removed, proposal.reason, accepted=proposal.accept_differencing
        )
        return self._session(method, context, rounds, self.history, hidden)

    def namer(self, void: VoidRound, peers: Sequence[int]) -> RunSession:
        """Return this peer's part in finding who made a round of a run of these peers void."""
        method = naming(void.round, self.store.asked_at(void.run, void.step))
        driver = Driver(
            context=self.context(void.naming, peers),
            method=method,
            code=self._contribution.code,
            store=self.store,
            contribute=self._contribution,
            rounds=void.round,
            bounds=self.bounds,
            naming=void,
        )
        return RunSession(driver, self.store)

    def _goal(self, proposal: RemovalProposal) -> Vector | Tally | None:
        """Return what a recovery is to come up to; None if the training had not ended.

        After malicious peers the kept ones evaluate the trained model again. After leavers they do
        not: together with all peers' evaluation that would open the leavers' own.
        """
        if self._terms is None or proposal.after == NOTHING:
            return None
        if proposal.reason != "left":
            return self.history.models[-1]
        last = self.store.log(self.training)[-1]
        if len(last.values) != NUMBERS:
            return None
        try:
            return decode_tally(last.values, len(last.dealers) * self._terms.most)
        except RangeError:
            return None

    def _first_weights(self, seed: int) -> Vector:
        """Return the model's weights as its maker draws them from another seed."""
        model = self.membership.model
        module = build(model.name, model.shape, model.classes, seed)
        return FlatModel(module, model.shape).initial

    def dealers(self) -> list[tuple[int, ...]]:
        """Return who dealt in each round of the training; nobody, where it was void."""
        history = self.history
        return [() if history.is_void(t) else history.dealers(t) for t in range(len(history))]

    def _session(
        self,
        method: Method,
        context: RunContext,
        rounds: int,
        history: TrainingRounds | None = None,
        unprotected: frozenset[int] = frozenset(),
    ) -> RunSession:
        phase: Phase = "recovery" if history else "training"
        training = self.membership.training
        driver = Driver(
            context=context,
            method=evaluated(method, self._terms.every) if self._terms else method,
            code=self._contribution.code,
            store=self.store,
            contribute=partial(self._contribution, phase=phase),
            evaluate=partial(self._contribution.evaluate, phase=phase) if self._terms else None,
            most_held_out=self._terms.most if self._terms else 0,
            history=history,
            unprotected=unprotected,
            rounds=rounds,
            bounds=self.bounds,
            local=LocalSteps(steps=training.local_steps, rate=training.local_rate),
        )
        return RunSession(driver, self.store)


def _from_samples(
    me: int, membership: Membership, model: FlatModel, data: Dataset, attack: Attack | None
) -> Contribution:
    """Return what this peer computes from its samples."""
    training = membership.training
    return Contribution(
        peer=me,
        peers=len(membership.peers),
        model=model,
        x=data.train_x,
        y=data.train_y,
        size_bound=training.samples,
        batch_size=training.batch_size,
        seed=training.seed,
        bound=training.bound,
        local=LocalTraining(l2=training.l2, steps=training.local_steps, rate=training.local_rate),
        fraction_bits=training.fraction_bits,
        attack=attack,
        held_out=membership.evaluation.held_out,
    )
