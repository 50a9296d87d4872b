"""The code on a page, run from top to bottom in an empty folder, as a reader would.

- `python` blocks share one interpreter, `sh` blocks run in bash and stop at the first error;
  `pdlrecover` is the one under test.
- A block with `title="NAME"` is a file of that name.
- A `text` block is what the block before it prints. `…` on a line of its own stands for any lines,
  and a percentage may be a few points off: other processors round differently.
- `<!-- not run: REASON -->` right before a block leaves it out.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FENCE = re.compile(r"^```", re.MULTILINE)
KINDS = ("python", "sh", "text", "toml")
PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%")
POINTS = 4
"""How far a percentage may be off."""
ANY = "…"
PATIENCE = 600
"""Seconds for a page, also where other tests keep the machine busy."""
DRIVER = """
import contextlib, io, json, subprocess, sys, tempfile
names, outputs = {"__name__": "__main__"}, []
for kind, title, line, body in json.load(sys.stdin):
    print(f"at line {line} of the page:", file=sys.stderr)
    if title:
        open(title, "w").write(body)
        outputs.append("")
    elif kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\\n" * line + body, "the page", "exec"), names)
        outputs.append(printed.getvalue())
    else:
        command = ["bash", "-euo", "pipefail", "-c", body]
        with tempfile.TemporaryFile("w+") as printed:  # a pipe would wait for what it started
            done = subprocess.run(command, stdout=printed)
            printed.seek(0)
            outputs.append(printed.read())
        if done.returncode:
            sys.exit(f"{body}\\nended with {done.returncode} after printing\\n{outputs[-1]}")
json.dump(outputs, sys.stdout)
"""
SHIM = '#!/bin/sh\nexec "{python}" -m pdlrecover "$@"\n'


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code on a page."""

    kind: str
    title: str
    line: int
    body: str
    reason: str
    """Why it is not run; empty if it is."""

    @property
    def runs(self):
        """Say whether there is something to do: run it, or write its file."""
        return not self.reason and self.kind != "text" and (self.kind != "toml" or self.title)


def blocks(text):
    """Return the blocks of a page, in order."""
    found = list(BLOCK.finditer(text))
    assert 2 * len(found) == len(FENCE.findall(text)), "a block is not in the form of BLOCK"
    return [
        Block(
            kind=each["language"],
            title=each["title"] or "",
            line=text.count("\n", 0, each.start("body")),
            body=each["body"],
            reason=each["reason"] or "",
        )
        for each in found
    ]


def run(page, folder):
    """Run the code of a page in a folder; fail if it does, or prints something else."""
    every = blocks(page.read_text("utf-8"))
    todo = [block for block in every if block.runs]
    outputs = dict(zip(map(id, todo), _driven(todo, folder), strict=True))
    for before, block in itertools.pairwise(every):
        if block.kind == "text" and not block.reason:
            assert id(before) in outputs, f"line {block.line}: nothing ran that could print this"
            assert not (wrong := differences(block.body, outputs[id(before)])), (
                f"{page.name}, line {block.line}: {wrong}"
            )


def _driven(todo, folder):
    """Return what each block prints; the processes that they start are stopped at the end."""
    shims = folder / ".bin"
    shims.mkdir()
    (shims / "pdlrecover").write_text(SHIM.format(python=sys.executable))
    (shims / "pdlrecover").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{shims}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCE),
        "COLUMNS": "80",
    }
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    sent = json.dumps([(b.kind, b.title, b.line, b.body) for b in todo])
    try:
        printed, said = child.communicate(sent, timeout=PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    assert child.returncode == 0, said
    return json.loads(printed)


def differences(shown, printed):
    """Return how what a page shows differs from what was printed; nothing if it does not."""
    expected = [line.rstrip() for line in shown.splitlines()]
    lines = [line.rstrip() for line in printed.splitlines()]
    place, skipping = 0, False
    for each in expected:
        if each.strip() == ANY:
            skipping = True
            continue
        while skipping and place < len(lines) and not alike(each, lines[place]):
            place += 1
        if place == len(lines) or not alike(each, lines[place]):
            return f"expected {each!r}, printed was\n{printed}"
        place, skipping = place + 1, False
    return "" if skipping or place == len(lines) else f"more was printed than is shown:\n{printed}"


def alike(shown, printed):
    """Say whether two lines are the same, percentages nearly."""
    pairs = zip(PERCENTAGE.findall(shown), PERCENTAGE.findall(printed), strict=False)
    near = all(abs(float(a) - float(b)) <= POINTS for a, b in pairs)
    bare = (re.sub(r" +", " ", PERCENTAGE.sub("%", line)) for line in (shown, printed))
    return near and next(bare) == next(bare)
