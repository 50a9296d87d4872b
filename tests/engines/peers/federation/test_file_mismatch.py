"""Peers whose federation files differ tell each other which fields."""

import json
from dataclasses import replace

import pytest
from bodies import BODIES
from hospitals import HEART, NAMES, PEERS
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.engines.peers.federation.file_mismatch import AGAIN, Disagreement
from pdlrecover.engines.peers.identity.keyring import Keyring
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Send
from pdlrecover.engines.peers.protocol.messages import NOTHING, Position, Terms
from pdlrecover.engines.peers.protocol.run_context import RunContext

IDENTITIES = sorted(PEERS, key=lambda identity: identity.name)
OTHER = replace(HEART, training=replace(HEART.training, rounds=301))


def context(me, membership):
    return RunContext(
        me=me,
        peers=tuple(range(len(NAMES))),
        scheme=membership.scheme,
        crypto=Keyring.of_peer(IDENTITIES[me], membership.peers),
        federation=membership.digest,
        run=NOTHING,
    )


@pytest.fixture
def pair():
    """Return peer 0 with one file, and peer 1 with another."""
    return Disagreement(context(0, HEART), HEART), Disagreement(context(1, OTHER), OTHER)


def message(me=1, membership=OTHER, body=None):
    made = context(me, membership)
    place = made.place(0, NOTHING, NOTHING, 0)
    return made.send(place, body or Position(reply=False), 0).data


def test_both_learn_which_field_differs(pair):
    here, there = pair
    assert here.concerns(message())
    assert not there.concerns(message())
    (answer,) = here.receive(message(), 1, now=0.0)
    assert isinstance(answer, Send)
    back, note = there.receive(answer.data, 0, now=0.0)
    assert isinstance(note, Note)
    assert "training.rounds: 301 here, 300 there" in note.text
    assert note.text.startswith("peer 0 has another federation file")
    (heard,) = here.receive(back.data, 1, now=1.0)
    assert "training.rounds: 300 here, 301 there" in heard.text
    assert here.found == {1: ["training.rounds: 300 here, 301 there"]}


def test_it_is_not_said_again_and_again(pair):
    here, _ = pair
    assert here.receive(message(), 1, now=0.0)
    assert here.receive(message(), 1, now=AGAIN / 2) == []
    assert here.receive(message(), 1, now=AGAIN)
    assert len(here.receive(message(2), 2, now=AGAIN)) == 1


def test_forged_and_senseless_terms_are_blamed_on_their_bearer(pair):
    here, _ = pair
    here.receive(message(), 1, now=0.0)
    for bad, source in (
        (message(2), 1),
        (b"garbage" * 40, 1),
        (message(body=Terms(facts=b"[1]")), 1),
        (message()[:-1] + b"x", 1),
    ):
        (blame,) = [e for e in here.receive(bad, source, now=1.0) if isinstance(e, Blame)]
        assert blame.peer == source
    assert here.found == {}


@pytest.mark.parametrize("facts", [b"[" * 100_000, b"{", b"\xff"])
def test_garbage_in_terms_is_survived(pair, facts):
    (effect,) = [
        e
        for e in pair[0].receive(message(body=Terms(facts=facts)), 1, now=0.0)
        if not isinstance(e, Send)
    ]
    assert isinstance(effect, Blame)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
)
TERMS = st.builds(Terms, facts=JSON.map(lambda facts: json.dumps(facts).encode()))


@settings(deadline=None)
@given(body=BODIES, terms=TERMS)
def test_whatever_a_peer_signs_is_answered_and_raises_nothing(body, terms):
    for each in (body, terms):
        here = Disagreement(context(0, HEART), HEART)
        assert isinstance(here.receive(message(body=each), 1, now=0.0), list)


def test_what_is_nested_too_deeply_to_be_said_is_blamed_on_its_bearer(pair):
    kinds = set()
    for depth in (*range(700, 1000, 2), 20_000):  # newer versions of Python read deeper
        facts = b'{"x": ' + b"[" * depth + b"]" * depth + b"}"
        here = Disagreement(context(0, HEART), HEART)
        kinds |= {type(e) for e in here.receive(message(body=Terms(facts=facts)), 1, now=0.0)}
    assert kinds == {Send, Note, Blame}


def test_a_long_list_of_differences_is_cut(pair):
    facts = ("{" + ",".join(f'"x{i}": "{"y" * 500}"' for i in range(50)) + "}").encode()
    effects = pair[0].receive(message(body=Terms(facts=facts)), 1, now=0.0)
    assert max(len(text) for text in pair[0].found[1]) <= 200
    assert len(effects[-1].text) < 2500
    assert codec.peek_federation(message()) == OTHER.digest


def test_what_the_other_file_says_reaches_the_log_without_control_characters(pair):
    facts = json.dumps({"x\n12:00:00 elm lied": "\x1b[2J"}).encode()
    note = pair[0].receive(message(body=Terms(facts=facts)), 1, now=0.0)[-1]
    assert note.text.isprintable()
    assert all(text.isprintable() for text in pair[0].found[1])
