"""The first thing that newcomers run."""

import re
import runpy
from pathlib import Path

TEN_LINES = Path(__file__).parents[2] / "examples" / "ten_lines.py"


def test_the_ten_lines_take_a_quarter_of_the_rounds_and_say_so(capsys):
    recovered = runpy.run_path(str(TEN_LINES))["recovered"]
    assert recovered.ledger.exact_rounds <= 25
    shown = capsys.readouterr()
    assert shown.err == ""
    *lines, accuracy = shown.out.splitlines()
    assert lines == str(recovered).splitlines()
    assert "exact rounds  25, where the training had 100" in shown.out
    assert "peers 3 and 7; 18 of 20 are kept" in shown.out
    assert "25 sums of new updates, each of 18 kept peers together; no update of a" in shown.out
    assert float(re.fullmatch(r"accuracy on peer 0's data: (\d+)%", accuracy)[1]) > 70


def test_they_are_ten_lines():
    code = TEN_LINES.read_text().partition('"""\n\n')[2]
    assert len([line for line in code.splitlines() if line]) == 10
