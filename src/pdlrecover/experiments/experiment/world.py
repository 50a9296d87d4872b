"""Builds what a config describes (data, attack, federation), and measures its models."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pdlrecover.adversary import NO_ATTACK, Attack, attack_success
from pdlrecover.adversary import build as build_attack
from pdlrecover.engines.simulated_peers import simulate_peers
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Scores
from pdlrecover.federation import Federation
from pdlrecover.learning import Dataset, LocalTraining, accuracy, load, partition
from pdlrecover.learning.models import build as build_model
from pdlrecover.recovery.requests import Vector
from pdlrecover.sharing import Scheme

VALIDATION_SHARE = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """What a config describes: data, attack, and the federation, not yet trained."""

    config: Config
    dataset: Dataset
    attack: Attack
    federation: Federation
    removed: tuple[int, ...]


def build(
    config: Config,
    *,
    data_dir: Path | None = None,
    history: Path | None = None,
    resume: bool = False,
) -> World:
    """Make the world of a config. The first peers are removed; undetected attackers come next.

    Peers are dealt their data at random, so that which of them attack makes no difference.
    """
    dataset = load(config.dataset, data_dir, split=config.split)  # type: ignore[arg-type] # checked there
    if config.validation:
        dataset = dataset.validation(VALIDATION_SHARE, config.seed)
    parts = partition.by_name(
        config.partition,
        labels=dataset.train_y.numpy(),
        subjects=None if dataset.train_subjects is None else dataset.train_subjects.numpy(),
        peers=config.peers,
        degree=config.degree,
        alpha=config.degree,
        seed=config.seed,
    )
    attack = build_attack(
        config.attack if config.attackers else NO_ATTACK, dataset, **config.attack_strength
    )
    removed = tuple(config.removed)
    new_model = partial(build_model, config.model, dataset.shape, dataset.classes)
    local = LocalTraining(l2=config.l2, steps=config.local_steps, rate=config.local_rate)
    simulated_peers = simulate_peers(
        new_model(config.seed),
        dataset.train_x,
        dataset.train_y,
        parts,
        batch_size=config.batch_size,
        seed=config.seed,
        bound=config.bound,
        local=local,
        malicious=config.attackers,
        attack=attack,
        held_out=config.held_out,
    )
    cohorts = [removed, [p for p in range(config.peers) if p not in removed]]
    federation = Federation(
        simulated_peers,
        Scheme.for_peers(config.peers, config.tolerance),
        cohorts=[cohort for cohort in cohorts if cohort],
        clear=config.clear,
        folder=history,
        resume=resume,
        budget=int(1e9 * config.budget_gb),
        new_model=new_model,
        evaluate_every=config.evaluate_every,
        standardise=config.standardisation,
    )
    return World(
        config=config, dataset=dataset, attack=attack, federation=federation, removed=removed
    )


def measure(world: World, weights: Vector) -> Scores:
    """Return accuracy and backdoor success of a model on the test part."""
    model = world.federation.simulated_peers.updates.model
    test = world.dataset.test_x, world.dataset.test_y
    return Scores(
        accuracy=accuracy(model, weights, *test),
        attack_success=attack_success(model, weights, *test, world.attack),
    )
