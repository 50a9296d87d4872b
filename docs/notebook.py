"""Writes docs/tutorials/first-recovery.ipynb from the page of the same name: `make docs`.

Prose becomes text cells and `python` blocks become code cells. What the page shows as output is
left out, since the notebook prints it; so is what is not run there. With `--check` nothing is
written, and the exit code says whether the notebook is up to date.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorials" / "first-recovery.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
LEFT_OUT = re.compile(
    r"\nThe same as a notebook:.*?\n|```text\n.*?```\n|<!-- not run.*?-->\n", re.DOTALL
)
CODE = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def cells(text: str) -> Iterator[dict[str, Any]]:
    """Return the cells of a page, text and code in turn."""
    for place, part in enumerate(CODE.split(LEFT_OUT.sub("", text))):
        source = part.strip("\n")
        if not source:
            continue
        kind = "code" if place % 2 else "markdown"
        only_code = {"execution_count": None, "outputs": []} if place % 2 else {}
        yield {
            "cell_type": kind,
            "id": f"{kind}-{place}",
            "metadata": {},
            "source": source.splitlines(keepends=True),
        } | only_code


def notebook() -> str:
    """Return the notebook as its file has it."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": list(cells(PAGE.read_text("utf-8"))),
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write or check the notebook."""
    if "--check" in sys.argv:
        stale = not NOTEBOOK.exists() or NOTEBOOK.read_text("utf-8") != notebook()
        sys.exit(f"{NOTEBOOK.name} is not up to date, run `make docs`" if stale else 0)
    NOTEBOOK.write_text(notebook(), encoding="utf-8")


if __name__ == "__main__":
    main()
