import json

import pytest
from simulated import columns, openings

from pdlrecover.errors import RecordError
from pdlrecover.experiments.analysis.document import Document, Fact, Figure, Series, Table


def test_a_document_survives_its_record():
    line = Series(name="ours", x=[0, 1], y=[0.5, None], spread=[0.1, None])
    points = Series(name="plans", x=[0, 1], y=[0.5, 0.6], points=True, labels=["k=1", "k=2"])
    figure = Figure(
        title="Curves", x="round", y="accuracy", series=[line, points], command="run it", log=True
    )
    table = Table(
        title="Times", columns=columns("m", "s"), rows=[[10, 1.5], ["all", None]], command=""
    )
    document = Document(
        name="x",
        title="X",
        summary=["Fine."],
        facts=[Fact(value="1", label="one")],
        figures=[figure],
        tables=[table],
        ledger={"a": {"fresh sums": openings(3)}},
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


def drawn(**values):
    line = {"name": "a", "x": [1], "y": [1], **values}
    return {"title": "t", "x": "x", "y": "y", "series": [line], "command": ""}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"title": 5}, "title must be a text, got 5"),
        ({"summary": ["Fine.", 7]}, r"summary\[1\] must be a text, got 7"),
        ({"summary": "Fine."}, "summary must be a list of texts, got 'Fine.'"),
        ({"ledger": [1]}, r"ledger must be a table of keys and values, got \[1\]"),
        ({"ledger": {"a": {"k": 1}}}, r"ledger.a.k must be a table of keys and values, got 1"),
        ({"ledger": {"a": {"k l": {}}}}, 'ledger.a."k l".openings is missing'),
        (
            {"ledger": {"a": {"k": {"openings": 1, "of": "one peer"}}}},
            "ledger.a.k.numbers is missing",
        ),
        (
            {"ledger": {"a": {"k": {"openings": 1, "numbers": None, "of": "one peer"}}}},
            "ledger.a.k.numbers must be a whole number, got None",
        ),
        (
            {"tables": [{"title": "t", "columns": [1], "rows": [[1]], "command": ""}]},
            r"tables\[0\].columns\[0\] must be a table of keys and values, got 1",
        ),
        (
            {"tables": [{"title": "t", "columns": ["a"], "rows": [[[]]], "command": ""}]},
            r"rows\[0\]\[0\] must be a text or a number or null, got \[\]",
        ),
        ({"figures": [drawn(y=["boo"])]}, r"y\[0\] must be a number or null, got 'boo'"),
        ({"figures": [drawn(points=1)]}, r"series\[0\].points must be true or false, got 1"),
        ({"figures": [drawn(x=[True])]}, r"series\[0\].x\[0\] must be a number, got True"),
        (
            {"figures": [drawn(colour="red")]},
            r"unknown key 'colour' in figures\[0\].series\[0\]; known are name, x, y",
        ),
        ({"figures": [drawn(label=["a"])]}, "did you mean 'labels'"),
        ({"facts": [{"value": "1"}]}, r"facts\[0\].label is missing"),
    ],
)
def test_a_record_of_wrong_types_is_one_sentence(part, said):
    record = Document(name="x", title="X", summary=["Fine."]).record()
    with pytest.raises(RecordError, match=said):
        Document.from_record({**record, **part})


def test_cells_are_found_by_key_whatever_the_headings_say():
    rows = [{"dataset": "har", "worst_seed": 0.5}, {"worst_seed": 0.7, "dataset": "mnist"}]
    table = Table.from_rows("t", rows, {"dataset": "data", "accuracy": "accuracy (%)"}, "")
    assert table.rows == [["har", 0.5], ["mnist", 0.7]]
    assert table.headings == ["data", "worst seed"]
    assert table.by_key() == rows
    with pytest.raises(RecordError, match="two columns of 't' have the same key"):
        Table(title="t", columns=columns("a", "a"), rows=[], command="")


def test_a_document_without_keys_is_read_by_its_headings():
    table = {"title": "t", "columns": ["method", "s"], "rows": [["auto", 1]], "command": ""}
    record = {**Document(name="x", title="X", summary=[]).record(), "tables": [table]}
    assert Document.from_record(record).tables[0].columns == columns("method", "s")
