"""What people are shown of a model, a ledger and a federation."""

import pytest
import small

from pdlrecover.engines.sum_store import Faults


@pytest.fixture(scope="module")
def federation():
    return small.trained(rounds=12)


def test_a_recovered_model_says_what_it_took_in_a_few_lines(federation):
    found = federation.recover([0, 1], rounds=3)
    assert str(found).splitlines() == [
        "Recovered model",
        "  method        auto",
        "  removed       peers 0 and 1; 6 of 8 are kept",
        "  exact rounds  3, where the training had 12",
        "  opened        3 sums of new updates, each of 6 kept peers together; no update of a "
        "single peer",
    ]
    assert repr(found) == (
        "<TrainedModel: recovered by auto without peers 0 and 1, in 3 exact rounds>"
    )
    assert repr(found.ledger) == "<Ledger: 3 openings, 3 exact rounds>"


def test_every_method_is_described_and_none_at_length(federation):
    for method in small.PRIVATE:
        found = federation.recover([0, 1], method, reason="malicious", settings=small.SETTINGS)
        assert len(str(found)) < 1000
        assert len(repr(found)) < 200
        assert len(str(found.ledger)) < 1500
        assert f"method        {method}" in str(found)
        for shown in (found, found.ledger, federation):
            assert shown._repr_html_().startswith("<table>")


def test_what_was_not_shared_is_not_said_to_have_been_opened():
    clear = small.trained(rounds=12, clear=True)
    found = clear.recover([0, 1], rounds=3)
    assert "nothing was shared (clear=True); on shares, 3 sums of new updates" in str(found)
    assert "no update of a single peer" not in str(found)
    single = clear.recover([0, 1], "fedrecover")
    assert "of one peer" in str(single)
    assert "no update of a single peer" not in str(single)


def test_liars_are_named(federation):
    found = federation.recover([0, 1], rounds=3, faults=Faults(liars=(4,)))
    assert "wrong shares  from peers 4" in str(found)


def test_a_trained_model_says_so():
    model = small.federation(held_out=0.2).train(12, 0.3)
    assert "Trained model" in str(model)
    assert "exact rounds   12" in str(model)
    assert "held-out data  round 12: accuracy" in str(model)
    assert repr(model) == "<TrainedModel: trained by 8 peers in 12 rounds>"


def test_names_are_escaped_in_notebooks():
    from pdlrecover.engines.summary import Summary

    html = Summary(title="<b>", rows=(("<i>", "a & b"),)).html()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "a &amp; b" in html
