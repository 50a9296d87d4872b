"""The recipe for Weights & Biases, with a stand-in for its package: not the service."""

import sys
from pathlib import Path
from types import ModuleType

import code_blocks
import pytest
import small

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"


class StandIn(ModuleType):
    """What the recipe calls of wandb: `init`, and of a run `log`, `summary` and `finish`."""

    def __init__(self):
        super().__init__("wandb")
        self.asked, self.logged, self.summary, self.ended = {}, [], {}, []

    def init(self, **asked):
        self.asked = asked
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self, exit_code):
        self.ended.append(exit_code)


@pytest.fixture
def recipe(monkeypatch):
    """The class on the page, and what stands in for wandb."""
    blocks = code_blocks.blocks(PAGE.read_text("utf-8"))
    (body,) = (block.body for block in blocks if block.title == "wandb_observer.py")
    names = {}
    exec(body, names)  # noqa: S102 (it is a page of this repository)
    monkeypatch.setitem(sys.modules, "wandb", stand_in := StandIn())
    return names["WandB"], stand_in


def test_the_recipe_logs_every_round_with_ascending_steps_and_finishes(recipe):
    observer, wandb = recipe
    trained = small.federation(held_out=0.2, evaluate_every=5).train(
        12, 0.3, observer=observer("clinics")
    )
    assert (wandb.asked["project"], wandb.asked["name"]) == ("clinics", "training")
    assert wandb.asked["config"]["learning_rate"] == 0.3
    steps = [step for step, _ in wandb.logged]
    assert steps == sorted(steps)
    assert set(steps) == set(range(1, 13))
    found = [values["held_out/accuracy"] for _, values in wandb.logged if len(values) == 2]
    assert found == [point.accuracy for point in trained.evaluations]
    assert wandb.summary["final/bytes_per_peer"] == trained.ledger.bytes_per_peer
    assert wandb.ended == [False]


def test_the_recipe_says_that_a_run_failed(recipe):
    observer, wandb = recipe

    def fail(step):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        small.federation().train(3, 0.3, observer=[observer("clinics"), fail])
    assert wandb.ended == [True]
