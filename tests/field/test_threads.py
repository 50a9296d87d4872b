import subprocess
import sys

import numpy as np
import pytest

from pdlrecover.field import F61, Seeded, product


def test_threads_change_nothing(monkeypatch):
    a, b = Seeded("a").elements(40, 700), Seeded("b").elements(700, 3000)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(product, "THREADS", threads)
        results.append(F61.matmul(a, b))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize(("asked", "fine"), [("3", True), ("0", False), ("many", False)])
def test_the_environment_sets_the_threads(asked, fine):
    code = "from pdlrecover.field import product; print(product.THREADS)"
    environment = {"PDLRECOVER_THREADS": asked, "PATH": "/usr/bin"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (result.stdout.strip() == asked) == fine
    assert ("PDLRECOVER_THREADS must be a whole number" in result.stderr) != fine


def test_work_inside_a_thread_does_not_wait_for_threads():
    a, b = Seeded("a").elements(40, 700), Seeded("b").elements(700, 3000)
    products = product.in_parallel([lambda: F61.matmul(a, b)] * 6)
    for found in products:
        np.testing.assert_array_equal(found, products[0])
