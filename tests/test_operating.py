"""The examples of operating a peer: what can be checked of them without systemd, Docker or Grafana.

No image is built here, and no unit started: see docs/operating.md for what that leaves open.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from promtool import OPERATING, ROOT, needs_promtool, promtool

from pdlrecover.cli import PEER_COMMANDS
from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.federation.signatures import check_agreement
from pdlrecover.engines.peers.folder import IDENTITY
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.identity.storage_key import CREDENTIAL, CREDENTIALS, StorageKey
from pdlrecover.engines.peers.settings import load_settings

ALERTS = OPERATING / "prometheus" / "alerts.yml"
PAGE = (ROOT / "docs" / "operating.md").read_text()
UNIT = OPERATING / "systemd" / "pdlrecover-peer@.service"
INSTALLED = "/opt/pdlrecover/bin/pdlrecover"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)


def load(name):
    return yaml.safe_load((OPERATING / name).read_text())


def rules():
    return [rule for group in load("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


# Alerts


@needs_promtool
def test_the_alert_rules_are_sound_and_fire_when_they_should():
    fine, said = promtool("check", "rules", ALERTS)
    assert fine, said
    assert f"{len(rules())} rules found" in said
    fine, said = promtool("test", "rules", ALERTS.with_name("alerts_test.yml"))
    assert fine, said


@needs_promtool
def test_the_tests_of_the_rules_fail_where_a_rule_is_wrong(tmp_path):
    tests = load("prometheus/alerts_test.yml")
    tests["tests"] = [each for each in tests["tests"] if each["name"].startswith("PeerNotHeard")]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    text = ALERTS.read_text()
    for changed, sound in (("_heard == 0", True), ("_heard == 1", False)):
        (tmp_path / "alerts.yml").write_text(text.replace("_heard == 0", changed))
        assert promtool("test", "rules", tmp_path / "tests.yml")[0] is sound


def test_every_alert_is_tested_both_ways_and_explained():
    tests = load("prometheus/alerts_test.yml")["tests"]
    outcomes = Counter(
        (each["alertname"], bool(each["exp_alerts"]))
        for test in tests
        for each in test["alert_rule_test"]
    )
    for rule in rules():
        name = rule["alert"]
        assert outcomes[name, True], f"{name} never fires"
        assert outcomes[name, False], f"{name} always fires"
        assert f"| `{name}` |" in PAGE, f"{name} is not on the page"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert {"summary", "description"} == set(rule["annotations"])
    named = re.findall(r"^\| `([A-Z]\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(rule["alert"] for rule in rules())


# The dashboard


@pytest.fixture
def board():
    return json.loads((OPERATING / "grafana" / "dashboard.json").read_text())


@needs_promtool
def test_every_question_of_the_dashboard_is_one_that_prometheus_understands(board, tmp_path):
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked = [expression.replace("$instance", ".+") for expression in asked]
    recorded = [{"record": f"asked:{i}", "expr": each} for i, each in enumerate(asked)]
    path = tmp_path / "asked.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": recorded}]}))
    fine, said = promtool("check", "rules", path)
    assert fine, said


def test_the_panels_of_the_dashboard_have_numbers_titles_and_places_of_their_own(board):
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert [target["refId"] for target in panel["targets"]]
    variables = {each["name"] for each in board["templating"]["list"]}
    asked = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert asked == variables


# systemd


@needs_systemd
def test_systemd_takes_the_unit_and_finds_it_shut_tight(tmp_path):
    path = tmp_path / UNIT.name
    here = Path(sys.executable).with_name("pdlrecover")
    text = UNIT.read_text()
    assert text.count(INSTALLED) == 1
    path.write_text(text.replace(INSTALLED, str(here)))
    verify = ["systemd-analyze", "verify", "--man=no"]
    done = subprocess.run([*verify, path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(path.read_text().replace("[Service]", "[Service]\nProtectSytem=yes"))
    done = subprocess.run([*verify, path], capture_output=True, text=True)
    assert "ProtectSytem" in done.stderr, "what it does not know it says"
    path.write_text(text.replace(INSTALLED, str(here)))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, "its exposure is above 2.0 of 10: " + done.stdout[-200:]


def test_the_command_of_the_unit_is_one_that_there_is():
    (line,) = [each for each in UNIT.read_text().splitlines() if each.startswith("ExecStart=")]
    program, *arguments = shlex.split(line.removeprefix("ExecStart="))
    assert program == INSTALLED
    peer, name, *rest = arguments
    assert peer == "peer"
    assert parsed(name, rest) == {
        "json_logs": True,
        "metrics_port": 9400,
        "metrics_host": "127.0.0.1",
        "federation": Path("/etc/pdlrecover/federation.toml"),
        "folder": Path("/var/lib/pdlrecover/%i"),
    }
    assert f"LoadCredential={CREDENTIAL}:" in UNIT.read_text()


def parsed(name, arguments):
    """Return what a command would be called with, as its command line says."""
    command = PEER_COMMANDS[name].load(name)
    return command.make_context(name, list(arguments)).params


# Containers


def instructions():
    """Return the instructions of the Containerfile, with continued lines as one."""
    text = (OPERATING / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    return [(name, rest) for name, rest in lines]


def of(name):
    return [rest for each, rest in instructions() if each == name]


def test_the_container_runs_commands_that_there_are_as_nobody_in_particular():
    last = [i for i, (name, _) in enumerate(instructions()) if name == "FROM"][-1]
    assert ("USER", "10001:10001") in instructions()[last:]
    start = json.loads(of("ENTRYPOINT")[0])
    assert start == ["pdlrecover", "peer"]
    name, *rest = json.loads(of("CMD")[0])
    assert parsed(name, rest)["metrics_host"] == "0.0.0.0"  # noqa: S104 (of the container)
    check = of("HEALTHCHECK")[0].partition("CMD ")[2]
    program, peer, name, *rest = json.loads(check)
    assert (program, peer) == ("pdlrecover", "peer")
    assert parsed(name, rest) == {
        "folder": Path("/peer"),
        "as_json": False,
        "require_running": True,
    }
    assert f"{CREDENTIALS}=/run/secrets" in of("ENV")[0]


def test_what_the_container_installs_is_pinned_and_an_extra_that_there_is():
    (install,) = [each for each in of("RUN") if "pip install" in each]
    assert "--constraint constraints.txt" in install
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in re.findall(r"\.\[(\w+)\]", install):
        assert extra in project["optional-dependencies"]
    image = of("FROM")[0].split()[0].partition("python:")[2].removesuffix("-slim")
    assert f"Programming Language :: Python :: {image}" in project["classifiers"]


@pytest.mark.slow
def test_what_the_container_copies_is_enough_to_build_the_package(tmp_path):
    for line in of("COPY"):
        if line.startswith("--from"):
            continue
        *sources, target = line.split()
        for each in sources:
            source = ROOT / each
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, tmp_path / target, ignore=ignore)
            else:
                shutil.copy(source, tmp_path / target)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (tmp_path / "out").glob("*.whl")
    named = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", wheel], capture_output=True, text=True
    ).stdout
    assert "pdlrecover/learning/digits.csv.gz" in named
    assert "pdlrecover/cli/doctor.py" in named


# Compose

KEYS = {
    "service": {
        "image", "build", "user", "restart", "stop_grace_period", "read_only", "tmpfs", "cap_drop",
        "security_opt", "ulimits", "networks", "volumes", "secrets", "ports", "environment",
        "depends_on",
    },
    "file": {"name", "services", "networks", "volumes", "secrets"},
}  # fmt: skip
"""Of the Compose specification, those that are used."""
PEERS = ("ash", "birch", "cedar", "elm", "fir")


@pytest.fixture(scope="module")
def composed():
    return load("compose.yaml")


def test_compose_has_only_keys_of_its_specification_and_names_what_it_defines(composed):
    assert {key for key in composed if not key.startswith("x-")} == KEYS["file"]
    for name, service in composed["services"].items():
        assert set(service) <= KEYS["service"], name
        assert set(service["networks"]) <= set(composed["networks"])
        assert set(service.get("depends_on", [])) <= set(composed["services"])
        for secret in service.get("secrets", []):
            assert secret["source"] in composed["secrets"]
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert target.startswith("/")
            if not source.startswith("./"):
                assert source in composed["volumes"]
            elif not source.startswith("./federation/"):
                assert (OPERATING / source).is_file(), source
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "not to other machines"


def test_every_peer_has_a_service_with_its_own_key_and_nothing_else_to_write_to(composed):
    services = composed["services"]
    assert set(services) - {"prometheus", "grafana"} == set(PEERS)
    for name in PEERS:
        service = services[name]
        assert service["volumes"] == [
            f"./federation/{name}:/peer",
            "./federation/agreed:/etc/pdlrecover:ro",
        ]
        assert service["secrets"] == [{"source": f"{name}-key", "target": CREDENTIAL}]
        assert composed["secrets"][f"{name}-key"]["file"] == f"./federation/keys/{name}.key"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        context = (OPERATING / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()
    for network in ("federation", "monitoring"):
        assert composed["networks"][network] == {"internal": True}


def test_prometheus_and_grafana_find_what_they_are_given(composed):
    scraped = load("prometheus/prometheus.yml")
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:9400" for name in PEERS]
    assert any(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules())
    mounted = {v.split(":")[1] for v in composed["services"]["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{file}" for file in scraped["rule_files"]} <= mounted
    (source,) = load("grafana/datasource.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = load("grafana/provider.yml")["providers"]
    mounted = {v.split(":")[1] for v in composed["services"]["grafana"]["volumes"]}
    assert any(each.startswith(provider["options"]["path"] + "/") for each in mounted)


@needs_promtool
def test_prometheus_takes_its_settings():
    fine, said = promtool("check", "config", OPERATING / "prometheus" / "prometheus.yml")
    assert fine, said


@pytest.mark.slow
def test_what_is_prepared_for_compose_is_a_federation_that_all_have_signed(tmp_path):
    place = tmp_path / "federation"
    done = subprocess.run(
        ["bash", OPERATING / "prepare.sh", place],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    file = place / "agreed" / "federation.toml"
    membership = load_federation(file)
    check_agreement(file, membership)
    assert [peer.address for peer in membership.peers] == [f"{name}:7400" for name in PEERS]
    for me, name in enumerate(PEERS):
        assert membership.number_of(Identity.load(place / name / IDENTITY)) == me
        settings = load_settings(place / name)
        assert settings.network.listen == "0.0.0.0:7400"
        assert settings.history.key_file is None, "it is a secret of the container"
        StorageKey.from_file(place / "keys" / f"{name}.key")
