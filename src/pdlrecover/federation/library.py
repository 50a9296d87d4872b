"""The federation of the library: set up, trained, recovered, saved and loaded."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from pdlrecover.adversary import Attack
from pdlrecover.engines.classifier import classes_text
from pdlrecover.engines.following import following
from pdlrecover.engines.simulated_peers import attack_text
from pdlrecover.engines.sum_store import Faults
from pdlrecover.engines.summary import Summary, counted
from pdlrecover.engines.trained_model import TrainedModel
from pdlrecover.engines.update_source import UpdateSource
from pdlrecover.errors import HistoryError, LocalError, PlanError
from pdlrecover.federation.arguments import described, instance, number, whole
from pdlrecover.federation.observed import (
    Watching,
    ended,
    functions_and_observers,
    recovery_run,
    training_run,
)
from pdlrecover.federation.own_data import OwnData, take_in
from pdlrecover.federation.plain_options import settings_of
from pdlrecover.federation.roster import Roster
from pdlrecover.federation.saved import (
    read_saved,
    write_saved,
    written_classes,
    written_scale,
)
from pdlrecover.federation.simulated import UNTRAINED, SimulatedFederation
from pdlrecover.federation.terms import DEFAULT_BUDGET, NewModel, Terms
from pdlrecover.recovery import methods, optimizers
from pdlrecover.recovery.removal import Reason
from pdlrecover.recovery.requests import Optimizer
from pdlrecover.recovery.schedule import Schedule
from pdlrecover.recovery.standardisation import Standardise
from pdlrecover.sharing import Scheme, Tolerance


class Federation(SimulatedFederation):
    """Peers that train one model together, and recover it without some of them.

    Make one by `Federation.simulate`, or by `Federation.load` from a folder.
    """

    @classmethod
    def simulate(
        cls,
        model: torch.nn.Module,
        datasets: Sequence[Any] | Mapping[str, Any],
        tolerance: Tolerance,
        *,
        classes: Iterable[Hashable] | None = None,
        batch_size: int = 32,
        seed: int = 0,
        bound: float = 10.0,
        l2: float = 0.0,
        local_steps: int = 1,
        local_rate: float = 0.1,
        malicious: Any = (),
        attack: Attack | None = None,
        cohorts: Sequence[Any] | None = None,
        clear: bool = False,
        peer_by_peer: bool = False,
        folder: Path | str | None = None,
        resume: bool = False,
        budget: int = DEFAULT_BUDGET,
        new_model: NewModel | None = None,
        held_out: float = 0.0,
        evaluate_every: int = 10,
        standardise: bool | Standardise = False,
    ) -> Self:
        """Set up a federation of your model and your data, all peers in this process.

        What is trained:

        - `model`: a torch module that returns one number for each class (logits).
        - `datasets`: the data of one peer after the other. A list gives peers numbers, from 0 on; a
          mapping gives them names: `{"hospital-a": …, "hospital-b": …}`. A peer's data are a pair
          (samples, labels) of tensors, arrays, lists or tables of pandas, or a
          `torch.utils.data.Dataset` with a length. Samples become float32, and nothing is scaled
          unless you `standardise`.
        - `classes`: the labels in the order of the model's outputs. Without it, labels from 0 to
          C − 1 are the outputs' numbers, and labels of any other kind (texts, say) are sorted;
          there must then be as many as outputs. Predictions are in these same labels.

        - `standardise`: bring every feature to mean 0 and deviation 1 over all peers, by private
          sums before the training. Predictions then take samples as they are, too.
          `Standardise(bound=…, per="channel")` instead of `True` says how.

        What must be survived: `tolerance`, see `Tolerance`. With `clear` nothing is shared, which
        gives the same numbers faster.

        How it is trained:

        - `batch_size`, `seed`, `l2`: samples in a peer's minibatch, the seed of all minibatches,
          and the λ of L2 regularisation.
        - `bound`: the public L2 bound that updates are clipped to.
        - `local_steps`: with more than one, every peer takes that many steps of SGD by itself in a
          round, with the rate `local_rate`, each on a minibatch of its own.
        - `malicious`, `attack`: the peers that follow an attack of `pdlrecover.adversary`. They are
          given as the peers of `recover(remove=…)` are. An attack's target is the number of an
          output.
        - `held_out`: the share of its samples that every peer keeps apart. Models are evaluated on
          them after every `evaluate_every` rounds and at the end; only sums are opened.
        - `peer_by_peer`: compute to the bit what real peers would, which takes longer.

        What is stored:

        - `folder`: where the history goes; a temporary place if it is not given. `resume` takes up
          what an interrupted training has left there.
        - `cohorts`: groups of peers that will only be removed together, whose updates are stored as
          one sum; `budget`: how many bytes of history may be written.
        - `new_model`: returns your module with first weights drawn from a seed, for recoveries that
          start afresh; without it the module's layers draw them.
        """
        terms = Terms(
            tolerance=tolerance,
            batch_size=batch_size,
            seed=seed,
            bound=bound,
            l2=l2,
            local_steps=local_steps,
            local_rate=local_rate,
            malicious=malicious,
            attack=attack,
            cohorts=cohorts,
            clear=clear,
            peer_by_peer=peer_by_peer,
            folder=folder,
            resume=resume,
            budget=budget,
            new_model=new_model,
            held_out=held_out,
            evaluate_every=evaluate_every,
            standardise=standardise,
        )
        own = take_in(datasets, model, classes, scaled=terms.standardisation is not None)
        return cls._of(own, model, terms, own.digests)

    @classmethod
    def _of(
        cls, own: OwnData, model: torch.nn.Module, terms: Terms, data: tuple[str, ...] | None
    ) -> Self:
        """Set up a federation of what was taken in; `data` are the digests it is known by."""
        return cls(
            terms.simulated_peers(model, own),
            Scheme.for_peers(own.roster.count, terms.tolerance),
            cohorts=terms.groups(own.roster),
            clear=terms.clear,
            folder=terms.place(),
            resume=terms.resume,
            budget=terms.budget,
            new_model=terms.new_model,
            evaluate_every=terms.evaluate_every,
            standardise=terms.standardisation,
            roster=own.roster,
            classes=own.classes,
            columns=own.columns,
            data=data,
        )

    @classmethod
    def of_peers(
        cls,
        peers: UpdateSource,
        tolerance: Tolerance,
        *,
        names: Sequence[str] | None = None,
        cohorts: Sequence[Any] | None = None,
        clear: bool = False,
        folder: Path | str | None = None,
        resume: bool = False,
        budget: int = DEFAULT_BUDGET,
        new_model: NewModel | None = None,
        evaluate_every: int = 10,
    ) -> Self:
        """Set up a federation of peers whose updates a program of their own computes.

        - `peers`: such as `pdlrecover.flower.FlowerPeers`.
        - `names`: what they are called, one after the other; without it they have numbers.

        The rest is as in `simulate`. What needs peers' samples is refused: methods that look at
        single samples, `standardise`, and `save`; a training that was interrupted is taken up by
        `folder` and `resume`, and that the app's data are the same is yours to see to.
        """
        if not hasattr(peers, "sums"):
            raise PlanError(f"peers must be such as FlowerPeers(…), got {described(peers)}")
        terms = Terms(
            tolerance=tolerance,
            cohorts=cohorts,
            clear=clear,
            folder=folder,
            resume=resume,
            budget=budget,
            new_model=new_model,
            evaluate_every=evaluate_every,
        )
        if names is not None and len(names) != peers.peers:
            raise PlanError(f"{len(names)} names were given to {peers.peers} peers; name each once")
        roster = Roster(count=peers.peers, names=None if names is None else tuple(names))
        return cls(
            peers,
            Scheme.for_peers(peers.peers, tolerance),
            cohorts=terms.groups(roster),
            clear=clear,
            folder=terms.place(),
            resume=resume,
            budget=terms.budget,
            new_model=new_model,
            evaluate_every=terms.evaluate_every,
            roster=roster,
        )

    @property
    def peers(self) -> tuple[str, ...] | tuple[int, ...]:
        """The peers' names, or their numbers if they have no names."""
        return self.roster.names or tuple(range(self.roster.count))

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """The labels, in the order of the model's outputs; none where only an app knows them."""
        return self._classes.names if self._classes else ()

    def train(
        self,
        rounds: int,
        learning_rate: float | None = None,
        *,
        optimizer: str | Optimizer = "sgd",
        progress: bool = True,
        observer: Watching = None,
    ) -> TrainedModel:
        """Train the model together, and store what a recovery needs.

        - `rounds`: how many rounds; in each, every peer's update is dealt, and their sum opened.
        - `optimizer`: `"sgd"`, `"momentum"`, `"adam"` or `"muon"`, with the `learning_rate` or a
          usual one; or one of `pdlrecover.recovery.optimizers`, which has its own.
        - `progress`: show a bar, if this runs in a terminal or a notebook.
        - `observer`: a function that is called after every round, with a `Stepped`; or what keeps
          curves, such as `TensorBoard("runs")` of `pdlrecover.tracking`; or a list of these.

        A federation is trained once.
        """
        rounds = whole("training rounds (rounds)", rounds, 1)
        if learning_rate is not None:
            number("learning_rate", learning_rate, above=0.0)
        if learning_rate is None and optimizer == "sgd":
            learning_rate = self.update_source.usual_rate
        if isinstance(optimizer, str):
            optimizer = self.plan(rounds, learning_rate, optimizer=optimizer)
        elif isinstance(optimizer, type) or not hasattr(optimizer, "start"):
            raise PlanError(_no_optimizer(optimizer))
        elif learning_rate is not None:
            raise PlanError("give a learning rate, or an optimizer that has its own, not both")
        function, observers = functions_and_observers(observer)
        run = training_run(self, rounds, optimizer)
        with self._naming_peers(), following(observers, run) as follow:
            trained = self.run_training(
                rounds, optimizer, progress=progress, observer=function, follow=follow
            )
            ended(trained, follow)
        return trained

    def recover(
        self,
        remove: Any,
        method: str = methods.DEFAULT,
        *,
        reason: Reason = "left",
        rounds: int | None = None,
        schedule: Schedule | None = None,
        fresh_start: bool = False,
        optimizer: str | None = None,
        settings: methods.Settings | None = None,
        faults: Faults | None = None,
        accept_differencing: bool = False,
        progress: bool = True,
        observer: Watching = None,
    ) -> TrainedModel:
        """Rebuild the model without some peers.

        Who, and why:

        - `remove`: peers by number or name in a list, a mask with one truth value for each peer, or
          a file of suspects (`"@suspects.json"` or a `Path`; see `pdlrecover.suspects`).
        - `reason`: `"left"` if they are honest peers, whose data deserve protection even now, or
          `"malicious"`. Too few honest peers that leave at once are refused, since their updates
          would follow from the sums with and without them; `accept_differencing` accepts that, and
          `fresh_start` avoids it.

        How, with the defaults of the command line; what a method has no use for is refused:

        - `method`: a name of `pdlrecover.recovery.methods.METHODS`, or a variant of it such as
          `"pdlrecover:preparation=10+final=5"`.
        - `rounds`: how many exact rounds, for methods that can be told.
        - `schedule`: which rounds are exact, for `pdlrecover` and the methods with as many exact
          rounds; by default 25 at the start and at the end of a long run, an eighth of a short one.
        - `fresh_start`: begin at new first weights with minibatches of its own, so that nothing
          that is opened can be subtracted from what the training opened. The training need not have
          ended.
        - `optimizer`: `"muon"` or `"adam"`, for `accelerated-retrain`.
        - `settings`: all options of all methods at once, instead of these four.

        Besides: `faults` makes kept peers absent or lying in the openings, `progress` shows a bar
        in a terminal or a notebook, and `observer` is as in `train`.
        """
        removed = self.roster.numbers(remove, "remove")
        if not removed:
            raise PlanError(
                "remove names no peer, so nobody is removed and there is nothing to recover from; "
                f"name at least one of {self.roster.listed()}"
            )
        if not isinstance(method, str):
            raise PlanError(f"method must be the name of a method, got {described(method)}")
        if self._planned is None and self._optimizer is None and not len(self.history.sums):
            raise PlanError(UNTRAINED)
        settings = settings_of(
            method,
            trained=len(self.history.sums),
            batch_size=self.update_source.batch_size,
            local_steps=self.update_source.local.steps,
            rounds=rounds,
            schedule=schedule,
            fresh_start=fresh_start,
            optimizer=optimizer,
            settings=settings,
        )
        self._check_faults(faults)
        function, observers = functions_and_observers(observer)
        run = recovery_run(self, method, removed, reason, settings)
        with self._naming_peers(), following(observers, run) as follow:
            recovered = self.run_method(
                removed,
                method,
                reason=reason,
                settings=settings,
                faults=faults,
                accept_differencing=accept_differencing,
                progress=progress,
                observer=function,
                follow=follow,
            )
            ended(recovered, follow)
        return recovered

    @contextmanager
    def _naming_peers(self) -> Iterator[None]:
        """Call peers by their names in what is raised."""
        try:
            yield
        except LocalError as error:
            raise type(error)(*error.naming(self.roster.said)) from error

    def _check_faults(self, faults: Faults | None) -> None:
        if faults is None:
            return
        instance("faults", faults, Faults, "Faults(absent=(…), liars=(…))", PlanError)
        for name in ("absent", "liars"):
            self.roster.numbers(getattr(faults, name), f"faults.{name}")

    def save(self, folder: Path | str) -> None:
        """Write the trained federation to a folder: settings, first weights, history, and no data.

        `Federation.load` reads it, in this process or another one.
        """
        if self._optimizer is None:
            raise PlanError("there is nothing to save yet: train the federation first")
        instance("folder", folder, (str, Path), "the path of a folder", HistoryError)
        peers = self.simulated_peers
        settings = {
            "tolerance": vars(self.scheme.quorums.tolerance),
            "batch_size": peers.batches.batch_size,
            "seed": peers.batches.seed,
            "bound": peers.updates.bound,
            "l2": (local := peers.updates.local).l2,
            "local_steps": local.steps,
            "local_rate": local.rate,
            "held_out": peers.held_out_share,
            "evaluate_every": self._terms.every,
            "standardise": None if self.standardise is None else vars(self.standardise),
            "inputs": written_scale(self._flat.inputs),
            "evaluated": None if self._evaluated is None else vars(self._evaluated),
            "peer_by_peer": peers.updates.chunk == 1,
            "malicious": list(peers.malicious),
            "attack": attack_text(peers.attack),
            "cohorts": [list(cohort) for cohort in self.history.layout.cohorts],
            "clear": self.clear,
            "optimizer": optimizers.as_record(self._optimizer),
            "recovered": [sorted(kept) for kept in self._recovered],
            "unprotected": sorted(self._guard.unprotected),
            "data": None if self._data is None else list(self._data),
            "names": None if self.roster.names is None else list(self.roster.names),
            "classes": written_classes(self.classes),
        }
        write_saved(Path(folder), self.history, peers.model, settings)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        model: torch.nn.Module,
        datasets: Sequence[Any] | Mapping[str, Any],
        *,
        classes: Iterable[Hashable] | None = None,
        attack: Attack | None = None,
        new_model: NewModel | None = None,
    ) -> Self:
        """Take up a saved federation again, with the module and the data it was trained with.

        Your module is copied and gets the first weights from the folder, so a freshly built one
        will do. The data must be the same: their digests are compared. `attack` and `new_model`
        are as they were given to `simulate`, and so are `classes`, which are needed only if they
        are neither texts nor numbers: the folder has no others.
        """
        instance("folder", folder, (str, Path), "the path of a folder", HistoryError)
        saved = read_saved(Path(folder))
        module = saved.module(model)
        given, scaled = saved.in_order(datasets), saved.inputs is not None
        own = take_in(given, module, saved.classes or classes, scaled=scaled)
        if saved.names is not None:
            own = replace(own, roster=Roster(count=own.roster.count, names=saved.names))
        saved.check_data(own)
        saved.check_attack(attack)
        terms = Terms(
            tolerance=saved.tolerance,
            attack=attack,
            folder=folder,
            new_model=new_model,
            **saved.settings,
        )
        federation = cls._of(own, module, terms, saved.digests)
        if not federation.history.finished:
            raise HistoryError(
                f"the history in {folder} is half-written: {len(federation.history.sums)} rounds "
                f"and {len(federation.history.models)} models; get it from a copy, or train again "
                "in another folder"
            )
        saved.check_outputs(federation.simulated_peers.model)
        federation._flat.inputs = saved.inputs
        federation._optimizer = saved.optimizer
        federation._remember(*saved.recovered, unprotected=saved.unprotected)
        federation._evaluated = saved.evaluated
        return federation

    def summary(self) -> Summary:
        """Return what there is to say in a few lines."""
        rounds = len(self.history.sums)
        trained = counted(rounds, "round") if self._optimizer else "not yet"
        rows = [
            ("peers", f"{self.roster.count}: {self.roster.listed()}"),
            *self.update_source.about(),
            *([("classes", classes_text(self._classes))] if self._classes else []),
            ("model", f"{self._flat.size} weights"),
            ("survives", str(self.scheme.quorums.tolerance)),
            ("trained", trained),
        ]
        if self._recovered:
            rows.append(("recovered", f"{len(self._recovered)} times with the history"))
        if self.standardise is not None:
            state = "" if self._flat.inputs else ", not yet"
            rows.append(("inputs", f"standardised per {self.standardise.per}{state}"))
        if self.clear:
            rows.append(("shared", "nothing (clear=True)"))
        return Summary(title="Federation", rows=tuple(rows))

    def __repr__(self) -> str:
        rounds = len(self.history.sums)
        state = f"trained for {counted(rounds, 'round')}" if self._optimizer else "not yet trained"
        return f"<Federation: {counted(self.roster.count, 'peer')}, {state}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().html()


def _no_optimizer(optimizer: Any) -> str:
    """Say why this is no optimizer of a federation."""
    if optimizer is None:
        return "optimizer must be sgd, momentum, adam or muon, got None; leave it out for sgd"
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    name = f"{kind.__module__.split('.')[0]}'s {kind.__name__}"
    return (
        f"optimizer must be sgd, momentum, adam or muon, or one of pdlrecover.recovery.optimizers, "
        f"got {name}, which steps by gradients of its own and not by opened sums; "
        "give a name and a learning_rate"
    )
