import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from pdlrecover.field import Q, Seeded, SystemSource, randomness


class WordStream:
    """A cipher stream that gives the words it was made of."""

    def __init__(self, *words):
        self.bytes = b"".join(word.to_bytes(8, "little") for word in words)

    def update_into(self, zeros, room):
        room[: len(zeros)], self.bytes = self.bytes[: len(zeros)], self.bytes[len(zeros) :]


def test_same_seed_same_elements_in_any_pieces():
    whole = Seeded(5).elements(50_000)
    source = Seeded(5)
    pieces = np.concatenate([source.elements(17), source.elements(49_983)])
    np.testing.assert_array_equal(whole, pieces)


def test_a_seed_means_the_same_for_ever():
    assert Seeded(1).elements(2).tolist() == [482626294483183811, 723724941259058985]


def test_other_seeds_give_other_elements():
    assert not np.array_equal(Seeded(1).elements(4), Seeded(2).elements(4))
    assert not np.array_equal(Seeded(1).elements(4), Seeded("1").elements(4))


def test_the_system_never_repeats_itself():
    source = SystemSource()
    assert not np.array_equal(source.elements(4), source.elements(4))


@pytest.mark.slow
def test_forked_processes_draw_different_elements():
    script = (
        "import os; from pdlrecover.field import SystemSource; source = SystemSource()\n"
        "child = os.fork(); print(source.elements(4).tolist(), flush=True)\n"
        "if child: os.waitpid(child, 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    drawn = done.stdout.splitlines()
    assert len(drawn) == 2
    assert drawn[0] != drawn[1]


def test_the_one_word_that_is_no_element_is_drawn_again():
    stream = WordStream(3, Q, (1 << 64) - 1, Q - 1, Q, 8, 9)
    assert randomness._draw(stream, (4,)).tolist() == [3, 9, 8, Q - 1]


def test_high_bits_are_masked_away():
    assert randomness._draw(WordStream((7 << 61) | 42), (1,)).tolist() == [42]


def test_elements_are_in_range_and_spread_evenly():
    # Chi-squared over 256 bins of 2^18 draws, fixed seed; 255 degrees of freedom: the false-alarm
    # rate of this bound for a fresh seed is about 1e-6.
    x = Seeded("spread").elements(1 << 18)
    assert x.min() >= 0
    assert x.max() < Q
    for bits in (x >> 53, x & 255):
        counts = np.bincount(bits, minlength=256)
        assert ((counts - 1024) ** 2 / 1024).sum() < 377


def test_no_global_random_state_is_touched():
    states = random.getstate(), np.random.get_state()[1].copy(), torch.random.get_rng_state()
    Seeded(3).elements(10)
    SystemSource().elements(10)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.random.get_rng_state(), states[2])
