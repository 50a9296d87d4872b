from pdlrecover.experiments.report.palette import DASHES, HUES, KNOWN, PLACES, looks
from pdlrecover.recovery.methods import METHODS


def test_every_method_has_a_look_of_its_own_in_every_figure():
    assert set(METHODS) | {"poisoned", "trained"} == set(KNOWN) | set(PLACES)
    together = looks(["poisoned", "trained", *METHODS])
    assert len({(look.colour, look.dash) for look in together.values()}) == len(together)
    for name in METHODS:
        assert looks(["somebody", name])[name] == together[name]


def test_a_variant_looks_like_its_method_unless_that_is_there():
    auto = looks(["auto"])["auto"]
    assert looks(["auto:period=9"])["auto:period=9"] == auto
    both = looks(["auto:period=9", "auto", "auto:period=8"])
    assert both["auto"] == auto
    assert len({(look.colour, look.dash) for look in both.values()}) == 3


def test_as_many_series_as_hues_times_dashes_all_differ():
    count = len(HUES) * len(DASHES)
    made = looks(f"s{i}" for i in range(count)).values()
    assert len({(look.colour, look.dash) for look in made}) == count
    assert len({(look.colour, look.shape) for look in made}) == count
