"""What all commands have in common: how their help looks, how errors speak, what ctrl-C does.

An error that speaks of a setting says it as the user gave it: as the flag of this command, or as
the key of its config file if it stands there. What is no option here keeps its name.
"""

from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from pdlrecover.cli.common import INTERRUPTED
from pdlrecover.errors import PDLRecoverError, Setting

CONFIG = "config"
"""The option that names a file of settings."""


class Command(TyperCommand):
    """A command of `pdlrecover`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it refuses is said in its own words."""
        try:
            return super().invoke(ctx)
        except PDLRecoverError as error:
            raise type(error)(error.said(partial(word, ctx))) from error
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; what takes no value shows none."""
        hide_types_of_flags(self, ctx)
        super().format_help(ctx, formatter)


def hide_types_of_flags(command: Any, ctx: Any) -> None:
    """Let the help say `--clear`, not `--clear <bool>`."""
    for option in command.get_params(ctx):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""


def word(ctx: Any, setting: Setting) -> str:
    """Return what a setting is called where this command's user has it."""
    options = {each.name: each for each in ctx.command.params if isinstance(each, TyperOption)}
    option = options.get(setting.flag or setting.name)
    if option is None:
        return str(setting)
    given = getattr(ctx.get_parameter_source(option.name), "name", "")
    if ctx.params.get(CONFIG) and given != "COMMANDLINE":
        value = setting.value.lower() if option.is_flag else setting.value  # true, not True
        return f"{option.name} = {value}" if value else str(option.name)
    flag = max(option.opts, key=len)
    return f"{flag} {setting.value}" if setting.value and not option.is_flag else flag
