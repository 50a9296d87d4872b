"""How much memory a process has of its own."""

from pathlib import Path

from pdlrecover.errors import PlanError


def own_bytes(pid: int | str = "self") -> int:
    """Return what is resident and the process's own: no libraries, no mapped files."""
    path = Path("/proc") / str(pid) / "status"
    try:
        status = path.read_text()
    except OSError as error:
        raise PlanError(
            f"memory is measured by {path}, which cannot be read ({error.strerror}); run this on "
            "Linux, while the process is there"
        ) from error
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])
