"""What the page and the terminal say of a simulation's results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import POISONED, entry, only, openings, result

from pdlrecover.experiments.analysis.promises import holds
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.result import read_result
from pdlrecover.experiments.report.html import render
from pdlrecover.experiments.report.simulation_document import documents_from_result

RESULTS = Path(__file__).parents[3] / "results" / "backdoor"


def columns(document):
    """Return the columns of a document's table by their keys."""
    table = document.tables[0]
    return dict(zip(table.keys, map(list, zip(*table.rows, strict=True)), strict=True))


def test_the_summary_says_what_the_numbers_say():
    document = only(documents_from_result(result(POISONED)))
    assert (
        "PDLRecover reached 90.4% against 90.5% of retraining, with 10 of 40 exact rounds; the "
        "backdoor fell from 99.5% to 1.4%." in document.summary
    )
    assert [fact.value for fact in document.facts] == ["90.4%", "1.4%", "10", "0"]
    assert "nobody’s own update was seen" in document.summary[-1]
    assert "each peer sent 10.0 MB against 40.0 MB" in document.summary[2]


def test_where_nothing_was_shared_nothing_is_said_to_be_sent_or_opened():
    seen = {"individual": openings(320, of="one peer")}
    for methods, told in [
        (POISONED, "on shares only sums over many peers would be opened"),
        ({**POISONED, "crab": entry(0.9, 0.01, opened=seen)}, "were looked at by crab (320)"),
    ]:
        document = only(documents_from_result(result(methods, clear=True)))
        said = " ".join(document.summary)
        assert "on shares each peer would send 10.0 MB against 40.0 MB" in said
        assert "Nothing was shared (--clear), so this run hid nothing" in said
        assert told in said
        assert not any(claim in said for claim in ("Only sums", "sent ", "were opened"))
        assert not any("updates seen" in fact.label for fact in document.facts)
        page = render([document])
        assert "Who would see what" in page
        assert "Everything that was opened" not in page
        assert "MB each peer would send" in document.comparison.headings
    assert "MB each peer sent" in only(documents_from_result(result(POISONED))).comparison.headings


def test_nothing_is_said_to_be_repaired_where_nothing_was_recovered():
    document = only(documents_from_result(result({"poisoned": POISONED["poisoned"]})))
    assert document.title == "Training on digits: 2 of 10 peers attacked (backdoor)"
    assert document.summary[0].endswith("rounds; 2 of them planted a backdoor.")
    assert document.key == 0
    assert not document.facts
    alone = {name: POISONED[name] for name in ("poisoned", "retrain")}
    said = only(documents_from_result(result(alone))).summary
    assert said[1] == "Retraining reached 90.5%, and no other recovery was run."


def test_where_all_diverged_that_is_the_headline():
    wild = {name: replace(each, held_out_loss=1e9) for name, each in POISONED.items()}
    document = only(documents_from_result(result(wild)))
    assert document.title.startswith("Diverged: recovery on digits")
    assert document.summary[document.key].startswith("Training and recovery diverged: ")
    assert "reached" not in " ".join(document.summary)
    assert not document.facts
    fine = {**wild, "poisoned": POISONED["poisoned"], "retrain": POISONED["retrain"]}
    document = only(documents_from_result(result(fine)))
    assert document.summary[1] == "retraining reached 90.5%; all others diverged."


def test_the_headline_is_about_the_best_and_not_about_ours():
    methods = {**POISONED, "auto": entry(0.96, 0.01, exact=5)}
    document = only(documents_from_result(result(methods)))
    assert document.summary[document.key] == (
        "auto reached 96.0% against 90.5% of retraining, with 5 of 40 exact rounds; the backdoor "
        "fell from 99.5% to 1.0%. It is the best of 2 recoveries."
    )
    assert document.facts[0].label == "accuracy after auto"
    assert "PDLRecover, the paper’s method, reached 90.4% with 10 exact rounds." in document.summary
    worse = {**POISONED, "pdlrecover": entry(0.8, 0.01)}
    (said,) = [s for s in only(documents_from_result(result(worse))).summary if "reached" in s]
    assert said.endswith("It does not keep what is promised.")


def test_who_did_exactly_as_well_shares_the_first_place():
    same = {name: entry(0.96, 0.01, exact=5) for name in ("auto", "accelerated-retrain")}
    (said,) = [
        sentence
        for sentence in only(documents_from_result(result({**POISONED, **same}))).summary
        if "the best of" in sentence
    ]
    first, _, rest = said.partition(" ")
    (other,) = same.keys() - {first}
    assert rest.endswith(f"It is, with {other}, the best of 3 recoveries.")


def test_nothing_is_called_poisoned_where_nobody_attacked():
    methods = {name: entry(each.accuracy) for name, each in POISONED.items()}
    document = only(documents_from_result(result(methods, malicious=0)))
    assert document.summary[0].endswith(
        "nobody was removed, and 2 recoveries were run all the same, with all 10 peers."
    )
    for table in (document.comparison, *document.tables):
        assert {row["method"] for row in table.by_key()} == {"trained", "retrain", "pdlrecover"}
    assert "poisoned" not in json.dumps(document.record())
    assert document.figures[0].series[0].name == "trained"
    assert document.comparison.title == "Methods against retraining, best first"
    alone = {name: methods[name] for name in ("poisoned", "pdlrecover")}
    document = only(documents_from_result(result(alone, malicious=0)))
    assert document.comparison.title == "Methods, best first"
    for attacked in ({"malicious": 2}, {"malicious": 0, "undetected": 1}):
        document = only(documents_from_result(result(methods, **attacked)))
        assert document.figures[0].series[0].name == "poisoned"


def test_the_committed_record_is_summed_up():
    record = read_result(json.loads((RESULTS / "mnist-clear-0.json").read_text()))
    document = only(documents_from_result(record))
    ours = record.methods["pdlrecover"].accuracy
    first = max(
        (n for n in record.methods if n != "fine-tune-k"), key=lambda n: record.methods[n].accuracy
    )
    assert document.summary[document.key].startswith(f"{first} reached")
    told = f"the paper’s method, reached {100 * ours:.1f}% with 81 exact rounds"
    assert any(told in sentence for sentence in document.summary)
    assert any("stayed after fine-tune-k (99.1%)" in sentence for sentence in document.summary)
    assert [len(figure.series) for figure in document.figures] == [8, 8]
    (ours,) = [row for row in document.tables[0].by_key() if row["method"] == "pdlrecover"]
    kept = record.methods["pdlrecover"]
    assert ours["accuracy"] == pytest.approx(100 * kept.accuracy)
    assert (ours["exact_rounds"], ours["gradient_evaluations"]) == (81, 81 * 160)
    assert ours["megabytes"] == pytest.approx(kept.bytes_per_peer / 1e6)
    assert document.ledger["pdlrecover"] == kept.opened


def test_who_did_better_and_who_saw_single_updates_is_said():
    seen = {"individual": openings(320, of="one peer")}
    rivals = {
        "auto": entry(0.96, 0.01, exact=1),
        "historical": entry(0.97, 0.9),
        "retrain-k": entry(0.5, 0.1, opened=seen),
    }
    told = " ".join(only(documents_from_result(result({**POISONED, **rivals}))).summary)
    assert "More accurate than the paper’s method: auto (96.0% with 1 exact round)." in told
    assert "The backdoor stayed after historical (90.0%)." in told
    assert "Single peers’ updates were opened by retrain-k (320)" in told


def test_without_a_backdoor_there_is_no_word_of_one():
    methods = {name: entry(each.accuracy) for name, each in POISONED.items()}
    document = only(documents_from_result(result(methods, malicious=0, leavers=3)))
    assert [figure.title for figure in document.figures] == ["Accuracy"]
    assert "backdoor" not in render([document]).split("<script")[0]
    assert any("the original model had 90.0%" in sentence for sentence in document.summary)


@pytest.mark.parametrize(
    ("settings", "title", "told"),
    [
        (
            {"leavers": 3, "undetected": 3, "attack": "bad-unlearn"},
            "3 of 10 peers left, 3 attackers stayed undetected (bad-unlearn)",
            "3 of them left, 3 of those who stayed attacked (bad-unlearn) and went undetected, and "
            "the 7 kept peers tried 2 ways to recover.",
        ),
        (
            {"leavers": 3},
            "3 of 10 peers left",
            "3 of them left, and the 7 kept peers tried 2 ways to recover.",
        ),
        (
            {"undetected": 1, "attack": "sign-flip"},
            "nobody was removed, 1 attacker stayed undetected (sign-flip)",
            "nobody was removed, 1 of those who stayed attacked (sign-flip) and went undetected, "
            "and 2 recoveries were run all the same, with all 10 peers.",
        ),
        (
            {"malicious": 2, "undetected": 1, "accused": 1},
            "2 of 10 peers attacked (backdoor), 1 more stayed undetected",
            "2 of them planted a backdoor, 1 more stayed undetected, 1 honest one was removed by "
            "mistake, and the 7 kept peers tried 2 ways to recover.",
        ),
    ],
)
def test_who_attacked_and_stayed_is_said(settings, title, told):
    record = result(POISONED, **{"malicious": 0, **settings})
    document = only(documents_from_result(record))
    assert document.title == f"Recovery on digits: {title}"
    assert document.summary[0].endswith(f"rounds; {told}")


def test_a_method_that_diverged_is_said_to_have():
    wild = {**POISONED, "delta-grad": entry(0.1, 0.0, diverged="the update in row 3 is not finite")}
    document = only(documents_from_result(result(wild)))
    assert document.summary[-1] == (
        "delta-grad diverged, and its numbers are of the last model it had come to: the update in "
        "row 3 is not finite."
    )
    assert columns(document)["diverged"] == [None, None, None, "yes"]
    both = {**wild, "delta-grad": entry(0.9, 0.0)}
    document = only(documents_from_result(result(both), result(wild, seed=1)))
    assert document.summary[-1].startswith("delta-grad diverged with seed 1, and")
    assert document.tables[0].rows[-1][-1] == "1 of 2 seeds"
    assert "diverged" not in render(documents_from_result(result(POISONED))).split("<script")[0]


def test_a_single_leaver_is_warned_of():
    record = result(POISONED, malicious=0, leavers=1, accept_differencing=True)
    assert any(
        "differs by its own updates" in s for s in only(documents_from_result(record)).summary
    )


def leaving(seed, original, ours):
    """Return a run whose original and recovered models know removed data this much better."""
    known = {"poisoned": original, "retrain": 0.0, "pdlrecover": ours}
    methods = {name: entry(0.9, excess=value, excess_error=0.01) for name, value in known.items()}
    return result(methods, malicious=0, leavers=2, seed=seed)


def test_what_is_remembered_is_averaged_as_differences_not_as_ratios():
    runs = [leaving(0, 0.10, 0.01), leaving(1, 0.03, 0.03)]
    page = columns(only(documents_from_result(*runs)))
    share = Results(runs).remembered("pdlrecover")
    assert share.value == pytest.approx(0.04 / 0.13)
    assert page["remembered"] == ["1.00 ± 0.00", "0.00 ± 0.15", str(share)]
    assert columns(only(documents_from_result(runs[0])))["remembered"][0] == "1.00 ± 0.00"
    assert "remembered" not in columns(only(documents_from_result(leaving(0, 0.01, 0.01))))
    assert "remembered" not in columns(only(documents_from_result(result(POISONED))))


def test_the_backdoor_stands_beside_that_of_retraining():
    runs = result(POISONED), result({**POISONED, "pdlrecover": entry(0.9, 0.034)}, seed=1)
    page = columns(only(documents_from_result(*runs)))
    assert page["attack_success_above_retrain"] == pytest.approx([98.2, 0.0, 1.1])
    assert page["attack_success_above_retrain_spread"][2] == pytest.approx(2**0.5)
    alone = {name: each for name, each in POISONED.items() if name != "retrain"}
    for record in (leaving(0, 0.1, 0.1), result(alone)):
        assert not any("above" in key for key in columns(only(documents_from_result(record))))


def test_a_backdoor_stays_only_above_that_of_retraining():
    methods = {
        "poisoned": entry(0.9, 0.99),
        "retrain": entry(0.9, 0.58),
        "pdlrecover": entry(0.9, 0.4),
        "accelerated-retrain": entry(0.95, 0.55),
        "fine-tune-k": entry(0.95, 0.8),
    }
    told = " ".join(only(documents_from_result(result(methods))).summary)
    assert "The backdoor stayed after fine-tune-k (80.0%)." in told
    del methods["retrain"]
    told = " ".join(only(documents_from_result(result(methods))).summary)
    assert "stayed after accelerated-retrain (55.0%) and fine-tune-k (80.0%)." in told
    weak = {"poisoned": 0.03, "retrain": 0.01, "pdlrecover": 0.01, "historical": 0.028}
    weak = {name: entry(0.9, success) for name, success in weak.items()}
    assert "stayed" not in " ".join(only(documents_from_result(result(weak))).summary)


def test_exact_rounds_are_the_work_of_the_kept_peers():
    methods = {**POISONED, "crab": entry(0.96, 0.01, exact=0, gradient_evaluations=8 * 16)}
    methods["poisoned"] = entry(0.9, 0.995, gradient_evaluations=10 * 40)
    record = result(methods, clear=True)
    document = only(documents_from_result(record))
    assert any("crab (96.0% with 16 exact rounds)" in sentence for sentence in document.summary)
    assert columns(document)["exact_rounds"] == [40, 40, 10, 16]
    (crab,) = [row for row in document.comparison.by_key() if row["method"] == "crab"]
    assert (crab["exact_rounds"], crab["gradients"]) == (16, 16)


def test_the_seconds_of_a_run_that_was_resumed_are_not_told():
    parts = {**POISONED, "poisoned": entry(0.9, 0.995, exact=40, rounds_from_history=30)}
    whole = {**POISONED, "poisoned": entry(0.9, 0.995, exact=40, rounds_from_history=0)}
    for methods, page in [(parts, None), (whole, 20.0)]:
        document = only(documents_from_result(result(methods)))
        assert columns(document)["seconds"] == [page, 20.0, 5.0]
        (original,) = [r for r in document.comparison.by_key() if r["method"] == "poisoned"]
        assert (original["seconds"] is None) is (page is None)
    both = only(documents_from_result(result(parts), result(whole, seed=1)))
    assert columns(both)["seconds"][0] is None


@pytest.mark.parametrize("loss", [None, float("inf"), 1.9e9])
def test_a_model_whose_loss_is_absurd_has_diverged(loss):
    wild = {**POISONED, "delta-grad": entry(0.17, 0.0, held_out_loss=loss, removed_loss=loss)}
    document = only(documents_from_result(result(wild)))
    assert document.summary[-1].startswith("delta-grad diverged, and")
    assert "its loss on the test data is" in document.summary[-1]
    if loss == 1.9e9:
        assert document.summary[-1].endswith(" is 1.9e9 nats.")
    assert columns(document)["diverged"] == [None, None, None, "yes"]
    runs = Results([result(wild), result(POISONED, seed=1)])
    assert runs.accuracy("delta-grad") == "17.0 (diverged in 1 of 2)"
    assert holds(Results([result(wild)]), "delta-grad", 1000, left=False) is False


@pytest.mark.parametrize(
    ("name", "loss", "settings"),
    [
        ("delta-grad", 99.0, {}),
        ("delta-grad", None, {"malicious": 0, "undetected": 2}),
        ("fedrecovery-noise", 4e4, {}),
        ("certified-removal:noise=1", 4e4, {}),
    ],
)
def test_a_loss_that_says_nothing_is_no_divergence(name, loss, settings):
    methods = {**POISONED, name: entry(0.17, 0.0, held_out_loss=loss, removed_loss=loss)}
    record = result(POISONED, **settings)
    assert Results([replace(record, methods=methods)]).diverged(name) == [None]


def test_seeds_are_put_together_with_their_spread():
    other = {**POISONED, "pdlrecover": entry(0.884, 0.034, exact=12)}
    first, second = result(POISONED), result(other, seed=1)
    document = only(documents_from_result(first, second))
    line = next(s for s in document.figures[0].series if s.name == "pdlrecover")
    assert line.y[-1] == pytest.approx(89.4)
    assert line.spread[-1] == pytest.approx(2**0.5)
    assert any(
        s.startswith("On average over 2 seeds, PDLRecover reached 89.4%") for s in document.summary
    )
    assert document.ledger["pdlrecover"]["fresh sums"].openings == 11
    assert len(documents_from_result(first, first)) == 2
    assert len(documents_from_result(first, result(other, rounds=41))) == 2


def test_methods_that_are_not_done_are_named():
    record = result(dict(POISONED))
    del record.methods["pdlrecover"]
    document = only(documents_from_result(record))
    assert document.summary[-1] == "Not finished: pdlrecover."
    assert not document.facts


def test_a_lone_leaver_is_warned_of_only_where_a_method_does_not_start_afresh():
    def cautions(**config):
        one = result({**POISONED, "auto": entry(0.9)}, leavers=1, malicious=0, **config)
        return [line for line in only(documents_from_result(one)).summary if "can be comp" in line]

    (said,) = cautions(accept_differencing=True)
    assert "without it by retrain, pdlrecover and auto, differs" in said
    (said,) = cautions(fresh_start=True)
    assert "without it by retrain and pdlrecover, differs" in said


def test_the_sum_of_a_single_removed_peer_is_told_as_its_own():
    opened = {"removed sums": openings(40, of="one peer")}
    record = result({**POISONED, "fedrecovery": entry(0.9, 0.01, opened=opened)}, malicious=1)
    told = " ".join(only(documents_from_result(record)).summary)
    assert "Single peers’ updates were opened by fedrecovery (40)" in told
    assert "nobody’s own update was seen" not in told


def test_more_exact_rounds_than_the_training_had_are_no_share_of_them():
    longer = result({**POISONED, "auto": entry(0.96, 0.01, exact=60)})
    page = only(documents_from_result(longer))
    assert any("with 60 exact rounds; the backdoor" in sentence for sentence in page.summary)
    facts = {fact.label: (fact.value, fact.note) for fact in page.facts}
    assert facts["exact rounds"] == ("60", "the training had 40")
    assert facts["single peers’ updates seen"] == ("0", "only sums were opened")
