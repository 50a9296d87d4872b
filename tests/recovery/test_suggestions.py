from pdlrecover.recovery.suggestions import did_you_mean


def test_only_a_name_that_is_near_is_suggested():
    known = ("retrain", "historical", "auto")
    assert did_you_mean("retrian", known) == "did you mean retrain? "
    assert did_you_mean("magic", known) == ""
