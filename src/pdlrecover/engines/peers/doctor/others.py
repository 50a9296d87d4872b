"""Looks at every other peer, over the real connection: whether it is there, and what it runs.

Each is pinged over mutual TLS. Who does not answer is called step by step, to say which step fails.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from pdlrecover.engines.peers.doctor.finding import Finding, ok, problem, warning
from pdlrecover.engines.peers.doctor.knock import Knock, Step, knock
from pdlrecover.engines.peers.doctor.machine import is_kept
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.greeting import Greeting, installed
from pdlrecover.engines.peers.identity.member import Member, split_address
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.transport.link import Tls, papers
from pdlrecover.engines.peers.transport.ping import Echo, How, ping

OFF_SECONDS = 2.0
"""A clock that is off by more is worth a word: logs of several peers are read side by side."""
WITHOUT_WORDS = (How.OLDER, How.BUSY)
"""It was reached as the right peer, and said nothing of itself."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What came of calling one peer."""

    member: Member
    echo: Echo
    knock: Knock | None = None
    """Step by step, if it did not answer."""

    @property
    def is_there(self) -> bool:
        """Whether it was reached, as the peer that it should be."""
        return self.echo.how in (How.ANSWERED, *WITHOUT_WORDS)


async def visit_all(
    membership: Membership, me: int, identity: Identity, folder: Path, seconds: float
) -> list[Visit]:
    """Call all others at once; nobody takes longer than a few times these seconds."""
    tls = papers(identity, membership.peers)
    others = [member for place, member in enumerate(membership.peers) if place != me]
    return list(await asyncio.gather(*(_visit(each, tls, folder, seconds) for each in others)))


async def _visit(member: Member, tls: Tls, folder: Path, seconds: float) -> Visit:
    echo = await ping(member.address, member.tls_name, tls, seconds)
    if echo.how not in (How.UNREACHABLE, How.SILENT, How.REFUSED):
        return Visit(member=member, echo=echo)
    host, port = split_address(member.address)
    seen = await asyncio.to_thread(knock, host, port, folder, seconds)
    return Visit(member=member, echo=echo, knock=seen)


def judge_all(membership: Membership, visits: Sequence[Visit]) -> list[Finding]:
    """Return what is to be said of each, and of whether they are enough."""
    found = [_judged(membership, visit) for visit in visits]
    there = 1 + sum(visit.is_there for visit in visits)
    peers, needed = len(membership.peers), len(membership.peers) - membership.tolerance.dropouts
    if there < needed:
        what = f"{there} of {peers} peers are there, this one included, and {needed} are needed"
        remedy = "ask the operators of the others; until then no round is done, and nothing lost"
        found.append(problem("peers", what, remedy))
    else:
        found.append(ok("peers", f"{there} of {peers} are there, this one included"))
    return found


def _judged(membership: Membership, visit: Visit) -> Finding:
    check, where = f"peer {visit.member.name}", visit.member.address
    echo = visit.echo
    if echo.greeting is not None:
        return _greeted(membership, check, visit, echo.greeting)
    if echo.how is How.OLDER:
        what = f"{where} is this peer, of a version that does not say its version, clock and file"
        return ok(check, what)
    if echo.how is How.BUSY:
        what = f"{where} is this peer, and was asked too often to answer once more"
        return warning(check, what, "look again in a minute")
    if echo.how is How.NONSENSE or visit.knock is None:
        what = f"{where} is this peer, and what it says of itself makes no sense"
        return warning(check, what, "compare your versions with its operator")
    return _absent(check, visit.member, visit.knock)


def _greeted(membership: Membership, check: str, visit: Visit, said: Greeting) -> Finding:
    what = f"{visit.member.address} answers in {visit.echo.seconds * 1000:.0f} ms: {said.software}"
    if said.federation != membership.digest.hex():
        return problem(
            check,
            f"it has another federation file, digest {said.federation[:16]}…",
            "compare both by `pdlrecover peer compare`; all sign one, and restart with it",
        )
    if said.version != (own := installed("pdlrecover")):
        remedy = f"this peer has {own}: upgrade the older one, as the release notes say"
        return warning(check, what, remedy)
    return ok(check, what)


def _absent(check: str, member: Member, seen: Knock) -> Finding:
    """Say which step failed."""
    where, compare = member.address, "compare the federation files and ids with its operator"
    match seen.step:
        case Step.NO_NAME:
            remedy = "look at this machine's DNS, or agree on another address and let all sign it"
            return problem(check, f"{where}: {seen.said}", remedy)
        case Step.NOBODY:
            return warning(check, f"{where}: {seen.said}", "ask its operator to start it")
        case Step.NO_ANSWER | Step.NO_WAY:
            remedy = "look at the firewalls of both sides and at the address; ask whether it runs"
            return warning(check, f"{where}: {seen.said}", remedy)
        case Step.SILENT:
            remedy = "look again in a minute; then ask its operator to see its log"
            what = f"{where}: {seen.said}: the peer is frozen or very busy, or it is not the peer"
            return warning(check, what, remedy)
        case Step.NO_TLS:
            remedy = f"another program has its port, or a proxy is between; {compare}"
            return problem(check, f"{where}: {seen.said}", remedy)
    if seen.certificate != member.certificate:
        what = f"{where} shows a certificate of {seen.shown}, not the one in the federation file"
        remedy = f"another peer or program listens there, or its keys were replaced: {compare}"
        return problem(check, what, remedy)
    if seen.step is Step.TURNED_AWAY:
        what = f"{where} is this peer, and turns our certificate away"
        return problem(check, what, f"its federation file has another one of ours: {compare}")
    what = f"{where} is this peer, and does not answer: it is frozen, very busy, or starting"
    return warning(check, what, "look again in a minute; then ask its operator to see its log")


def judge_clocks(visits: Sequence[Visit], now: datetime | None = None) -> list[Finding]:
    """Compare this machine's clock with the others', and with the certificates' dates.

    Nobody's clock is right by itself: the median of all is taken for the time, and who is off from
    it by more than `OFF_SECONDS` and the time of the way is named.
    """
    now = now or datetime.now(UTC)
    if found := _outside(visits, now):
        return found
    ahead = {v.member.name: v.echo.ahead for v in visits if v.echo.how is How.ANSWERED}
    slack = {v.member.name: v.echo.seconds / 2 for v in visits}
    kept = is_kept()
    hint = {True: "; NTP keeps it", False: "; nothing keeps it, says the kernel", None: ""}[kept]
    keep = "let NTP keep it (`timedatectl set-ntp true`), and see `timedatectl`"
    if not ahead:
        what = f"{now:%Y-%m-%d %H:%M:%S} UTC, compared with nobody's{hint}"
        if kept is False:
            return [warning("clock", what, keep)]
        return [ok("clock", what)]
    if len(ahead) == 1 and abs(next(iter(ahead.values()))) > OFF_SECONDS + max(slack.values()):
        ((name, each),) = ahead.items()
        what = f"the clock of {name} is {_off(each)} this one, and there is no third to tell{hint}"
        return [warning("clock", what, f"see `timedatectl` here, and let {name} do so")]
    time = statistics.median([0.0, *ahead.values()])
    found = []
    if abs(time) > OFF_SECONDS + max(slack.values()):
        what = f"this clock is {_off(-time)} the median of {len(ahead)} others and itself{hint}"
        found.append(warning("clock", what, keep))
    found += _others_off(ahead, slack, time)
    most = max(abs(each) for each in ahead.values())
    whose = "1 other's" if len(ahead) == 1 else f"{len(ahead)} others'"
    agree = f"within {max(most, 0.001):.3f} s of {whose}{hint}"
    return found or [ok("clock", agree)]


def _others_off(
    ahead: Mapping[str, float], slack: Mapping[str, float], time: float
) -> list[Finding]:
    off = {name: each - time for name, each in ahead.items()}
    return [
        warning("clock", f"the clock of {name} is {_off(each)} the others'", "tell its operator")
        for name, each in off.items()
        if abs(each) > OFF_SECONDS + slack[name]
    ]


def _off(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def _outside(visits: Sequence[Visit], now: datetime) -> list[Finding]:
    """Return whose certificate is not valid at this time, by this machine's clock."""
    found = []
    for visit in visits:
        held = x509.load_der_x509_certificate(visit.member.certificate)
        begins, ends = held.not_valid_before_utc, held.not_valid_after_utc
        if not begins <= now <= ends:
            found.append(
                problem(
                    "clock",
                    f"it is {now:%Y-%m-%d}, and the certificate of {visit.member.name} is valid "
                    f"from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}",
                    "set this machine's clock; if it is right, agree on a new identity of that "
                    "peer",
                )
            )
    return found
