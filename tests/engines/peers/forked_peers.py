"""Peers as processes of their own that are cheap to start, and to which mishaps can happen.

`python forked_peers.py` imports everything once, and forks. What it forks runs the command line
with the arguments that it is given, as a shell would; it shares nothing with the others but the
memory of what was imported. Orders come one JSON object a line, and each gets one answer. When
there are no more, whatever still runs is killed.
"""

import json
import os
import signal
import subprocess
import sys
import time

SECONDS = 60
"""For it to end, on a machine with other work."""


class ForkedPeers:
    """Where processes are started."""

    def __init__(self, environment):
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"

    def start(self, folder, arguments, log, cheat=None):
        """Start a peer's command; what it says goes to a file. It may play a cheat of `chaos`."""
        order = {"folder": str(folder), "arguments": [str(a) for a in arguments], "log": str(log)}
        return Child(self, self.ask(**order, cheat=cheat))

    def ask(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()


class Child:
    """A process of the nursery: the part of `subprocess.Popen` that tests use."""

    def __init__(self, forked_peers, pid):
        self._nursery, self.pid, self.returncode = forked_peers, pid, None

    def poll(self):
        if self.returncode is None:
            self.returncode = self._nursery.ask(look=self.pid)
        return self.returncode

    def send_signal(self, what):
        if self.poll() is None:
            os.kill(self.pid, what)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < end, "the process does not end"
            time.sleep(0.02)
        return self.returncode


def serve():
    import grpc  # noqa: F401
    import mishaps
    import torch._dynamo  # noqa: F401 (comes with the first update, and takes seconds)

    import pdlrecover.cli

    _say("ready")
    alive = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "look" in order:
            found, status = os.waitpid(order["look"], os.WNOHANG)
            alive.discard(found)
            answer = os.waitstatus_to_exitcode(status) if found else None
        else:
            answer = os.fork()
            if answer == 0:
                _live(order, mishaps, pdlrecover.cli.main)
            alive.add(answer)
        _say(json.dumps(answer))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _live(order, mishaps, command):
    """Be the peer, from here to the end."""
    from pdlrecover.experiments.chaos.cheating_peer import play
    from pdlrecover.experiments.chaos.cheats import CHEATS

    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, place in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(fd, place)
        mishaps.install(order["folder"])
        if order["cheat"]:
            play(CHEATS[order["cheat"]])
        sys.argv = ["pdlrecover", *order["arguments"]]
        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
