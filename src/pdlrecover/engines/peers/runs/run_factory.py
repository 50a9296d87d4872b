"""Makes a peer's runs, training and recoveries, and writes their result files."""

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pdlrecover.adversary import Attack, Phase
from pdlrecover.descriptors import remedy
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.folder import (
    STANDARDISATION,
    TRAINED,
    naming_name,
    recovered_name,
)
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
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.engines.peers.runs.void_rounds import VoidRound
from pdlrecover.engines.update_source import Dealing
from pdlrecover.errors import HistoryError, PlanError, RangeError
from pdlrecover.files import write_json, write_whole
from pdlrecover.learning import Dataset, FlatModel, LocalTraining, most_held_out
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.model_files import to_safetensors
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
    """Makes this peer's part in each run, and writes down what it came to."""

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
        facts = {
            "per": terms.per,
            "bound": terms.bound,
            "mean": scale.mean.tolist(),
            "std": scale.std.tolist(),
            "inputs_sha256": scale.digest,
            "clipped_here": self._contribution.clipped_inputs(terms),
            "log": session.protocol.log.hex(),
            "ledger": asdict(driver.participation.record(driver.ledger)),
        }
        self.inputs = f"standardised, {terms.groups} per {terms.per}, digest {scale.digest[:16]}"
        if clipped := facts["clipped_here"]:
            self.inputs += f"; {clipped} numbers of this peer count as ±{terms.bound:g} in it"
        with _writing(self.folder, "the scale of inputs"):
            write_json(self.folder / STANDARDISATION, facts)

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

    def dealt(self, session: RunSession) -> dict[str, int]:
        """Return in how many exact rounds of a run each of its peers dealt, by name."""
        counts = session.driver.participation.dealt
        peers = session.driver.context.peers
        return {self.membership.peers[p].name: counts[p] for p in peers}

    def write_trained(self, session: RunSession) -> None:
        """Write the trained model, and what was opened for it."""
        self._write(TRAINED, session, {"peers": [p.name for p in self.membership.peers]})

    def write_named(self, session: RunSession, void: VoidRound) -> None:
        """Write what was opened to find who made a round void."""
        driver, names = session.driver, [peer.name for peer in self.membership.peers]
        facts = {
            "run": void.run.hex(),
            "round": void.round,
            "dealers": [names[p] for p in sorted(void.dealers)],
            "named": [names[p] for p in sorted(session.named)],
            "log": session.protocol.log.hex(),
            "ledger": asdict(driver.ledger.totals()),
        }
        name = self.folder / f"{naming_name(void.naming.hex())}.json"
        with _writing(self.folder, "who was named"):
            write_json(name, facts)

    def write_recovered(self, session: RunSession, removal: Removal) -> None:
        """Write the recovered model, and what was opened for it."""
        proposal, names = removal.proposal, [peer.name for peer in self.membership.peers]
        facts = {
            "removal": proposal.digest.hex(),
            "removed": [names[p] for p in sorted(proposal.removed)],
            "kept": [names[p] for p in removal.kept],
            "reason": proposal.reason,
            "method": proposal.method,
            "approved_by": [names[p] for p in sorted(removal.approvals)],
        }
        if removal.replaces != NOTHING:
            facts["replaces"] = removal.replaces.hex()
        self._write(recovered_name(proposal.digest.hex()), session, facts)

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

    def _names(self) -> dict[str, str]:
        """Return the agreed names as `load_model` reads them in a file; empty if there are none."""
        data, names = self.membership.data, {}
        if data.classes is not None:
            names["classes"] = json.dumps(data.classes)
        if data.features is not None:
            names["columns"] = json.dumps(data.features)
        return names

    def _write(self, name: str, session: RunSession, facts: dict[str, Any]) -> None:
        """Write NAME.safetensors, then NAME.json: once that is there, both are."""
        model: Vector | None = session.driver.model
        if model is None:
            raise PlanError("a run that has not ended has no model to write")
        driver = session.driver
        facts |= {
            "weights_sha256": hashlib.sha256(model.astype("<f8").tobytes()).hexdigest(),
            "log": session.protocol.log.hex(),
            "rounds": session.driver.rounds,
            "dealt": self.dealt(session),
            "ledger": asdict(driver.participation.record(driver.ledger)),
        }
        if self._flat.inputs is not None:
            facts["inputs_sha256"] = self._flat.inputs.digest
        if driver.void:
            facts["void"] = [asdict(each) for each in driver.void]
        if found := driver.evaluations.points:
            facts["evaluations"] = [asdict(point) for point in found]
            facts["continued"] = driver.evaluations.continued
        content = to_safetensors(self._flat, model, self._names())
        facts["file_sha256"] = hashlib.sha256(content).hexdigest()
        with _writing(self.folder, "the model"):
            write_whole(self.folder / f"{name}.safetensors", content)
            write_json(self.folder / f"{name}.json", facts)


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


@contextmanager
def _writing(folder: Path, what: str) -> Iterator[None]:
    """Say what to do where something cannot be written."""
    try:
        yield
    except OSError as error:
        raise HistoryError(
            f"{what} could not be written to {folder}: {error.strerror}; it is safe in the "
            f"history; {remedy(error, 'make room')}, and start again: it will be written"
        ) from error
