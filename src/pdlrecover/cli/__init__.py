"""The command line: `pdlrecover …`."""

import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import pdlrecover
from pdlrecover.cli.demo import demo
from pdlrecover.cli.download import download
from pdlrecover.cli.plan import plan
from pdlrecover.cli.report import report
from pdlrecover.cli.reproduce import reproduce
from pdlrecover.cli.simulate import simulate
from pdlrecover.errors import PDLRecoverError

BAD_INPUT = 2
"""The exit code for input that cannot be used."""

app = typer.Typer(
    help="Repair models that were trained together, without seeing anyone's update.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command(epilog="Example: `pdlrecover demo --out out/demo`")(demo)
app.command(epilog="Example: `pdlrecover plan --peers 200 --colluders 66 --dropouts 60 --liars 5`")(
    plan
)
app.command(
    epilog="Example: `pdlrecover simulate --dataset mnist --data-dir data --peers 200 "
    "--malicious 40 --rounds 1000 --methods retrain,pdlrecover --out out/mnist`"
)(simulate)
app.command(epilog="Example: `pdlrecover download mnist --data-dir data`")(download)
app.command(epilog="Example: `pdlrecover reproduce all --quick`")(reproduce)
app.command(epilog="Example: `pdlrecover report out/mnist out/har --out both.html`")(report)


@app.callback(invoke_without_command=True)
def pdlrecover_command(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Repair models that were trained together, without seeing anyone's update."""
    if version:
        typer.echo(pdlrecover.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; what goes wrong on purpose becomes one sentence and exit code 2."""
    try:
        app(standalone_mode=True)
    except PDLRecoverError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'the operating system'}: {error.strerror or error}")


def fail(message: str) -> NoReturn:
    """Say what is wrong, and leave."""
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"error: {message}", style="red", highlight=False, markup=False)
    sys.exit(BAD_INPUT)
