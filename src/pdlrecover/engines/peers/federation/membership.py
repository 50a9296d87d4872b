"""The members of a federation and everything they agreed on, as one value.

Rules:

- Peers are numbered in the order of their names; a peer's number decides on its share.
- The *digest* is SHA-256 over all values, and over nothing else: not the order, comments or
  spelling of the file they came from. Every peer signs it.
- The *run digest* leaves out what may change while a run goes on (addresses, certificates, sealing
  keys, deadlines, recovery): it is what the stored history is bound to.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Self

from pdlrecover.engines.peers.federation.plan import (
    DataPlan,
    EvaluationPlan,
    Model,
    Recovery,
    Training,
)
from pdlrecover.engines.peers.identity.invitation import read_invitation
from pdlrecover.engines.peers.identity.member import Member, check_name
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.errors import MembershipError, PDLRecoverError, ToleranceError
from pdlrecover.recovery.standardisation import StandardisationTerms, Standardise
from pdlrecover.sharing import Scheme, Tolerance

LEAST_PEERS = 3
FORMAT = 1

_PEER = re.compile(r"peers\.[^.]+\.")
_LASTING = ("name", "tolerance.", "model.", "training.", "evaluation.", "data.", "standardise.")
_TABLES = ("tolerance", "model", "training", "recovery", "deadlines", "evaluation", "data")
_LATER = (
    "training.local_steps",
    "training.local_rate",
    "evaluation.held_out",
    "evaluation.every",
    "recovery.fallback",
    "recovery.stalled_after",
    "data.classes",
    "data.features",
)
"""Settings that earlier versions did not know. With their defaults they are no fact, so that a
federation's digests stay what they were."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Who takes part, what must be survived, and what is done."""

    name: str
    """What the federation is called."""
    peers: tuple[Member, ...]
    """Who takes part, in the order of their names."""
    tolerance: Tolerance
    model: Model
    training: Training
    recovery: Recovery = field(default_factory=Recovery)
    deadlines: Deadlines = field(default_factory=Deadlines)
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    data: DataPlan = field(default_factory=DataPlan)
    standardise: Standardise | None = None
    """How inputs are brought to one scale; None: they stay as they are, and it is no fact."""

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "peers", tuple(sorted(self.peers, key=lambda peer: peer.name)))
        if len(self.peers) < LEAST_PEERS:
            raise MembershipError(
                f"a federation needs at least {LEAST_PEERS} peers, got {len(self.peers)}"
            )
        for what, value_of in _UNIQUE.items():
            _check_unique(what, [value_of(peer) for peer in self.peers], self.peers)
        if self.tolerance.colluders < 1:
            raise MembershipError(
                "tolerance.colluders must be at least 1: with 0, every single peer would learn "
                "something from the shares it gets"
            )
        _ = self.scheme, self.recovery.options(self.training.rounds), self.standardisation
        self.recovery.check_fallback(self.training)
        self.data.check(self.model)

    @classmethod
    def invited(cls, invitations: Iterable[str], **plan: Any) -> Self:
        """Return the membership of these peers, with name, tolerance, model, training and so on."""
        return cls(peers=tuple(map(read_invitation, invitations)), **plan)

    @property
    def scheme(self) -> Scheme:
        """How secrets are shared."""
        try:
            return Scheme.for_peers(len(self.peers), self.tolerance)
        except ToleranceError as error:
            raise MembershipError(f"tolerance: {error}") from error

    @property
    def standardisation(self) -> StandardisationTerms | None:
        """What peers have agreed on to bring inputs to one scale."""
        if self.standardise is None:
            return None
        shape, samples = self.model.shape, self.training.samples
        try:
            return self.standardise.terms(shape, peers=len(self.peers), samples=samples)
        except PDLRecoverError as error:
            raise MembershipError(f"standardise: {error}") from error

    def number(self, name: str | int) -> int:
        """Return the number of the peer of this name; a number is one already."""
        if isinstance(name, int):
            if 0 <= name < len(self.peers):
                return name
            raise MembershipError(f"peers are numbered 0 to {len(self.peers) - 1}, got {name}")
        for number, peer in enumerate(self.peers):
            if peer.name == name:
                return number
        raise MembershipError(
            f"no peer is called {name!r}; there are {', '.join(p.name for p in self.peers)}"
        )

    def number_of(self, identity: Identity) -> int:
        """Return our own number, having checked that the federation knows our keys."""
        number = self.number(identity.name)
        known = self.peers[number]
        mine = identity.member(known.address)
        for what, value_of in _UNIQUE.items():
            if value_of(mine) != value_of(known):
                raise MembershipError(
                    f"the federation knows another {what} of {identity.name} than this peer's "
                    "identity has; take the invitation of this identity into the federation"
                )
        return number

    def facts(self) -> dict[str, Any]:
        """Return every value by its path, as plain values."""
        values: dict[str, Any] = {"format": FORMAT, "name": self.name}
        for table in (*_TABLES, *([] if self.standardise is None else ["standardise"])):
            for setting in fields(chosen := getattr(self, table)):
                value = getattr(chosen, setting.name)
                value = float(value) if setting.type is float else value  # 10 and 10.0 are one
                path = f"{table}.{setting.name}"
                if path not in _LATER or value != setting.default:
                    values[path] = value
        for peer in self.peers:
            values |= {
                f"peers.{peer.name}.address": peer.address,
                f"peers.{peer.name}.signing": base64.b64encode(peer.signing).decode(),
                f"peers.{peer.name}.sealing": base64.b64encode(peer.sealing).decode(),
                f"peers.{peer.name}.certificate": f"sha256:{peer.fingerprint}",
            }
        return values

    @property
    def digest(self) -> bytes:
        """The digest of everything, which the peers sign."""
        return _digest(b"pdlrecover federation: ", self.facts())

    @property
    def run_digest(self) -> bytes:
        """The digest of what a run's history depends on."""
        lasting = {
            name: value
            for name, value in self.facts().items()
            if name.startswith(_LASTING) or name.endswith(".signing")
        }
        return _digest(b"pdlrecover run: ", lasting)

    @property
    def founding_run(self) -> bytes:
        """The name of the run in which the peers agree on an epoch, before they train."""
        return hashlib.sha256(b"pdlrecover founding" + self.run_digest).digest()


def differences(here: Membership, there: Membership) -> list[str]:
    """Say in words where two memberships differ."""
    return differing_facts(here.facts(), there.facts())


def differing_facts(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Say in words where two sets of facts differ."""
    names = [{path.split(".")[1] for path in side if _PEER.match(path)} for side in (here, there)]
    lone = dict.fromkeys(names[0] - names[1], "here") | dict.fromkeys(names[1] - names[0], "there")
    known = tuple(f"peers.{name}." for name in lone)
    return [f"peers.{name}: only {where}" for name, where in sorted(lone.items())] + [
        f"{path}: {_said(here.get(path))} here, {_said(there.get(path))} there"
        for path in sorted(here.keys() | there.keys())
        if not path.startswith(known) and here.get(path) != there.get(path)
    ]


def _said(value: Any) -> str:
    return "left out" if value is None else str(value)


def _digest(domain: bytes, facts: dict[str, Any]) -> bytes:
    exact = {k: v.hex() if isinstance(v, float) else v for k, v in facts.items()}
    encoded = json.dumps(exact, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(domain + encoded.encode()).digest()


_UNIQUE: dict[str, Callable[[Member], object]] = {
    "name": lambda peer: peer.name,
    "address": lambda peer: peer.address,
    "signing key": lambda peer: peer.signing,
    "sealing key": lambda peer: peer.sealing,
    "certificate": lambda peer: peer.certificate,
}


def _check_unique(what: str, values: Iterable[object], peers: Iterable[Member]) -> None:
    values = list(values)
    for value, count in Counter(values).items():
        if count > 1:
            same = [peer.name for peer, v in zip(peers, values, strict=True) if v == value]
            shown = f" ({value})" if isinstance(value, str) else ""
            raise MembershipError(f"{' and '.join(same)} have the same {what}{shown}")
