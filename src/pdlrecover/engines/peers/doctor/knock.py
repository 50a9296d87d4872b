"""Connects to a peer's address step by step, to say which step fails: name, TCP, TLS, certificate.

It shows this peer's certificate, takes any that it is shown, and sends nothing: what was shown is
for the caller to compare with the one that the federation knows.
"""

import socket
import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from pdlrecover.engines.peers.folder import IDENTITY
from pdlrecover.engines.peers.identity.own_keys import TLS_CERTIFICATE, TLS_KEY


class Step(Enum):
    """How far it came."""

    NO_NAME = "its name cannot be found"
    NOBODY = "nobody listens"
    NO_ANSWER = "no connection came about in time"
    NO_WAY = "there is no way to that machine"
    SILENT = "a connection comes about, and nothing is said on it"
    NO_TLS = "what listens speaks no TLS"
    TURNED_AWAY = "this peer's certificate was turned away"
    MET = "a certificate was shown, and this peer's was taken"


@dataclass(frozen=True, kw_only=True)
class Knock:
    """What happened at an address."""

    step: Step
    certificate: bytes = b""
    """In DER, if it came so far."""

    @property
    def said(self) -> str:
        """What happened, in words."""
        if self.step is Step.MET:
            return f"the certificate of {self.shown} was shown"
        return str(self.step.value)

    @property
    def shown(self) -> str:
        """Whose certificate it is, by its own word."""
        try:
            found = x509.load_der_x509_certificate(self.certificate).subject
            names = [str(each.value) for each in found.get_attributes_for_oid(NameOID.COMMON_NAME)]
        except ValueError:
            names = []
        name: str = names[0][:64] if names else "nobody"
        return "".join(letter if letter.isprintable() else "?" for letter in name)


def knock(host: str, port: int, folder: Path, seconds: float) -> Knock:
    """Connect as the peer of this folder, and see how far it goes."""
    try:
        connection = socket.create_connection((host, port), timeout=seconds)
    except socket.gaierror:
        return Knock(step=Step.NO_NAME)
    except ConnectionRefusedError:
        return Knock(step=Step.NOBODY)
    except TimeoutError:
        return Knock(step=Step.NO_ANSWER)
    except OSError:
        return Knock(step=Step.NO_WAY)
    with connection:
        return _shake_hands(connection, folder)


def _shake_hands(connection: socket.socket, folder: Path) -> Knock:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the caller compares
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder / IDENTITY / TLS_CERTIFICATE, folder / IDENTITY / TLS_KEY)
    try:
        with context.wrap_socket(connection) as secured:
            shown = secured.getpeercert(binary_form=True) or b""
            try:  # with TLS 1.3, whether our certificate is taken shows with the first byte
                taken = secured.recv(1) != b""
            except TimeoutError:
                taken = True  # it waits for us, so it did not turn us away
            except OSError:
                taken = False
    except TimeoutError:
        return Knock(step=Step.SILENT)
    except OSError:  # ssl.SSLError is one
        return Knock(step=Step.NO_TLS)
    return Knock(step=Step.MET if taken else Step.TURNED_AWAY, certificate=shown)
