"""Results as simulations make them, with numbers of one's own."""

from pdlrecover.engines.ledger import PARTS, Openings, Seconds
from pdlrecover.experiments.analysis.document import Column
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Curve, MethodResult, Result, as_record


def seconds(total, processor=None):
    spent = total if processor is None else processor
    return Seconds(**dict.fromkeys(PARTS, 0.0), total=total, processor=spent)


def openings(count, numbers=None, of="8 kept peers together"):
    return Openings(openings=count, numbers=9 * count if numbers is None else numbers, of=of)


def entry(accuracy, success=None, *, exact=10, opened=None, **more):
    values = {
        "fallback_rounds": 0,
        "gradient_evaluations": 8 * exact,
        "bytes_per_peer": 1_000_000 * exact,
        "seconds": seconds(0.5 * exact),
        "opened": opened or {"fresh sums": openings(exact)},
        "curve": Curve(round=[1, 40], accuracy=[0.1, accuracy], attack_success=[success, success]),
        **more,
    }
    return MethodResult(accuracy=accuracy, attack_success=success, exact_rounds=exact, **values)


def result(methods, **settings):
    names = [name for name in methods if name != "poisoned"]
    config = Config(
        **{"peers": 10, "malicious": 2, "rounds": 40, "methods": tuple(names), **settings}
    )
    return Result(
        config=config,
        seed=config.seed,
        commit="abc",
        versions={"pdlrecover": "9.9", "python": "3.11"},
        methods=methods,
    )


def record(methods, **settings):
    return as_record(result(methods, **settings))


POISONED = {
    "poisoned": entry(0.9, 0.995, exact=40),
    "retrain": entry(0.905, 0.013, exact=40),
    "pdlrecover": entry(0.904, 0.014),
}


def columns(*headings):
    return [Column(key=heading, heading=heading) for heading in headings]


def only(documents):
    assert len(documents) == 1
    return documents[0]
