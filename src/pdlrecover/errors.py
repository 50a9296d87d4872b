"""Every exception of this package, and whose fault each one is.

    PDLRecoverError
    ├── LocalError          what this process was given or asked cannot be done
    │   ├── FieldError      an array that does not hold field elements
    │   ├── RangeError      a real number that does not fit the fixed-point encoding
    │   ├── ToleranceError  more to survive than this number of peers can
    │   ├── ShareError      shares that do not belong together, or are too few
    │   ├── DataError       data that is missing, damaged, empty, or too little to deal out
    │   ├── ModelError      a model that cannot be trained together
    │   ├── AttackError     an attack that is not known, or a strength it cannot have
    │   ├── PlanError       a training or recovery that cannot be run as asked
    │   ├── HistoryError    a stored history that is damaged, incomplete, or another run's
    │   ├── RecordError     a record of results that is missing, damaged, or of another format
    │   ├── IdentityError   a peer's own keys that are missing, damaged, or open to others
    │   ├── ExtraError      a package that is not installed, and the extra that brings it
    │   ├── ClusterError    a Ray cluster that is not there, or whose nodes are not alike
    │   └── MembershipError an invitation or federation file that is not right, or not agreed on
    └── RemoteError         what other peers sent cannot be right
        ├── LiarsError      more wrong shares than can be identified
        ├── ForgeryError    a signature or a sealed message that is not what it should be
        ├── CodecError      bytes that are no message
        └── MessageError    a message that is forged, misdirected, or not legal where it comes

A message says what was got, what was expected, and what to do about it. Local errors are also
`ValueError`s, so that code which knows nothing of this package treats them as such.

A message that speaks of a setting has a `Setting` among its parts, not the setting's name: what was
`rounds=0` in the library was `--rounds 0` at the command line, and each interface has its own words
(`PDLRecoverError.said`).

    raise PlanError(Setting("rounds"), f" must be at least 1, got {rounds}")
"""

import dataclasses
from collections import abc

__all__ = [
    "AttackError",
    "ClusterError",
    "CodecError",
    "DataError",
    "ExtraError",
    "FieldError",
    "ForgeryError",
    "HistoryError",
    "IdentityError",
    "LiarsError",
    "LocalError",
    "MembershipError",
    "MessageError",
    "ModelError",
    "PDLRecoverError",
    "PlanError",
    "RangeError",
    "RecordError",
    "RemoteError",
    "Setting",
    "ShareError",
    "ToleranceError",
    "Whom",
]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting that a message speaks of, by its name in the library."""

    name: str
    value: str = ""
    """What it is, or should be, set to; empty if the message does not say it."""
    flag: str = ""
    """What it is called at the command line, if it has another name there."""

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name


@dataclasses.dataclass(frozen=True)
class Whom:
    """Peers that a message speaks of, by their numbers; who knows their names says those."""

    peers: tuple[int, ...]

    def __str__(self) -> str:
        return f"peers {list(self.peers)}" if self.peers[1:] else f"peer {self.peers[0]}"

    def named(self, name: abc.Callable[[int], str]) -> str:
        """Return them by name."""
        names = ", ".join(map(name, self.peers))
        return f"peers {names}" if self.peers[1:] else f"peer {names}"


class PDLRecoverError(Exception):
    """The root: whatever this package raises on purpose.

    Its arguments are the parts of its message: texts, settings, peers, and errors that it is about.
    """

    def __str__(self) -> str:
        return self.said(str)

    def said(self, word: abc.Callable[[Setting], str]) -> str:
        """Return the message with an interface's own words for its settings."""
        return "".join(
            word(part) if isinstance(part, Setting) else str(part) for part in self.parts
        )

    def naming(self, name: abc.Callable[[int], str]) -> list["str | Setting | Whom"]:
        """Return the parts of the message with peers by their names."""
        return [part.named(name) if isinstance(part, Whom) else part for part in self.parts]

    @property
    def parts(self) -> list["str | Setting | Whom"]:
        """The message as texts, settings and peers, with those of errors that it is about."""
        found: list[str | Setting | Whom] = []
        for part in self.args:
            if isinstance(part, PDLRecoverError):
                found += part.parts
            else:
                found.append(part if isinstance(part, Setting | Whom) else str(part))
        return found


class LocalError(PDLRecoverError, ValueError):
    """What this process was given or asked for cannot be used; nobody else is to blame."""


class FieldError(LocalError):
    """An array is not what the field computes with: its dtype, range or shape is wrong."""


class RangeError(LocalError):
    """A real number is not finite, or is too large for the fixed-point encoding."""


class ToleranceError(LocalError):
    """There are too few peers to survive these colluders, dropouts and liars."""


class ShareError(LocalError):
    """Shares are too few, repeated, of different lengths, or of unknown peers."""


class DataError(LocalError):
    """Data is missing, damaged or empty, or there is too little of it for all peers."""


class ModelError(LocalError):
    """A model cannot be trained together: its weights, layers or shapes are not fit for it."""


class AttackError(LocalError):
    """An attack is not known, or cannot have the strength that was asked for."""


class PlanError(LocalError):
    """A training or recovery plan makes no sense, or asks for what cannot be had."""


class HistoryError(LocalError):
    """A stored history is damaged or incomplete, or belongs to another run."""


class RecordError(LocalError):
    """A record of results is missing, damaged, or of another format, or its page has no place."""


class IdentityError(LocalError):
    """A peer's own keys are missing, damaged, do not belong together, or are open to others."""


class MembershipError(LocalError):
    """An invitation or a federation file is not right, or the peers do not agree on it."""


class ExtraError(LocalError):
    """A package is not installed that comes with one of the extras."""


class ClusterError(LocalError):
    """A Ray cluster is not there or has no node left, or its nodes would not compute the same."""


class RemoteError(PDLRecoverError):
    """What other peers sent cannot be right."""


class LiarsError(RemoteError):
    """More shares are wrong than can be identified; nothing was opened."""


class ForgeryError(RemoteError):
    """A signature does not hold, or a sealed message was changed or meant for somebody else."""


class CodecError(RemoteError):
    """Bytes that came from another peer are no message of this version."""


class MessageError(RemoteError):
    """A message is forged, for somebody else, of another run, or not legal where it comes."""
