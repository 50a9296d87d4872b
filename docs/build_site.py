"""Builds the documents as a site: `make docs-site`.

The documents link to each other, and to other files of the repository, by where these are in it.
So that the same links lead somewhere on the site, it is built from a copy, in which

- the files in `ALSO_PAGES` are pages, though they are not in `docs/`;
- every other file outside of `docs/` that a page links to is there, below `repository/`;
- a link to a folder leads to its `README.md`;
- `folder/*` in the `nav` of `mkdocs.yml` is all pages of the folder that are not named elsewhere.

A link or an anchor that leads nowhere, and a page that is not in `nav`, is an error.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
CONFIG = ROOT / "mkdocs.yml"
ALSO_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
COPIES = "repository"
NOT_COPIED = shutil.ignore_patterns("*.py", "__pycache__")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
FOREIGN = re.compile(r'<script src="https?://[^>]*></script>')
"""A script from elsewhere, which the theme's search asks for where there is no server."""
BUILD = (sys.executable, "-m", "zensical", "build", "--clean", "--strict")


def stage(folder: Path) -> None:
    """Copy everything that the site is built from to a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder / "docs", ignore=NOT_COPIED)
    for name in ALSO_PAGES:
        shutil.copy(ROOT / name, folder / "docs" / name)
    for page in sorted((folder / "docs").glob("**/*.md")):
        place = page.relative_to(folder / "docs").as_posix()
        page.write_text(_moved(page.read_text("utf-8"), place, folder / "docs"), encoding="utf-8")
    (folder / CONFIG.name).write_text(_config(CONFIG.read_text("utf-8")), encoding="utf-8")


def _moved(text: str, place: str, copy: Path) -> str:
    """Return a page whose links lead to where things are on the site; copy what they need."""
    source = (ROOT if place in ALSO_PAGES else DOCS) / place

    def moved(found: re.Match[str]) -> str:
        goal = on_site(found[1], source)
        if goal.startswith(f"{COPIES}/"):
            (copy / goal).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / goal.removeprefix(f"{COPIES}/"), copy / goal)
        return f"]({posixpath.relpath(goal, posixpath.dirname(place) or '.')}"

    return LINK.sub(moved, text)


def on_site(link: str, source: Path) -> str:
    """Return where on the site something is that a file of the repository links to."""
    target = (source.parent / link).resolve()
    if target.is_dir():
        target /= "README.md"
    if not target.is_file() or not target.is_relative_to(ROOT):
        sys.exit(f"{source.relative_to(ROOT)} links to {link}, which is not there")
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    name = target.relative_to(ROOT).as_posix()
    return name if name in ALSO_PAGES else f"{COPIES}/{name}"


def _config(text: str) -> str:
    """Return the configuration with the folders of `nav` written out, if it leaves no page out."""
    named = set(re.findall(r"[\w./-]+\.md", text))

    def pages(found: re.Match[str]) -> str:
        there = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.glob(f"{found[2]}/*.md"))
        return "\n".join(f"{found[1]}{page}" for page in there if page not in named)

    whole = re.sub(r"^( *- )(\S+)/\*$", pages, text, flags=re.MULTILINE)
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    if missing := sorted(there - set(re.findall(r"[\w./-]+\.md", whole))):
        sys.exit(f"not in the nav of {CONFIG.name}: {', '.join(missing)}")
    return whole.replace(f"[{SOURCE.name}]", f"[{SOURCE}]")


def main() -> None:
    """Build the site into a folder, `out/site` if none is given."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out" / "site").resolve()
    source = out.with_name(f"{out.name}-source")
    stage(source)
    done = subprocess.run(BUILD, cwd=source, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        said = COLOUR.sub("", done.stdout + done.stderr)
        sys.exit(said.partition("Traceback")[0] or said)
    for page in (source / "site").glob("**/*.html"):
        page.write_text(FOREIGN.sub("", page.read_text("utf-8")), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(source / "site", out)
    print(f"open {out / 'index.html'}; its search needs a server: python -m http.server -d {out}")  # noqa: T201 (this is a command)


if __name__ == "__main__":
    main()
