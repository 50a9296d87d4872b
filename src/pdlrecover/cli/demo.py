"""`pdlrecover demo`: the whole story on the bundled digits, in under a minute."""

from pathlib import Path
from typing import Annotated

import typer

from pdlrecover.cli.common import MLflowPlace, TensorBoardFolder, console_of_work, observers
from pdlrecover.cli.simulate import run_and_show
from pdlrecover.experiments.analysis.format import percent
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.recovery.methods import DEFAULT, REFERENCE

DEMO = Config(
    dataset="digits",
    peers=20,
    malicious=5,
    rounds=240,
    batch_size=32,
    learning_rate=0.3,
    preparation=20,
    period=20,
    final=15,
)


def demo(
    out: Annotated[Path, typer.Option(help="Where result.json and the report go.")] = Path(
        "out/demo"
    ),
    tensorboard: TensorBoardFolder = None,
    mlflow: MLflowPlace = None,
) -> None:
    """Train 20 peers on digits, 5 of them with a backdoor; then recover without those five."""
    console = console_of_work()
    console.print(
        "20 organisations train one model on handwritten digits. Five of them plant a backdoor: "
        "two bright stripes across an image mean “0”. Every update is secret-shared; only sums "
        "are opened. Then the five are found out, and the others recover.\n"
    )
    result = run_and_show(DEMO, out, None, observers(tensorboard, mlflow))
    before, after, retrain = (result.methods[n] for n in (POISONED, DEFAULT, REFERENCE))
    share = after.exact_rounds / DEMO.rounds
    console.print(
        f"\nThe backdoor worked on {percent(before.attack_success)} of the images, and on "
        f"{percent(after.attack_success)} after recovery. Accuracy is "
        f"{percent(after.accuracy)}, retraining from scratch gives "
        f"{percent(retrain.accuracy)}; recovery computed gradients in {percent(share)} of the "
        "rounds, and no single peer's update was ever opened."
    )
