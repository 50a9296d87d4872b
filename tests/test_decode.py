import json
from dataclasses import asdict, dataclass, field
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.decode import decode, parse_toml, toml_table
from pdlrecover.errors import MembershipError, PlanError, RangeError


@dataclass(frozen=True, kw_only=True)
class Training:
    rounds: int
    rate: float = 0.1
    batch_size: int | None = None
    shape: tuple[int, ...] = ()
    optimizer: Literal["sgd", "adam"] = "sgd"
    quick: bool = False

    def __post_init__(self):
        if self.rounds < 1:
            raise PlanError(f"training.rounds must be at least 1, got {self.rounds}")
        if self.rate <= 0:
            raise RangeError(f"a rate must be above 0, got {self.rate}")


@dataclass(frozen=True, kw_only=True)
class File:
    name: str
    training: Training
    other: Training | None = None
    peers: dict[str, Training] = field(default_factory=dict)
    rows: list[list[str | float | int | None]] = field(default_factory=list)


PLAIN = {"name": "x", "training": {"rounds": 3}}


def test_values_become_dataclasses_of_the_right_types():
    read = decode(
        File,
        {
            **PLAIN,
            "other": {"rounds": 1, "rate": 2, "batch-size": 8, "shape": [1, 2]},
            "peers": {"a-b": {"rounds": 2}},
            "rows": [["a", 1, 2.0, None]],
        },
        PlanError,
    )
    other = Training(rounds=1, rate=2.0, batch_size=8, shape=(1, 2))
    assert read == File(
        name="x",
        training=Training(rounds=3),
        other=other,
        peers={"a-b": Training(rounds=2)},
        rows=[["a", 1, 2.0, None]],
    )
    assert type(read.other.rate) is float
    assert [type(cell) for cell in read.rows[0]] == [str, int, float, type(None)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (3, "it must be a table of keys and values, got 3"),
        ({"training": {"rounds": 3}}, "name is missing"),
        ({**PLAIN, "training": 3}, "training must be a table of keys and values, got 3"),
        ({**PLAIN, "training": {}}, "training.rounds is missing"),
        ({**PLAIN, "trainings": {}}, "unknown key 'trainings'; did you mean 'training'?"),
        (
            {**PLAIN, "training": {"zzz": 1}},
            "unknown key 'zzz' in training; known are rounds, rate, batch_size, shape, optimizer, "
            "quick",
        ),
        (
            {**PLAIN, "other": {"rounds": 1, "rates": 1}},
            "unknown key 'rates' in other; did you mean 'rate'?",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "batch-size": 1, "batch_size": 1}},
            "training.batch_size is there twice, with - and with _",
        ),
        (
            {**PLAIN, "training": {"rounds": 1.0}},
            "training.rounds must be a whole number, got 1.0",
        ),
        (
            {**PLAIN, "training": {"rounds": True}},
            "training.rounds must be a whole number, got True",
        ),
        (
            {**PLAIN, "training": {"rounds": "3"}},
            "training.rounds must be a whole number, got '3'",
        ),
        (
            {**PLAIN, "training": {"rounds": 1 << 63}},
            "training.rounds must be a whole number below 2^63, got 9223372036854775808",
        ),
        (
            {**PLAIN, "training": {"rounds": 16**5000}},
            "training.rounds must be a whole number below 2^63, got a number that is too long",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "batch_size": "a"}},
            "training.batch_size must be a whole number or left out, got 'a'",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "shape": [1, "a"]}},
            "training.shape[1] must be a whole number, got 'a'",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "shape": 3}},
            "training.shape must be a list of whole numbers, got 3",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "optimizer": "lbfgs"}},
            "training.optimizer must be one of 'sgd', 'adam', got 'lbfgs'",
        ),
        (
            {**PLAIN, "training": {"rounds": 1, "quick": 0}},
            "training.quick must be true or false, got 0",
        ),
        (
            {**PLAIN, "peers": {"a-b": {"rounds": 1}, "c d": {"rounds": "x"}}},
            "peers.\"c d\".rounds must be a whole number, got 'x'",
        ),
        (
            {**PLAIN, "rows": [[1], ["a", True]]},
            "rows[1][1] must be a text or a number or null, got True",
        ),
        ({**PLAIN, "name": "x" * 5, "rows": "y" * 999}, f"rows must be a list, got '{'y' * 79}"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(values, message):
    with pytest.raises(PlanError) as caught:
        decode(File, values, PlanError)
    assert str(caught.value) == message


def test_what_a_dataclass_refuses_is_said_once_and_as_the_callers_error():
    with pytest.raises(PlanError) as caught:
        decode(File, {**PLAIN, "training": {"rounds": 0}}, PlanError)
    assert str(caught.value) == "training.rounds must be at least 1, got 0"
    with pytest.raises(MembershipError) as caught:
        decode(File, {**PLAIN, "peers": {"ash": {"rounds": 1, "rate": 0}}}, MembershipError)
    assert str(caught.value) == "peers.ash: a rate must be above 0, got 0.0"
    with pytest.raises(MembershipError, match=r"^a rate must be above 0"):
        decode(Training, {"rounds": 1, "rate": 0}, MembershipError)


def test_places_begin_where_the_caller_says():
    with pytest.raises(PlanError, match=r"^recovery\.rounds must be a whole number, got None$"):
        decode(Training, {"rounds": None}, PlanError, where="recovery")
    with pytest.raises(PlanError, match=r"^recovery must be a table of keys and values, got 1$"):
        decode(Training, 1, PlanError, where="recovery")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    values=st.dictionaries(
        st.sampled_from(["name", "training", "other", "peers", "rows", "row"]), values
    )
)
def test_anything_is_read_or_refused(values):
    try:
        read = decode(File, values, PlanError)
    except PlanError:
        return
    assert decode(File, json.loads(json.dumps(asdict(read))), PlanError) == read


@given(
    rounds=st.integers(1, (1 << 63) - 1),
    rate=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    size=st.none() | st.integers(0, 9),
    shape=st.lists(st.integers(0, 9)),
    quick=st.booleans(),
)
def test_a_table_is_read_as_it_was_written(rounds, rate, size, shape, quick):
    table = Training(rounds=rounds, rate=rate, batch_size=size, shape=tuple(shape), quick=quick)
    text = "\n".join(toml_table("training", table))
    read = decode(Training, parse_toml(text, PlanError)["training"], PlanError)
    assert read == table


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "a = " + "[" * 100_000])
def test_what_is_not_toml_is_said(text):
    with pytest.raises(PlanError, match="this is not TOML: "):
        parse_toml(text, PlanError)


def test_defaults_are_on_the_instance_as_if_it_had_been_called():
    read, called = decode(File, PLAIN, PlanError), File(name="x", training=Training(rounds=3))
    assert vars(read) == vars(called)
    assert vars(read.training) == vars(called.training)
    assert json.dumps(msgspec.to_builtins(read)) == json.dumps(msgspec.to_builtins(called))
