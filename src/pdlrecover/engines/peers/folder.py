"""What is where in a peer's folder, and beside a federation file.

FOLDER/identity/            its keys (see `identity`)
FOLDER/peer.toml            its own settings (see `settings`)
FOLDER/history/             what it keeps, sealed (see `runs.archive`)
FOLDER/control              the socket of the running peer (see `operator.local_socket`)
FOLDER/status.json          where it is, or was when it stopped
FOLDER/evidence/            what proves a cheat (see `operator.misconduct`)
FOLDER/standardisation.json the scale of inputs, if there is one, and what was opened for it
FOLDER/trained.*            the trained model, and what it took
FOLDER/recovered-NAME.*     a recovered model, named by the removal
FOLDER/naming-NAME.json     who made a round void, and what was opened to find out
federation.toml             what all have agreed on, and beside it
federation.signatures       who has signed that
"""

from pathlib import Path

IDENTITY = "identity"
SETTINGS = "peer.toml"
HISTORY = "history"
CONTROL = "control"
STATUS = "status.json"
FEDERATION = "federation.toml"
EVIDENCE = "evidence"
TRAINED = "trained"
STANDARDISATION = "standardisation.json"


def recovered_name(removal: str) -> str:
    """Return what the files of a recovery are called, by the removal's digest in hexadecimal."""
    return f"recovered-{removal[:16]}"


def naming_name(run: str) -> str:
    """Return what the file of a naming is called, by its run's digest in hexadecimal."""
    return f"naming-{run[:16]}"


def signatures_path(federation: Path) -> Path:
    """Return where the signatures of a federation file are."""
    return federation.with_suffix(".signatures")
