"""The tutorial whose five peers listen on ports: here, so that no other test takes them."""

import code_blocks
import pytest
from test_code_blocks import PEERS, ROOT


@pytest.mark.slow
def test_the_code_of_the_five_peers_runs_and_all_have_one_model(tmp_path):
    code_blocks.run(ROOT / PEERS, tmp_path)
