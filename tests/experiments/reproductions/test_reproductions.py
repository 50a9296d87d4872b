import json
from dataclasses import replace

import numpy as np
import pytest
import simulated

from pdlrecover.engines.ledger import PARTS, Seconds
from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.analysis.promises import holds
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.batch.cache import cached, run_cells
from pdlrecover.experiments.experiment.forgetting import with_success_above
from pdlrecover.experiments.experiment.result import Curve, Result
from pdlrecover.experiments.reproductions import REPRODUCTIONS, paper
from pdlrecover.experiments.reproductions.accuracy import _fedrecover
from pdlrecover.experiments.reproductions.attacks import FAST, RIVAL, needed, rivals
from pdlrecover.experiments.reproductions.frontier import modelled_seconds
from pdlrecover.experiments.reproductions.reproduction import command
from pdlrecover.experiments.reproductions.scale import ATTACKS, FULL, QUICK, Scale
from pdlrecover.experiments.reproductions.tuning import FOUND
from pdlrecover.recovery.methods import REFERENCE

MEASURED = ("retrain_seconds", "accuracy", "pdlrecover", "openings")
"""One of these every table has, and every row has a value of it."""
TINY = Scale(
    name="quick",
    datasets=("digits",),
    peers=10,
    rounds=16,
    adam_rounds=12,
    counts=(2,),
    typical=2,
    seeds=(0,),
    fresh_seeds=(1,),
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
    assert len(attacks) == 3 * ((len(ATTACKS) + 1) * (3 + 1) + 2 * 2)
    easy = {c.seed for c in attacks if c.optimizer == "sgd" and c.attack == "backdoor"}
    assert easy == {0, 1, 2}


WHOLE = (
    "table-1",
    "table-3",
    "figure-leaver-curves",
    "figure-malicious-count",
    "figure-rounds",
    "suspects",
    "settings",
    "ledger",
)
"""Those whose runs are short enough for a test."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a folder with the tiny runs of all of these: many are shared."""
    folder = tmp_path_factory.mktemp("cache")
    run_cells([cell for name in WHOLE for cell in REPRODUCTIONS[name].cells(TINY)], folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_documents_are_made_of_results(name, cache):
    one = REPRODUCTIONS[name]
    results = Results(cached(one.cells(TINY), cache))
    document = one.document(TINY, results)
    assert document.name == name
    assert document.summary
    assert document.figures or document.tables
    for part in (*document.figures, *document.tables):
        assert part.command == f"pdlrecover reproduce {name} --quick"
    for table in document.tables:
        assert table.rows
        (key,) = [key for key in table.keys if key in MEASURED]
        assert all(row[key] is not None for row in table.by_key())
    for figure in document.figures:
        assert any(y is not None for series in figure.series for y in series.y)
    assert Document.from_record(json.loads(json.dumps(document.record()))) == document


def test_commands_say_where_the_data_are():
    assert command("table-1", FULL) == "pdlrecover reproduce table-1 --data-dir data"
    assert command("table-1", QUICK) == "pdlrecover reproduce table-1 --quick"


def test_the_ledger_says_what_run_it_is_of():
    (cell,) = REPRODUCTIONS["ledger"].cells(FULL)
    methods = {name: simulated.entry(0.9) for name in cell.methods}
    seen = {"individual": simulated.openings(9, of="one peer")}
    methods["crab"] = replace(methods["crab"], opened=seen)
    result = Result(config=cell, seed=cell.seed, methods=methods)
    document = REPRODUCTIONS["ledger"].document(FULL, Results([result]))
    assert document.summary[0] == "Single peers' updates are seen by crab."
    assert document.summary[-2] == (
        "This is one run on mnist: 200 peers, 40 of them removed, 1,000 rounds with sgd, seed 0."
    )


def entry(accuracy, success, exact, remembered=0.0, **more):
    """Return what a result has of a method that remembers this share of the removed data."""
    values = {
        "attack_success_above_retrain": success,
        "gradient_evaluations": 160 * exact,
        "held_out_loss": 1.0,
        "excess": 0.05 * remembered,
        "excess_error": 0.001,
        "seconds": simulated.seconds(float(exact)),
        "commit": "abc",
        **more,
    }
    return simulated.entry(accuracy, success, exact=exact, **values)


def cell(seed=0, *, left=False, optimizer="adam", dataset="mnist", **methods):
    """Return the result of a run whose original remembers everything, and retraining nothing."""
    rounds = 100 if optimizer == "adam" else 1000
    known = {
        "poisoned": entry(0.9, None if left else 0.9, rounds, 1.0),
        "retrain": entry(0.9, None if left else 0.0, rounds),
    }
    who = {"malicious": 0, "leavers": 40} if left else {"malicious": 40, "leavers": 0}
    config = replace(FULL.config(dataset, seed, optimizer=optimizer), **who)
    versions = {"python": "3.11"}
    return Result(config=config, seed=seed, versions=versions, methods=known | methods)


@pytest.mark.slow
def test_without_blocks_pdlrecover_opens_a_vector_in_every_round(cache):
    one = REPRODUCTIONS["settings"]
    (table,) = one.document(TINY, Results(cached(one.cells(TINY), cache))).tables
    opened = {row["method"]: row["vectors_opened"] for row in table.by_key()[:6]}
    assert opened["pdlrecover:block=1"] == opened["retrain"] == TINY.rounds
    assert opened["pdlrecover"] < TINY.rounds


def test_other_settings_change_what_they_name_and_nothing_else():
    def changed(config):
        usual = FULL.config(config.dataset, config.seed, optimizer=config.optimizer)
        mine, theirs = config.record(), usual.record()
        return frozenset(key for key in mine if mine[key] != theirs[key]) - {"methods"}

    assert {changed(cell) for cell in REPRODUCTIONS["settings"].cells(FULL)} == {
        frozenset(),
        frozenset({"split"}),
        frozenset({"partition"}),
        frozenset({"model", "learning_rate"}),
        frozenset({"model"}),
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
        (entry(0.90, None, 80, 0.4, excess_error=0.003), True, True),
        (entry(0.90, None, 80, 0.4), False, True),
        (entry(0.90, 0.01, 80, diverged="it grew"), False, False),
    ],
)
def test_a_cell_holds_by_every_measure_or_not_at_all(ours, left, expected):
    of = Results([cell(left=left, auto=ours)])
    assert holds(of, "auto", 100, left=left) is expected
    assert holds(of, "absent", 100, left=left) is None


def test_what_is_remembered_is_measured_over_all_seeds_together():
    first = cell(0, auto=entry(0.9, None, 40, 0.1))
    second = cell(1, auto=entry(0.9, None, 40, 0.5))
    found = Results([first, second]).remembered("auto")
    assert found.value == pytest.approx(0.3)
    shared = np.hypot(0.001, 0.3 * 0.001) / 0.05  # held-out samples are: nothing averages out
    assert found.error == pytest.approx(shared)
    hardly = replace(first.methods["poisoned"], excess=0.001)
    second.methods["poisoned"] = hardly  # counts for little
    assert Results([first, second]).remembered("auto").value == pytest.approx(0.03 / 0.051)
    first.methods["poisoned"] = hardly
    assert Results([first, second]).remembered("auto") is None
    del second.methods["auto"]
    assert Results([cell(0, auto=entry(0.9, None, 40)), second]).remembered("auto") is None


def test_how_much_attackers_gain_is_said_with_its_standard_error():
    def record(config):
        gains = {REFERENCE: 0.1, "accelerated-retrain": 0.1 + 0.01 * config.seed}
        methods = {
            m: replace(entry(0.9, 0.0, 25), attack_success=gains.get(m, 0.1))
            for m in config.methods
        }
        methods = with_success_above(methods)
        return replace(cell(config.seed, **methods), config=config)

    cells = REPRODUCTIONS["accelerated"].cells(FULL)
    document = REPRODUCTIONS["accelerated"].document(FULL, Results(map(record, cells)))
    seeds = np.arange(3, 15)
    error = seeds.std(ddof=1) / np.sqrt(12)
    assert f"accelerated-retrain +{seeds.mean()} ± {error:.1f}, " in document.summary[-1]
    assert document.summary[-1].endswith("points (mean over 12 seeds, standard error).")
    (table,) = [t for t in document.tables if t.title.startswith("With a few")]
    assert {row["seeds"] for row in table.by_key()} == {3}


def rival(least, exact=None):
    """Return accelerated retraining that is good with at least so many rounds."""
    return {name: entry(0.90 if k >= least else 0.80, 0.0, k) for k, name in rivals(FULL).items()}


def test_what_the_rival_needs_is_what_holds_in_every_cell():
    def of(least):
        return Results([cell(**rival(least))])

    assert needed(FULL, [of(50)]) == 50
    assert needed(FULL, [of(50), of(63)]) == 70
    assert needed(FULL, [of(50), of(99)]) is None


def test_attacks_are_judged_by_the_promises_and_by_what_the_rival_needs():
    fast, slow = entry(0.90, 0.0, 25), entry(0.90, 0.0, 80)
    easy = cell(**rival(50), **{"accelerated-retrain": fast, "auto": fast})
    hard = cell(dataset="har", **rival(63), **{"accelerated-retrain": fast, "auto": slow})
    waiting = cell(left=True, **rival(99), **{"accelerated-retrain": entry(0.8, None, 25)})
    config = replace(waiting.config, attack="bad-unlearn", undetected=20, leavers=20)
    waiting = replace(waiting, config=config)
    document = REPRODUCTIONS["attacks"].document(FULL, Results([easy, hard, waiting]))
    counted, by_cell, rows = document.tables
    assert {row["allowed"] for row in rows.by_key() if row["method"] in FAST} == {70}
    assert document.summary[:2] == [
        "accelerated-retrain keeps its promises in 2 of 3 cells after Adam.",
        "auto keeps its promises in 1 of 2 cells after Adam.",
    ]
    assert "needs 70 of 100 exact rounds to hold in every cell" in document.summary[2]
    assert ["accelerated-retrain", "2 of 3", None] in counted.rows
    assert ["bad-unlearn", "-10.00, 25 rounds (rival: none): misses", None] in by_cell.rows
    backdoor = ["backdoor", "+0.00, 25 rounds (rival: 50)", "+0.00, 25 rounds (rival: 70)"]
    assert backdoor in by_cell.rows


def test_one_bad_seed_breaks_a_promise_that_the_mean_keeps():
    def of(*accuracies):
        return Results(cell(s, auto=entry(a, 0.0, 25)) for s, a in enumerate(accuracies))

    assert holds(of(0.899, 0.899, 0.8951), "auto", 100, left=False)
    assert not holds(of(0.91, 0.91, 0.8949), "auto", 100, left=False)
    assert not holds(of(0.8969, 0.8969, 0.8969), "auto", 100, left=False)


def test_the_cheapest_plan_is_one_that_keeps_the_promises():
    plans = {
        "auto": entry(0.90, 0.0, 45),
        "historical": entry(0.90, 0.021, 0),
        "fine-tune-k:rounds=10": entry(0.8949, 0.0, 5),
        "certified-removal": entry(0.90, 0.0, 1),
        "retrain-k:rounds=10": entry(0.90, 0.0, 2, diverged="it grew"),
        f"{RIVAL}+rounds=50": entry(0.90, 0.0, 50),
    }
    document = REPRODUCTIONS["frontier"].document(FULL, Results([cell(**plans)]))
    (said,) = [line for line in document.summary if line.startswith("mnist, Adam, backdoor")]
    assert said.endswith("auto needs the least, 45.0 exact rounds (of the rival: 50.0).")
    assert document.summary[0] == (
        "The promises are kept with the fewest exact rounds by auto in 1 of the 1 settings in "
        "which that can be told."
    )
    rows = {row["method"]: row for row in document.tables[0].by_key()}
    assert rows["retrain-k:rounds=10"]["accuracy"] == "90.0 (diverged in 1 of 1)"
    points = {s.name: s.labels for s in document.figures[0].series}
    assert points[RIVAL] == ["rounds=50"]


def test_no_plan_is_called_cheap_where_forgetting_cannot_be_measured():
    record = cell(left=True, historical=entry(0.9, None, 0))
    record.methods["poisoned"] = replace(record.methods["poisoned"], excess=0.0019)
    document = REPRODUCTIONS["frontier"].document(FULL, Results([record]))
    assert document.summary[-2] == (
        "mnist, Adam, leavers: the original remembers too little for forgetting to be measured."
    )


def test_promises_are_for_runs_of_the_papers_length():
    record = cell(optimizer="sgd", pdlrecover=entry(0.9, 0.0, 160))
    full, quick = (
        REPRODUCTIONS["table-1"].document(scale, Results([record])) for scale in (FULL, QUICK)
    )
    assert full.tables[0].by_key()[0]["holds"] == "no"
    assert quick.tables[0].by_key()[0]["holds"] is None
    assert "0 of 1 runs keep to what is promised" in full.summary[-2]


def test_an_estimated_round_takes_what_is_beyond_the_exact_ones():
    def record(peers, model, estimated):
        fresh = {"fresh sums": simulated.openings(24, 24 * 1001)}
        spent = simulated.seconds(24 * 0.2)
        retrain = entry(0.9, None, 24, opened=fresh, bytes_per_peer=48_000_000, seconds=spent)
        ours = entry(0.9, None, 8, seconds=simulated.seconds(8 * 0.2 + 16 * estimated))
        one = cell(retrain=retrain, pdlrecover=ours)
        sizes = {"peers": peers, "malicious": peers // 5, "model": model, "rounds": 24}
        return replace(one, config=replace(one.config, **sizes, preparation=4, final=2))

    records = [record(50, "mlp", 0.02), record(200, "mlp-12", 0.1)]
    document = REPRODUCTIONS["scaling"].document(FULL, Results(records))
    assert document.tables[0].rows == [
        [50, 1000, 200.0, 20.0, 0.1, 2.0],
        [200, 1000, 200.0, 100.0, 0.5, 2.0],
    ]
    assert "takes 0.10 to 0.50 of the time" in document.summary[0]
    by_peers, by_size = document.figures
    exact, estimated = by_peers.series
    assert (exact.x, exact.y) == ([50], [pytest.approx(200)])
    assert (estimated.x, estimated.y) == ([50], [pytest.approx(20)])
    assert [s.x for s in by_size.series] == [[1000], [1000]]


def test_variants_are_kept_that_hold_in_every_cell_of_the_tuning():
    def record(config, missing):
        good, bad = (entry(a, 0.0, 25) for a in (0.9, 0.8))
        methods = {m: bad if m in missing else good for m in config.methods if m != "retrain"}
        return replace(cell(config.seed, **methods), config=config)

    cells = REPRODUCTIONS["tuning"].cells(FULL)
    assert all(c.validation for c in cells)
    first = cells[0].methods[1]
    records = [record(c, (first,) if c.dataset == "har" else ()) for c in cells]
    document = REPRODUCTIONS["tuning"].document(FULL, Results(records))
    for original, (_, variants) in FOUND.items():
        kept = [variant for variant in variants if original != "Adam" or variant != first]
        (said,) = (each for each in document.summary if each.startswith(f"After {original} "))
        assert said.startswith(f"After {original} {len(kept)} of {len(variants)} variants")
        assert said.endswith(f": {', '.join(kept)}.")


def test_modelled_time_counts_exact_rounds_and_openings_of_vectors():
    counts = {"directions": 10, "dot products": 99}
    opened = {kind: simulated.openings(count) for kind, count in counts.items()}
    one = simulated.entry(0.9, gradient_evaluations=40, opened=opened)
    assert modelled_seconds(one, peers=8) == pytest.approx(0.3 + 0.15 + 0.01)


def test_means_and_spreads_are_over_the_records_that_have_a_value():
    records = [
        simulated.result({"auto": simulated.entry(0.9, v)}, seed=s)
        for s, v in enumerate((0.2, 0.4, None))
    ]
    mean = Results(records).mean("auto", "attack_success")
    assert (mean.value, mean.count) == (pytest.approx(0.3), 2)
    assert mean.spread == pytest.approx(0.1414, abs=1e-3)
    assert mean.percent() == "30.0 ± 14.1"
    assert Results(records).mean("retrain", "accuracy") is None
    assert len(Results(records).where(seed=1)) == 1


def test_the_papers_text_stands_beside_the_counts():
    assert paper.by_count("har", "pdlrecover", 30, left=False) == 0.92
    assert paper.by_count("mnist", "poisoned", 60, left=False) == 0.24
    assert paper.by_count("mnist", "poisoned", 50, left=False) is None
    assert paper.by_count("mnist", "historical", 50, left=True) == 0.75
    assert paper.by_count("digits", "historical", 50, left=True) is None


def test_a_curve_that_is_not_recorded_is_kept_if_it_ends_where_the_runs_do():
    one = REPRODUCTIONS["figure-leaver-curves"]
    cells = one.cells(QUICK)

    def results(**changes):
        methods = {name: simulated.entry(0.9) for name in ("poisoned", *cells[0].methods)}
        return Results(
            Result(config=cell, seed=cell.seed, methods={**methods, **changes}) for cell in cells
        )

    def shown(document):
        return [series.name for figure in document.figures for series in figure.series]

    without = Curve(round=[], accuracy=[], attack_success=[])
    same, other = (replace(simulated.entry(reached), curve=without) for reached in (0.9, 0.91))
    whole = one.document(QUICK, results())
    assert one.document(QUICK, results(auto=same), whole) == whole
    lost = one.document(QUICK, results(auto=other), whole)
    assert [name for name in shown(whole) if name not in shown(lost)] == ["auto"]
    assert lost.summary[-1] == "Numbers, but no curves are recorded of auto."
    assert shown(one.document(QUICK, results(auto=same))) == shown(lost)


def test_one_peers_time_has_its_own_gradients_and_all_of_the_rest():
    def spent(gradient, dealing, opening, estimation):
        parts = dict(zip(PARTS, (gradient, dealing, opening, estimation), strict=True))
        return Seconds(**parts, total=sum(parts.values()), processor=sum(parts.values()))

    retrain = entry(0.9, 0.0, 1000, seconds=spent(160.0, 14.0, 5.0, 0.0))
    ours = entry(0.9, 0.0, 100, seconds=spent(16.0, 1.0, 4.0, 4.9))
    clear = cell(optimizer="sgd", retrain=retrain, pdlrecover=ours)
    shared = replace(clear, config=replace(clear.config, clear=False))
    document = REPRODUCTIONS["table-1"].document(FULL, Results([clear, shared]))
    first, second = document.tables[0].by_key()
    assert (second["retrain_peer_seconds"], second["pdlrecover_peer_seconds"]) == (20.0, 10.0)
    assert second["peer_ratio"] == 0.5
    assert second["ratio"] == first["ratio"] == round(25.9 / 179, 3)
    assert first["peer_ratio"] is None, "in the clear nothing is dealt or opened"
    assert document.summary[0].startswith("For one peer PDLRecover on shares takes 0.50 to 0.50")


def test_a_mean_curve_ends_where_all_its_runs_do():
    short = Curve(round=[1, 3, 4], accuracy=[0.1, 0.5, 0.6], attack_success=[None] * 3)
    long = Curve(round=[1, 3, 5], accuracy=[0.3, 0.7, 0.8], attack_success=[None] * 3)
    runs = [
        simulated.result(
            {"crab": replace(simulated.entry(0.9), curve=curve)}, seed=seed, clear=True
        )
        for seed, curve in enumerate((short, long))
    ]
    found = Results(runs).curve("crab")
    assert found.x == [1, 3, 5]
    assert found.y == pytest.approx([20, 60, 70])


@pytest.mark.parametrize(("backdoor", "good"), [(0.059, True), (0.09, False)])
def test_fedrecover_is_judged_by_how_near_it_comes_to_retraining(backdoor, good):
    """Where retraining itself leaves a backdoor of 5.8%, 5.9% is no fault of FedRecover's."""
    methods = {
        "poisoned": simulated.entry(0.9, 0.995, exact=40),
        "retrain": simulated.entry(0.905, 0.058, exact=40),
        "fedrecover": simulated.entry(0.9, backdoor, exact=5),
    }
    (said,) = _fedrecover("mnist", Results([simulated.result(methods, clear=True)]))
    assert ("FedRecover does what" in said) == good
