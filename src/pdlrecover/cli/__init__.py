"""The command line: `pdlrecover …`."""

import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import pdlrecover
from pdlrecover.cli.common import BAD_INPUT
from pdlrecover.cli.demo import demo
from pdlrecover.cli.download import download
from pdlrecover.cli.evidence import check_evidence
from pdlrecover.cli.history import verify
from pdlrecover.cli.peer_files import compare, federate, init, sign
from pdlrecover.cli.peer_run import run, status
from pdlrecover.cli.plan import plan
from pdlrecover.cli.removals import approve, propose_removal, recover
from pdlrecover.cli.report import report
from pdlrecover.cli.reproduce import NAMES, reproduce
from pdlrecover.cli.simulate import simulate
from pdlrecover.errors import PDLRecoverError

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
app.command(epilog=f"Names:\n\n{NAMES}\n\nExample: `pdlrecover reproduce all --quick`")(reproduce)
app.command(epilog="Example: `pdlrecover report out/mnist out/har --out both.html`")(report)

peer = typer.Typer(
    help="A real peer: its keys, its federation, its work, and removals.", no_args_is_help=True
)
peer.command(
    epilog="Example: `pdlrecover peer init hospital-a --name hospital-a "
    "--address hospital-a.example.org:7400 --key-file /media/stick/hospital-a.key`"
)(init)
peer.command(
    epilog="Example: `pdlrecover peer federate a.txt b.txt c.txt --plan plan.toml "
    "--out federation.toml`"
)(federate)
peer.command(epilog="Example: `pdlrecover peer sign federation.toml hospital-a`")(sign)
peer.command(epilog="Example: `pdlrecover peer compare federation.toml theirs.toml`")(compare)
peer.command(
    epilog="Example: `pdlrecover peer check-evidence federation.toml hospital-a/evidence/1.bin`"
)(check_evidence)
peer.command(epilog="Example: `pdlrecover peer run federation.toml hospital-a`")(run)
peer.command(epilog="Example: `pdlrecover peer status hospital-a`")(status)
peer.command(
    epilog="Example: `pdlrecover peer propose-removal hospital-a --peers hospital-e "
    "--reason malicious`"
)(propose_removal)
peer.command(epilog="Example: `pdlrecover peer approve hospital-b 3f9a1c0d`")(approve)
peer.command(epilog="Example: `pdlrecover peer recover hospital-a`")(recover)
app.add_typer(peer, name="peer")

history = typer.Typer(help="What a peer has stored.", no_args_is_help=True)
history.callback()(lambda: None)
history.command(epilog="Example: `pdlrecover history verify hospital-a`")(verify)
app.add_typer(history, name="history")


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
