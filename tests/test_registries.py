"""A method or an attack is known by its registry entry alone, and no other place lists names."""

import ast
import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import small
import torch
from memory_store import MemoryStore
from quadratics import Quadratics, kinds, sgd
from simulated import POISONED, entry, result
from typer.testing import CliRunner
from wire import Setup, same_models

from pdlrecover import Tolerance, cli
from pdlrecover.adversary import ATTACKS, WAITING, Attack, Context, Targeted, build
from pdlrecover.adversary.registry import AttackEntry
from pdlrecover.engines.peers import drills
from pdlrecover.engines.peers.federation.plan import Recovery, Training
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.settings import Drill
from pdlrecover.errors import AttackError, PlanError
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.batch.errand import lender_of
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import Estimate, with_forgetting
from pdlrecover.learning import load
from pdlrecover.recovery.methods import (
    METHODS,
    OURS,
    REFERENCE,
    MethodEntry,
    Settings,
    check,
    start,
)
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.requests import Original, Update
from pdlrecover.recovery.retrain import train
from pdlrecover.recovery.schedule import Schedule

ROOT = Path(__file__).parents[1]
ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class BriskOptions:
    share: float = 0.5


def brisk(run: Original, options: BriskOptions):
    """Retrain for a share of the rounds."""
    return train(run.models[0], run.optimizer, range(round(options.share * run.rounds)))


def vary(settings: Settings, numbers):
    return replace(settings, own=(BriskOptions(**numbers),))


BRISK = MethodEntry(
    lambda run, s: brisk(run, s.of(BriskOptions)),
    on="peers",
    sees="first model",
    scored=True,
    varies={"share": float},
    vary=vary,
)


@dataclass(frozen=True, kw_only=True)
class Stubborn(Attack):
    weight: float = 3.0

    def corrupt(self, updates, benign, context: Context):
        return self.weight * updates


STUBBORN = AttackEntry(Stubborn, strength="weight", alone=True, untargeted=True)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The two newcomers: everything that they need is in these two lines."""
    monkeypatch.setitem(METHODS, "brisk", BRISK)
    monkeypatch.setitem(ATTACKS, "stubborn", STUBBORN)


def test_newcomers_are_simulated_and_shown(tmp_path):
    flags = "--peers 8 --malicious 2 --attack stubborn --attack-scale 4 --rounds 20 --model mlp-8"
    methods = "brisk,brisk:share=0.25,retrain,retrain-k"
    command = ["simulate", *flags.split(), "--methods", methods, "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert "brisk:share=0.25" in done.output
    page = (tmp_path / "report.html").read_text()
    assert "brisk" in page
    assert "stubborn" in page
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["config"]["clear"] is False, "they are known to run on shares"
    found = {name: each["exact_rounds"] for name, each in record["methods"].items()}
    assert (found["brisk"], found["brisk:share=0.25"]) == (10, 5)
    assert OURS in found, "another's budget brings it in"
    assert all(each["attack_success"] is None for each in record["methods"].values())


def test_help_and_refusals_name_the_newcomers():
    with pytest.raises(PlanError, match=r"there are retrain, .*, brisk$"):
        check("magic")
    with pytest.raises(AttackError, match=r"known are backdoor, .*, stubborn, and"):
        build("magic", None)
    with pytest.raises(PlanError, match=r"brisk:KEY=VALUE.… with KEY of share"):
        check("brisk:rounds=3")


@pytest.mark.parametrize(("scored", "expected"), [(True, 0.25), (False, None)])
def test_a_newcomer_is_scored_for_forgetting_if_its_entry_says_so(scored, expected, monkeypatch):
    monkeypatch.setitem(METHODS, "brisk", replace(BRISK, scored=scored))
    known = {"poisoned": 0.8, "retrain": 0.0, "brisk:share=0.25": 0.2}
    found = {name: Estimate(value=value, error=0.1) for name, value in known.items()}
    methods = with_forgetting({name: entry(0.9) for name in known}, found)
    assert methods["poisoned"].remembered == 1
    assert methods["brisk:share=0.25"].remembered == pytest.approx(expected)
    share = Results([result(methods)]).remembered("brisk:share=0.25")
    assert (share and share.value) == pytest.approx(expected)


@pytest.mark.parametrize("noisy", [True, False])
def test_a_newcomers_high_loss_is_a_divergence_unless_it_is_noisy(noisy, monkeypatch):
    monkeypatch.setitem(METHODS, "brisk", replace(BRISK, noisy=noisy))
    high = entry(0.1, held_out_loss=1e6, removed_loss=1e6)
    (why,) = Results([result({**POISONED, "brisk": high})]).diverged("brisk")
    assert (why is None) == noisy


def proposed(method, kept_from=0, rounds=ROUNDS):
    """Let one of eight peers propose a removal by a method."""
    setup, recovery = Setup(8, Tolerance(colluders=0, dropouts=3)), Recovery(preparation=2)
    removals = Removals(
        setup.context(0, m.NOTHING, range(8)),
        MemoryStore(),
        Training(rounds=rounds, samples=10),
        recovery,
    )
    removals.training_ended(bytes(range(32)), [range(8)] * rounds, kept_from)
    proposal = m.RemovalProposal(
        removed=(6, 7),
        reason="malicious",
        method=method,
        accept_differencing=False,
        after=bytes(range(32)),
        settings=recovery.as_line(),
    )
    removals.propose(proposal)
    return proposal.digest in removals.known


@pytest.mark.parametrize(
    ("traits", "why"),
    [
        ({}, None),
        ({"sees": "last model"}, None),
        ({"sees": "history"}, r"rounds 1 to 14, .* \(auto, accelerated-retrain"),
        ({"on": "shares"}, "brisk is not known to lead every peer to the same model"),
        ({"on": "shares", "noisy": True}, "every peer would draw its own"),
        ({"noisy": True}, "every peer would draw its own"),
        ({"on": "clear"}, "answers that its entry does not name, which are never opened"),
        ({"on": "clear", "needs": "secrets"}, "brisk needs secrets, which are never opened"),
    ],
)
def test_peers_judge_a_removal_by_the_entry_of_its_method(traits, why, monkeypatch):
    monkeypatch.setitem(METHODS, "brisk", replace(BRISK, **traits))
    if why is None:
        assert proposed("brisk:share=0.25", kept_from=15)
    else:
        with pytest.raises(PlanError, match=why):
            proposed("brisk", kept_from=15)


@pytest.mark.parametrize("rounds", ["scheduled", "budgeted"])
def test_a_schedule_that_a_newcomer_follows_must_fit(rounds, monkeypatch):
    monkeypatch.setitem(METHODS, "brisk", replace(BRISK, rounds=rounds))
    with pytest.raises(PlanError, match="do not fit a run of 20"):
        Config(rounds=20, preparation=15, final=15, methods=("brisk",))
    monkeypatch.setitem(METHODS, "brisk", BRISK)
    Config(rounds=20, preparation=15, final=15, methods=("brisk",))


def test_peers_recover_by_a_newcomer_as_the_simulation_does():
    setup = Setup(5)
    found = same_models(setup.recover(setup.train(rounds=6), (4,), method="brisk"))
    simulated = setup.simulation(6).recover([4], "brisk", reason="malicious")
    np.testing.assert_array_equal(found, simulated.weights)


@pytest.mark.parametrize("alone", [True, False])
def test_a_peer_plays_a_newcomer_in_a_drill_if_it_needs_nobody_else(alone, monkeypatch):
    monkeypatch.setitem(ATTACKS, "stubborn", replace(STUBBORN, alone=alone))
    digits = load("digits")
    if alone:
        drill = Drill(attack="stubborn", strength=2.0)
        assert drills.attack_of(drill, digits) == Stubborn(weight=2.0)
    else:
        with pytest.raises(AttackError, match=r"one of backdoor, .*noise, which .*got 'stubborn'"):
            drills.check_drill("stubborn")


@pytest.mark.parametrize("untargeted", [True, False])
def test_a_newcomers_runs_borrow_from_leavers_if_it_has_no_trigger(untargeted, monkeypatch):
    monkeypatch.setitem(ATTACKS, "stubborn", replace(STUBBORN, untargeted=untargeted))
    config = Config(peers=10, malicious=2, attack="stubborn", methods=("brisk",))
    assert (lender_of(config) is not None) == untargeted


def test_a_bare_entry_refuses_everything():
    bare = MethodEntry(lambda run, s: train(run.models[0], run.optimizer, range(1)))
    assert (bare.on, bare.sees, bare.private) == ("clear", "history", False)
    assert (bare.scored, bare.baseline, bare.varies) == (False, False, {})
    weapon = AttackEntry(Stubborn)
    assert (weapon.alone, weapon.untargeted, weapon.strength) == (False, False, None)


class Seen(list):
    """Models that remember which of them were looked at."""

    def __init__(self, models):
        super().__init__(models)
        self.places = set()

    def __getitem__(self, place):
        self.places.add(range(len(self))[place])
        return super().__getitem__(place)


@pytest.mark.parametrize("name", small.PRIVATE)
def test_methods_do_what_their_entries_say(name):
    """Twice, with the system's noise: false alarms are as rare as equal noise."""
    models, traits = [], METHODS[name]
    settings = Settings(options=Options(schedule=Schedule(preparation=4, period=6, final=3)))
    for _ in range(2):
        engine = Quadratics(range(1, 4), sgd())
        run = replace(engine.run, models=Seen(engine.run.models))
        models.append(engine.drive(start(name, run, settings)))
        if traits.sees != "history":
            assert kinds(engine) == {Update}
            last = run.rounds if traits.sees == "last model" else 0
            assert run.models.places == {last}
    assert np.array_equal(*models) != traits.noisy
    in_groups = any(isinstance(r, Update) and r.of is not None for r in engine.requests)
    assert (traits.on == "peers") != (traits.noisy or in_groups)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != WAITING])
def test_attacks_do_what_their_entries_say(name):
    digits = load("digits")
    attack = build(name, digits)
    assert ATTACKS[name].untargeted != isinstance(attack, Targeted)
    context = {"seed": 0, "round": 1, "w": np.zeros(5), "places": range(3)}
    updates, others = torch.randn(3, 5), (torch.randn(6, 5), torch.randn(6, 5))
    claimed = [attack.corrupt(updates, each, Context.of(**context)) for each in others]
    if ATTACKS[name].alone:
        assert torch.equal(*claimed)
        first = attack.corrupt(updates[:1], others[0][:0], Context.of(**{**context, "places": [0]}))
        assert torch.equal(first, claimed[0][:1])


REGISTRIES = {"recovery/methods.py", "adversary/registry.py"}
CHOSEN = {
    "docs/tables.py": "the rows that the README shows",
    "experiments/chaos/scenario.py": "a method that starts afresh, and one that does not",
    "experiments/reproductions/frontier.py": "the plans that the frontier compares",
    "experiments/reproductions/paper.py": "the numbers that the paper has published",
}
"""Modules that choose rows or lines of their own: that is no trait of what they choose."""


def listed(tree: ast.AST, names: set[str]) -> list[int]:
    """Return the lines of collections, comparisons and sentences with two of these names."""
    documentation = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                parts = node.elts
            case ast.Dict():
                parts = [key for key in node.keys if key is not None]
            case ast.BoolOp():
                parts = [
                    c for v in node.values if isinstance(v, ast.Compare) for c in v.comparators
                ]
            case ast.MatchOr():
                parts = [p.value for p in node.patterns if isinstance(p, ast.MatchValue)]
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                words = text.replace(" and ", ", ").replace(" or ", ", ").split(", ")
                words = [re.sub(r"^.*[ (]|[).;:].*$", "", word) for word in words]
                if any({a, b} <= names for a, b in pairwise(words)):
                    found.append(node.lineno)
                continue
            case _:
                continue
        values = [p.value for p in parts if isinstance(p, ast.Constant)]
        if sum(isinstance(v, str) and v.partition(":")[0] in names for v in values) > 1:
            found.append(node.lineno)
    return found


def test_no_list_of_names_stands_outside_the_registries():
    """Of methods, or of attacks; what is written as documentation is not looked at."""
    home = ROOT / "src" / "pdlrecover"
    for path in [*home.rglob("*.py"), *(ROOT / "docs").glob("*.py")]:
        name = path.relative_to(home if home in path.parents else ROOT).as_posix()
        tree = ast.parse(path.read_text())
        lines = [line for names in (METHODS, ATTACKS) for line in listed(tree, set(names))]
        if name in REGISTRIES or name in CHOSEN:
            assert lines, f"{name} has no list: take it off"
        else:
            assert not lines, (
                f"{name}, lines {sorted(set(lines))}, lists methods or attacks by name: make what "
                "they have in common a trait of their entries"
            )


@pytest.mark.parametrize(
    "source",
    [
        'FRESH = frozenset({"retrain", "fine-tune-k"})',
        'names = ["retrain", *more, "auto:rounds=3"]',
        'x = {"retrain": 1, "auto": 2}',
        'x = name == "retrain" or name == "auto"',
        "match name:\n    case 'retrain' | 'auto':\n        pass",
        'raise E(f"{x}: choose another (retrain, accelerated-retrain), or wait")',
        'x = "retrain and auto"',
    ],
)
def test_a_silent_list_is_found(source):
    assert listed(ast.parse(source), set(METHODS))


@pytest.mark.parametrize(
    "source", ['"""Of retrain, auto."""', 'x = ("retrain", more)', 'x = "retrain the model"']
)
def test_a_single_name_is_no_list(source):
    assert not listed(ast.parse(source), set(METHODS))


def test_the_reference_and_the_default_are_methods():
    assert {OURS, REFERENCE} <= set(METHODS)
    assert METHODS[REFERENCE].sees == "first model"
    assert METHODS[OURS].rounds == "scheduled", "its schedule plans the budgets of others"
