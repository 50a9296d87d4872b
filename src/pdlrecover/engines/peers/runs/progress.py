"""Says in the log how far a run is, who is missing in it, and how good its model is."""

import logging

from pdlrecover.engines.peers.runs.run_session import RunSession

LOG = logging.getLogger("pdlrecover.peer")


class Progress:
    """What has been said of one run."""

    def __init__(self, run: bytes, title: str, session: RunSession, names: list[str]) -> None:
        """Begin after what was stored: that was said when it happened."""
        self._run, self._title, self._session, self._names = run, title, session, names
        self._round = 0
        self._present: frozenset[int] | None = None
        self._points = len(session.driver.evaluations.points)
        self._continued = len(session.driver.evaluations.continued)
        self._void = len(session.driver.void)

    def say(self) -> None:
        """Say what is new."""
        self._say_present()
        if self._title != "standardisation":  # which has steps and no rounds
            self._say_round()
        self._say_evaluations()
        self._say_void()

    def _say_round(self) -> None:
        """Say about twenty times how far the run is."""
        done, rounds = self._session.driver.round, self._session.driver.rounds
        if done >= self._round + max(1, rounds // 20) or (done == rounds and self._round < rounds):
            self._round = done
            self._log("round", f"round {done} of {rounds}", round=done, rounds=rounds)

    def _say_present(self) -> None:
        """Say who is not in the sums any more, or is again."""
        participation = self._session.driver.participation
        if not participation.rounds or participation.last == self._present:
            return
        whole, first = frozenset(self._session.driver.context.peers), self._present is None
        self._present = participation.last
        if first and participation.last == whole:
            return
        absent = [self._names[peer] for peer in sorted(whole - participation.last)]
        who = f"without {', '.join(absent)} from here on" if absent else "with all peers again"
        since = participation.since
        self._log("present", f"round {since} {who}", round=since, without=absent)

    def _say_evaluations(self) -> None:
        """Say what was opened of held-out data, and why the run goes on, if it does."""
        found = self._session.driver.evaluations
        for point in found.points[self._points :]:
            where = f"{point.samples} held-out samples of {point.peers} peers"
            self._log(
                "evaluation", f"{point}, on {where}", round=point.round, accuracy=point.accuracy
            )
        for why in found.continued[self._continued :]:
            self._log("continued", why, rounds=self._session.driver.rounds)
        self._points, self._continued = len(found.points), len(found.continued)

    def _say_void(self) -> None:
        """Say which rounds changed nothing, and why."""
        founds = self._title == "founding"  # where sums say nothing
        for each in self._session.driver.void[self._void :] if not founds else ():
            facts = {"event": "void", "run": self._run.hex()[:16], "round": each.round}
            LOG.warning("%s: %s", self._title, each, extra={"facts": facts})
        self._void = len(self._session.driver.void)

    def _log(self, event: str, text: str, **facts: object) -> None:
        facts = {"event": event, "run": self._run.hex()[:16], **facts}
        LOG.info("%s: %s", self._title, text, extra={"facts": facts})
