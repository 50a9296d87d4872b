"""The numbers of single runs beside the documents made of them: one line of JSON for each run.

A document has means; here is what they are means of, so that anyone can compute others. Curves and
openings are left out, and numbers are rounded to six digits. Runs are identified by their config
without its methods; one that is there gets the methods it did not have, and newer numbers. Of two
commands with one folder, the second waits for the first to write.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdlrecover.decode import decode
from pdlrecover.errors import RecordError
from pdlrecover.experiments.experiment.result import MethodNumbers, Result, as_record
from pdlrecover.files import alone, make_folder, read_text, write_whole

NAME = "runs.jsonl"
DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """The numbers of one run."""

    config: dict[str, Any]
    """The settings, without the methods; those of earlier versions may be in it."""
    versions: dict[str, str]
    methods: dict[str, MethodNumbers]

    @property
    def identity(self) -> str:
        """What tells this run from others."""
        return json.dumps(self.config, sort_keys=True)


def add_runs(results: Sequence[Result], folder: Path) -> Path:
    """Write these runs into the folder's file, and keep the others that are in it."""
    make_folder(folder, RecordError)
    path = folder / NAME
    with alone(path):
        runs = {run.identity: run for run in read_runs(path)} if path.exists() else {}
        for run in map(_numbers, results):
            known = runs.get(run.identity, run).methods
            runs[run.identity] = replace(run, methods={**known, **run.methods})
        lines = (json.dumps(as_record(runs[key])) for key in sorted(runs))
        write_whole(path, "".join(f"{line}\n" for line in lines), RecordError)
    return path


def read_runs(path: Path) -> list[RunNumbers]:
    """Return the runs of a file."""
    text = read_text(path, RecordError)
    try:
        return [_read(json.loads(line), f"run {i}") for i, line in enumerate(text.splitlines())]
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}; delete it to write it again") from error


def _numbers(result: Result) -> RunNumbers:
    """Return the numbers of a result, rounded."""
    record = as_record(result)
    del record["config"]["methods"]
    return _read({**record, "methods": _rounded(record["methods"])})


def _read(record: Any, where: str = "") -> RunNumbers:
    return decode(RunNumbers, record, RecordError, where=where, ignore_unknown=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
