import subprocess
import sys
import threading

import numpy as np
import pytest

from pdlrecover.field import F61, Seeded, threads


@pytest.fixture
def with_threads(monkeypatch):
    def use(count):
        monkeypatch.setattr(threads, "count", lambda: count)

    return use


def problems(count=6):
    return [(Seeded(k).elements(40, 700), Seeded(-k).elements(700, 3000)) for k in range(1, count)]


def test_threads_change_nothing(with_threads):
    a, b = problems()[0]
    results = []
    for count in (1, 2, 5):
        with_threads(count)
        results.append(F61.matmul(a, b))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_work_inside_a_thread_does_not_wait_for_threads_nor_share_their_memory(with_threads):
    with_threads(1)
    expected = [F61.matmul(a, b) for a, b in problems()]
    with_threads(4)
    found = threads.in_parallel([lambda a=a, b=b: F61.matmul(a, b) for a, b in problems()])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_users_own_threads_may_all_compute_at_once(with_threads):
    with_threads(1)
    expected = [F61.combine([3, -5], [a, F61.multiply(a, a)]) for a, _ in problems()]
    with_threads(3)
    found = [None] * len(expected)

    def work(i, a):
        found[i] = F61.combine([3, -5], [a, F61.multiply(a, a)])

    users = [threading.Thread(target=work, args=(i, a)) for i, (a, _) in enumerate(problems())]
    for user in users:
        user.start()
    for user in users:
        user.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert threads._limits == []


@pytest.mark.parametrize(("asked", "fine"), [("3", True), ("0", False), ("many", False)])
@pytest.mark.slow
def test_the_environment_sets_the_threads(asked, fine):
    code = "from pdlrecover.field import threads; print(threads.count())"
    environment = {"PDLRECOVER_THREADS": asked, "PATH": "/usr/bin"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (result.stdout.strip() == asked) == fine
    assert ("PDLRECOVER_THREADS must be a whole number" in result.stderr) != fine
