"""Writes docs/reference/cli.md from the commands' own help: `make docs`.

With `--check` nothing is written, and the exit code says whether the page is up to date.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pdlrecover.cli import app

PAGE = Path(__file__).parent / "reference" / "cli.md"
HEAD = """# The command line

Written by `python docs/cli_reference.py` from what `--help` says. Exit codes: 0 if all went well,
2 if the input could not be used (one sentence says why), 130 after ctrl-C.
"""


def page() -> str:
    """Return the page."""
    top = typer.main.get_command(app)
    parts = [HEAD]
    for path, command in commands(top, ("pdlrecover",)):
        parts += [f"## {' '.join(path)}\n", *section(path, command)]
    return "\n".join(parts)


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return every command below a group, with the words that call it."""
    context = typer.Context(group, info_name=path[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    """Return what a command does, how it is called, and its options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    called = [*path, *(usage(p) for p in arguments), *(["[OPTIONS]"] if options else [])]
    yield f"{inspect.cleandoc(command.help or '').strip()}\n"
    yield f"```text\n{' '.join(called)}\n```\n"
    if command.epilog:
        yield f"{command.epilog.strip()}\n"
    if command.params:
        yield "| argument or option | what it is | if not given |\n|---|---|---|"
        yield from (row(p) for p in (*arguments, *options))
        yield ""


def usage(argument: Any) -> str:
    """Return how an argument is written in a call."""
    word = argument.name.upper() + ("…" if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def row(parameter: Any) -> str:
    """Return one line of a command's table."""
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    told = " ".join((parameter.help or "").split())
    if parameter.envvar and parameter.show_envvar:
        told += f" (environment: `{parameter.envvar}`)"
    return f"| {names} | {told} | {default(parameter)} |".replace("|  |", "| |")


def default(parameter: Any) -> str:
    """Return what a parameter is if it is not given."""
    value = parameter.default
    if parameter.required:
        return "*needed*"
    if value is None or value is False or value == ():
        return ""
    if not parameter.show_default:
        return ""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    return "yes" if value is True else f"`{value}`" if str(value) else ""


def main() -> None:
    """Write or check the page."""
    if "--check" in sys.argv:
        stale = not PAGE.exists() or PAGE.read_text("utf-8") != page()
        sys.exit("docs/reference/cli.md is not up to date, run `make docs`" if stale else 0)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
