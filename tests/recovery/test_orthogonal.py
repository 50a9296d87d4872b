import os
import subprocess
import sys

import numpy as np
import pytest

from pdlrecover.layers import Layer
from pdlrecover.recovery import orthogonal
from pdlrecover.recovery.orthogonal import (
    FRACTION,
    MOST,
    QUINTIC,
    newton_schulz,
    orthogonalised,
    steps_of,
)

SHAPES = [(1, 1), (1, 9), (4, 4), (10, 101), (32, 145)]


def integers(shape, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=shape) * np.exp(spread * rng.normal(size=shape[1]))
    return np.rint(matrix / np.linalg.norm(matrix) * 2**FRACTION)


def divided(value, bits):
    """Return value / 2^bits, rounded half to even: in whole numbers."""
    whole, rest = value >> bits, value & ((1 << bits) - 1)
    half = 1 << (bits - 1)
    return whole + (rest > half or (rest == half and whole & 1))


def product(a, b, bits):
    columns = list(zip(*b, strict=True))
    return [
        [divided(sum(x * y for x, y in zip(row, column, strict=True)), bits) for column in columns]
        for row in a
    ]


def slow_newton_schulz(x, quintic_steps):
    """The second truth: the same iterations in Python's integers."""
    a, b, c = QUINTIC
    x = [[int(value) for value in row] for row in x]
    one = [[(i == j) << FRACTION for j in range(len(x))] for i in range(len(x))]

    def gram():
        return product(x, [list(column) for column in zip(*x, strict=True)], FRACTION)

    for _ in range(quintic_steps):
        first = gram()
        square = product(first, first, FRACTION)
        factor = [
            [divided(a * i + b * g + c * s, 12) for i, g, s in zip(*rows, strict=True)]
            for rows in zip(one, first, square, strict=True)
        ]
        x = product(factor, x, FRACTION)
    for _ in range(orthogonal.CUBIC_STEPS):
        factor = [
            [divided(3 * i - g, 1) for i, g in zip(*rows, strict=True)]
            for rows in zip(one, gram(), strict=True)
        ]
        x = product(factor, x, FRACTION)
    return x


@pytest.mark.parametrize("gain", [None, 60.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_iterations_are_those_of_whole_numbers(shape, gain):
    steps, start = steps_of(gain)
    x = np.rint(integers(shape) * start)
    assert newton_schulz(x, steps).astype(int).tolist() == slow_newton_schulz(x, steps)


@pytest.mark.parametrize("gain", [5.0, 60.0, 100.0, 1000.0])
def test_a_gain_is_how_far_small_singular_values_are_lifted_at_most(gain):
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    right, _ = np.linalg.qr(rng.normal(size=(200, 30)))
    values = np.geomspace(1, 1e-4, 30)
    values /= np.linalg.norm(values)
    matrix = left * values @ right.T
    out = orthogonalised(matrix.ravel(), [Layer(start=0, rows=30, columns=200)], gain)
    lifted = np.diag(left.T @ out.reshape(30, 200) @ right) / np.sqrt(200)
    assert (lifted <= np.minimum(1.01, 1.01 * gain * values + 1e-4)).all()
    small, large = values < 0.2 / gain, values > 4 / gain
    np.testing.assert_allclose(lifted[small], gain * values[small], rtol=0.1, atol=1e-4)
    np.testing.assert_allclose(lifted[large], 1, atol=0.01)


def test_a_gain_takes_no_more_steps_than_it_needs():
    assert steps_of(None) == (orthogonal.QUINTIC_STEPS, 1.0)
    assert steps_of(1e9) == steps_of(None)
    assert steps_of(MOST) == steps_of(None)
    assert [steps_of(gain)[0] for gain in (1, 60, 100, 1000)] == [0, 2, 3, 5]
    for gain in (1.0, 60.0, 100.0, 1000.0):
        steps, start = steps_of(gain)
        assert start * 1.5**4 * (QUINTIC[0] / 2**12) ** steps == pytest.approx(gain)


@pytest.mark.parametrize("shape", [*SHAPES, (100, 785)])
def test_any_order_of_summation_gives_the_same_bits(shape):
    x = integers(shape)
    columns, rows = np.random.default_rng(1).permuted([range(shape[1])], axis=1)[0], shape[0]
    turned = newton_schulz(np.ascontiguousarray(x[::-1][:, columns]))
    np.testing.assert_array_equal(turned[::-1], newton_schulz(x)[:, columns])
    assert rows == len(turned)


def test_the_number_of_threads_does_not_matter():
    script = (
        "import hashlib, numpy as np\n"
        "from pdlrecover.recovery.orthogonal import newton_schulz\n"
        "x = np.rint(np.random.default_rng(0).normal(size=(100, 785)) / 280.2 * 2**24)\n"
        "print(hashlib.sha256(newton_schulz(x).tobytes()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "4")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("shape", [(1, 9), (4, 4), (10, 101), (100, 785)])
def test_the_result_is_the_polar_factor(shape):
    x = integers(shape, spread=0.5)
    left, _, right = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(newton_schulz(x) / 2**FRACTION, left @ right, atol=2e-4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rank", [1, 3, 30])
def test_products_stay_exact_whatever_the_singular_values(seed, rank):
    """Rows of all iterates and of their factors stay so short that partial sums are below 2^53."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(30, rank)) @ np.diag(np.exp(3 * rng.normal(size=rank)))
    matrix = matrix @ rng.normal(size=(rank, 200))
    x = np.rint(matrix / np.linalg.norm(matrix) * 2**FRACTION)
    largest = factors = 0.0
    a, b, c = (value / 2**12 for value in QUINTIC)
    for _ in range(orthogonal.QUINTIC_STEPS):
        values = np.linalg.svd(x / 2**FRACTION, compute_uv=False)
        largest = max(largest, values.max())
        gram = x @ x.T / 2 ** (2 * FRACTION)
        factor = a * np.eye(len(x)) + b * gram + c * gram @ gram
        factors = max(factors, np.linalg.norm(factor, axis=1).max())
        x = factor @ x
    assert largest < 1.3
    assert factors < 3.5


def test_a_layer_is_orthogonalised_with_its_bias_and_the_rest_as_one_row():
    layers = (Layer(start=0, rows=3, columns=4, bias=12), Layer(start=15, rows=1, columns=5))
    gradient = np.random.default_rng(0).normal(size=20)
    out = orthogonalised(gradient, layers)
    biased = np.column_stack([out[:12].reshape(3, 4), out[12:15]])
    np.testing.assert_allclose(biased @ biased.T, 5 * np.eye(3), atol=1e-3)
    single = gradient[15:] / np.linalg.norm(gradient[15:]) * np.sqrt(5)
    np.testing.assert_allclose(out[15:], single, atol=1e-5)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7)])
def test_tall_and_wide_layers_are_each_other_turned(shape):
    gradient = np.random.default_rng(0).normal(size=shape)
    one = Layer(start=0, rows=shape[0], columns=shape[1])
    other = Layer(start=0, rows=shape[1], columns=shape[0])
    ours = orthogonalised(gradient.ravel(), [one]).reshape(shape)
    theirs = orthogonalised(np.ascontiguousarray(gradient.T).ravel(), [other]).reshape(shape[::-1])
    np.testing.assert_array_equal(ours, theirs.T)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_gradient_that_says_nothing_moves_nothing(value):
    layers = (Layer(start=0, rows=2, columns=3),)
    np.testing.assert_array_equal(orthogonalised(np.full(6, value), layers), np.zeros(6))


def test_rows_of_an_embedding_are_scaled_each_by_itself():
    gradient = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]])
    layer = Layer(start=0, rows=3, columns=2, by_row=True)
    expected = np.sqrt(2) * np.array([[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]])
    out = orthogonalised(gradient.ravel(), [layer]).reshape(3, 2)
    np.testing.assert_allclose(out, expected)
