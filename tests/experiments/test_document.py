import json

from pdlrecover.experiments.document import Document, Fact, Figure, Series, Table


def test_a_document_survives_its_record():
    line = Series(name="ours", x=[0, 1], y=[0.5, None], spread=[0.1, None])
    figure = Figure(
        title="Curves", x="round", y="accuracy", series=[line], command="run it", log=True
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
