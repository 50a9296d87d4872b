"""Four peers with quadratic losses, in the clear: the obvious engine, to drive methods by hand."""

import numpy as np

from pdlrecover.field import FixedPoint
from pdlrecover.layers import Layer
from pdlrecover.recovery.optimizers import SGD, Rate
from pdlrecover.recovery.requests import (
    Direction,
    Dots,
    Individual,
    Individuals,
    Loss,
    Original,
    Past,
    PastBlocks,
    Removed,
    Stepped,
    Sum,
    Teacher,
    Update,
)

D, ROUNDS = 6, 30
LAYERS = (Layer(start=0, rows=2, columns=3),)


class Quadratics:
    """Peers with updates α_i·H_i(w − c_i); peer 0 is the poisoner."""

    def __init__(self, kept, optimizer, rounds=ROUNDS, weights=(1.0, 1.0, 1.0, 1.0)):
        rng = np.random.default_rng(0)
        roots = rng.normal(size=(4, D, D))
        self.hessians = roots @ roots.transpose(0, 2, 1) / D + 0.3 * np.eye(D)
        self.centres = rng.normal(size=(4, D))
        self.centres[0] += 5
        self.weights = np.array(weights)
        self.kept, self.requests, self.fresh = tuple(kept), [], {}
        self.removed = tuple(p for p in range(4) if p not in self.kept)
        models = [np.zeros(D)]
        stepper = optimizer.start()
        for _ in range(rounds):
            mean = self.total(range(4), models[-1]) / self.weights.sum()
            models.append(stepper.step(models[-1], mean))
        code = FixedPoint(peers=4, bound=100.0, length=D + 1)
        self.run = Original(
            models=models,
            optimizer=optimizer,
            code=code,
            layers=LAYERS,
            peers=4,
            kept=self.kept,
        )

    def update(self, peer, w):
        return self.weights[peer] * (self.hessians[peer] @ (w - self.centres[peer]))

    def taught(self, peer, w, models):
        """Return the update of a peer whose loss is least at the mean of the teachers."""
        return self.weights[peer] * (self.hessians[peer] @ (w - np.mean(models, axis=0)))

    def loss(self, peer, w):
        return (w - self.centres[peer]) @ self.hessians[peer] @ (w - self.centres[peer]) / 2

    def total(self, peers, w):
        return sum(self.update(i, w) for i in peers)

    def stored(self, t, peers=None):
        return self.total(self.kept if peers is None else peers, self.run.models[t])

    def pair(self, b):
        return self.fresh[b] - self.stored(b)

    def answer(self, request):
        weight = float(self.weights[list(self.kept)].sum())
        match request:
            case Update(teacher=Teacher(models=models), at=w):
                values = sum(self.taught(i, w, models) for i in self.kept)
                return Sum(values=values, weight=weight)
            case Update(of=tuple(of), at=w):
                peers = [self.kept[i] for i in of]
                return Sum(values=self.total(peers, w), weight=float(self.weights[peers].sum()))
            case Update(round=t, at=w):
                self.fresh[t] = self.total(self.kept, w)
                return Sum(values=self.fresh[t], weight=weight)
            case Past(rounds=rounds):
                return Sum(values=sum(map(self.stored, rounds)), weight=weight * len(rounds))
            case PastBlocks(blocks=blocks):
                return tuple(self.answer(Past(rounds=rounds)) for rounds in blocks)
            case Dots(pairs=pairs, vectors=vectors):
                return vectors @ np.stack([self.pair(b) for b in pairs]).T
            case Direction(rounds=rounds, pairs=pairs, coefficients=coefficients):
                added = sum(c * self.pair(b) for c, b in zip(coefficients, pairs, strict=True))
                stored = sum(map(self.stored, rounds))
                return Sum(values=stored + added, weight=weight * len(rounds))
            case Removed(rounds=rounds):
                values = sum(self.stored(t, self.removed) for t in rounds)
                weight = float(self.weights[list(self.removed)].sum())
                return Sum(values=values, weight=weight * len(rounds))
            case Individual(round=t, at=at, of=of):
                peers = self.kept if of is None else [self.kept[i] for i in of]
                peers = range(4) if request.everybody else peers
                w = self.run.models[t] if at is None else at
                rows = np.stack([self.update(i, w) for i in peers]).astype(np.float32)
                return Individuals(values=rows, weights=self.weights[list(peers)])
            case Loss(round=t):
                w, weights = self.run.models[t], self.weights[list(self.kept)]
                each = np.array([self.loss(i, w) for i in self.kept])
                return float(each @ weights / weights.sum())

    def drive(self, method):
        reply = None
        while True:
            try:
                request = method.send(reply)
            except StopIteration as end:
                return end.value
            self.requests.append(request)
            reply = self.answer(request)

    def steps(self):
        return [r for r in self.requests if isinstance(r, Stepped)]


def sgd():
    return SGD(rate=Rate(peak=0.2))


def kinds(engine):
    return {type(request) for request in engine.requests} - {Stepped}


def dense_bfgs(pairs):
    """Return B after the direct BFGS updates from B₀ = ρI: the definition, in d×d matrices."""
    w, g = pairs[-1]
    b = (w @ g) / (w @ w) * np.eye(len(w))
    for s, y in pairs:
        b = b - np.outer(b @ s, b @ s) / (s @ b @ s) + np.outer(y, y) / (y @ s)
    return b
