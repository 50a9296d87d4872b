"""Run by a test in processes with different numbers of threads: a recovery's public arithmetic."""

import hashlib

import numpy as np

from pdlrecover.field import FixedPoint
from pdlrecover.recovery.optimizers import Adam, Rate
from pdlrecover.recovery.pdlrecover import Options, pdlrecover
from pdlrecover.recovery.requests import Direction, Dots, Original, Stepped, Sum, Update
from pdlrecover.recovery.schedule import Schedule

D = 30_011


def digest():
    """Return a digest of all models of a recovery whose openings are fixed numbers."""
    rng = np.random.default_rng(0)
    models = np.cumsum(rng.normal(0, 0.01, (41, D)), axis=0)
    run = Original(
        models=list(models),
        optimizer=Adam(rate=Rate(peak=0.01)),
        code=FixedPoint(peers=8, bound=10.0, length=D + 1),
    )
    method = pdlrecover(run, Options(schedule=Schedule(preparation=5, period=10, final=3)))
    seen, reply = hashlib.sha256(), None
    while True:
        try:
            request = method.send(reply)
        except StopIteration:
            return seen.hexdigest()
        match request:
            case Update() | Direction():
                reply = Sum(values=rng.normal(0, 0.01, D), weight=7.0)
            case Dots(pairs=pairs, vectors=vectors):
                seen.update(vectors.tobytes())
                reply = rng.uniform(0.1, 1.0, (len(vectors), len(pairs)))
            case Stepped(model=model):
                seen.update(model.tobytes())
                reply = None
