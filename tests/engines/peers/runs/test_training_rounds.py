import numpy as np
import pytest
from memory_store import MemoryStore

from pdlrecover.engines.peers.protocol.messages import Held, LogEntry
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.recovery.evaluation import EvaluationTerms

RUN, ROUNDS = bytes(32), 23


def stored(every):
    """Return a store after a training, and what it had after each step: rounds that were done."""
    store, after = MemoryStore(), [0]
    for t in range(ROUNDS):
        held = (Held(dealer=t, digest=bytes(32)),)
        entry = LogEntry(dealers=held, values=np.array([t]))
        store.commit(RUN, entry, {t: np.array([t])}, np.array([float(t)]))
        after.append(done := t + 1)
        if every and (done % every == 0 or done == ROUNDS):
            store.commit(RUN, LogEntry(dealers=held, values=np.zeros(3, dtype=np.int64)), {}, None)
            after.append(done)
    store.finish(RUN, np.array([float(ROUNDS)]))
    return store, after


@pytest.mark.parametrize("every", [None, 1, 4, 10, 23, 50])
def test_every_round_is_found_among_the_steps(every):
    store, after = stored(every)
    terms = EvaluationTerms(every=every, most=1, peers=3) if every else None
    history = TrainingRounds(store, RUN, rounds=ROUNDS, terms=terms)
    assert len(history) == ROUNDS
    assert [float(model[0]) for model in history.models] == list(range(ROUNDS + 1))
    assert history.models[-1][0] == ROUNDS
    assert len(history.models[2:5]) == 3
    for t in range(ROUNDS):
        assert history.dealers(t) == (t,)
        assert history.shares(t, [t]) == [t]
    for step, rounds in enumerate(after):
        store.shares_from = lambda run, step=step: step
        assert history.shares_from == rounds
    with pytest.raises(IndexError, match="there are 24 models"):
        _ = history.models[24]
