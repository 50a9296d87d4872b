"""Chromium without a window, driven over its DevTools protocol.

The protocol is JSON messages that end in a zero byte, over two pipes: Chromium reads commands from
file descriptor 3 and writes answers and events to 4. No port is opened and no package is needed.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox: tests may run as root, and the page is our own.
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--no-first-run", "--remote-debugging-pipe"),
)
PATIENCE = 60
"""Seconds to wait for an answer."""
AS_3_AND_4 = """
import os, sys
first, second = (os.dup(int(n)) for n in sys.argv[1:3])
while min(first, second) < 5:
    first, second = os.dup(first), os.dup(second)
os.dup2(first, 3)
os.dup2(second, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Gives two pipes the numbers that Chromium expects, whatever numbers they have."""


def find():
    """Return where Chromium is, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One Chromium with one page. Use it in a `with`."""

    def __init__(self, profile):
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        numbers = [str(to_child), str(from_child)]
        browser = [find(), *FLAGS, f"--user-data-dir={profile}"]
        command = [sys.executable, "-S", "-c", AS_3_AND_4, *numbers, *browser]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(to_child, from_child), **quiet)
        os.close(to_child)
        os.close(from_child)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._write)  # Chromium ends when nobody can command it any more
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method, **params):
        """Send a command; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path, width=1280, height=900):
        """Show a file in a window of this size, and wait until it has loaded."""
        self.resize(width, height)
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def resize(self, width, height=900):
        """Give the page another size; a narrow one is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def run(self, expression):
        """Return the value of JavaScript, after the page was drawn."""
        drawn = "new Promise(then => requestAnimationFrame(() => setTimeout(then)))"
        code = f"{drawn}.then(() => ({expression}))"
        found = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def complaints(self):
        """Return everything that was thrown, or written to the console."""
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in bad]

    def requests(self):
        """Return the addresses of everything that the page asked for."""
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def _receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self._read, 1 << 16) if ready else b""
            if not part:
                raise RuntimeError("Chromium ended, or does not answer")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
