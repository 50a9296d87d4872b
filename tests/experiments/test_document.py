import json

import pytest

from pdlrecover.errors import RecordError
from pdlrecover.experiments.document import Document, Fact, Figure, Series, Table


def test_a_document_survives_its_record():
    line = Series(name="ours", x=[0, 1], y=[0.5, None], spread=[0.1, None])
    points = Series(name="plans", x=[0, 1], y=[0.5, 0.6], points=True, labels=["k=1", "k=2"])
    figure = Figure(
        title="Curves", x="round", y="accuracy", series=[line, points], command="run it", log=True
    )
    table = Table(title="Times", columns=["m", "s"], rows=[[10, 1.5], ["all", None]], command="")
    document = Document(
        name="x",
        title="X",
        summary=["Fine."],
        facts=[Fact(value="1", label="one")],
        figures=[figure],
        tables=[table],
        ledger={"a": {}},
        note="By hand.",
    )
    assert Document.from_record(json.loads(json.dumps(document.record()))) == document


@pytest.mark.parametrize(
    "values", [{"y": [1.0]}, {"y": [1.0, 2.0], "spread": [0.1]}, {"y": [1.0, 2.0], "labels": ["a"]}]
)
def test_a_series_has_as_many_of_everything_as_x(values):
    (what,) = [key for key, found in values.items() if len(found) == 1]
    with pytest.raises(RecordError, match=f"'ours' does not have as many {what} as x"):
        Series(name="ours", x=[0, 1], **values)
