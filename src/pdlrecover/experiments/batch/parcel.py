"""The files of a cell as one archive, for the way between two machines.

Rules:

- An archive is a zip file that is not compressed, with the record, the models and, on the way to
  who continues a cell, the training history. Nothing in it is ever unpickled.
- It is unpacked only if every name in it is one of those, once: no file is written elsewhere.
- A history of more than `MOST` bytes is left out: training again is cheaper than sending it.
"""

import io
import re
import zipfile
from pathlib import Path

from pdlrecover.errors import RecordError

MOST = 1 << 28
RESULTS = re.compile(r"result\.json|models/[^/\\.][^/\\]*\.safetensors")
TO_CONTINUE = re.compile(rf"{RESULTS.pattern}|models/[^/\\.][^/\\]*\.npy|history(/[^/\\.][^/\\]*)+")


def packed(folder: Path, *, history: bool) -> bytes:
    """Return the files of a cell, if there are any; with its history if asked for."""
    kept = TO_CONTINUE if history else RESULTS
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = {name: path for name, path in files.items() if path.is_file() and kept.fullmatch(name)}
    if sum(path.stat().st_size for path in files.values()) > MOST:
        files = {name: path for name, path in files.items() if RESULTS.fullmatch(name)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, path in files.items():
            archive.writestr(name, path.read_bytes())
    return content.getvalue()


def unpacked(content: bytes, folder: Path, *, history: bool) -> None:
    """Write the files of an archive into an empty folder; raise RecordError if it is not right."""
    kept = TO_CONTINUE if history else RESULTS
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            odd = [name for name in names if not kept.fullmatch(name) or names.count(name) > 1]
            packed = [each.filename for each in members if each.compress_type != zipfile.ZIP_STORED]
            if odd or packed:
                raise RecordError(
                    f"a result came back with a file {[*odd, *packed][0]!r} that does not belong "
                    "to it; run it again, or on another node"
                )
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(archive.read(name))
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise RecordError(f"a result came back damaged: {error}; run it again") from error
