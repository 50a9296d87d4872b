"""References to source in the documents: `path/file.py` or `path/file.py:name`, in backticks.

A path is relative to `src/pdlrecover/` or to the root. A name is a function, class or constant of
the file, or a member of one of its classes: `Class.method`, `Class.field`, or just `method`.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pdlrecover"
REFERENCE = re.compile(r"`([\w./-]+\.py|[\w.-]+/[\w./-]+\.(?:md|jsonl?|toml|sh))(?::([\w.]+))?`")
"""Other files than Python's only with their folder: `result.json` is no one's in particular."""


def references(text: str) -> set[tuple[str, str]]:
    """Return every path that a page names, and what in it: an empty name for the whole file."""
    return set(REFERENCE.findall(text))


def broken(text: str) -> list[str]:
    """Return the references of a page that lead nowhere."""
    return sorted(
        f"{path}:{name}" if name else path
        for path, name in references(text)
        if (file := located(path)) is None or (name and name not in names(file))
    )


def located(path: str) -> Path | None:
    """Return the file of this path, or None."""
    return next((f for base in (SOURCE, ROOT) if (f := base / path).is_file()), None)


@cache
def names(file: Path) -> frozenset[str]:
    """Return what a Python file defines, and the members of its classes."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        for name in defined(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                members = {member for part in node.body for member in defined(part)}
                found |= members | {f"{name}.{member}" for member in members}
    return frozenset(found)


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [t.id for t in targets if isinstance(t, ast.Name)]
    return []
