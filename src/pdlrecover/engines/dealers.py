"""What peers deal in a round, computed in this one place for real and for simulated peers.

    minibatches → poison → update → corrupt → weigh → clip → round, and the weight appended

With a teacher, its predictions take the place of all labels after the poisoning: what attackers do
to labels is then without effect, what they do to samples is not.

Rules:

- What a peer deals is its clipped update and its weight, (gᵢ, αᵢ): d + 1 numbers, each rounded to
  the fixed-point step. Only integers are added up, so the sums are exact, in any order.
- Sums are returned as signed integers per group of peers: what FixedPoint.encode makes of every
  peer's update, added modulo q, is the same number (a test holds that).
- Attackers come to their attack in ascending order, with their places among all malicious peers,
  whatever the order and the number of those asked.
- Evaluations are computed peer by peer, on what each holds out; a malicious peer poisons that, too.
- Statistics of inputs are those of all samples that a peer trains on, as they are: attacks here act
  in training, and malicious peers' statistics are true.
- Updates are added up some peers at a time, so that memory does not grow with their number; unless
  attackers act as one: then it has their updates, and all peers' if they look at those.
- A real peer computes for itself only, a simulation for many at once. Where updates are computed
  peer by peer (`Updates.chunk` = 1), both come to the same bits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.adversary import Attack, Context, NoAttack, Phase
from pdlrecover.errors import DataError
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.learning import Batches, LocalTraining, Updates, clip, correct_and_loss
from pdlrecover.learning.partition import Partition
from pdlrecover.recovery.evaluation import LOSS_BOUND, encode_tally
from pdlrecover.recovery.requests import LocalSteps, Moments, Teacher, Vector
from pdlrecover.recovery.standardisation import StandardisationTerms

Peers = NDArray[np.int64]
_PIECE_NUMBERS = 1 << 23
"""How many numbers of updates are held at once, about, while they are added up."""
_TAUGHT_PEERS = 2048
"""How many peers a teacher labels samples for at once, about."""


@dataclass(frozen=True, kw_only=True)
class _Sides:
    """Which rows of a round's minibatches are malicious peers', and which are not."""

    bad: slice | Peers
    good: slice | Peers
    context: Context


@dataclass(kw_only=True, eq=False)
class Dealers:
    """Some peers of a federation with their data, or all of them; numbered from 0 here."""

    x: torch.Tensor
    """All samples, (N, *shape)."""
    y: torch.Tensor
    batches: Batches
    updates: Updates
    malicious: tuple[int, ...] = ()
    attack: Attack = field(default_factory=NoAttack)
    federation_size: int | None = None
    """How many peers' updates are added up at most: these, unless there are more elsewhere."""
    fraction_bits: int = 20
    held_out: Partition = field(default_factory=list)
    """The samples that each peer holds out; none if nobody evaluates."""
    room: Callable[[int, int], torch.Tensor] = torch.empty
    """Returns where (peers, d) updates are written to."""
    clipped: int = 0
    """How many updates the L2 bound has shortened so far."""

    def __post_init__(self) -> None:
        classes = self.updates.model.classes
        if len(self.y) and not 0 <= int(self.y.min()) <= int(self.y.max()) < classes:
            raise DataError(
                f"labels must be whole numbers from 0 to {classes - 1}, which is what the model "
                f"tells apart; got {int(self.y.min())} to {int(self.y.max())}"
            )
        self.code = FixedPoint(
            peers=self.federation_size or self.peers,
            bound=float(np.hypot(self.updates.bound, 1.0)),
            length=self.updates.model.size + 1,
            fraction_bits=self.fraction_bits,
        )
        self._malicious = np.zeros(self.peers, dtype=bool)
        self._malicious[list(self.malicious)] = True
        self._places = np.cumsum(self._malicious) - 1
        self._weights = np.rint(self.updates.weights * self.code.scale).astype(np.int64)

    @property
    def peers(self) -> int:
        """How many peers there are."""
        return len(self.updates.weights)

    def dealt(
        self,
        round: int,
        at: Vector,
        peers: Sequence[int] | Peers,
        phase: Phase,
        *,
        stream: int = 0,
        local: LocalSteps | None = None,
        teacher: Teacher | None = None,
    ) -> torch.Tensor:
        """Return what these peers deal at a model: clipped updates, before rounding.

        `stream`, `local` and `teacher` are as in a request for an `Update`.
        """
        who, steps = np.asarray(peers, dtype=np.int64), self._local(local)
        x, y, sides = self._minibatches(round, at, who, phase, stream, steps.steps)
        if teacher is not None:
            y = self.updates.soft_labels(teacher.models, x, teacher.temperature)
            steps = replace(steps, temperature=teacher.temperature)
        room = self.room(len(who), self.updates.model.size)
        if sides is None:
            updates = self.updates.weighted(at, who, x, y, local=steps, out=room)
        else:
            updates = self.updates.plain(at, x, y, local=steps, out=room)
            bad, good = sides.bad, sides.good
            updates[bad] = self.attack.corrupt(updates[bad], updates[good], sides.context)
            updates = self.updates.weigh(updates, who)
        return self._clipped(updates)

    def sums(
        self,
        round: int,
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase = "training",
        *,
        stream: int = 0,
        local: LocalSteps | None = None,
        teacher: Teacher | None = None,
    ) -> Integers:
        """Return each group's sum of rounded updates and weights, as (groups, d + 1) integers."""
        who = np.array([peer for group in groups for peer in group], dtype=np.int64)
        ends = np.cumsum([len(group) for group in groups])
        out = np.zeros((len(groups), self.code.length), dtype=np.int64)
        for places, updates in self._pieces(round, at, who, phase, stream, local, teacher):
            of = np.searchsorted(ends, places, side="right")
            for group in np.unique(of):
                first, end = np.searchsorted(of, group), np.searchsorted(of, group, side="right")
                out[group, :-1] += self._rounded_sum(updates[first:end])
        for row, group in zip(out, groups, strict=True):
            row[-1] = self._weights[list(group)].sum()
        return out

    def piece(self, *, taught: bool = False) -> int:
        """Return how many peers are computed before their updates are added up.

        These are whole vectorised calls: sums over peers that are cut there have the same bits.
        """
        call = self.updates.call
        calls = max(1, _PIECE_NUMBERS // (call * self.updates.model.size))
        return call * (max(calls, _TAUGHT_PEERS // call) if taught else calls)

    def acts_as_one(self, who: Sequence[int] | Peers) -> bool:
        """Say whether there are attackers among these peers who must be asked all at once."""
        return bool(self._malicious[np.asarray(who)].any()) and not self.attack.one_by_one

    def _pieces(
        self,
        round: int,
        at: Vector,
        who: Peers,
        phase: Phase,
        stream: int,
        local: LocalSteps | None,
        teacher: Teacher | None,
    ) -> Iterator[tuple[Peers, torch.Tensor]]:
        """Yield what these peers deal, some of them at a time, with their places in `who`."""
        step = self.piece(taught=teacher is not None)
        if self.acts_as_one(who):
            if teacher is None and not self.attack.reads_others:
                yield from self._attackers_last(round, at, who, phase, stream, self._local(local))
                return
            step = len(who)
        for start in range(0, len(who), step):
            some = who[start : start + step]
            yield (
                start + np.arange(len(some)),
                self.dealt(round, at, some, phase, stream=stream, local=local, teacher=teacher),
            )

    def _attackers_last(
        self, round: int, at: Vector, who: Peers, phase: Phase, stream: int, local: LocalTraining
    ) -> Iterator[tuple[Peers, torch.Tensor]]:
        """Yield what these peers deal, some of them at a time: their places in `who`, ascending.

        It is for attackers who act as one, and look at no others: it takes the memory of one piece
        and of their updates, which come last.
        """
        bad = np.flatnonzero(self._malicious[who])
        order = bad[np.argsort(who[bad])]
        x, y, sides = self._minibatches(round, at, who[order], phase, stream, local.steps)
        kept = torch.empty(len(order), self.updates.model.size)
        rank = np.zeros(len(who), dtype=np.int64)
        rank[order] = np.arange(len(order))
        step = self.piece()
        for start in range(0, len(who), step):
            some = who[start : start + step]
            some_x, some_y = self.batches.take(
                self.x, self.y, some, round, stream=stream, steps=local.steps
            )
            is_bad = self._malicious[some]
            places = start + np.arange(len(some))
            own = rank[places[is_bad]]
            some_x[is_bad], some_y[is_bad] = x[own], y[own]
            room = self.room(len(some), self.updates.model.size)
            updates = self.updates.plain(at, some_x, some_y, local=local, out=room)
            kept[own] = updates[is_bad]
            honest = self.updates.weigh(updates[_rows(np.flatnonzero(~is_bad))], some[~is_bad])
            yield places[~is_bad], self._clipped(honest)
        if sides is not None:
            claimed = self.attack.corrupt(kept, kept[:0], sides.context)
            updates = self.updates.weigh(torch.empty_like(kept).copy_(claimed), who[order])
            back = np.argsort(order)
            yield order[back], self._clipped(updates)[back]

    def _local(self, asked: LocalSteps | None) -> LocalTraining:
        """Return how peers come to their updates, with the local steps that are asked for."""
        own = self.updates.local
        return own if asked is None else replace(own, steps=asked.steps, rate=asked.rate)

    def _clipped(self, updates: torch.Tensor) -> torch.Tensor:
        updates, clipped = clip(updates, self.updates.bound)
        self.clipped += clipped
        return updates

    def tally(self, at: Vector, peers: Sequence[int], phase: Phase = "training") -> Integers:
        """Return the sum of the three integers that each of these peers deals in an evaluation."""
        total: Integers = np.sum([self._tally(at, peer, phase) for peer in peers], axis=0)
        return total

    def _tally(self, at: Vector, peer: int, phase: Phase) -> Integers:
        """Return one peer's correct answers, clipped loss and number of samples."""
        rows = torch.from_numpy(self.held_out[peer])
        if not len(rows):
            return encode_tally(0, 0.0, 0)
        x, y = self.x[rows], self.y[rows]
        if self._malicious[peer]:
            place = [int(self._places[peer])]
            context = Context.of(seed=self.batches.seed, round=0, w=at, places=place, phase=phase)
            x, y = (each[0] for each in self.attack.poison(x[None], y[None], context))
        found = correct_and_loss(self.updates.model, at, x, y, bound=LOSS_BOUND)
        return encode_tally(*found, len(y))

    def statistics(
        self, request: Moments, peers: Sequence[int], terms: StandardisationTerms
    ) -> Integers:
        """Return the sum of what each of these peers deals for the scale of inputs."""
        dealt = [terms.deal(self._trained(peer), request.order, request.at) for peer in peers]
        total: Integers = np.sum(dealt, axis=0)
        return total

    def clipped_inputs(self, peer: int, terms: StandardisationTerms) -> int:
        """Return how many numbers of a peer count as the bound in its statistics."""
        return terms.clipped(self._trained(peer))

    def _trained(self, peer: int) -> NDArray[np.float32]:
        """Return the samples that a peer trains on."""
        found: NDArray[np.float32] = self.x[self.batches.samples_of([peer])].numpy()
        return found

    def _rounded_sum(self, updates: torch.Tensor) -> Integers:
        """Return Σᵢ round(scale·updateᵢ), row by row, so that a row stays in the cache.

        A clipped update has coordinates of at most scale·bound; as many as fit are added in int32.
        """
        scaled = torch.empty(updates.shape[1])
        total = np.zeros(updates.shape[1], dtype=np.int64)
        fit = int((2**31 - 1) / (self.code.scale * self.updates.bound + 1))
        whole = torch.empty(updates.shape[1], dtype=torch.int32 if fit else torch.int64)
        for start in range(0, len(updates), fit or 1):
            some = torch.zeros_like(whole)
            for update in updates[start : start + (fit or 1)]:
                torch.mul(update, self.code.scale, out=scaled)
                some += whole.copy_(scaled.round_())
            total += some.numpy()
        return total

    def _minibatches(
        self, round: int, at: Vector, who: Peers, phase: Phase, stream: int = 0, steps: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor, _Sides | None]:
        """Return these peers' samples and labels, poisoned where they attack, and who does."""
        x, y = self.batches.take(self.x, self.y, who, round, stream=stream, steps=steps)
        if not self._malicious[who].any():
            return x, y, None
        order = np.argsort(who)
        malicious = self._malicious[who[order]]
        bad, good = _rows(order[malicious]), _rows(order[~malicious])
        places = self._places[who[bad]].tolist()
        context = Context.of(seed=self.batches.seed, round=round, w=at, places=places, phase=phase)
        x[bad], y[bad] = self.attack.poison(x[bad], y[bad], context)
        return x, y, _Sides(bad=bad, good=good, context=context)


def _rows(numbers: Peers) -> slice | Peers:
    """Return these rows as a slice where they are one ascending run: that copies nothing."""
    first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
    run = np.array_equal(numbers, np.arange(first, last + 1))
    return slice(first, last + 1) if run else numbers
