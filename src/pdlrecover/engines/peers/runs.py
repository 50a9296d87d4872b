"""What a peer takes part in, the training and recoveries, and the files that come out of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch

from pdlrecover.engines.peers.circle import Circle
from pdlrecover.engines.peers.contracts import Crypto, Store
from pdlrecover.engines.peers.contribution import Contribution
from pdlrecover.engines.peers.council import Removal
from pdlrecover.engines.peers.driver import Driver
from pdlrecover.engines.peers.effects import Deadlines
from pdlrecover.engines.peers.machine import ANSWER_BYTES
from pdlrecover.engines.peers.participant import Participant
from pdlrecover.engines.peers.report import write_json
from pdlrecover.engines.peers.run_plan import Plan
from pdlrecover.errors import PlanError
from pdlrecover.learning import FlatModel
from pdlrecover.recovery import methods
from pdlrecover.recovery.requests import Method, Original, Vector
from pdlrecover.recovery.retrain import train


class Runs:
    """Makes this peer's part in each run, and writes down what it came to."""

    def __init__(
        self,
        *,
        me: int,
        federation: bytes,
        plan: Plan,
        module: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        crypto: Crypto,
        store: Store,
        folder: Path,
        deadlines: Deadlines,
    ) -> None:
        self.me, self.plan, self.folder, self.store = me, plan, folder, store
        self._federation, self._crypto, self._deadlines = federation, crypto, deadlines
        self._flat = FlatModel(module, tuple(x.shape[1:]))
        self._scheme = plan.scheme
        self._contribution = Contribution(
            peer=me,
            peers=plan.peers,
            model=self._flat,
            x=x,
            y=y,
            size_bound=plan.size_bound,
            batch_size=plan.batch_size,
            seed=plan.seed,
            bound=plan.bound,
            l2=plan.l2,
            fraction_bits=plan.fraction_bits,
        )
        self.training = plan.run(federation, self._flat)
        """The name of the training run."""

    @property
    def largest_message(self) -> int:
        """No honest peer sends more bytes at once: fetched answers, or a share with its proof."""
        update = 8 * self._contribution.code.length
        return 2 * ANSWER_BYTES + 4 * update + 1000 * self.plan.peers

    def circle(self, run: bytes, peers: Sequence[int]) -> Circle:
        """Return the peers of a run, as this one sees it."""
        return Circle(
            me=self.me,
            peers=tuple(peers),
            scheme=self._scheme,
            crypto=self._crypto,
            federation=self._federation,
            run=run,
            deadlines=self._deadlines,
        )

    def trainer(self) -> Participant:
        """Return this peer's part in the training."""
        method = train(self._flat.initial, self.plan.optimizer, range(self.plan.rounds))
        return self._participant(method, self.circle(self.training, range(self.plan.peers)))

    def recoverer(self, removal: Removal, trained: Driver) -> Participant:
        """Return this peer's part in the recovery that a removal asks for."""
        if trained.model is None:
            raise PlanError("there is nothing to recover yet: the training has not ended here")
        original = Original(
            models=[*trained.models, trained.model],
            optimizer=self.plan.optimizer,
            code=self._contribution.code,
        )
        settings = replace(self.plan.settings, batch_size=self.plan.batch_size)
        method = methods.start(removal.proposal.method, original, settings)
        circle = self.circle(removal.proposal.digest, removal.kept)
        return self._participant(method, circle, history=self.training)

    def write_trained(self, participant: Participant) -> None:
        """Write the trained model."""
        self._save("trained", participant)

    def write_recovered(self, participant: Participant, removal: Removal) -> None:
        """Write the recovered model, and what was opened for it."""
        proposal = removal.proposal
        name = f"recovered-{proposal.digest.hex()[:16]}"
        self._save(name, participant)
        told = {
            "removed": sorted(proposal.removed),
            "reason": proposal.reason,
            "method": proposal.method,
            "approved_by": sorted(removal.approvals),
            "log": participant.machine.log.hex(),
            "ledger": participant.driver.ledger.record(),
        }
        write_json(self.folder / f"{name}.json", told)

    def _participant(
        self, method: Method, circle: Circle, history: bytes | None = None
    ) -> Participant:
        driver = Driver(
            circle=circle,
            method=method,
            code=self._contribution.code,
            store=self.store,
            contribute=self._contribution,
            history=history,
        )
        return Participant(driver, self.store)

    def _save(self, name: str, participant: Participant) -> None:
        model: Vector | None = participant.driver.model
        if model is None:
            raise PlanError("a run that has not ended has no model to write")
        state = self._flat.module_with(model).state_dict()
        tensors = {key: value.contiguous() for key, value in state.items()}
        part = self.folder / f"{name}.part"
        safetensors.torch.save_file(tensors, part)
        part.rename(self.folder / f"{name}.safetensors")
