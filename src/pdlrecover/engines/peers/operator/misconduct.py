"""What others did that no honest peer does: shown to the operator, counted, and kept.

Rules: *caught* is who is proven to have cheated, *named* who did so without proof to others. Both
survive a restart. What one peer does fills neither the log nor the disk: lines in a minute, names
for one peer, pieces of evidence and their bytes are bounded.
"""

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pdlrecover.descriptors import patiently
from pdlrecover.engines.peers.folder import EVIDENCE
from pdlrecover.engines.peers.operator.status import BlameStatus
from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.stored import StoredForm
from pdlrecover.files import write_whole

LOG = logging.getLogger("pdlrecover.peer")
KEPT_BLAMES = 200
KEPT_EVIDENCE, KEPT_EVIDENCE_BYTES = 1000, 1 << 28
"""This many pieces of evidence are kept on disk, of this many bytes together."""
LOGGED_BLAMES = 20
"""At most this many lines on one peer go to the log in a minute."""
KEPT_NAMES = 8
"""At most this many different things are kept of one peer that is named without proof."""
_CAUGHT, _NAMED = "caught", "named"


@dataclass(frozen=True, kw_only=True)
class Misdeed:
    """What a peer did, and when first, as it is kept on disk."""

    peer: f.Peer
    what: Annotated[str, f.Text(1 << 16)]
    time: f.Time


def _read_version_0(data: bytes) -> tuple[Misdeed, ...]:
    """Read JSON: lists of peer, deed and time."""
    saved = json.loads(data)
    if not isinstance(saved, list):
        raise TypeError("it is no list")
    return tuple(Misdeed(peer=peer, what=what, time=at) for peer, what, at in saved)


MISDEEDS = StoredForm(
    kind=4, form=f.Many(f.form_of(Misdeed), 1 << 20), read_version_0=_read_version_0
)


class Misconduct:
    """How the others behave, as one peer sees it."""

    def __init__(self, store: Store, folder: Path, names: Sequence[str]) -> None:
        self._store, self._names, self._place = store, names, folder / EVIDENCE
        self.blames: deque[BlameStatus] = deque(maxlen=KEPT_BLAMES)
        """The last ones."""
        self.caught: dict[tuple[int, str], float] = self._recall(_CAUGHT)
        """Who was proven to have cheated, how, and when first."""
        self.named: dict[tuple[int, str], float] = self._recall(_NAMED)
        """Who did, without proof to others, what no honest peer does; when first."""
        self.counts: Counter[str] = Counter()
        """`blames`, and pieces of `evidence`."""
        self._evidence: set[tuple[object, ...]] = set()
        self._logged: Counter[int] = Counter()
        self._minute = 0

    def blame(
        self, peer: int, what: str, evidence: tuple[bytes, ...] = (), step: tuple[object, ...] = ()
    ) -> None:
        """Take note of what a peer did; its evidence is kept once for each run and step."""
        self.counts["blames"] += 1
        facts: dict[str, Any] = {"peer": peer, "what": what, "proven": bool(evidence)}
        name = self._names[peer]
        self.blames.append(BlameStatus(**facts, time=time.time(), name=name))
        self.log(logging.WARNING, peer, f"{name} {what}", {"event": "blame", **facts})
        if not evidence:
            self._note(_NAMED, self.named, peer, what, KEPT_NAMES)
            return
        self._note(_CAUGHT, self.caught, peer, what, KEPT_BLAMES)
        if (peer, what, step) not in self._evidence:
            self._evidence.add((peer, what, step))
            self._keep_evidence(peer, evidence)

    def log(
        self,
        level: int,
        peer: int,
        text: str,
        facts: Mapping[str, Any],
        error: Exception | None = None,
    ) -> None:
        """Log what a peer did, but not so often that it fills the log."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute = minute
            self._logged.clear()
        self._logged[peer] += 1
        facts = {**facts, "name": self._names[peer]}
        if self._logged[peer] <= LOGGED_BLAMES:
            LOG.log(level, "%s", text, extra={"facts": facts}, exc_info=error)
        elif self._logged[peer] == LOGGED_BLAMES + 1:
            text = "%s: more of that is only counted for a minute"
            facts = {"event": "blames-counted", "peer": peer, "name": self._names[peer]}
            LOG.warning(text, self._names[peer], extra={"facts": facts})

    def _keep_evidence(self, peer: int, evidence: tuple[bytes, ...]) -> None:
        """Write what proves a cheat, as long as there is room for it."""
        self.counts["evidence"] += len(evidence)
        try:
            self._place.mkdir(exist_ok=True)
            kept = patiently(lambda: list(self._place.iterdir()))
            sizes = [path.stat().st_size for path in kept]
            if len(sizes) + len(evidence) > KEPT_EVIDENCE:
                return
            if sum(sizes) + sum(map(len, evidence)) > KEPT_EVIDENCE_BYTES:
                return
            for i, part in enumerate(evidence):
                name = f"{int(time.time())}-{self.counts['blames']}-peer-{peer}-{i}.bin"
                write_whole(self._place / name, part)
        except OSError as error:
            facts = {"event": "cannot-write"}
            LOG.warning("evidence cannot be written: %s", error.strerror, extra={"facts": facts})

    def _note(
        self, name: str, known: dict[tuple[int, str], float], peer: int, what: str, most: int
    ) -> None:
        """Keep what a peer did, the first time it does it."""
        if (peer, what) not in known and sum(p == peer for p, _ in known) < most:
            known[peer, what] = time.time()
            deeds = tuple(Misdeed(peer=p, what=w, time=at) for (p, w), at in known.items())
            self._store.remember({name: MISDEEDS.encode(deeds)})

    def _recall(self, name: str) -> dict[tuple[int, str], float]:
        saved = self._store.recall(name)
        deeds = MISDEEDS.decode(saved) if saved else ()
        return {(deed.peer, deed.what): deed.time for deed in deeds}
