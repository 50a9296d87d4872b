"""One federation of real processes: trained, peers removed, recovered, all of it under faults.

1. All peers are started, and the faults begin when all answer.
2. They train, until every peer has the trained model. Where peers cheat, the first removal (see 3)
   is voted on half-way, and the training goes on without them.
3. For each method the first kept peer that is there proposes to remove the last peers, and others
   approve, until every kept peer has a recovered model. If the peers agree on another recovery
   in place of one that cannot go on, that one counts.
4. All are stopped, and judged: see `verdict`.

A run in which nothing moves for `patience` seconds is given up, and judged by what was said.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pdlrecover.engines.peers.folder import TRAINED
from pdlrecover.errors import PlanError
from pdlrecover.experiments.chaos import verdict as v
from pdlrecover.experiments.chaos.cheats import CHEATS
from pdlrecover.experiments.chaos.faults import Faults
from pdlrecover.experiments.chaos.local_federation import settle
from pdlrecover.experiments.chaos.mishaps import Mishaps
from pdlrecover.experiments.chaos.peer_processes import PeerProcesses
from pdlrecover.experiments.chaos.scenario import METHODS, Scenario

TICK = 0.1
START_SECONDS = 120.0
"""For all peers to answer, on a machine with other work."""
PATIENCE = 180.0


class Trial:
    """One federation, from its files to its verdict."""

    def __init__(
        self,
        place: Path,
        scenario: Scenario,
        seed: str,
        *,
        say: Callable[[str], None],
        beyond: bool = False,
        cheats: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Make the federation's files in a new folder; `cheats` says who of the last plays what."""
        self._scenario, self._seed, self._beyond, self._cheats = (
            scenario,
            seed,
            beyond,
            cheats or {},
        )
        drills = () if self._cheats else scenario.removed
        place.mkdir(parents=True)
        federation = settle(
            place, scenario.names, scenario.agreed(), source="digits", drills=drills
        )
        self._processes = PeerProcesses(federation, scenario.names, self._cheats)
        self._faults = Faults(seed, most=scenario.most_away, beyond=beyond)
        self._say, self._patience = say, patience
        self._honest = [name for name in scenario.names if name not in self._cheats]
        self._problems: list[str] = []
        self._endings: list[v.Ending] = []
        self._decided_early = ""
        """The method of the removal that passed during the training."""
        self._reached: dict[tuple[str, str, str], int] = {}
        """The furthest step that each peer was seen in, by run and its outcome."""

    def run(self) -> v.TrialVerdict:
        """Run it; return what came of it."""
        with self._processes as processes:
            for name in processes.names:
                processes.start(name)
            answered = self._until_all_answer()
            self._mishaps = Mishaps(processes, self._faults, self._say)
            if answered and self._train():
                for method in METHODS:
                    self._recover(method, is_decided=method == self._decided_early)
            self._mishaps.all_back()
            self._until_all_answer()
            for name, code in processes.stop().items():
                if code != 0 and name in self._honest:
                    self._problems.append(f"{name} was told to stop, and ended with code {code}")
        return self._judged()

    def _until_all_answer(self) -> bool:
        """Wait for all peers, and say whether they are there; that they are not is a problem."""
        end = time.monotonic() + START_SECONDS
        while missing := [n for n in self._processes.names if not self._processes.answers(n)]:
            died = self._processes.died()
            if died or time.monotonic() > end:
                who = ", ".join(missing)
                text = f"{who} did not start within {START_SECONDS:.0f} s; ended: {died or 'none'}"
                self._problems.append(text)
                self._say(text)
                return False
            time.sleep(TICK)
        return True

    def _train(self) -> bool:
        names = self._scenario.names
        began, after = time.monotonic(), self._logged()
        for _ in self._ticks(names, losable=self._scenario.kept):
            if self._cheats and not self._decided_early and self._is_half_trained():
                refused = self._decide(METHODS[0])
                if refused:
                    self._problems.append(f"no removal during the training: {refused}")
                    return False
                self._decided_early = METHODS[0] if refused is not None else ""
            found = v.models(self._processes, names, TRAINED)
            if len(found) == len(names):
                self._ended("training", began, TRAINED, found)
                return True
        self._stalled("training", began, after)
        return False

    def _is_half_trained(self) -> bool:
        """Say whether some peer is half-way through the training."""
        return any(step >= self._scenario.rounds // 2 for step in self._reached.values())

    def _recover(self, method: str, *, is_decided: bool = False) -> None:
        """Have the last peers removed, unless that `is_decided`, and wait for the model."""
        kept = self._scenario.kept
        before, after = {name: self._recovered(name) for name in kept}, self._logged()
        if is_decided:
            before = {name: set() for name in kept}
        began, approved = time.monotonic(), is_decided
        for _ in self._ticks(kept):
            if not approved:
                answer = self._decide(method)
                if answer is None:
                    continue
                if answer:
                    self._refused(method, began, answer)
                    return
                approved = True
                self._mishaps.soon()
            new = [self._recovered(name) - before[name] for name in kept]
            if common := set.intersection(*new):
                file = min(common)
                self._ended(method, began, file, v.models(self._processes, kept, file))
                return
        self._stalled(method, began, after)

    def _decide(self, method: str) -> str | None:
        """Propose and approve a removal; return why it was refused, "" if it has passed.

        None: somebody does not answer now, try again. What was done before does no harm.
        """
        removed, here = list(self._scenario.removed), self._processes
        present = [name for name in self._scenario.kept if here.answers(name)]
        if not present:
            return None
        try:
            order = {"removed": removed, "reason": "malicious", "method": method}
            answer = here.ask(present[0], do="propose-removal", **order)
            if "error" in answer:
                return str(answer["error"])
            for name in present:
                here.ask(name, do="approve", removal=answer["removal"])
            known = here.ask(present[-1], do="status").get("removals", ())
        except PlanError:
            return None
        found = [each for each in known if each["removal"] == answer["removal"]]
        passed = found and len(found[0]["approvals"]) >= found[0]["needed"]
        if passed:
            self._say(f"{', '.join(removed)} shall be removed by {method}")
        return "" if passed else None

    def _ticks(self, peers: tuple[str, ...], losable: tuple[str, ...] = ()) -> Iterator[None]:
        """Let faults happen, again and again, until nothing has moved for long."""
        quorum, since = self._scenario.quorum(len(peers)), time.monotonic()
        while time.monotonic() < since + self._patience:
            self._mishaps.tick(peers, quorum, losable)
            self._note_deaths()
            yield
            if self._has_moved(peers):
                since = time.monotonic()
            time.sleep(TICK)

    def _has_moved(self, peers: tuple[str, ...]) -> bool:
        """Say whether one of these peers is further than ever: who starts again is not."""
        moved = False
        for name in peers:
            for run, found in self._processes.status(name).get("runs", {}).items():
                key = name, run, found["outcome"]
                if found["step"] > self._reached.get(key, -1):
                    self._reached[key], moved = found["step"], True
        return moved

    def _note_deaths(self) -> None:
        """Say who ended by itself, and start it again."""
        for name, code in self._processes.died().items():
            self._problems.append(f"{name} ended by itself with code {code}")
            self._say(self._problems[-1])
            self._processes.kill(name)
            self._processes.start(name)

    def _recovered(self, name: str) -> set[str]:
        return {path.stem for path in self._processes.folder(name).glob("recovered-*.json")}

    def _logged(self) -> dict[str, int]:
        """Return where every log ends now."""
        return {name: self._processes.log(name).stat().st_size for name in self._scenario.names}

    def _ended(self, run: str, began: float, file: str, found: Mapping[str, str]) -> None:
        honest = {name: each for name, each in found.items() if name in self._honest}
        digests, seconds = set(honest.values()), time.monotonic() - began
        if len(digests) > 1:
            self._problems.append(f"{run} ended with {len(digests)} different models: {honest}")
        facts = v.facts_of(self._processes, next(iter(honest)), file)
        weights = digests.pop() if len(digests) == 1 else None
        self._endings.append(v.Ending(run=run, seconds=seconds, weights=weights, **facts))
        self._say(f"{run} has ended after {seconds:.0f} s: {weights or 'different models'}")

    def _stalled(self, run: str, began: float, after: Mapping[str, int]) -> None:
        said = v.statement(self._processes, self._honest, after)
        text = f"{run} did not end; nothing moved for {self._patience:.0f} s"
        self._unfinished(run, began, text, said)

    def _refused(self, method: str, began: float, why: str) -> None:
        self._unfinished(method, began, f"a removal by {method} was refused", why)

    def _unfinished(self, run: str, began: float, text: str, said: str | None) -> None:
        """Note a run that did not end, and whether it may not."""
        seconds = time.monotonic() - began
        self._endings.append(v.Ending(run=run, seconds=seconds, statement=said))
        self._say(text + (f" ({said})" if said else ", and nobody said what is missing"))
        if not v.may_not_end(said, beyond=self._beyond):
            self._problems.append(text if said is None else f"{text} ({said})")

    def _judged(self) -> v.TrialVerdict:
        """Judge what the stopped peers have left."""
        processes, found = self._processes, v.named(self._processes, self._honest)
        problems = [
            *self._problems,
            *self._mishaps.silent,
            *v.damage(processes),
            *v.bugs(processes, self._honest),
        ]
        for name in self._honest:
            proven = [what for what, is_proven in found.get(name, {}).items() if is_proven]
            if proven and name not in self._scenario.removed:
                problems.append(f"{name} is honest, and was proven to have cheated: {proven}")
        for name, cheat in self._cheats.items():
            if CHEATS[cheat].is_named and name not in found:
                problems.append(f"{name} cheated ({cheat}), and nobody has named it")
        return v.TrialVerdict(
            seed=self._seed,
            cheats=self._cheats,
            faults=dict(self._mishaps.counts),
            endings=tuple(self._endings),
            named={name: tuple(what) for name, what in found.items()},
            problems=tuple(problems),
        )
