import base64
import dataclasses
import tomllib
from dataclasses import replace

import pytest
from hospitals import HEART, MEMBERS, NAMES, PEERS
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.engines.peers.federation.federation_file import (
    TABLES,
    load_federation,
    read_federation,
    write_federation,
)
from pdlrecover.engines.peers.federation.membership import Membership, differences
from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.federation.signatures import (
    add_signature,
    check_signatures,
    sign_federation,
)
from pdlrecover.engines.peers.identity.invitation import invite
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.errors import MembershipError
from pdlrecover.layers import Layer
from pdlrecover.recovery.optimizers import Adam, Muon
from pdlrecover.recovery.standardisation import Standardise

OTHER = Identity.generate("hospital-b")
TEXT = write_federation(HEART)


def changed(path, value, base=HEART):
    """Return the membership with one value changed."""
    table, _, name = path.rpartition(".")
    if not table:
        return replace(base, **{name: value})
    if not table.startswith("peers."):
        return replace(base, **{table: replace(getattr(base, table), **{name: value})})
    number = HEART.number(table.removeprefix("peers."))
    peers = list(HEART.peers)
    peers[number] = replace(peers[number], **{name: value})
    return replace(HEART, peers=tuple(peers))


# The file


def test_what_is_written_is_read():
    assert read_federation(TEXT) == HEART
    assert read_federation(TEXT).digest == HEART.digest
    assert tomllib.loads(TEXT)["peers"].keys() == set(NAMES)


def test_a_file_may_leave_out_what_has_a_default(tmp_path):
    small = replace(HEART, recovery=Recovery(), deadlines=Deadlines())
    text = write_federation(small)
    start, end = text.index("[recovery]"), text.index("[peers.")
    path = tmp_path / "federation.toml"
    path.write_text(text[:start] + text[end:].replace("batch_size", "batch-size"))
    assert load_federation(path) == small


@settings(max_examples=50)
@given(
    rounds=st.integers(50, 10**6),
    rate=st.floats(1e-12, 1e3),
    bound=st.floats(1e-3, 1e6),
    seed=st.integers(0, 2**63 - 1),
    shape=st.lists(st.integers(1, 1000), min_size=1, max_size=4),
    optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
    block=st.none() | st.integers(1, 9),
    open_pairs=st.none() | st.booleans(),
)
def test_every_plan_survives_the_file(
    rounds, rate, bound, seed, shape, optimizer, block, open_pairs
):
    plan = replace(
        HEART,
        model=Model(name="my.package:make_model", shape=tuple(shape), classes=3),
        training=Training(
            rounds=rounds,
            samples=9,
            learning_rate=rate,
            bound=bound,
            seed=seed,
            optimizer=optimizer,
        ),
        recovery=Recovery(block=block, open_pairs=open_pairs),
    )
    again = read_federation(write_federation(plan))
    assert again == plan
    assert again.digest == plan.digest


def test_a_federation_is_made_of_invitations():
    lines = [invite(p, f"{p.name}.example.org:7400") for p in PEERS]
    plan = {f.name: getattr(HEART, f.name) for f in dataclasses.fields(HEART) if f.name != "peers"}
    assert Membership.invited(lines, **plan) == HEART
    with pytest.raises(MembershipError, match="cut or mistyped"):
        Membership.invited([*lines[:-1], lines[-1][:-1]], **plan)


def test_peers_are_numbered_by_name():
    assert [p.name for p in HEART.peers] == sorted(NAMES)
    assert HEART.number("hospital-b") == 1
    with pytest.raises(MembershipError, match="no peer is called 'hospital-x'; there are hosp"):
        HEART.number("hospital-x")
    for identity in PEERS:
        number = HEART.number_of(identity)
        assert HEART.peers[number].name == identity.name
    with pytest.raises(MembershipError, match="knows another signing key of hospital-b"):
        HEART.number_of(OTHER)


def test_a_number_is_a_peer_if_there_are_so_many():
    assert HEART.number(1) == 1
    for wrong in (-1, len(HEART.peers)):
        with pytest.raises(MembershipError, match=f"got {wrong}"):
            HEART.number(wrong)


def test_the_plan_says_how_to_compute():
    assert HEART.scheme.quorums.packing == 1
    assert isinstance(HEART.training.steps(), Adam)
    assert HEART.recovery.options(1000).schedule.preparation == 25
    assert HEART.recovery.options(80).schedule.final == 10


@pytest.mark.parametrize(("said", "open_pairs"), [(None, True), (True, True), (False, False)])
def test_pairs_are_opened_unless_differencing_is_accepted_or_the_file_says_otherwise(
    said, open_pairs
):
    recovery = Recovery(open_pairs=said)
    again = Recovery.from_line(recovery.as_line())
    assert again.settings(HEART.training).options.open_pairs is open_pairs
    accepted = again.settings(HEART.training, accept_differencing=True)
    assert accepted.options.open_pairs is bool(said)


def test_a_removal_that_was_proposed_before_pairs_were_opened_by_default_keeps_them_shared():
    line = (
        '{"block": null, "buffer": 4, "final": null, "open_pairs": false, "period": 30, '
        '"preparation": null}'
    )
    settings = Recovery.from_line(line).settings(HEART.training)
    assert not settings.options.open_pairs


def test_training_by_muon_knows_the_layers_of_the_model():
    training = replace(HEART.training, optimizer="muon", learning_rate=0.04, rounds=50)
    layers = (Layer(start=0, rows=2, columns=3),)
    optimizer = training.steps(layers)
    assert isinstance(optimizer, Muon)
    assert (optimizer.layers, optimizer.rate.at(0), optimizer.rate.at(50)) == (layers, 0.04, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds = 300", "round = 300", "'round' in training; did you mean 'rounds'"),
        ("[training]", "[trainings]", "'trainings'; did you mean 'training'"),
        ("address =", "adress =", "'adress' in peers.hospital-a; did you mean 'address'"),
        ("colluders = 1", "colluders = 1\nzzz = 1", "'zzz' in tolerance; known are colluders"),
        ("rounds = 300", "", "training.rounds is missing"),
        ("[tolerance]", "[tolerance]\ncolluders = 1\n", "is not TOML"),
        ("format = 1", "format = 2", "must say format = 1, got 2"),
        ("format = 1", "", "no federation file: it must say format = 1; name the one"),
        ("format = 1", "format = true", "must say format = 1, got True"),
        ('name = "heart"', "", "name is missing"),
        ('name = "heart"', 'name = "Heart"', "lower-case letters"),
        ("rounds = 300", "rounds = 300.0", "training.rounds must be a whole number, got 300.0"),
        ("rounds = 300", "rounds = true", "training.rounds must be a whole number, got True"),
        ("rounds = 300", "rounds = 0x1" + "0" * 5000, "got a number that is too long"),
        ("rounds = 300", "rounds = 0", "training.rounds must be at least 1, got 0"),
        ("rounds = 300", "rounds = 3", "recovery: 2 preparation and 2 final rounds do not fit"),
        ("bound = 10.0", "bound = 1\nbatch-size = 32", "batch_size is there twice"),
        ("bound = 10.0", "bound = nan", "training.bound must be above 0"),
        ("bound = 10.0", "bound = '10'", "training.bound must be a number, got '10'"),
        ("learning_rate = 0.003", "learning_rate = inf", "training: learning_rate must be"),
        ('"adam"', '"adom"', "training: no optimizer is called 'adom'"),
        ("fraction_bits = 20", "fraction_bits = 60", "from 1 to 40"),
        ("seed = 0", "seed = -1", "training.seed must be at least 0"),
        (
            "# open_pairs =",
            "open_pairs = 0",
            "recovery.open_pairs must be true or false or left out, got 0",
        ),
        ("block = 3", "block = 0", "recovery: block must be at least 1"),
        ("min_removed = 2", "min_removed = 0", "recovery.min_removed must be at least 1"),
        ('fallback = "auto"', 'fallback = "pdlrecover"', "a method that starts afresh"),
        ('fallback = "auto"', 'fallback = "magic"', "recovery.fallback: no method is called"),
        ("stalled_after = 900.0", "stalled_after = 0.0", "recovery.stalled_after must be above 0"),
        ("dealing = 90", "dealing = 0", "deadlines.dealing must be above 0, got 0"),
        ('"mlp-32"', '"mlp-0"', "model.name must be logistic, mlp"),
        ('"mlp-32"', '"os.system(1)"', "model.name must be logistic, mlp"),
        ("shape = [8, 8]", "shape = [8, 0]", "model.shape needs numbers from 1 on"),
        ("shape = [8, 8]", "shape = 64", "model.shape must be a list of whole numbers, got 64"),
        ("classes = 10", "classes = 1", "model.classes must be at least 2"),
        ("colluders = 1", "colluders = 0", "tolerance.colluders must be at least 1"),
        ("colluders = 1", "colluders = 2", "5 peers cannot survive 2 colluders.* lower colluders"),
        ("dropouts = 1", "dropouts = -1", "tolerance: dropouts must be a whole number of at least"),
        ('signing = "', 'signing = "!', "peers.hospital-a.signing is not base64"),
        ("BEGIN CERTIFICATE", "BEGIN", "peers.hospital-a.certificate is not one certificate"),
        (".org:7400", ".org", "an address is host:port"),
        ("[peers.hospital-a]", "[peers.Hospital]", "lower-case letters"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, old, new, message):
    assert old in TEXT
    path = tmp_path / "federation.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(MembershipError, match=message) as caught:
        load_federation(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read_are_said(tmp_path):
    with pytest.raises(MembershipError, match="does not exist; name the federation file"):
        load_federation(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(MembershipError, match=r"bad\.toml is not a text file"):
        load_federation(tmp_path / "bad.toml")
    for table in (*TABLES, "peers"):
        with pytest.raises(MembershipError, match=rf"{table} must be a table|is missing"):
            read_federation(f'format = 1\nname = "x"\n{table} = 3')


def test_two_peers_are_too_few_and_nothing_is_shared_between_them():
    with pytest.raises(MembershipError, match="at least 3 peers, got 2"):
        replace(HEART, peers=MEMBERS[:2])
    twice = replace(MEMBERS[0], address=MEMBERS[1].address)
    with pytest.raises(MembershipError, match=r"hospital-a and hospital-c have the same address"):
        replace(HEART, peers=(twice, *MEMBERS[1:]))
    with pytest.raises(MembershipError, match="hospital-c and hospital-c have the same name"):
        replace(HEART, peers=(MEMBERS[0], *MEMBERS))
    again = replace(MEMBERS[0], sealing=MEMBERS[1].sealing)
    with pytest.raises(MembershipError, match=r"have the same sealing key$"):
        replace(HEART, peers=(again, *MEMBERS[1:]))


# The digest

SCALED = replace(HEART, standardise=Standardise())


def test_the_digest_does_not_depend_on_the_form_of_the_file():
    values = TEXT.replace("bound = 10.0", "bound = 10").replace("0.003", "3e-3")
    first, *tables = values.split("\n\n")
    plan = [table.split("\n") for table in tables if "[peers" not in table]
    backwards = ["\n".join([head, *reversed(rest)]) for head, *rest in reversed(plan)]
    peers = [table for table in reversed(tables) if "[peers" in table]
    commented = "\n\n# a comment\n".join([first, *peers, *backwards]).replace(" = ", "   =  ")
    assert commented != TEXT
    assert read_federation(commented).digest == HEART.digest
    assert read_federation(commented) == HEART


CHANGES = {
    "name": "heart-2",
    "tolerance.colluders": 2,
    "tolerance.dropouts": 0,
    "tolerance.liars": 0,
    "model.name": "cnn",
    "model.shape": (8, 9),
    "model.classes": 11,
    "training.rounds": 301,
    "training.samples": 5001,
    "training.batch_size": 33,
    "training.learning_rate": 0.0030000000000000001 * (1 + 2**-52),
    "training.optimizer": "sgd",
    "training.bound": 11.0,
    "training.l2": 0.1,
    "training.local_steps": 2,
    "training.local_rate": 0.2,
    "training.seed": 1,
    "training.fraction_bits": 21,
    "recovery.preparation": 25,
    "recovery.period": 31,
    "recovery.final": 25,
    "recovery.buffer": 5,
    "recovery.block": None,
    "recovery.open_pairs": True,
    "recovery.min_removed": 3,
    "recovery.fallback": "none",
    "recovery.stalled_after": 60.0,
    "deadlines.message": 31.0,
    "deadlines.dealing": 91.0,
    "deadlines.receipts": 6.0,
    "deadlines.view": 61.0,
    "deadlines.resend": 3.0,
    "deadlines.behind": 2.0,
    "evaluation.held_out": 0.1,
    "evaluation.every": 5,
    "data.classes": tuple("abcdefghij"),
    "data.features": ("age", "bmi"),
    "standardise.bound": 999.0,
    "standardise.per": "channel",
    "peers.hospital-b.address": "elsewhere.example.org:7400",
    "peers.hospital-b.sealing": OTHER.sealing.public_key().public_bytes_raw(),
}


def test_every_value_is_among_the_changes():
    kinds = {f.name for table in TABLES for f in dataclasses.fields(getattr(SCALED, table))}
    assert kinds <= {path.split(".")[-1] for path in CHANGES}


@pytest.mark.parametrize("path", CHANGES)
def test_every_difference_changes_the_digest_and_is_named(path):
    bases = {"tolerance.colluders": ("tolerance.liars", 0), "data.features": ("model.shape", (2,))}
    here = changed(*bases[path]) if path in bases else HEART
    here = SCALED if path.startswith("standardise") else here
    there = changed(path, CHANGES[path], here)
    assert here.digest != there.digest
    (only,) = differences(here, there)
    old, new = here.facts().get(path), there.facts().get(path)
    assert old != new
    assert only == f"{path}: {old} here, {new} there".replace("None", "left out")
    assert here.digest == replace(here).digest
    lasting = not path.startswith(("recovery", "deadlines", "peers"))
    assert (here.run_digest != there.run_digest) == lasting


def test_a_file_without_evaluations_has_the_digest_that_it_had_before_there_were_any():
    without = TEXT.replace("[evaluation]\nheld_out = 0.0\nevery = 10\n", "")
    assert "evaluation" not in without
    assert read_federation(without).digest == HEART.digest
    assert not [path for path in HEART.facts() if path.startswith("evaluation")]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("held_out", 0.6, "from 0 to 0.5"), ("held_out", -0.1, "from 0"), ("every", 0, "at least 1")],
)
def test_evaluations_that_cannot_be_are_refused(name, value, said):
    with pytest.raises(MembershipError, match=f"evaluation.{name} must be .*{said}"):
        changed(f"evaluation.{name}", value)


def test_a_file_that_names_no_data_has_the_digest_that_it_had_before_names_were_known():
    without = TEXT.replace("[data]\n# classes =\n# features =\n", "")
    assert "[data]" not in without
    assert read_federation(without).digest == HEART.digest
    assert not [path for path in HEART.facts() if path.startswith("data")]


def test_names_of_classes_and_features_are_written_and_read():
    named = changed("data.features", ("age", "Größe"), changed("model.shape", (2,)))
    named = changed("data.classes", tuple("abcdefghij"), named)
    assert read_federation(write_federation(named)) == named


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("classes", ("a", "b"), "has 2 names, and model.classes is 10"),
        ("classes", ("a", "a"), "names 'a' twice"),
        ("features", ("age",), r"has 1 names, and model.shape is \[8, 8\].*it is \[1\]"),
        ("features", (" age",), "without blanks around them.*got ' age'"),
        ("features", ("u\u0308ber",), r"composed form \(NFC\)"),
        ("features", ("",), "printable names"),
    ],
)
def test_names_that_cannot_be_are_refused(name, value, said):
    with pytest.raises(MembershipError, match=f"data.{name} .*{said}"):
        changed(f"data.{name}", value)


def test_peers_that_differ_are_named():
    assert differences(HEART, HEART) == []
    fewer = replace(HEART, peers=MEMBERS[:-1], tolerance=replace(HEART.tolerance, liars=0))
    assert differences(HEART, fewer) == [
        "peers.hospital-e: only here",
        "tolerance.liars: 1 here, 0 there",
    ]
    assert differences(fewer, HEART)[0] == "peers.hospital-e: only there"
    others = [m for m in MEMBERS if m.name != "hospital-b"]
    swapped = replace(HEART, peers=(*others, OTHER.member("hospital-b.example.org:7400")))
    names = [line.split(":")[0] for line in differences(HEART, swapped)]
    assert names == [f"peers.hospital-b.{k}" for k in ("certificate", "sealing", "signing")]
    assert swapped.run_digest != HEART.run_digest


# Signatures


def test_a_federation_is_agreed_on_when_everybody_has_signed():
    text = "# signatures\n\n"
    for number, identity in enumerate(PEERS):
        state = check_signatures(HEART, text)
        assert len(state.missing) == len(PEERS) - number
        assert not state.complete
        with pytest.raises(MembershipError, match=r"(has|have) not signed the federation file"):
            state.require()
        text = add_signature(text, sign_federation(identity, HEART))
    state = check_signatures(HEART, text)
    assert state.complete
    assert state.signed == tuple(sorted(NAMES))
    state.require()


def test_a_signature_of_another_version_does_not_count_until_it_is_replaced():
    older = changed("training.rounds", 200)
    text = ""
    for identity in PEERS:
        text = add_signature(text, sign_federation(identity, HEART))
    text = add_signature(text, sign_federation(PEERS[2], older))
    state = check_signatures(HEART, text)
    assert state.other == ("hospital-b",)
    with pytest.raises(MembershipError, match="hospital-b has signed another version"):
        state.require()
    text = add_signature(text, sign_federation(PEERS[2], HEART))
    assert check_signatures(HEART, text).complete
    assert len(text.splitlines()) == len(PEERS)


def test_forged_signatures_are_refused():
    line = sign_federation(PEERS[0], HEART)
    name, digest, signature = line.split()
    other = sign_federation(PEERS[1], HEART).split()[2]
    wrong = bytearray(base64.b64decode(signature))
    wrong[5] ^= 1
    flipped = base64.b64encode(wrong).decode()
    for forged in (f"{name} {digest} {other}", f"{name} {'0' * 64} {signature}"):
        with pytest.raises(MembershipError, match="signature of hospital-c is forged"):
            check_signatures(HEART, forged)
    with pytest.raises(MembershipError, match="is forged"):
        check_signatures(HEART, f"{name} {digest} {flipped}")
    with pytest.raises(MembershipError, match="no peer is called 'nobody'"):
        check_signatures(HEART, f"nobody {digest} {signature}")
    with pytest.raises(MembershipError, match="knows another signing key"):
        sign_federation(OTHER, HEART)


# Garbage


@settings(max_examples=300)
@given(text=st.text(max_size=300))
def test_garbage_is_no_federation_file_and_no_signature(text):
    with pytest.raises(MembershipError):
        read_federation(text)
    try:
        state = check_signatures(HEART, text)
    except MembershipError:
        return
    assert not state.signed


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_changed_file_is_read_or_refused(data):
    start = data.draw(st.integers(0, len(TEXT)))
    end = data.draw(st.integers(start, min(len(TEXT), start + 40)))
    new = data.draw(st.text(max_size=20) | st.sampled_from(["\n", "[", "=", '"', "'''", "0x", "{"]))
    try:
        read = read_federation(TEXT[:start] + new + TEXT[end:])
    except MembershipError:
        return
    assert (read.digest == HEART.digest) == (read == HEART)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def as_toml(value):
    if value is None:
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{"".join(c for c in value if c.isalnum())}"'
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return repr(value)


@settings(max_examples=300, deadline=None)
@given(line=st.integers(0, 10**6), value=plain)
def test_any_value_of_any_key_is_read_or_refused(line, value):
    lines = TEXT.split("\n")
    settable = [i for i, text in enumerate(lines) if " = " in text and "'''" not in text]
    place = settable[line % len(settable)]
    lines[place] = f"{lines[place].split(' = ')[0].lstrip('# ')} = {as_toml(value)}"
    try:
        read = read_federation("\n".join(lines))
    except MembershipError:
        return
    assert read_federation(write_federation(read)) == read
    assert (read == HEART) == (differences(read, HEART) == [])


def test_deep_nesting_is_refused():
    with pytest.raises(MembershipError, match="is not TOML"):
        read_federation("name = " + "[" * 100_000)
