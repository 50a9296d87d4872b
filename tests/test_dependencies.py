"""The pinned versions are those that the project allows, and an audit that saw nothing fails."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def version(text):
    return tuple(int(part) for part in re.findall(r"\d+", text))


def pinned(file):
    lines = (ROOT / file).read_text().splitlines()
    named = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): found for name, found in named}


def test_every_direct_dependency_has_a_lower_bound_and_a_pinned_version_from_there_on():
    lowest_versions = script("lowest_versions")
    constraints = pinned("constraints-flower.txt") | pinned("constraints.txt")
    for requirement in lowest_versions.requirements():
        name, least = lowest_versions.lowest(requirement).split("==")
        assert version(constraints[name.lower()]) >= version(least), requirement


def test_a_requirement_without_a_lower_bound_is_refused():
    with pytest.raises(SystemExit, match="'rich' has no lower bound"):
        script("lowest_versions").lowest("rich")


def audited(*found):
    return script("audit_dependencies").judged(json.dumps({"dependencies": found}), "")


def test_an_audit_that_could_not_look_anything_up_fails_and_says_so():
    code, text = audited(
        {"name": "numpy", "version": "2.1", "vulns": []},
        {"name": "rich", "skip_reason": "not found"},
    )
    assert code == 2
    assert "NOT audited: 1 of 2 packages could not be looked up (not found)" in text
    assert audited()[0] == 2
    code, text = script("audit_dependencies").judged("", "first\nno connection\n")
    assert code == 2
    assert "pip-audit gave no result (no connection)" in text


def test_an_audit_names_what_is_vulnerable():
    hole = {"id": "CVE-1", "fix_versions": ["2.2"]}
    code, text = audited({"name": "numpy", "version": "2.1", "vulns": [hole]})
    assert code == 1
    assert "numpy 2.1: CVE-1, mended in ['2.2']" in text
    assert audited({"name": "numpy", "version": "2.1", "vulns": []})[0] == 0
