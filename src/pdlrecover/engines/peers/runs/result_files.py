"""What a peer's runs came to, as files in its folder: scale, models, who was named, the ledgers.

Rule: what is in them is public among the peers, but for how many of this peer's own numbers were
beyond the bound on inputs. The file of a model is there before the JSON file that is about it.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdlrecover.descriptors import remedy
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.folder import (
    STANDARDISATION,
    TRAINED,
    naming_name,
    recovered_name,
)
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.engines.peers.removals.votes import Removal
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.engines.peers.runs.void_rounds import VoidRound
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.files import write_json, write_whole
from pdlrecover.learning import FlatModel
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.model_files import to_safetensors
from pdlrecover.recovery.requests import Vector
from pdlrecover.recovery.standardisation import StandardisationTerms


class ResultFiles:
    """The result files of one peer."""

    def __init__(self, folder: Path, membership: Membership, model: FlatModel) -> None:
        """Write to this folder; `model` has the scale of inputs, once that is known."""
        self._folder, self._data, self._flat = folder, membership.data, model
        self._names = [peer.name for peer in membership.peers]

    def write_scale(
        self, session: RunSession, terms: StandardisationTerms, scale: InputScale, clipped: int
    ) -> None:
        """Write the scale of inputs, and how many numbers of this peer were clipped for it."""
        driver = session.driver
        facts = {
            "per": terms.per,
            "bound": terms.bound,
            "mean": scale.mean.tolist(),
            "std": scale.std.tolist(),
            "inputs_sha256": scale.digest,
            "clipped_here": clipped,
            "log": session.protocol.log.hex(),
            "ledger": asdict(driver.participation.record(driver.ledger)),
        }
        with self._writing("the scale of inputs"):
            write_json(self._folder / STANDARDISATION, facts)

    def write_trained(self, session: RunSession) -> None:
        """Write the trained model, and what was opened for it."""
        self._write(TRAINED, session, {"peers": self._names})

    def write_recovered(self, session: RunSession, removal: Removal) -> None:
        """Write the recovered model, and what was opened for it."""
        proposal, names = removal.proposal, self._names
        facts = {
            "removal": proposal.digest.hex(),
            "removed": [names[p] for p in sorted(proposal.removed)],
            "kept": [names[p] for p in removal.kept],
            "reason": proposal.reason,
            "method": proposal.method,
            "approved_by": [names[p] for p in sorted(removal.approvals)],
        }
        if removal.replaces != NOTHING:
            facts["replaces"] = removal.replaces.hex()
        self._write(recovered_name(proposal.digest.hex()), session, facts)

    def write_named(self, session: RunSession, void: VoidRound) -> None:
        """Write what was opened to find who made a round void."""
        names = self._names
        facts = {
            "run": void.run.hex(),
            "round": void.round,
            "dealers": [names[p] for p in sorted(void.dealers)],
            "named": [names[p] for p in sorted(session.named)],
            "log": session.protocol.log.hex(),
            "ledger": asdict(session.driver.ledger.totals()),
        }
        with self._writing("who was named"):
            write_json(self._folder / f"{naming_name(void.naming.hex())}.json", facts)

    def dealt(self, session: RunSession) -> dict[str, int]:
        """Return in how many exact rounds of a run each of its peers dealt, by name."""
        counts = session.driver.participation.dealt
        return {self._names[p]: counts[p] for p in session.driver.context.peers}

    def _write(self, name: str, session: RunSession, facts: dict[str, Any]) -> None:
        """Write NAME.safetensors, then NAME.json: once that is there, both are."""
        driver = session.driver
        model: Vector | None = driver.model
        if model is None:
            raise PlanError("a run that has not ended has no model to write")
        facts |= {
            "weights_sha256": hashlib.sha256(model.astype("<f8").tobytes()).hexdigest(),
            "log": session.protocol.log.hex(),
            "rounds": driver.rounds,
            "dealt": self.dealt(session),
            "ledger": asdict(driver.participation.record(driver.ledger)),
        }
        if self._flat.inputs is not None:
            facts["inputs_sha256"] = self._flat.inputs.digest
        if driver.void:
            facts["void"] = [asdict(each) for each in driver.void]
        if found := driver.evaluations.points:
            facts["evaluations"] = [asdict(point) for point in found]
            facts["continued"] = driver.evaluations.continued
        content = to_safetensors(self._flat, model, self._agreed_names())
        facts["file_sha256"] = hashlib.sha256(content).hexdigest()
        with self._writing("the model"):
            write_whole(self._folder / f"{name}.safetensors", content)
            write_json(self._folder / f"{name}.json", facts)

    def _agreed_names(self) -> dict[str, str]:
        """Return the agreed names as `load_model` reads them in a file; empty if there are none."""
        named = {"classes": self._data.classes, "columns": self._data.features}
        return {key: json.dumps(names) for key, names in named.items() if names is not None}

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Say what to do where something cannot be written."""
        try:
            yield
        except OSError as error:
            raise HistoryError(
                f"{what} could not be written to {self._folder}: {error.strerror}; it is safe in "
                f"the history; {remedy(error, 'make room')}, and start again: it will be written"
            ) from error
