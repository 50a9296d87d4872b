"""The numbers that a running peer serves, in Prometheus' text form.

Rules: every metric is there from the start, counters from 0, each with its help and its type: an
alert on a series that is not there never fires. They are served to this machine only.
"""

import asyncio
from collections.abc import Callable, Mapping

from pdlrecover.errors import PlanError

MAX_REQUEST = 1 << 16
GAUGE, COUNTER = "gauge", "counter"
METRICS: dict[str, tuple[str, str]] = {
    "step": (GAUGE, "How many steps of a run are done."),
    "round": (GAUGE, "How many rounds of a run are done."),
    "peers_heard": (GAUGE, "Other peers heard from in the last 30 seconds."),
    "caught": (GAUGE, "Peers proven to cheat."),
    "history_bytes": (GAUGE, "The history on disk."),
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


def exposition(values: Mapping[str, float]) -> str:
    """Return the numbers as text; a name may have labels behind it."""
    lines = []
    for name, (kind, help_text) in METRICS.items():
        lines += [f"# HELP pdlrecover_{name} {help_text}", f"# TYPE pdlrecover_{name} {kind}"]
        series = sorted(each for each in values if each.partition("{")[0] == name)
        lines += [f"pdlrecover_{each} {values[each]}" for each in series]
    return "\n".join(lines) + "\n"


async def serve_metrics(port: int, metrics: Callable[[], dict[str, float]]) -> asyncio.Server:
    """Serve numbers as plain text to whoever asks on this machine."""

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5.0)
            text = exposition(metrics())
            head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            await writer.drain()
        except (ConnectionError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    try:
        return await asyncio.start_server(session, "127.0.0.1", port, limit=MAX_REQUEST)
    except (OSError, OverflowError) as error:
        raise PlanError(
            f"metrics cannot be served on port {port} of 127.0.0.1 ({error}); choose another port"
        ) from error
