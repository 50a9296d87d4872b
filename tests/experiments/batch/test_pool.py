import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from jobs import die, mistaken, write

from pdlrecover.experiments.batch.pool import DIED, LocalCrew, run_jobs

INTERRUPTED = """
import signal, sys, time
from functools import partial
from pathlib import Path
from pdlrecover.experiments.batch.pool import LocalCrew, run_jobs

def job(path):
    path.write_text(str(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    time.sleep(60)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run without it
    folder = Path(sys.argv[1])
    try:
        jobs = {str(i): partial(job, folder / str(i)) for i in range(4)}
        run_jobs(jobs, LocalCrew(1), lambda *a: None)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.slow
def test_what_fails_or_dies_takes_nothing_else_with_it(tmp_path):
    seen = []
    jobs = {
        "deadly": partial(die, tmp_path / "deadly", 9),
        "mistaken": mistaken,
        "unlucky": partial(die, tmp_path / "unlucky", 1),
        "plain": partial(write, tmp_path / "plain"),
        "disk": partial(write, tmp_path / "none" / "plain"),
    }
    failed = run_jobs(jobs, LocalCrew(2), lambda *status: seen.append(status))
    assert failed["deadly"] == DIED
    assert failed["mistaken"].startswith("KeyError: 'a key', in line ")
    assert failed["mistaken"].endswith("of jobs.py")
    assert "No such file" in failed["disk"]
    assert failed.keys() == {"deadly", "mistaken", "disk"}
    assert (tmp_path / "deadly").read_text() == (tmp_path / "unlucky").read_text() == "xx"
    assert (tmp_path / "plain").exists()
    assert seen[-1] == (5, [])
    assert all(len(running) <= 2 for _, running in seen)


@pytest.mark.slow
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["the caller", "the whole group"])
def test_an_interruption_ends_all_processes_at_once(tmp_path, send):
    script, folder = tmp_path / "script.py", tmp_path / "jobs"
    script.write_text(INTERRUPTED)
    folder.mkdir()
    command = [sys.executable, str(script), str(folder)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **streams) as process:
        try:
            _until(lambda: any(path.read_text() for path in folder.iterdir()))
            before = time.monotonic()
            send(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=20)  # waits for the workers' ends of the pipes
        finally:
            process.kill()
    assert time.monotonic() - before < 10  # far from the minute that a job takes
    assert (out, err) == ("interrupted\n", "")
    assert [path.read_text() for path in folder.iterdir()] == ["True"]  # it was deaf to ctrl-C


def _until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
