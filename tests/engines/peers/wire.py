"""A federation on a fake wire: time is a number; messages are lost, late, doubled, reordered."""

import hashlib
import heapq
import itertools
import random
from dataclasses import dataclass, field, replace

import numpy as np
import small
import torch
from loopback import new_keyrings
from memory_store import MemoryStore

from pdlrecover import Federation, Tolerance
from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.effects import Blame, Compute, Halt, Note, Send
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.runs.contribution import Contribution
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.learning import FlatModel, most_held_out
from pdlrecover.recovery import methods
from pdlrecover.recovery.evaluation import EvaluationTerms, evaluated
from pdlrecover.recovery.naming import naming
from pdlrecover.recovery.optimizers import SGD, Rate
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.requests import FreshStart, Original
from pdlrecover.recovery.retrain import train
from pdlrecover.recovery.schedule import Schedule
from pdlrecover.sharing import Scheme

TRAINING = hashlib.sha256(b"training").digest()
FEDERATION = hashlib.sha256(b"federation").digest()
SGD_RATE = SGD(rate=Rate(peak=0.3))
SETTINGS = methods.Settings(
    options=Options(schedule=Schedule(preparation=3, period=5, final=2, buffer=2)), batch_size=4
)
KEYS = new_keyrings(8)
OPENED_PAIRS = replace(SETTINGS, options=replace(SETTINGS.options, open_pairs=True))
BATCH, SEED, SIZES = 4, 5, [12 + peer for peer in range(8)]


def data(peer):
    return small.points(seed=peer, count=SIZES[peer])


@dataclass
class Wire:
    """Carries messages with delays; loses, doubles and changes some of them."""

    seed: int = 0
    loss: float = 0.0
    double: float = 0.0
    delay: float = 0.01
    spread: float = 0.0
    cut: set = field(default_factory=set)
    """Peers that nothing reaches and nothing leaves."""
    tamper: object = None
    """A function (sender, recipient, data) -> list of (source, data) to deliver instead."""

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.now, self.queue, self.count = 0.0, [], itertools.count()
        self.sent = []

    def later(self, delay, action):
        heapq.heappush(self.queue, (self.now + delay, next(self.count), action))


class Network:
    """Participants of one run, joined by a wire."""

    def __init__(self, wire, sessions):
        self.wire, self.sessions = wire, dict(sessions)
        self.blames, self.halts, self.alive = {}, {}, set(self.sessions)
        self.notes = []
        for peer in self.sessions:
            self.start(peer)

    def start(self, peer):
        self.alive.add(peer)
        session = self.sessions[peer]
        self.carry(peer, session, session.start(self.wire.now))

    def crash(self, peer, replacement):
        """Replace a session by one that knows nothing but its store."""
        self.sessions[peer] = replacement
        self.alive.discard(peer)

    def carry(self, peer, session, outcomes):
        for outcome in outcomes:
            if isinstance(outcome, Send):
                self.post(peer, outcome)
            elif isinstance(outcome, Compute):
                self.wire.later(0.05, lambda o=outcome: self.compute(peer, session, o))
            elif isinstance(outcome, Blame):
                self.blames.setdefault(peer, []).append(outcome)
            elif isinstance(outcome, Note):
                self.notes.append((peer, outcome.text))
            elif isinstance(outcome, Halt):
                self.halts[peer] = outcome.why

    def is_current(self, peer, session):
        return peer in self.alive and self.sessions.get(peer) is session

    def compute(self, peer, session, job):
        if self.is_current(peer, session) and session.protocol.step == job.step:
            dealt = getattr(session, "deal", Compute.run)(job)
            self.carry(peer, session, session.contribute(job.step, dealt, self.wire.now))

    def post(self, peer, send):
        wire = self.wire
        wire.sent.append((peer, send.to, send.kind, send.data))
        if peer in wire.cut or send.to in wire.cut or wire.random.random() < wire.loss:
            return
        arriving = [(peer, send.data)]
        if wire.tamper:
            arriving = wire.tamper(peer, send.to, send.data)
        for source, data_ in arriving:
            copies = 2 if wire.random.random() < wire.double else 1
            for _ in range(copies):
                delay = wire.delay + wire.spread * wire.random.random()
                wire.later(delay, lambda s=source, d=data_: self.deliver(send.to, s, d))

    def deliver(self, peer, source, data_):
        session = self.sessions.get(peer)
        if peer in self.alive and session is not None and peer not in self.wire.cut:
            self.carry(peer, session, session.receive(data_, source, self.wire.now))

    def run(self, until=2000.0, done=None):
        """Let time pass until everybody alive is done."""
        done = done or (lambda: all(self.sessions[p].finished for p in self.alive))
        while not done() and self.wire.now < until:
            alarms = [self.sessions[p].protocol.wake_at for p in self.alive]
            alarm = min(alarms, default=float("inf"))
            if self.wire.queue and self.wire.queue[0][0] <= alarm:
                self.wire.now, _, action = heapq.heappop(self.wire.queue)
                action()
            else:
                self.wire.now = max(self.wire.now, alarm)
                for peer in sorted(self.alive):
                    session = self.sessions[peer]
                    if session.protocol.wake_at <= self.wire.now:
                        self.carry(peer, session, session.tick(self.wire.now))
        return self

    def blamed(self, by=None):
        """Return who was blamed, by somebody or by a given peer."""
        groups = self.blames.values() if by is None else [self.blames.get(by, [])]
        return {blame.peer for group in groups for blame in group}


class Setup:
    """A federation's peers, their data and stores."""

    def __init__(self, peers=5, tolerance=None, deadlines=None, held_out=0.0, every=10):
        self.peers, self.tolerance = peers, tolerance or Tolerance(colluders=1, dropouts=1, liars=1)
        self.scheme = Scheme.for_peers(peers, self.tolerance)
        self.deadlines = deadlines or Deadlines(dealing=5.0, view=3.0, receipts=1.0, resend=1.0)
        self.stores = [MemoryStore() for _ in range(peers)]
        self.federation = FEDERATION
        self.model = FlatModel(small.module(hidden=2), (3,))
        self.held_out, self.every = held_out, every
        self.closed = frozenset()
        self.most = most_held_out(held_out, max(SIZES[:peers]))

    def contribution(self, peer):
        x, y = data(peer)
        return Contribution(
            peer=peer,
            peers=self.peers,
            model=self.model,
            x=torch.as_tensor(x),
            y=torch.as_tensor(y),
            size_bound=max(SIZES[: self.peers]),
            batch_size=BATCH,
            seed=SEED,
            bound=10.0,
            held_out=self.held_out,
        )

    def driver(self, peer, context, method, history=None):
        contribution = self.contribution(peer)
        return Driver(
            context=context,
            method=evaluated(method, self.every) if self.held_out else method,
            code=contribution.code,
            store=self.stores[peer],
            contribute=contribution,
            evaluate=contribution.evaluate if self.held_out else None,
            most_held_out=self.most,
            history=history,
            unprotected=frozenset(range(self.peers)) - set(context.peers),
        )

    def history(self, peer, rounds):
        terms = EvaluationTerms(every=self.every, most=self.most, peers=self.peers)
        terms = terms if self.held_out else None
        return TrainingRounds(
            self.stores[peer], TRAINING, rounds=rounds, terms=terms, bounds=self.bounds(peer)
        )

    def bounds(self, peer=0):
        return Bounds.of(self.contribution(peer).code)

    def context(self, peer, run, members):
        return RunContext(
            me=peer,
            peers=tuple(members),
            scheme=self.scheme,
            crypto=KEYS[peer],
            federation=self.federation,
            run=run,
            deadlines=self.deadlines,
        )

    def trainer(self, peer, rounds=4):
        method = train(self.model.initial, SGD_RATE, range(rounds))
        context = self.context(peer, TRAINING, range(self.peers))
        return RunSession(self.driver(peer, context, method), self.stores[peer])

    def train(self, wire=None, rounds=4, run=True, **arguments):
        network = Network(wire or Wire(), {p: self.trainer(p, rounds) for p in range(self.peers)})
        return network.run(**arguments) if run else network

    def original(self, peer, history, removed, method):
        return Original(
            models=history.models,
            optimizer=SGD_RATE,
            code=self.contribution(peer).code,
            layers=self.model.layers,
            fresh=FreshStart.drawn(named(method, removed), self.model.redrawn),
            goal=history.models[-1] if self.held_out else None,
            peers=self.peers,
            kept=tuple(p for p in range(self.peers) if p not in removed),
            closed=self.closed,
            void=history.void,
        )

    def recoverer(self, peer, trained, removed, method="pdlrecover", settings=SETTINGS):
        assert trained.finished
        history = self.history(peer, trained.driver.round)
        run = self.original(peer, history, removed, method)
        context = self.context(peer, named(method, removed), run.kept)
        driver = self.driver(peer, context, methods.start(method, run, settings), history)
        return RunSession(driver, self.stores[peer])

    def recover(
        self,
        trained,
        removed,
        wire=None,
        method="pdlrecover",
        run=True,
        settings=SETTINGS,
        **arguments,
    ):
        kept = [p for p in range(self.peers) if p not in removed]
        sessions = {
            p: self.recoverer(p, trained.sessions[p], removed, method, settings) for p in kept
        }
        network = Network(wire or Wire(), sessions)
        return network.run(**arguments) if run else network

    def namer(self, peer, session, which=0):
        """Return a peer's part in finding who made a round of its session's run void."""
        void = session.driver.void_rounds[which]
        contribution = self.contribution(peer)
        driver = Driver(
            context=self.context(peer, void.naming, session.driver.context.peers),
            method=naming(void.round, self.stores[peer].asked_at(void.run, void.step)),
            code=contribution.code,
            store=self.stores[peer],
            contribute=contribution,
            naming=void,
        )
        return RunSession(driver, self.stores[peer])

    def name(self, network, which=0, wire=None, **arguments):
        """Let the peers of a run find who made one of its rounds void."""
        sessions = {p: self.namer(p, each, which) for p, each in network.sessions.items()}
        return Network(wire or Wire(), sessions).run(**arguments)

    def simulation(self, rounds):
        """Return the same federation in one process, trained."""
        federation = Federation.simulate(
            small.module(hidden=2),
            [data(peer) for peer in range(self.peers)],
            self.tolerance,
            batch_size=BATCH,
            seed=SEED,
            peer_by_peer=True,
            held_out=self.held_out,
            evaluate_every=self.every,
        )
        federation.train(rounds, optimizer=SGD_RATE)
        return federation


def named(method, removed):
    """Return the name of a recovery's run."""
    return hashlib.sha256(f"{method} {sorted(removed)}".encode()).digest()


def same_models(network, peers=None):
    """Check that these peers came to one model, and return it."""
    models = [network.sessions[p].driver.model for p in peers or sorted(network.alive)]
    assert all(model is not None for model in models), [
        (p, network.sessions[p].protocol.step, network.sessions[p].protocol.current.state)
        for p in sorted(network.alive)
        if network.sessions[p].protocol.current
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    return models[0]
