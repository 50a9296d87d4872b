"""What a real peer serves for monitoring, and what alerts and dashboard make of it."""

import asyncio
import io
import json
import logging
import re
from itertools import pairwise

import pytest
import whole_peers
import yaml
from loopback import free_addresses, until
from promtool import OPERATING, ROOT, needs_promtool, promtool
from test_cli import run

from pdlrecover.engines.peers.folder import CONTROL
from pdlrecover.engines.peers.operator.logs import ALWAYS, EVENTS, FACTS, JsonLines
from pdlrecover.engines.peers.operator.metrics import METRICS, exposition, labelled, serve_metrics
from pdlrecover.errors import PlanError

NAME = re.compile(r"\bpdlrecover_([a-z_]+)")
PAGE = ROOT / "docs" / "operating.md"


async def fetched(port, host="127.0.0.1"):
    """Return what is served."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert "text/plain; version=0.0.4" in head
    return text


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What one of two real peers of five serves, and the lines that both write."""
    lines, logger = io.StringIO(), logging.getLogger("pdlrecover")
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    place = tmp_path_factory.mktemp("clinics")
    federation = whole_peers.settle(place)

    async def story():
        ports = [int(each.split(":")[1]) for each in free_addresses(2)]
        peers, tasks = [], []
        for me, port in enumerate(ports):
            files = whole_peers.PeerFiles(federation, place / whole_peers.NAMES[me])
            peers.append(files.peer(files.archive(files.storage_key()), metrics_port=port))
        try:
            tasks = [asyncio.create_task(peer.run()) for peer in peers]
            await until(lambda: all((peer.folder / CONTROL).exists() for peer in peers))
            await until(lambda: all(peer.heard for peer in peers))
            await until(lambda: "unreachable" in lines.getvalue())
            return await fetched(ports[0])
        finally:
            for peer in peers:
                peer.stop()
            await asyncio.gather(*tasks)
            for peer in peers:
                peer.runs.store.close()

    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        return asyncio.run(story()), [json.loads(line) for line in lines.getvalue().splitlines()]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@pytest.fixture(scope="module")
def served(told):
    return told[0]


def exported(text):
    """Return the families that have a series."""
    return {NAME.match(line)[1] for line in text.splitlines() if line.startswith("pdlrecover_")}


def used():
    """Return the metrics in every expression of the alerts and the dashboard."""
    alerts = yaml.safe_load((OPERATING / "prometheus" / "alerts.yml").read_text())
    rules = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    return {name for text in [*rules, *expressions()] for name in NAME.findall(text)}


def expressions():
    """Return what the dashboard asks, with its variables filled in."""
    board = json.loads((OPERATING / "grafana" / "dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    found += [note["expr"] for note in board["annotations"]["list"]]
    return [each.replace("$instance", ".+") for each in found]


def test_every_metric_of_the_alerts_and_the_dashboard_is_exported_by_a_real_peer(served):
    assert len(used()) > 30
    assert used() - exported(served) == set()


def test_every_metric_is_exported_from_the_start_and_shown_somewhere(served):
    assert exported(served) == set(METRICS)
    shown = {name for text in expressions() for name in NAME.findall(text)}
    assert set(METRICS) - shown == set(), "a panel of the dashboard shows each"


def test_every_metric_is_documented():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([a-z_]+)[`{]", row.split("|")[1])}
    assert set(METRICS) - documented == set()


def test_what_is_served_says_how_things_are(served):
    values = dict(re.findall(r"^pdlrecover_(\S+) (\S+)$", served, re.MULTILINE))
    assert values['peer_heard{peer="birch"}'] == "1.0"
    assert values['peer_heard{peer="fir"}'] == "0.0"
    assert (values["peers"], values["peers_heard"], values["peers_needed"]) == ("4.0", "1.0", "2.0")
    (running,) = [series for series in values if series.startswith("running{")]
    assert re.fullmatch(r'running\{run="[0-9a-f]{16}",kind="founding"\}', running)
    assert values[running] == "1.0"
    (accuracy,) = [value for series, value in values.items() if series.startswith("accuracy")]
    assert accuracy == "NaN"
    assert re.search(r'pdlrecover_info\{federation="clinics",peer="ash",version="[0-9.]+"', served)
    assert float(values["descriptors_in_use"]) < float(values["descriptors"])
    assert (
        float(values["certificate_expires_seconds"]) - float(values["time_seconds"])
    ) / 86400 > 9 * 365


def test_the_lines_of_real_peers_have_the_fields_that_are_documented(told):
    lines = told[1]
    assert {line["event"] for line in lines} >= {"started", "unreachable", "stopping"}
    for line in lines:
        assert list(line)[: len(ALWAYS)] == list(ALWAYS)
        assert set(line) - set(ALWAYS) <= set(FACTS)
        assert line["event"] in EVENTS
    down = {line["name"] for line in lines if line["event"] == "unreachable"}
    assert down <= {"cedar", "elm", "fir"}


def test_what_keeps_a_peer_from_running_is_a_line_of_its_own(tmp_path):
    done = run("peer", "run", str(tmp_path / "no.toml"), str(tmp_path), "--json-logs")
    (line,) = map(json.loads, done.stderr.splitlines())
    assert done.returncode == 2
    assert (line["event"], line["level"], line["by"]) == ("refused-to-run", "error", "")


@needs_promtool
def test_prometheus_can_read_what_is_served_and_finds_nothing_to_say_about_it(served):
    fine, said = promtool("check", "metrics", said=served)
    assert fine, said
    fine, said = promtool("check", "metrics", said=served.replace("# TYPE", "# TYP", 1))
    assert fine, "a comment is a comment"
    assert not promtool("check", "metrics", said=served + "pdlrecover_x{ 1\n")[0]


def test_numbers_are_served_on_this_machine_unless_another_address_is_said():
    async def story():
        for said, bound in (((), "127.0.0.1"), (("0.0.0.0",), "0.0.0.0")):  # noqa: S104
            (address,) = free_addresses(1)
            port = int(address.split(":")[1])
            server = await serve_metrics(port, lambda: {"time_seconds": 1.0}, *said)
            assert [each.getsockname() for each in server.sockets] == [(bound, port)]
            server.close()
            await server.wait_closed()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("", "got an empty one"),
        ("192.0.2.1", "an address that this"),
        ("x" * 70, "an address that"),
    ],
)
def test_an_address_that_this_machine_does_not_have_is_refused(host, said):
    with pytest.raises(PlanError, match=said):
        asyncio.run(serve_metrics(free_port(), dict, host))


def free_port():
    return int(free_addresses(1)[0].split(":")[1])


def test_a_number_that_cannot_be_read_ends_that_answer_and_nothing_else(caplog):
    def unreadable():
        raise OSError("the disk is gone")

    async def story():
        (address,) = free_addresses(1)
        host, port = address.split(":")
        server = await serve_metrics(int(port), unreadable)
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        server.close()
        await server.wait_closed()

    asyncio.run(story())
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_labels_are_escaped_and_series_stand_below_their_family():
    series = labelled("info", peer='a"b\\c\nd')
    assert series == 'info{peer="a\\"b\\\\c\\nd"}'
    text = exposition({series: 1.0, "time_seconds": 2.5})
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [f"pdlrecover_{series} 1.0", "pdlrecover_time_seconds 2.5"]
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("#")]
    assert all(first == second for first, second in list(pairwise(heads))[::2])
