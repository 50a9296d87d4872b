"""The numbers of single runs beside the documents made of them: one line of JSON for each run.

A document has means; here is what they are means of, so that anyone can compute others. Curves and
openings are left out, and numbers are rounded to six digits. Runs are told apart by their config
without its methods; one that is there gets the methods it did not have, and newer numbers. Of two
commands with one folder, the second waits for the first to write.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdlrecover.errors import RecordError
from pdlrecover.experiments.experiment.run import Record
from pdlrecover.files import alone, make_folder, read_text, write_whole

NAME = "runs.jsonl"
LEFT_OUT = ("curve", "opened", "liars")
DIGITS = 6


def add_runs(records: Sequence[Record], folder: Path) -> Path:
    """Write these runs into the folder's file, and keep the others that are in it."""
    make_folder(folder, RecordError)
    path = folder / NAME
    with alone(path):
        runs = {_identity(run): run for run in read_runs(path)} if path.exists() else {}
        for record in records:
            run = _plain(record)
            known = runs.get(_identity(run), {"methods": {}})
            runs[_identity(run)] = {**run, "methods": {**known["methods"], **run["methods"]}}
        lines = (f"{json.dumps(runs[key])}\n" for key in sorted(runs))
        write_whole(path, "".join(lines), RecordError)
    return path


def read_runs(path: Path) -> list[Record]:
    """Return the runs of a file."""
    text = read_text(path, RecordError)
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}; delete it to write it again") from error


def _plain(record: Record) -> Record:
    config = {key: value for key, value in record["config"].items() if key != "methods"}
    methods = {
        name: {key: _rounded(value) for key, value in entry.items() if key not in LEFT_OUT}
        for name, entry in record["methods"].items()
    }
    return {"config": config, "versions": record["versions"], "methods": methods}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _identity(run: Record) -> str:
    return json.dumps(run["config"], sort_keys=True)
