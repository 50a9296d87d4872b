"""Training and recoveries in the tools that you have: TensorBoard and MLflow.

    from pdlrecover.tracking import MLflow, TensorBoard

    federation.train(300, 0.1, observer=TensorBoard("runs"))
    federation.recover([3, 7], observer=[TensorBoard("runs"), MLflow("http://127.0.0.1:5000")])

Both are observers: see `Observer` for what they are told, and for making another.
"""

from typing import TYPE_CHECKING

from pdlrecover.later import later

if TYPE_CHECKING:
    from pdlrecover.engines.events import Ended, Event, Follow, Measured, Observer, RoundDone, Run
    from pdlrecover.tracking.mlflow import MLflow
    from pdlrecover.tracking.tensorboard import TensorBoard

__all__ = [
    "Ended",
    "Event",
    "Follow",
    "MLflow",
    "Measured",
    "Observer",
    "RoundDone",
    "Run",
    "TensorBoard",
]
_EVENTS = ("Ended", "Event", "Follow", "Measured", "Observer", "RoundDone", "Run")
__getattr__ = later(
    "pdlrecover",
    {
        **dict.fromkeys(_EVENTS, "engines.events"),
        "MLflow": "tracking.mlflow",
        "TensorBoard": "tracking.tensorboard",
    },
)


def __dir__() -> list[str]:
    return __all__
