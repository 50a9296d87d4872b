"""The log of a running peer as JSON, one object a line.

Rules: every line has what is in `ALWAYS`, and may have what is in `FACTS`. A name never changes its
meaning. `event` is for programs, and one of `EVENTS`. `text` is for people, and may be said
otherwise in another version.
"""

import json
import logging
import time

ALWAYS = {
    "time": "when, in UTC: `2026-03-01T12:00:00Z`",
    "level": "`info`, `warning` or `error`",
    "text": "what happened, for people",
    "by": "the name of the peer that writes; empty until its files are read",
    "event": "what kind of line it is",
}
"""What every line has."""
NOTE = "note"
EVENTS = {
    "started": "the peer listens; who the peers are",
    "stopping": "it was told to stop",
    "stopped": "it has stopped, and nothing is lost",
    "refused-to-run": "what keeps it from running; the last line",
    "history": "what a look through the history found",
    "inputs": "what scale of the inputs the peers have agreed on, or why none",
    "training": "the name of the training's run",
    "round": "how far a run is, about twenty times in each",
    "present": "who is not in the sums any more, or is again",
    "evaluation": "how good the peers found a model",
    "continued": "why a recovery goes on for another cycle",
    "void": "a round changed nothing, and why",
    "ended": "a run is done, or has stopped, and why",
    "waits": "what a run waits for, who could bring it, and what to do",
    "goes-on": "a run that has waited goes on",
    "replacement": "a recovery that has stalled is replaced, or cannot be",
    "removal-proposed": "somebody proposes a removal",
    "removal-approved": "somebody approves one",
    "removal-refused": "a removal is refused, and why",
    "removal-passed": "one has enough approvals, and the recovery begins",
    "left-out": "the training goes on without who was removed",
    "unreachable": "a peer cannot be reached, and why",
    "reachable": "it can be reached again",
    "caller-refused": "a caller's certificate is of no peer in the federation file",
    "strangers": "many connections came and made no call",
    "blame": "a peer did what no honest one does, or a bad connection did",
    "blames-counted": "a peer is blamed so often that it is only counted for a minute",
    "unknown-run": "a peer speaks of a run that is not known here",
    "other-file": "a peer has another federation file",
    "started-over": "others take part in another training",
    "descriptors": "a file is waited for, since too many are open",
    "cannot-write": "a file for the operator cannot be written; the runs go on",
    "drill": "this peer attacks the others on purpose",
    "bug": "what should not have happened, with a traceback",
    NOTE: "what else the protocol says on its way",
}
"""Kinds of lines, and what each says."""
FACTS = {
    "run": "the beginning of a run's name, 16 hexadecimal digits",
    "removal": "the beginning of a removal's name, likewise",
    "round": "a round of the run",
    "rounds": "how many it has",
    "step": "a step of the run",
    "view": "how often the leader of the step has changed",
    "outcome": "how a run ended: `done`, or `stopped: …`",
    "peer": "another peer's number, in the order of their names, from 0",
    "name": "that peer's name",
    "what": "what it did",
    "proven": "whether that is proven to others",
    "without": "names of peers that are missing",
    "away": "names of peers that are away",
    "waits_for": "what is missing",
    "accuracy": "of an evaluation, from 0 to 1",
    "differences": "where another federation file differs",
    "approvals": "how many a removal has",
    "needed": "how many it needs",
    "traceback": "where a bug showed",
}
"""What a line may have besides, and what each is."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self) -> None:
        super().__init__()
        self.by = ""
        """The name of the peer that writes, once it is known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "text": record.getMessage(),
            "by": self.by,
            "event": NOTE,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
