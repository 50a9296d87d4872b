"""Looks up the pinned versions of constraints.txt in the database of known vulnerabilities.

    python .ci/audit_dependencies.py        # or: make audit-dependencies

It runs `pip-audit`, which must be installed beside this interpreter. Exits with 0 only if every
package was looked up and none is known to be vulnerable. `pip-audit` itself also exits with 0 if it
found nothing about any of them, because the database was not there; here that is a failure.
"""

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
COMMAND = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
VULNERABLE, NOT_AUDITED = 1, 2


def judged(output: str, errors: str) -> tuple[int, str]:
    """Return the exit code and what to say, given what `pip-audit` wrote."""
    try:
        found = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        return NOT_AUDITED, _not_audited(f"pip-audit gave no result ({last[0]})")
    skipped = [each for each in found if "skip_reason" in each]
    if skipped or not found:
        reason = skipped[0]["skip_reason"] if skipped else "it names none"
        many = f"{len(skipped)} of {len(found)} packages could not be looked up"
        return NOT_AUDITED, _not_audited(f"{many} ({reason})")
    bad = [f"{e['name']} {e['version']}: {v['id']}, mended in {v['fix_versions'] or 'no version'}"
           for e in found for v in e["vulns"]]  # fmt: skip
    if bad:
        return VULNERABLE, "\n".join(["known vulnerabilities:", *bad])
    return 0, f"{len(found)} packages were looked up, and nothing is known against them"


def _not_audited(why: str) -> str:
    return (
        f"the dependencies were NOT audited: {why}; nothing is known about their safety. The "
        "database is asked at https://pypi.org/pypi: run this where it can be reached"
    )


def main() -> None:
    """Run it, and leave with its verdict."""
    command = [sys.executable, *COMMAND, "--requirement", str(CONSTRAINTS), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 (fixed)
    code, text = judged(done.stdout, done.stderr)
    print(text)  # noqa: T201 (this is a command)
    sys.exit(code)


if __name__ == "__main__":
    main()
