"""promtool, which checks alert rules and metrics; `tests/promtool.sh` gets it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPERATING = ROOT / "examples" / "operating"
PROMTOOL = shutil.which("promtool") or shutil.which(ROOT / ".tools" / "promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool: bash tests/promtool.sh"
)


def promtool(*arguments, said=None):
    """Run promtool; return whether it found nothing wrong, and what it said."""
    command = [PROMTOOL, *map(str, arguments)]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60)
    return done.returncode == 0, done.stdout + done.stderr
