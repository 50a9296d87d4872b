import math
import re
from dataclasses import replace

from pdlrecover.experiments.report.document import Figure, Series
from pdlrecover.experiments.report.figures import draw_curves, draw_panels, drawn, fresh
from pdlrecover.experiments.report.palette import Look, looks


def figure(*series, log=False):
    return Figure(title="t: u", x="x", y="y", series=list(series), command="run", log=log)


def markers(path):
    """Return the markers in a drawing, ticks apart: the outline's name, which has the colour."""
    drawn = re.findall(r'<use xlink:href="#(m\w+)"[^>]*style="fill: #(?!000000)', path.read_text())
    return set(drawn)


PLAIN = Look(colour=("#000000", "#ffffff"), dash=(), shape=0)


def test_thirty_series_all_look_different():
    styles = looks([f"s{i}" for i in range(30)]).values()
    for points in (True, False):
        made = [drawn(style, [1.0, 2.0], points=points) for style in styles]
        assert len({str(sorted(each.items())) for each in made}) == 30


def test_points_of_twelve_series_have_twelve_markers(tmp_path):
    series = [Series(name=f"s{i}", x=[i, i + 1], y=[1, 2], points=True) for i in range(12)]
    assert len(markers(draw_panels([figure(*series)], tmp_path / "a.svg"))) == 12


def test_a_value_without_neighbours_gets_a_marker():
    assert drawn(PLAIN, [1.0])["markevery"] == [0]
    assert drawn(PLAIN, [1.0, math.nan, 2.0, 3.0, math.nan, 4.0])["markevery"] == [0, 5]
    assert "marker" not in drawn(PLAIN, [1.0, 2.0, math.nan])


def test_a_line_of_one_value_is_seen(tmp_path):
    long, short = Series(name="a", x=[1, 2], y=[1, 2]), Series(name="b", x=[2], y=[1.5])
    assert not markers(draw_panels([figure(long)], tmp_path / "a.svg"))
    assert len(markers(draw_panels([figure(long, short)], tmp_path / "b.svg"))) == 1
    zeros = Series(name="c", x=[1, 2, 3], y=[0, 5, 0])
    assert len(markers(draw_panels([figure(zeros, log=True)], tmp_path / "c.svg"))) == 1


def test_a_curve_of_one_value_is_seen(tmp_path):
    def entry(*accuracy):
        rounds = list(range(1, len(accuracy) + 1))
        curve = {"round": rounds, "accuracy": accuracy, "attack_success": [None] * len(rounds)}
        return {"attack_success": None, "curve": curve}

    methods = {"retrain": entry(0.1, 0.9)}
    assert not markers(draw_curves({"methods": methods}, tmp_path / "a.svg"))
    methods["fedrecovery"] = entry(0.5)
    assert len(markers(draw_curves({"methods": methods}, tmp_path / "b.svg"))) == 1


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
