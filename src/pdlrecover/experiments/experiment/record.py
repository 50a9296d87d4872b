"""The record of one experiment in its folder: begun, continued, and written after every method.

Rules:

- A record carries a digest of itself. What is stored and cannot be read, or is not what was
  written, raises a `HistoryError`; nothing else that goes wrong does.
- It says which config it is of; a record of another one is neither continued nor overwritten.
"""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pdlrecover.errors import HistoryError, RecordError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import (
    FORMAT,
    POISONED,
    MethodResult,
    Result,
    as_record,
    digest_of,
    read_result,
)
from pdlrecover.files import read_json, write_json
from pdlrecover.recovery.methods import entry_of


def model_file(out: Path, name: str) -> Path:
    """Return where a method's model is kept."""
    return out / "models" / f"{name}.safetensors"


def begin(config: Config, out: Path, methods: dict[str, MethodResult]) -> None:
    """Write a record that `run` continues: these methods are there already."""
    out.mkdir(parents=True, exist_ok=True)
    write(out, replace(fresh(config), methods=methods))


def is_done(result: Result, config: Config, *, original: bool = True) -> bool:
    """Say whether a result has all that is asked for."""
    asked = (*config.methods, *((POISONED,) if original else ()))
    return result.complete and all(name in result.methods for name in asked)


def needs_original(config: Config, methods: Sequence[str]) -> bool:
    """Say whether any of these methods uses more of the original run than its first weights.

    Where samples are held out, they do: the original's quality decides on further cycles.
    """
    seen = [entry_of(name).sees != "nothing" for name in methods]
    return any(seen) or (bool(config.held_out) and bool(seen))


def fresh(config: Config) -> Result:
    """Return the result of an experiment of which nothing is done yet."""
    names = ("pdlrecover", "torch", "numpy", "cryptography")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    return Result(config=config, seed=config.seed, versions=versions, commit=commit(), methods={})


def stored(config: Config, out: Path) -> Result | None:
    """Return the result of an earlier run of the same config, or None if there is none."""
    path = out / "result.json"
    if not path.exists():
        return None
    record = read_json(path, HistoryError, damaged="delete it to run again")
    if not isinstance(record, dict):
        raise HistoryError(f"{path} is no result; delete it to run again")
    if record.get("format") != FORMAT:
        raise HistoryError(
            f"{path} has format {record.get('format')}, and this version writes {FORMAT}; give "
            "another --out, or delete it"
        )
    if record.get("digest") != digest_of(record):
        raise HistoryError(
            f"{path} is damaged, or of an earlier version: its digest is not of what it says; give "
            "another --out, or delete it"
        )
    try:
        found = read_result(record)
    except RecordError as error:
        raise HistoryError(f"{path} cannot be continued: {error}; delete it") from error
    mine, theirs = config.record(), {**record["config"], "methods": list(config.methods)}
    if mine != theirs:
        every = mine.keys() | theirs.keys()
        differing = sorted(key for key in every if mine.get(key) != theirs.get(key))
        raise HistoryError(
            f"{path} is the result of another config, which differs in "
            f"{', '.join(differing) or 'format'}; give another --out, or delete it"
        )
    return found


def write(out: Path, result: Result) -> Result:
    """Write `out/result.json`, with the digest of what it says; return the result."""
    record = as_record(result)
    record["digest"] = digest_of(record)
    write_json(out / "result.json", record, HistoryError, indent=1)
    return result


def commit() -> str | None:
    """Return the commit of the source this runs from, or None where it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
