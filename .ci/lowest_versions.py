"""Prints a constraint for every direct dependency: the lowest version that pyproject.toml allows.

    python .ci/lowest_versions.py > lowest.txt

`make test-lowest` tests with these. What is pinned stays as it is.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(>=|==)\s*([0-9][0-9a-z.]*)(,<[0-9.]+)?")


def lowest(requirement: str) -> str:
    """Return the constraint for one requirement, which must begin with a lower bound."""
    found = REQUIREMENT.fullmatch(requirement.strip())
    if not found:
        raise SystemExit(
            f"{PROJECT.name}: {requirement!r} has no lower bound to test; write name>=X, "
            "with a version X that exists"
        )
    return f"{found[1]}=={found[3]}"


def requirements() -> list[str]:
    """Return all direct dependencies, those of the extras too; an extra may include another."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    others = [each for each in extras if not each.startswith(f"{project['name']}[")]
    return list(dict.fromkeys([*project["dependencies"], *others]))


def main() -> None:
    """Print them all."""
    print("\n".join(map(lowest, requirements())))  # noqa: T201 (this is a command)


if __name__ == "__main__":
    main()
