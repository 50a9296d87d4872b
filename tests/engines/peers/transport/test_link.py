"""Why a peer cannot be reached, in plain words."""

import pytest

from pdlrecover.engines.peers.transport import link


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:28414: Failed "
            "to connect to remote host: Connection refused",
            "nobody listens there",
        ),
        ("DNS resolution failed for elm:1: C-ares status is not ARES_SUCCESS", "its name cannot"),
        ("last error: UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE)", "speaks no TLS"),
        ("ipv4:10.0.0.9:7400: connect: No route to host (113)", "no way to this machine"),
        ("recvmsg:Connection reset by peer", "it closed the connection"),
        ("something: quite\x1b[2J new\nhere", r"quite\x1b[2J new\nhere"),
    ],
)
def test_why_a_peer_cannot_be_reached_is_said_plainly(details, said):
    found = link._plainly(details)
    assert said in found
    assert "UNKNOWN" not in found
    assert found.isprintable()
