"""What results depend on: the code of some rooms of this package, and two libraries.

A digest of it tells whether two machines, or two versions, compute the same. Files may be moved,
formatted and documented otherwise without changing it.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Set
from functools import cache as remembered
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGE = "pdlrecover"
ROOMS = (
    *("field", "sharing", "learning", "adversary", "history", "recovery", "engines"),
    "federation",
    "experiments/experiment",
)
"""What results depend on."""
LIBRARIES = ("torch", "numpy")
APART = ("engines/peers",)
"""What is in those rooms and has no part in an experiment."""


@remembered
def source_digest() -> str:
    """Return a digest of the code and of the libraries that results depend on."""
    libraries = [f"{library} {version(library)}" for library in LIBRARIES]
    texts = [(ROOT / name).read_text("utf-8") for name in sources()]
    names = Counter(name for text in texts for name in _defined(text))
    shared = {name for name, count in names.items() if count > 1}
    codes = {code_of(text, shared) for text in texts}
    return hashlib.sha256("\n".join([*libraries, *sorted(codes)]).encode()).hexdigest()


def _defined(source: str) -> set[str]:
    """Return the names of the functions, classes and constants of a file."""
    found = set()
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {each.id for each in targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def code_of(source: str, shared: Set[str] = frozenset()) -> str:
    """Return what a file computes, as text: nothing of its place, its form and its prose.

    Comments and strings that stand alone, as docstrings do, are left out. What is imported counts,
    in any order, and of this package's modules only the names, since modules may move; but where
    several of them define a name (`shared`), it counts which one it is from. Imports that are not
    at the head of the file count as they stand.
    """
    code = _Code(shared)
    tree = code.visit(ast.parse(source))
    return "\n".join([*sorted(code.imported), ast.dump(tree)])


class _Code(ast.NodeTransformer):
    """Takes docstrings and a file's own imports out of a tree, and notes what was imported."""

    def __init__(self, shared: Set[str]) -> None:
        self.imported: set[str] = set()
        self._shared = shared

    def visit_Module(self, node: ast.Module) -> ast.AST:
        for each in node.body:
            if isinstance(each, ast.Import | ast.ImportFrom):
                module = getattr(each, "module", "") or ""
                own = module.split(".")[0] == PACKAGE
                for name in each.names:
                    kept = module.rpartition(".")[2] if name.name in self._shared else ""
                    self.imported.add(f"{kept if own else module} {ast.dump(name)}")
        node.body = [x for x in node.body if not isinstance(x, ast.Import | ast.ImportFrom)]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        value = node.value
        prose = isinstance(value, ast.Constant) and isinstance(value.value, str)
        return None if prose else node


def sources() -> list[str]:
    """Return the files of this package that results depend on, from its root."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    files.append(ROOT / "layers.py")
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return [name for name in names if not name.startswith(APART)]
