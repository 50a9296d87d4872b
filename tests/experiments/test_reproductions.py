import json

import pytest

from pdlrecover.experiments import paper
from pdlrecover.experiments.cells import run_cells
from pdlrecover.experiments.collection import Results
from pdlrecover.experiments.document import Document
from pdlrecover.experiments.judgement import holds
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.experiments.reproductions.attacks import needed, rivals
from pdlrecover.experiments.reproductions.frontier import modelled_seconds
from pdlrecover.experiments.scale import ATTACKS, FULL, QUICK, Scale

TINY = Scale(
    name="quick",
    datasets=("digits",),
    peers=10,
    rounds=16,
    adam_rounds=12,
    counts=(2,),
    typical=2,
    seeds=(0,),
    plan={"preparation": 4, "period": 5, "final": 2},
    adam_plan={"preparation": 4, "period": 4, "final": 2},
)


@pytest.mark.parametrize("scale", [FULL, QUICK])
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_cell_is_a_config_that_can_be(name, scale):
    cells = REPRODUCTIONS[name].cells(scale)
    assert len(cells) == len({(c, c.methods) for c in cells})
    assert cells or name == "bound"


def test_full_experiments_are_what_was_promised():
    seeds = {}
    for name in ("table-1", "table-2", "table-3", "figure-malicious-count", "figure-leaver-count"):
        for cell in REPRODUCTIONS[name].cells(FULL):
            assert (cell.peers, cell.rounds) == (200, 1000)
            seeds.setdefault((cell.dataset, len(cell.removed)), set()).add(cell.seed)
    for dataset in FULL.datasets:
        assert seeds[dataset, 40] == {0, 1, 2}
        assert {m for d, m in seeds if d == dataset} == set(paper.COUNTS)
    attacks = REPRODUCTIONS["attacks"].cells(FULL)
    assert len(ATTACKS) >= 9
    assert len(attacks) == 3 * (len(ATTACKS) + 1) * (3 + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["table-1", "table-3", "figure-leaver-count", "figure-rounds", "suspects", "ledger"],
)
def test_documents_are_made_of_results(name, tmp_path):
    one = REPRODUCTIONS[name]
    results = Results(run_cells(one.cells(TINY), tmp_path))
    document = one.document(TINY, results)
    assert document.name == name
    assert document.summary
    assert document.figures or document.tables
    for part in (*document.figures, *document.tables):
        assert part.command == f"pdlrecover reproduce {name} --quick"
    for table in document.tables:
        assert all(any(cell is not None for cell in row[2:]) for row in table.rows)
    for figure in document.figures:
        assert any(y is not None for series in figure.series for y in series.y)
    assert Document.from_record(json.loads(json.dumps(document.record()))) == document


def entry(accuracy, success, exact, remembered=None):
    return {
        "accuracy": accuracy,
        "attack_success_above_retrain": success,
        "exact_rounds": exact,
        "remembered": remembered,
    }


@pytest.mark.parametrize(
    ("ours", "left", "expected"),
    [
        (entry(0.90, 0.01, 80), False, True),
        (entry(0.894, 0.01, 80), False, False),
        (entry(0.90, 0.03, 80), False, False),
        (entry(0.90, 0.01, 120), False, False),
        (entry(0.90, None, 80, 0.2), True, True),
        (entry(0.90, None, 80, 0.4), True, False),
        (entry(0.90, None, 80, 0.4), False, True),
    ],
)
def test_a_cell_holds_by_every_measure_or_not_at_all(ours, left, expected):
    record = {"config": {}, "methods": {"auto": ours, "retrain": entry(0.90, 0.0, 1000)}}
    assert holds(Results([record]), "auto", 100, left=left) is expected
    assert holds(Results([record]), "absent", 100, left=left) is None


def test_what_the_rival_needs_is_what_holds_in_every_cell():
    def cell(least):
        entries = {
            name: entry(0.90 if k >= least else 0.80, 0.0, k) for k, name in rivals(FULL).items()
        }
        methods = {"retrain": entry(0.90, 0.0, 100), **entries}
        return Results([{"config": {"leavers": 0}, "methods": methods}])

    assert needed(FULL, [cell(50)]) == 50
    assert needed(FULL, [cell(50), cell(65)]) == 70
    assert needed(FULL, [cell(50), cell(99)]) is None


def test_modelled_time_counts_exact_rounds_and_openings_of_vectors():
    opened = {"directions": {"openings": 10}, "dot products": {"openings": 99}}
    entry = {"gradient_evaluations": 40, "opened": opened}
    assert modelled_seconds(entry, kept=8) == pytest.approx(0.3 + 0.15 + 0.01)


def test_means_and_spreads_are_over_the_records_that_have_a_value():
    records = [
        {"config": {"seed": s}, "methods": {"a": {"accuracy": v}}}
        for s, v in enumerate((0.2, 0.4, None))
    ]
    mean = Results(records).mean("a", "accuracy")
    assert (mean.value, mean.count) == (pytest.approx(0.3), 2)
    assert mean.spread == pytest.approx(0.1414, abs=1e-3)
    assert mean.percent() == "30.0 ± 14.1"
    assert Results(records).mean("b", "accuracy") is None
    assert len(Results(records).where(seed=1)) == 1
