"""Progress where nobody watches: lines that are there as soon as they are true."""

import io

from rich.console import Console
from rich.live import Live

from pdlrecover.cli.progress import (
    LINE_SECONDS,
    QUIET_SECONDS,
    Bars,
    Lines,
    shown,
    watcher_of_runs,
)
from pdlrecover.experiments.batch.cache import Status


def test_a_log_has_a_line_when_a_method_begins_every_few_seconds_and_at_its_end():
    now, log = [0.0], io.StringIO()
    lines = Lines(Console(file=log), "Continuing.", clock=lambda: now[0])
    with lines:
        lines.start("retrain", 40)
        assert log.getvalue() == "Continuing.\nretrain: begins\n"
        for t in range(40):
            now[0] += LINE_SECONDS / 16
            lines.step("retrain", t + 1, None if t < 20 else 0.5)
        lines.end("retrain")
    said = log.getvalue().splitlines()[2:]
    assert said == [
        "retrain: 16 of 40 rounds, accuracy   –  ",
        "retrain: 32 of 40 rounds, accuracy 50.0%",
        "retrain: done, 40 rounds, accuracy 50.0%, 12.5 s",
    ]


def test_there_are_bars_in_a_terminal_only():
    assert isinstance(shown(Console(file=io.StringIO()), ""), Lines)
    assert isinstance(shown(Console(file=io.StringIO(), force_terminal=True), ""), Bars)


def test_what_is_said_first_is_said_once_and_not_before_a_method_begins():
    log = io.StringIO()
    bars = Bars(Console(file=log, force_terminal=True, width=100), "Continuing from out.")
    with bars:
        assert "Continuing" not in log.getvalue()
        bars.start("retrain", 3)
        bars.start("auto", 3)
    assert log.getvalue().count("Continuing from out.") == 1


def test_a_log_says_what_long_runs_do_while_none_is_done(capsys):
    now, console = [0.0], Console(file=io.StringIO())
    watch = watcher_of_runs("simulate", Live(console=console), console, clock=lambda: now[0])
    for t, done in ((1.0, 1), (2.0, 1), (QUIET_SECONDS + 1, 1), (QUIET_SECONDS + 2, 2)):
        now[0] = t
        watch(Status(done=done, total=3, running=("seed 1: retrain, round 7 of 20",)))
    assert capsys.readouterr().err.splitlines() == [
        "simulate: 1 of 3 runs done, 0:00:01 gone",
        "simulate: 1 of 3 runs done, 0:00:31 gone; seed 1: retrain, round 7 of 20",
        "simulate: 2 of 3 runs done, 0:00:32 gone",
    ]
