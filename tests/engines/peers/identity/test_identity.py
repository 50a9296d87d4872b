import base64
import contextlib
import hashlib
import os
import pickle
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdlrecover.engines.peers.identity import own_keys as identities
from pdlrecover.engines.peers.identity.invitation import invite, read_invitation
from pdlrecover.engines.peers.identity.member import Member, split_address
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.sealing import (
    SEALING_OVERHEAD,
    open_sealed,
    seal,
    sign,
    verify,
)
from pdlrecover.engines.peers.identity.storage_key import StorageKey, find_storage_key
from pdlrecover.errors import ForgeryError, HistoryError, IdentityError, MembershipError
from pdlrecover.history import Vault, VaultLayout

ADDRESS = "hospital-a.example.org:7400"
ALICE, BOB = Identity.generate("hospital-a"), Identity.generate("hospital-b")


@pytest.fixture
def folder(tmp_path):
    Identity.create(tmp_path / "keys", "hospital-a")
    return tmp_path / "keys"


# The folder


def test_keys_are_the_same_when_they_are_read_again(tmp_path):
    made = Identity.create(tmp_path / "a" / "keys", "hospital-a")
    read = Identity.load(tmp_path / "a" / "keys")
    assert read.id == made.id
    assert read.member(ADDRESS) == made.member(ADDRESS)
    assert read.tls_pem() == made.tls_pem()
    assert read.salt == made.salt
    sealed = seal(made.member(ADDRESS).sealing_key, b"share", b"")
    assert open_sealed(read.sealing, sealed, b"") == b"share"


def test_the_folder_and_its_files_are_only_for_the_owner(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 5
    assert [path.name for path in folder.parent.iterdir()] == ["keys"]


def test_permissions_do_not_depend_on_the_umask(tmp_path):
    before = os.umask(0)
    try:
        Identity.create(tmp_path / "keys", "hospital-a")
        StorageKey.create(tmp_path / "history.key")
    finally:
        os.umask(before)
    Identity.load(tmp_path / "keys")
    assert stat.S_IMODE((tmp_path / "history.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["signing.key", "sealing.key", "tls.key", "tls.crt"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_files_that_others_may_read_are_refused_with_what_to_do(folder, name, mode):
    (folder / name).chmod(mode)
    with pytest.raises(IdentityError, match=f"mode 0{mode:o}.*`chmod 600 .*{name}`"):
        Identity.load(folder)


def test_a_folder_that_others_may_enter_is_refused(folder):
    folder.chmod(0o750)
    with pytest.raises(IdentityError, match=r"is open to other users .*`chmod 700 "):
        Identity.load(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_another_user_are_refused(folder):
    os.chown(folder / "signing.key", 12345, -1)
    with pytest.raises(IdentityError, match="belongs to another user"):
        Identity.load(folder)


def test_keys_are_never_overwritten(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(IdentityError, match="exists already, and keys are never overwritten"):
        Identity.create(folder, "hospital-b")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["keys"]


def test_a_creation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IdentityError, match="cannot be made: No space left"):
        Identity.create(tmp_path / "keys", "hospital-a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["signing.key", "sealing.key", "tls.key", "tls.crt", "history.salt"]
)
def test_missing_and_damaged_files_are_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(IdentityError, match=f"{name} is damaged"):
        Identity.load(folder)
    (folder / name).unlink()
    with pytest.raises(IdentityError, match=f"{name} is not there; restore"):
        Identity.load(folder)


def test_a_key_of_another_kind_is_damaged(folder):
    (folder / "signing.key").write_bytes((folder / "tls.key").read_bytes())
    with pytest.raises(IdentityError, match=r"signing\.key is damaged"):
        Identity.load(folder)


@pytest.mark.parametrize(
    ("names", "message"),
    [(["signing.key"], "do not fit together"), (["tls.key"], "are no pair")],
)
def test_keys_of_two_identities_do_not_fit(folder, tmp_path, names, message):
    Identity.create(tmp_path / "other", "hospital-a")
    for name in names:
        (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(IdentityError, match=message):
        Identity.load(folder)


def test_a_certificate_that_has_ended_is_said(folder):
    later = datetime.now(UTC) + timedelta(days=365 * 10 + 1)
    with pytest.raises(IdentityError, match="ended on 20"):
        Identity.load(folder, now=later)


def test_nothing_secret_shows():
    secret = ALICE.signing.private_bytes_raw()
    assert repr(ALICE) == str(ALICE) == f"Identity({ALICE.id})"
    key = StorageKey(bytes(range(32)))
    assert repr(key) == str(key) == "<storage key>"
    with pytest.raises(TypeError, match="not to be copied"):
        pickle.dumps(key)
    assert secret.hex() not in invite(ALICE, ADDRESS)
    content = base64.urlsafe_b64decode(invite(ALICE, ADDRESS).split(".")[1] + "==")
    for private in (secret, ALICE.sealing.private_bytes_raw(), ALICE.salt):
        assert private not in content


def test_the_id_is_bound_to_name_and_key():
    assert ALICE.id.startswith("hospital-a-")
    assert Identity.generate("hospital-a").id != ALICE.id
    assert ALICE.member(ADDRESS).tls_name == f"{ALICE.id}.pdlrecover"
    longest = Identity.generate("x" * 32)
    assert len(longest.id) < 64  # a label of a DNS name


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "x" * 33, "ä", "a.b", "a\n"])
def test_names_that_are_no_names_are_refused(name):
    with pytest.raises(MembershipError, match="lower-case letters, digits and dashes"):
        Identity.generate(name)


# TLS


def connected(server, client, roots, name):
    """Shake hands in memory; return what each side knows of the other's certificate."""
    hello, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.verify_mode = ssl.CERT_REQUIRED
    for context, chain in ((ours, server), (theirs, client)):
        context.load_cert_chain(chain)
        context.load_verify_locations(cadata=roots)
    a = ours.wrap_bio(hello, answer, server_side=True)
    b = theirs.wrap_bio(answer, hello, server_hostname=name)
    for _ in range(4):
        for side in (b, a):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    with contextlib.suppress(ssl.SSLWantReadError):
        a.read(1)
    return a.getpeercert(binary_form=True), b.getpeercert(binary_form=True)


def chain_file(path, key, *certificates):
    path.write_bytes(key + b"".join(certificates))
    return path


def test_certificates_are_bound_to_peers_and_issue_nothing(tmp_path):
    alice, bob = ALICE.member(ADDRESS), BOB.member("hospital-b:1")
    roots = (alice.certificate_pem + bob.certificate_pem).decode()
    a = chain_file(tmp_path / "a", *ALICE.tls_pem())
    b = chain_file(tmp_path / "b", *BOB.tls_pem())
    assert connected(a, b, roots, alice.tls_name) == (bob.certificate, alice.certificate)
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        connected(a, b, roots, bob.tls_name)
    stranger = chain_file(tmp_path / "c", *Identity.generate("hospital-c").tls_pem())
    with pytest.raises(ssl.SSLError, match=r"certificate verify failed|unknown ca"):
        connected(stranger, b, roots, alice.tls_name)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    forged = (
        x509.CertificateBuilder()
        .subject_name(ALICE.certificate.subject)
        .issuer_name(BOB.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(alice.tls_name)]), critical=False)
        .sign(BOB.tls_key, SHA256())
    )
    pem = forged.public_bytes(Encoding.PEM)
    fake = chain_file(tmp_path / "f", identities._pem(key), pem, BOB.tls_pem()[1])
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        connected(fake, b, roots, alice.tls_name)


# Signing and sealing


@given(plaintext=st.binary(max_size=500), associated=st.binary(max_size=50))
def test_what_is_sealed_opens_for_the_recipient_with_the_same_associated_data(
    plaintext, associated
):
    sealed = seal(ALICE.sealing.public_key(), plaintext, associated)
    assert len(sealed) == len(plaintext) + SEALING_OVERHEAD
    assert open_sealed(ALICE.sealing, sealed, associated) == plaintext
    for private, other in ((BOB.sealing, associated), (ALICE.sealing, associated + b"x")):
        with pytest.raises(ForgeryError, match="does not open"):
            open_sealed(private, sealed, other)


@given(data=st.data())
def test_a_changed_or_cut_message_does_not_open(data):
    sealed = bytearray(seal(ALICE.sealing.public_key(), b"a share", b"round 1"))
    place = data.draw(st.integers(0, 8 * len(sealed) - 1))
    length = data.draw(st.integers(0, len(sealed) - 1))
    with pytest.raises(ForgeryError):
        open_sealed(ALICE.sealing, bytes(sealed[:length]), b"round 1")
    sealed[place // 8] ^= 1 << place % 8
    with pytest.raises(ForgeryError):
        open_sealed(ALICE.sealing, bytes(sealed), b"round 1")


@given(garbage=st.binary(max_size=200))
def test_garbage_does_not_open_or_verify(garbage):
    with pytest.raises(ForgeryError):
        open_sealed(ALICE.sealing, garbage, b"")
    with pytest.raises(ForgeryError):
        verify(ALICE.signing.public_key(), garbage, b"message")


def test_sealing_twice_gives_different_bytes():
    key = ALICE.sealing.public_key()
    assert seal(key, b"same", b"") != seal(key, b"same", b"")


def test_signatures_hold_for_one_message_and_one_signer():
    signature = sign(ALICE.signing, b"message")
    verify(ALICE.signing.public_key(), signature, b"message")
    for key, message in ((ALICE, b"massage"), (BOB, b"message")):
        with pytest.raises(ForgeryError, match="does not hold"):
            verify(key.signing.public_key(), signature, message)


# The history's key


def test_the_key_is_found_in_a_file_then_in_the_environment_then_by_asking(tmp_path):
    (tmp_path / "k").mkdir()
    made = StorageKey.create(tmp_path / "k" / "history.key")
    other = {"PDLRECOVER_HISTORY_KEY": " " + "5a" * 32 + "\n"}
    salt, words = bytes(16), "correct horse battery"
    named = find_storage_key(file=tmp_path / "k" / "history.key", environment=other)
    assert named.reveal() == made.reveal()
    assert find_storage_key(environment=other, ask=lambda: words).reveal() == b"\x5a" * 32
    typed = find_storage_key(environment={}, ask=lambda: words, salt=salt)
    expected = hashlib.scrypt(words.encode(), salt=salt, n=2**17, r=8, p=1, dklen=32, maxmem=2**28)
    assert typed.reveal() == expected
    with pytest.raises(IdentityError, match=r"PDLRECOVER_HISTORY_KEY.*, or type the passphrase"):
        find_storage_key(environment={})


def test_a_service_gets_its_key_as_a_credential_that_others_cannot_read(tmp_path):
    variables, path = {"CREDENTIALS_DIRECTORY": str(tmp_path)}, tmp_path / "history.key"
    with pytest.raises(IdentityError, match=r"the credential history\.key"):
        find_storage_key(environment=variables)
    path.write_text("0b" * 32 + "\n")
    path.chmod(0o440)  # as systemd leaves it, with an access list for the service's user
    assert find_storage_key(environment=variables).reveal() == b"\x0b" * 32
    both = {**variables, "PDLRECOVER_HISTORY_KEY": "0c" * 32}
    assert find_storage_key(environment=both).reveal() == b"\x0c" * 32, "the variable comes first"
    for mode in (0o444, 0o460, 0o604):
        path.chmod(mode)
        with pytest.raises(IdentityError, match="open to other users"):
            find_storage_key(environment=variables)
    path.chmod(0o400)
    path.write_text("no key")
    with pytest.raises(IdentityError, match=r"the credential .* must hold 64"):
        find_storage_key(environment=variables)


def test_the_real_environment_is_looked_at(monkeypatch):
    monkeypatch.setenv("PDLRECOVER_HISTORY_KEY", "0b" * 32)
    assert find_storage_key().reveal() == b"\x0b" * 32


@pytest.mark.parametrize("text", ["", "5a" * 31, "5a" * 33, "xy" * 32, "5a" * 16 + " hello"])
def test_a_key_that_is_no_key_is_refused_without_showing_it(tmp_path, text):
    path = tmp_path / "history.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="64 hexadecimal digits") as caught:
        StorageKey.from_file(path)
    assert not text or text not in str(caught.value)
    path.chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        StorageKey.from_file(path)


def test_passphrases_count_as_they_look(tmp_path):
    salt = os.urandom(16)

    def key(words):
        return StorageKey.from_passphrase(words, salt, cost=2**4).reveal()

    assert key("caf\u00e9 at the corner") == key("cafe\u0301 at the corner")
    assert key("a long passphrase") != key("a long passphrasf")
    with pytest.raises(IdentityError, match="at least 12 characters"):
        key("too short")


def test_a_wrong_passphrase_does_not_open_the_history(tmp_path):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=3, blocks=2)

    def key(words):
        return StorageKey.from_passphrase(words, ALICE.salt, cost=2**4).reveal()

    Vault(tmp_path / "history", key("correct horse battery"), layout).close()
    with pytest.raises(HistoryError, match=r"key does not open .* the passphrase is wrong"):
        Vault(tmp_path / "history", key("correct horse buttery"), layout)


# Invitations


def test_an_invitation_says_all_that_others_need(tmp_path):
    line = invite(ALICE, ADDRESS)
    assert line.isprintable()
    assert " " not in line
    assert read_invitation(line) == ALICE.member(ADDRESS)
    wrapped = "\n  ".join(line[i : i + 60] for i in range(0, len(line), 60))
    assert read_invitation(f"  {wrapped}\r\n") == ALICE.member(ADDRESS)


def packed(*values, signer=None):
    """Make an invitation of any values, with a right checksum, and signed if one can sign."""
    content = b"".join(len(v).to_bytes(2, "big") + v for v in values)
    domain = b"pdlrecover invitation 1: "
    content += signer.signing.sign(domain + content) if signer else bytes(64)
    middle = base64.urlsafe_b64encode(content).decode().rstrip("=")
    return f"pdlrecover-peer-1.{middle}.{hashlib.sha256(content).hexdigest()[:8]}"


def fields(member, **changes):
    values = {**vars(member), **changes}
    names = ("name", "address", "signing", "sealing", "certificate")
    return [v.encode() if isinstance(v := values[n], str) else v for n in names]


def test_the_form_of_an_invitation_is_fixed():
    assert packed(*fields(ALICE.member(ADDRESS)), signer=ALICE) == invite(ALICE, ADDRESS)


@given(cut=st.integers(0, 1200))
def test_a_cut_invitation_is_refused(cut):
    line = invite(ALICE, ADDRESS)
    with pytest.raises(MembershipError, match=r"no invitation|cut or mistyped"):
        read_invitation(line[: min(cut, len(line) - 1)])


@given(place=st.integers(0, 2000), letter=st.characters(codec="utf-8"))
def test_a_mistyped_invitation_is_refused(place, letter):
    line = invite(ALICE, ADDRESS)
    place %= len(line)
    changed = line[:place] + letter + line[place + 1 :]
    if changed != line:
        with pytest.raises(MembershipError):
            read_invitation(changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "evil.example.org:1"}, "is forged"),
        ({"sealing": BOB.sealing.public_key().public_bytes_raw()}, "is forged"),
        ({"signing": BOB.signing.public_key().public_bytes_raw()}, "do not belong together"),
        ({"name": "hospital-b"}, "do not belong together"),
        ({"certificate": BOB.member(ADDRESS).certificate}, "do not belong together"),
        ({"certificate": b"nothing"}, "is damaged"),
        ({"sealing": bytes(32)}, "is no key"),
        ({"sealing": bytes(31)}, "is no key"),
        ({"signing": bytes(33)}, "is no key"),
        ({"address": "somewhere"}, "host:port"),
        ({"address": "ex\u00e4mple:1"}, "plain ASCII"),
    ],
)
def test_forged_invitations_are_refused(changes, message):
    line = packed(*fields(ALICE.member(ADDRESS), **changes))
    with pytest.raises(MembershipError, match=message):
        read_invitation(line)


def test_another_version_and_wrong_lengths_are_said():
    line = invite(ALICE, ADDRESS)
    with pytest.raises(MembershipError, match="has version 2, and this program reads 1"):
        read_invitation(line.replace("peer-1.", "peer-2."))
    values = fields(ALICE.member(ADDRESS))
    with pytest.raises(MembershipError, match="malformed: 3 bytes too many"):
        read_invitation(packed(*values, b"x"))
    with pytest.raises(MembershipError, match="malformed: its certificate is cut off"):
        read_invitation(packed(*values[:4]))


@settings(max_examples=300)
@given(text=st.one_of(st.text(), st.from_regex(r"pdlrecover-peer-1\.[A-Za-z0-9_-]*\.[0-9a-f]{8}")))
@example("pdlrecover-peer-1..e3b0c442")
def test_garbage_is_no_invitation(text):
    with pytest.raises(MembershipError):
        read_invitation(text)


@given(values=st.lists(st.binary(max_size=80), min_size=5, max_size=5))
def test_garbage_in_the_right_form_is_no_invitation(values):
    with pytest.raises(MembershipError):
        read_invitation(packed(*values))


def test_certificates_that_could_issue_others_are_refused():
    now, peer = datetime.now(UTC), ALICE.id
    for authority, key in (
        (True, ALICE.tls_key),
        (False, ec.generate_private_key(ec.SECP384R1())),
    ):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(ALICE.certificate.subject)
            .issuer_name(ALICE.certificate.subject)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(f"{peer}.pdlrecover")]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .sign(key, SHA256())
        )
        values = {
            **vars(ALICE.member(ADDRESS)),
            "certificate": certificate.public_bytes(Encoding.DER),
        }
        with pytest.raises(MembershipError, match="P-256 key and be no authority"):
            Member(**{k: v for k, v in values.items() if not k.endswith("_key")})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("peer.example.org:7400", ("peer.example.org", 7400)),
        ("localhost:1", ("localhost", 1)),
        ("192.0.2.7:65535", ("192.0.2.7", 65535)),
        ("[2001:db8::7]:7400", ("2001:db8::7", 7400)),
    ],
)
def test_addresses(address, expected):
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        *("", ":", "a", "a:", ":1", "a:0", "a:65536", "a:01", "a:-1", "A:1", "a b:1", "-a:1"),
        *("1.2.3:1", "2001:db8::7:1", "[2001:DB8::7]:1", "[::1%eth0]:1", "[192.0.2.7]:1"),
        *("a..b:1", "a:1\n"),
    ],
)
def test_addresses_that_are_none(address):
    with pytest.raises(MembershipError, match="an address is host:port"):
        split_address(address)


def test_two_creations_at_once_leave_one_identity(tmp_path):
    outcomes = []

    def create():
        try:
            outcomes.append(Identity.create(tmp_path / "keys", "hospital-a").id)
        except IdentityError:
            outcomes.append(None)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (made,) = [outcome for outcome in outcomes if outcome]
    assert Identity.load(tmp_path / "keys").id == made
    assert isinstance(ALICE.signing, Ed25519PrivateKey)
    assert isinstance(ALICE.sealing, X25519PrivateKey)
