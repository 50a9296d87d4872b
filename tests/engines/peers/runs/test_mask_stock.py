from itertools import pairwise

import pytest
from wire import Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol.tasks import MaskedDots
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.engines.peers.runs.mask_stock import MaskStock

ROUNDS = 14


@pytest.fixture
def dot_steps(monkeypatch):
    """Note every step of dot products, by peer."""
    found, made = {}, Driver._dots

    def noting(self, request):
        task = made(self, request)
        found.setdefault(self.context.me, []).append((task, self._masks.step, self._masks.used))
        return task

    monkeypatch.setattr(Driver, "_dots", noting)
    return found


def dealt_although_enough_were_left(steps):
    size = steps[0][0].dealt
    pairs = pairwise(steps)
    return [
        step for (_, _, used), (task, step, _) in pairs if task.dealt and used + task.size <= size
    ]


def taken(steps):
    return [(stock, place) for task, stock, used in steps for place in range(used)[-task.size :]]


def test_masks_are_dealt_for_many_dot_products_at_a_time_and_none_is_used_twice(dot_steps):
    """As many as an update has blocks: here that is enough for a few steps."""
    setup = Setup(6, Tolerance(colluders=1, dropouts=2))
    trained = setup.train(rounds=ROUNDS)
    same_models(setup.recover(trained, (1, 4)))
    steps = dot_steps[0]
    assert len(steps) > 2
    assert all(isinstance(task, MaskedDots) for task, *_ in steps)
    assert sum(task.kind is not None for task, *_ in steps) < len(steps) / 2
    assert not dealt_although_enough_were_left(steps)
    assert len(set(taken(steps))) == sum(task.size for task, *_ in steps)


def test_who_was_away_when_masks_were_dealt_gets_new_ones_and_answers_again(dot_steps):
    """Four of five kept peers are needed: without new masks one more absence would end it."""
    setup = Setup(6, Tolerance(colluders=1, dropouts=2))
    trained, wire = setup.train(rounds=ROUNDS), Wire()
    network = setup.recover(trained, (1,), wire, run=False)
    protocol = network.sessions[0].protocol
    network.run(done=lambda: protocol.step >= 2)
    wire.cut = {4}
    network.run(done=lambda: len(dot_steps.get(0, ())) > 1)
    wire.cut.clear()
    network.run()
    same_models(network)
    assert len(dealt_although_enough_were_left(dot_steps[0])) == 1
    assert len(set(taken(dot_steps[0]))) == sum(task.size for task, *_ in dot_steps[0])


def test_a_stock_is_dealt_anew_when_too_few_are_left():
    stock = MaskStock(size=5)
    assert [stock.take(2, step) for step in range(4)] == [5, 0, 5, 0]
    assert (stock.step, stock.used) == (2, 4)


def test_dot_products_that_take_more_than_a_stock_deal_their_own():
    stock = MaskStock(size=5)
    assert stock.take(7, 0) == 7
    assert stock.take(5, 1) == 5
    assert stock.take(1, 2) == 5


def test_a_stock_that_somebody_has_no_shares_of_is_not_used_any_more():
    stock = MaskStock(size=9)
    stock.take(1, 0)
    stock.dealers = frozenset({0, 1, 2})
    stock.meet(frozenset({0, 1}))
    assert stock.take(1, 3) == 0
    stock.meet(frozenset({0, 1, 3}))
    assert stock.take(1, 5) == 9
