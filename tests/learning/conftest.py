import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published files, where there is one."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PDLRECOVER_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no published data in {folder}; set PDLRECOVER_DATA")
    return folder
