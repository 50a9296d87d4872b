"""The numbers that a running peer serves, in Prometheus' text form.

Rules: every metric is there from the start, counters from 0, each with its help and its type: an
alert on a series that is not there never fires. They are served to this machine only, unless the
operator says where else.
"""

import asyncio
import math
from collections.abc import Callable, Mapping

from pdlrecover.errors import PlanError

MAX_REQUEST = 1 << 16
GAUGE, COUNTER = "gauge", "counter"
METRICS: dict[str, tuple[str, str]] = {
    "info": (GAUGE, "1; what runs here is in its labels."),
    "time_seconds": (GAUGE, "This machine's clock, since 1970."),
    "start_time_seconds": (GAUGE, "When the process began, since 1970."),
    "running": (GAUGE, "1 while a run is under way, 0 once it has ended."),
    "failed": (GAUGE, "1 if a run stopped early or gave no scale, and nothing takes its place."),
    "waiting": (GAUGE, "1 while a run does not go on: the log and the status say why."),
    "step": (GAUGE, "How many steps of a run are done."),
    "step_age_seconds": (GAUGE, "How long the step of a run under way has taken by now."),
    "round": (GAUGE, "How many rounds of a run are done."),
    "rounds": (GAUGE, "How many rounds a run has."),
    "absent": (GAUGE, "Peers of a run that are not in its last sum of updates."),
    "void_rounds": (GAUGE, "Rounds of a run that changed nothing."),
    "accuracy": (GAUGE, "Of a run's last evaluation, from 0 to 1; NaN if there was none."),
    "peers": (GAUGE, "Other peers in the federation file."),
    "peers_heard": (GAUGE, "Other peers heard from in the last 30 seconds."),
    "peers_needed": (GAUGE, "Other peers without which no round is done."),
    "peer_heard": (GAUGE, "1 if this peer was heard from in the last 30 seconds."),
    "other_files": (GAUGE, "Peers whose federation file differs."),
    "started_over": (GAUGE, "1 if others take part in another training than this peer."),
    "removals_waiting": (GAUGE, "Removals that this peer has not approved and that need more."),
    "caught": (GAUGE, "Peers proven to cheat."),
    "named": (GAUGE, "Peers that did what no honest peer does, without proof for others."),
    "history_bytes": (GAUGE, "The history on disk."),
    "disk_free_bytes": (GAUGE, "Free on the history's disk, for this user."),
    "descriptors": (GAUGE, "Files and connections that the process may have."),
    "descriptors_in_use": (GAUGE, "Files and connections that it has."),
    "certificate_expires_seconds": (
        GAUGE,
        "When the first of the certificates ends.",
    ),
    "blames_total": (COUNTER, "Suspicions."),
    "evidence_total": (COUNTER, "Pieces of evidence found."),
    "messages_total": (COUNTER, "Messages taken."),
    "unknown_run_total": (COUNTER, "Messages of runs that are not known here."),
    "network_sent_total": (COUNTER, "Messages sent."),
    "network_sent_bytes_total": (COUNTER, "Bytes of messages sent."),
    "network_received_total": (COUNTER, "Messages received."),
    "network_received_bytes_total": (COUNTER, "Bytes of messages received."),
    "network_failed_total": (COUNTER, "Streams that failed."),
    "network_dropped_total": (COUNTER, "Messages given up."),
    "network_cut_off_total": (COUNTER, "Messages that were cut off on their way here."),
    "network_refused_total": (COUNTER, "Calls refused."),
    "network_unfinished_total": (COUNTER, "Connections closed that never made a call."),
    "network_oversize_total": (COUNTER, "Messages refused as too large."),
    "network_slow_total": (COUNTER, "Messages given up as too slow."),
    "network_pings_total": (COUNTER, "Pings of other peers."),
}
"""By name: its type, and what it is."""


def counted(own: Mapping[str, int], network: Mapping[str, int]) -> dict[str, float]:
    """Return every counter, of a peer's own counts and of its network's."""
    found = {}
    for name, (kind, _) in METRICS.items():
        if kind == COUNTER:
            short = name.removesuffix("_total")
            counts = network if short.startswith("network_") else own
            found[name] = float(counts.get(short.removeprefix("network_"), 0))
    return found


def labelled(name: str, **labels: str) -> str:
    """Return the name of a metric's series with these labels."""
    parts = [f'{label}="{_escaped(value)}"' for label, value in labels.items()]
    return f"{name}{{{','.join(parts)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def exposition(values: Mapping[str, float]) -> str:
    """Return the numbers as text; a name may have labels behind it."""
    lines = []
    for name, (kind, help_text) in METRICS.items():
        lines += [f"# HELP pdlrecover_{name} {help_text}", f"# TYPE pdlrecover_{name} {kind}"]
        series = sorted(each for each in values if each.partition("{")[0] == name)
        lines += [f"pdlrecover_{each} {_number(values[each])}" for each in series]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(float(value))


async def serve_metrics(
    port: int, metrics: Callable[[], dict[str, float]], host: str = "127.0.0.1"
) -> asyncio.Server:
    """Serve numbers as plain text to whoever asks: on this machine, unless another is said."""
    if not host:  # asyncio would take that for all addresses
        raise PlanError(
            "metrics need an address to be served on, got an empty one; leave --metrics-host out "
            "for this machine only, or write 0.0.0.0 for all of its addresses"
        )

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5.0)
            text = exposition(metrics())
            head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # who asks has gone, or a number cannot be read: either shows where it is missed
        finally:
            writer.close()

    try:
        return await asyncio.start_server(session, host, port, limit=MAX_REQUEST)
    except (OSError, OverflowError, UnicodeError) as error:
        raise PlanError(
            f"metrics cannot be served on port {port} of {host} ({error}); choose another port, or "
            "an address that this machine has"
        ) from error
