"""Makes the description that an index shows: the README, with links that lead somewhere from there.

All else is in pyproject.toml. Its `[project.urls]` may name a `Repository`: then relative links go
to the files there, of this version. Without one there is nowhere to lead to, and the words stay
without their links; so do pictures.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n*")
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)]*)\)")
NOTE = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def description(readme: str, repository: str | None, version: str) -> str:
    """Return a README as it can be read away from its repository."""

    def led(found: re.Match[str]) -> str:
        words, goal = found.groups()
        if goal.startswith("#"):
            return found[0]
        return f"[{words}]({repository}/blob/v{version}/{goal})" if repository else words

    return LINK.sub(led, PICTURE.sub("", NOTE.sub("", readme)))


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        long_description=description(
            (ROOT / "README.md").read_text("utf-8"),
            project.get("urls", {}).get("Repository"),
            project["version"],
        ),
        long_description_content_type="text/markdown",
    )
