"""Messages of all kinds: for hypothesis to vary, and one example of each that never changes."""

import numpy as np
from hypothesis import strategies as st

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.field import Q

DIGEST = st.binary(min_size=32, max_size=32)
SIGNATURE = st.binary(min_size=64, max_size=64)
ELEMENTS = st.lists(st.integers(0, Q - 1), max_size=5).map(lambda x: np.array(x, dtype=np.int64))
INTEGERS = st.lists(st.integers(-(Q // 2), Q // 2), max_size=5).map(
    lambda x: np.array(x, dtype=np.int64)
)
PEER = st.integers(0, 0xFFFF)
VIEW = st.integers(-1, 1 << 30)
HELD = st.lists(st.builds(m.Held, dealer=PEER, digest=DIGEST), max_size=4).map(tuple)
COMMITMENTS = st.lists(DIGEST, max_size=4).map(b"".join)
ENTRY = st.builds(m.LogEntry, dealers=HELD, values=INTEGERS)
REMOVAL_PROPOSALS = st.builds(
    m.RemovalProposal,
    removed=st.lists(PEER, max_size=4).map(tuple),
    reason=st.text(max_size=20),
    method=st.text(max_size=20),
    accept_differencing=st.booleans(),
    after=DIGEST,
    settings=st.text(max_size=20),
)
BODIES = st.one_of(
    st.builds(
        m.Dealing,
        commitments=COMMITMENTS,
        proof=ELEMENTS,
        statement=SIGNATURE,
        sealed=st.binary(max_size=50),
    ),
    st.builds(
        m.Receipt, view=VIEW, held=HELD, statements=st.lists(SIGNATURE, max_size=3).map(tuple)
    ),
    st.builds(m.Proposal, view=VIEW, since=VIEW, dealers=HELD),
    st.builds(m.Vote, view=VIEW, final=st.booleans(), choice=DIGEST),
    st.builds(m.SubSecret, choice=DIGEST, values=ELEMENTS),
    st.builds(m.Position, reply=st.booleans()),
    st.builds(m.Fetch, first=st.integers(0, 1 << 40)),
    st.builds(
        m.Answers, first=st.integers(0, 1 << 40), entries=st.lists(ENTRY, max_size=3).map(tuple)
    ),
    st.builds(
        m.Misdealt,
        dealer=PEER,
        commitments=COMMITMENTS,
        proof=ELEMENTS,
        statement=SIGNATURE,
        private=st.binary(max_size=50),
    ),
    st.builds(
        m.Equivocation, accused=PEER, first=st.binary(max_size=50), second=st.binary(max_size=50)
    ),
    REMOVAL_PROPOSALS,
    st.builds(m.Approval, removal=DIGEST),
    st.builds(m.Refusal, removal=DIGEST, why=st.text(max_size=20)),
    st.builds(m.Terms, facts=st.binary(max_size=50)),
)
HEADERS = st.builds(
    m.Header,
    federation=DIGEST,
    run=DIGEST,
    step=st.integers(0, 1 << 40),
    round=st.integers(0, 1 << 31),
    sender=PEER,
    recipient=PEER,
    log=DIGEST,
    asked=DIGEST,
)


def examples():
    """Return a header, and one body of each kind by its name."""
    header = m.Header(
        federation=b"f" * 32,
        run=b"r" * 32,
        step=7,
        round=3,
        sender=1,
        recipient=0xFFFF,
        log=b"l" * 32,
        asked=b"a" * 32,
    )
    held = (m.Held(dealer=0, digest=b"d" * 32), m.Held(dealer=300, digest=b"e" * 32))
    elements, integers = np.array([0, 1, Q - 1]), np.array([-(Q // 2), 0, Q // 2])
    bodies = (
        m.Dealing(
            commitments=b"c" * 64, proof=elements, statement=b"s" * 64, sealed=b"sealed share"
        ),
        m.Receipt(view=2, held=held, statements=(b"s" * 64, b"t" * 64)),
        m.Proposal(view=2, since=-1, dealers=held),
        m.Vote(view=2, final=True, choice=b"h" * 32),
        m.SubSecret(choice=b"h" * 32, values=elements),
        m.Position(reply=True),
        m.Fetch(first=1 << 40),
        m.Answers(first=5, entries=(m.LogEntry(dealers=held, values=integers),)),
        m.Misdealt(
            dealer=4, commitments=b"c" * 64, proof=elements, statement=b"s" * 64, private=b"row"
        ),
        m.Equivocation(accused=4, first=b"one", second=b"other"),
        m.RemovalProposal(
            removed=(3, 4),
            reason="malicious",
            method="pdlrecover",
            accept_differencing=True,
            after=b"l" * 32,
            settings="{}",
        ),
        m.Approval(removal=b"m" * 32),
        m.Refusal(removal=b"m" * 32, why="too few: ñ"),
        m.Terms(facts=b"{}"),
    )
    return header, {type(body).__name__: body for body in bodies}
