import re
import subprocess
import sys
from dataclasses import replace

from simulated import POISONED, entry, result

from pdlrecover.experiments.analysis.document import Figure, Series
from pdlrecover.experiments.report.figures import draw_panels, fresh, page_chart, panels, runtime
from pdlrecover.experiments.report.palette import looks
from pdlrecover.experiments.report.simulation_document import documents_from_result


def figure(*series, log=False):
    return Figure(title="t: u", x="x", y="y", series=list(series), command="run", log=log)


def markers(path):
    """Return the markers of a drawing's panels: each one's outline and colour, and its series."""
    point = r'aria-label="([^"]*)" [^>]*description="point"[^>]* d="([^"]*)" fill="([^"]*)"'
    panels = path.read_text().partition("legend_group")[0]
    return re.findall(point, panels)


def rows(figure):
    return {row["name"]: row for row in page_chart(figure)["data"]["values"]}


def test_thirty_series_all_look_different():
    styles = looks([f"s{i}" for i in range(30)]).values()
    assert len({(style.colour, style.dash) for style in styles}) == 30
    assert len({(style.colour, style.shape) for style in styles}) == 30


def test_points_of_twelve_series_have_twelve_markers(tmp_path):
    series = [Series(name=f"s{i}", x=[i, i + 1], y=[1, 2], points=True) for i in range(12)]
    drawn = markers(draw_panels([figure(*series)], tmp_path / "a.svg"))
    assert len(drawn) == 24
    assert len({(outline, colour) for _, outline, colour in drawn}) == 12


def test_a_value_without_neighbours_gets_a_marker():
    def dots(*y):
        return rows(figure(Series(name="a", x=list(range(len(y))), y=list(y))))["a"]["dot"]

    assert dots(1.0) == [1]
    assert dots(1.0, None, 2.0, 3.0, None, 4.0) == [1, 0, 0, 1, 0, 1], "and so does a line's end"
    assert dots(1.0, 2.0, float("nan")) == [0, 1, 0]


def test_a_line_of_one_value_is_seen(tmp_path):
    long, short = Series(name="a", x=[1, 2], y=[1, 2]), Series(name="b", x=[2], y=[1.5])
    drawn = markers(draw_panels([figure(long, short)], tmp_path / "b.svg"))
    assert sorted(name for name, *_ in drawn) == ["a", "b"]
    zeros = Series(name="c", x=[1, 2, 3], y=[0, 5, 0])
    assert len(markers(draw_panels([figure(zeros, log=True)], tmp_path / "c.svg"))) == 1


def test_a_curve_of_one_value_is_seen(tmp_path):
    methods = POISONED | {"fedrecovery": entry(0.5)}
    (document,) = documents_from_result(result(methods))
    drawn = markers(draw_panels(document.figures, tmp_path / "b.svg"))
    assert {name for name, *_ in drawn} >= {"fedrecovery", "poisoned"}


def test_the_legend_names_what_only_a_later_panel_has(tmp_path):
    one, two = (Series(name=name, x=[1, 2], y=[1, 2]) for name in ("everywhere", "later"))
    text = draw_panels([figure(one), figure(one, two)], tmp_path / "a.svg").read_text()
    assert text.count(">everywhere<") == text.count(">later<") == 1


def test_a_drawing_of_other_numbers_is_not_fresh(tmp_path):
    one = figure(Series(name="a", x=[1, 2], y=[1, 2]))
    path = tmp_path / "a.svg"
    assert not fresh([one], path)
    draw_panels([one], path)
    assert fresh([one], path)
    assert not fresh([replace(one, series=[Series(name="a", x=[1, 2], y=[1, 2.5])])], path)


def test_a_drawing_and_its_digest_are_the_same_in_every_process(tmp_path):
    one = figure(
        Series(name="pdlrecover", x=[1, 2], y=[1, 2], spread=[0.1, 0.2]),
        Series(name="other", x=[1, 2], y=[2, 1e-9], points=True),
    )
    here = draw_panels([one], tmp_path / "here.svg")
    code = (
        "import sys; from pathlib import Path\n"
        "from pdlrecover.experiments.analysis.document import Figure, Series\n"
        "from pdlrecover.experiments.report.figures import draw_panels\n"
        f"draw_panels([{one!r}], Path(sys.argv[1]))"
    )
    there = tmp_path / "there.svg"
    subprocess.run([sys.executable, "-c", code, there], check=True)
    assert here.read_bytes() == there.read_bytes()


def test_the_page_and_the_docs_draw_the_same_layers():
    one = figure(Series(name="auto", x=[1, 2], y=[1, 2]))
    page, docs = page_chart(one), panels([one])["hconcat"][0]
    for of_page, of_docs in zip(page["layer"], docs["layer"], strict=False):
        assert of_page["encoding"] == of_docs["encoding"]
        assert of_page["transform"] == of_docs["transform"]
        assert of_page["mark"] == of_docs["mark"]
    light = docs["data"]["values"][0]
    assert page["data"]["values"][0]["colour"].startswith(f"light-dark({light['colour']},")


def test_a_band_stays_within_what_values_can_be():
    bands = {
        (y, log): page_chart(replace(figure(), y=y, log=log))["layer"][0]["transform"]
        for y in ("accuracy (%)", "distance")
        for log in (False, True)
    }
    assert "100" in str(bands["accuracy (%)", False])
    assert "100" not in str(bands["distance", False])
    assert "datum.y > datum.spread" in str(bands["distance", True])


def test_the_runtime_may_stand_inside_a_script_element():
    assert not re.search("</script|<script|<!--", runtime(), re.IGNORECASE)
