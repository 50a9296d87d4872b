"""Commands that are imported when they are run, not when they are listed.

Importing torch takes longer than most commands do. So a group knows of each command only where its
function is; the line that lists it is read from that function's docstring, without running code.
"""

import ast
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from pdlrecover.cli.command import Command, hide_types_of_flags


@dataclass(frozen=True)
class LazyCommand:
    """Where a command's function, called like the command, is, and an example of its use."""

    module: str
    """Below `pdlrecover.cli`; it may have an `EPILOG` to be shown above the example."""
    example: str

    def load(self, name: str) -> Any:
        """Import the command."""
        module = importlib.import_module(f"pdlrecover.cli.{self.module}")
        app = typer.Typer(
            add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
        )
        epilog = f"{getattr(module, 'EPILOG', '')}Example: `{self.example}`"
        app.command(name, cls=Command, epilog=epilog)(getattr(module, name.replace("-", "_")))
        return typer.main.get_command(app)

    def listed(self, name: str) -> TyperCommand:
        """Return what stands for the command in a list: its name and its first line."""
        spec = find_spec(f"pdlrecover.cli.{self.module}")
        source = Path(spec.origin).read_text("utf-8") if spec and spec.origin else ""
        functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        named = next(node for node in functions if node.name == name.replace("-", "_"))
        return TyperCommand(name, help=ast.get_docstring(named), rich_markup_mode="markdown")


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return a group that has these commands, before those that are added to it."""

    class LazyGroup(TyperGroup):
        _listing = False

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.commands: dict[str, Any] = {**dict.fromkeys(commands), **self.commands}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return super().get_command(ctx, cmd_name)
            command = commands[cmd_name]
            return command.listed(cmd_name) if self._listing else command.load(cmd_name)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self._listing = True
            hide_types_of_flags(self, ctx)
            try:
                super().format_help(ctx, formatter)
            finally:
                self._listing = False

    return LazyGroup
