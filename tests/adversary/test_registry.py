import pytest

from pdlrecover.adversary import (
    ATTACKS,
    BadUnlearn,
    LittleIsEnough,
    MinMax,
    PartialTrim,
    SignFlip,
    Trim,
    build,
    strength_of,
)
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset


def test_strengths_reach_the_attack(digits: Dataset) -> None:
    assert build("trim", digits, factor=1.5) == Trim(factor=1.5)
    assert build("trim-partial", digits, deviations=1.0) == PartialTrim(deviations=1.0)
    assert build("lie", digits, z=1.5) == LittleIsEnough(z=1.5)
    assert build("min-max", digits, direction="sign") == MinMax(direction="sign")
    assert build("bad-unlearn", digits, factor=3.0) == BadUnlearn(then=Trim(factor=3.0))
    by_name = build("bad-unlearn:sign-flip", digits, scale=5.0)
    assert by_name == BadUnlearn(then=SignFlip(scale=5.0))
    assert by_name == build("bad-unlearn", digits, then="sign-flip", scale=5.0)


@pytest.mark.parametrize("name", [*ATTACKS, "bad-unlearn:noise", "bad-unlearn:none"])
def test_the_named_strength_is_an_argument_of_the_attack(digits: Dataset, name: str) -> None:
    strength = strength_of(name)
    if strength is None:
        assert ATTACKS[name.removeprefix("bad-unlearn:")].strength is None
    else:
        assert build(name, digits, **{strength: 2.5}) != build(name, digits, **{strength: 3.5})


def test_unknown_names_and_strengths_are_refused_with_what_is_known(digits: Dataset) -> None:
    for name in ("krum", "trim:lie", "bad-unlearn:", "bad-unlearn:krum"):
        with pytest.raises(AttackError, match=f"'{name}'; known are backdoor, dba, label-flip"):
            build(name, digits)
        with pytest.raises(AttackError, match="known are backdoor"):
            strength_of(name)
    with pytest.raises(AttackError, match="label-flip has no scale; it takes no arguments"):
        build("label-flip", digits, scale=2.0)
    with pytest.raises(AttackError, match="noise has no scale; it takes std"):
        build("noise", digits, scale=2.0)
    with pytest.raises(AttackError, match="attack lie has no scale; it takes z"):
        build("bad-unlearn:lie", digits, scale=2.0)
    with pytest.raises(AttackError, match="waits for the recovery once"):
        build("bad-unlearn:bad-unlearn", digits)
    with pytest.raises(AttackError, match="one of std, unit, sign, got 'left'"):
        build("min-max", digits, direction="left")
    for name in ("backdoor", "dba"):
        with pytest.raises(AttackError, match="class of digits, 0 to 9, got 10"):
            build(name, digits, target=10)
