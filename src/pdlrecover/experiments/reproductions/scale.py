"""How large the reproductions are: the paper's size, or a quick one on the bundled digits."""

from dataclasses import dataclass, field
from typing import Any

from pdlrecover import adversary
from pdlrecover.adversary import NO_ATTACK, WAITING
from pdlrecover.experiments.experiment.config import Config

SGD_RATES = {"mnist": 0.1, "fashion-mnist": 0.1, "har": 0.03, "digits": 0.3}
RATES = {"adam": 0.01, "muon": 0.04}
"""Learning rates of the optimisers that need few rounds, on every dataset."""
TINY_BATCH = 2

ATTACKS = tuple(name for name in adversary.ATTACKS if name != NO_ATTACK)
LEAVERS = "leavers"
"""Not an attack: honest peers that leave."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of a set of experiments."""

    name: str
    datasets: tuple[str, ...]
    peers: int
    rounds: int
    """T of runs with SGD."""
    adam_rounds: int
    counts: tuple[int, ...]
    """m: numbers of removed peers."""
    typical: int
    """The m of everything that does not vary it."""
    seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]
    """Seeds that nothing was tuned or looked at on, for the final word."""
    more_seeds: tuple[int, ...] = ()
    """More of them, for differences that three seeds cannot tell from noise."""
    exact_share: float = 0.1
    """The share of the rounds that may be exact after SGD; short runs need more."""
    plan: dict[str, int] = field(default_factory=dict)
    """The schedule of PDLRecover after SGD, where it is not the default."""
    adam_plan: dict[str, int] = field(default_factory=dict)

    @property
    def promised(self) -> bool:
        """Whether the runs are as long as those that promises are about."""
        return self.name == "full"

    @property
    def flags(self) -> str:
        """What the command line needs for this scale: the data are bundled or in a folder."""
        return " --quick" if self.name == "quick" else " --data-dir data"

    def config(
        self,
        dataset: str,
        seed: int,
        removed: int | None = None,
        *,
        attack: str = "backdoor",
        optimizer: str = "sgd",
        **more: Any,
    ) -> Config:
        """Return one experiment: this many attackers, or leavers, in the paper's setting."""
        count = self.typical if removed is None else removed
        short = optimizer != "sgd"
        who: dict[str, Any] = {"malicious": count, "attack": attack}
        if attack == LEAVERS:
            who = {"leavers": count}
        elif attack == WAITING:  # half of them leave, and the others attack the recovery
            who = {"leavers": count // 2, "undetected": count // 2, "attack": attack}
        values: dict[str, Any] = {
            "dataset": dataset,
            "model": "mlp",
            "peers": self.peers,
            "rounds": self.adam_rounds if short else self.rounds,
            "batch_size": 16 if dataset == "har" else 32,
            "learning_rate": RATES.get(optimizer, SGD_RATES[dataset]),
            "optimizer": optimizer,
            "seed": seed,
            "clear": True,
            **(self.adam_plan if short else self.plan),
            **who,
        }
        return Config(**{**values, **more})

    def configs(self, **settings: Any) -> list[Config]:
        """Return one experiment on every dataset, with every seed."""
        return [self.config(d, seed, **settings) for d in self.datasets for seed in self.seeds]

    def configs_by_count(self, attack: str, methods: tuple[str, ...]) -> list[Config]:
        """Return one for every number of removed peers; the typical one with every seed."""
        return [
            self.config(dataset, seed, m, attack=attack, methods=methods)
            for dataset in self.datasets
            for m in self.counts
            for seed in (self.seeds if m == self.typical else self.seeds[:1])
        ]


FULL = Scale(
    name="full",
    datasets=("mnist", "fashion-mnist", "har"),
    peers=200,
    rounds=1000,
    adam_rounds=100,
    counts=(10, 20, 30, 40, 50, 60),
    typical=40,
    seeds=(0, 1, 2),
    fresh_seeds=(3, 4, 5),
    more_seeds=tuple(range(6, 15)),
    adam_plan={"preparation": 20, "period": 10, "final": 10},
)
QUICK = Scale(
    name="quick",
    datasets=("digits",),
    peers=20,
    rounds=120,
    adam_rounds=40,
    counts=(2, 4, 6),
    typical=4,
    seeds=(0, 1),
    fresh_seeds=(2,),
    exact_share=0.45,
    plan={"preparation": 10, "period": 15, "final": 8},
    adam_plan={"preparation": 8, "period": 8, "final": 5},
)
