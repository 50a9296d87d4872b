"""Reads stored results and stored documents back as documents.

Rules: a folder stands for its `document.json`, else for its `result.json`, else for all JSON files
in it. An error about a file that cannot be read names it.
"""

from collections.abc import Sequence
from pathlib import Path

from pdlrecover.errors import RecordError
from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.experiment.result import Result, digest_of, read_result
from pdlrecover.experiments.report.simulation_document import documents_from_result
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.files import read_json

NAMES = ("document.json", "result.json")
DAMAGED = "make it again, or leave it out"


def read_documents(paths: Sequence[Path]) -> list[Document]:
    """Return the documents of these folders and files: simulations first, seeds put together.

    Reproductions follow in the paper's order, then others as they come.
    """
    results: list[Result] = []
    documents: list[Document] = []
    for file in [file for path in paths for file in _files(path)]:
        found = read_json(file, RecordError, damaged=None if file in paths else DAMAGED)
        record = found if isinstance(found, dict) else {}
        try:
            if {"methods", "config"} <= record.keys():
                if record.get("digest", digest := digest_of(record)) != digest:
                    raise RecordError("its digest is not of what it says, so it was changed")
                results.append(read_result(record))
                if not results[-1].methods:
                    raise RecordError("no method in it is done yet")
            elif {"figures", "tables", "summary"} <= record.keys():
                documents.append(Document.from_record(record))
            else:
                raise RecordError(
                    f"it has neither the parts of a simulation's result nor of a document, but "
                    f"{', '.join(sorted(record)[:6]) or 'nothing'}"
                )
        except RecordError as error:
            raise RecordError(
                f"{file} is a record of another format: {error}; give a result.json that "
                "`pdlrecover simulate` wrote, or a document's record"
            ) from error
    order = {name: place for place, name in enumerate(REPRODUCTIONS)}
    documents.sort(key=lambda document: order.get(document.name, len(order)))
    return [*documents_from_result(*results), *documents]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise RecordError(f"{path} does not exist; name a folder with a result, or a record file")
    named = [path / name for name in NAMES if (path / name).is_file()]
    found = named[:1] or sorted(path.glob("*.json"))
    if not found:
        raise RecordError(
            f"{path} has no {' or '.join(NAMES)}; run `pdlrecover simulate --out {path}` first, or "
            "name another folder"
        )
    return found
