"""Compact L-BFGS against the dense recursion that defines it."""

import numpy as np
import pytest

from pdlrecover.recovery.curvature import Curvature, OpenedCurvature, correction
from pdlrecover.recovery.requests import Dots


def convex_pairs(d=12, s=4, seed=0):
    """Return W, G of a convex quadratic, so that every wᵀg is positive."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    hessian = root @ root.T / d + 0.1 * np.eye(d)
    w = rng.normal(size=(s, d))
    return w, w @ hessian, rng.normal(size=d)


def dense_bfgs(w, g, start):
    """Return B after the direct BFGS updates, from B₀ = start: the definition, in d×d matrices."""
    b = start
    for s, y in zip(w, g, strict=True):
        b = b - np.outer(b @ s, b @ s) / (s @ b @ s) + np.outer(y, y) / (y @ s)
    return b


def product(w, g, v, metric=None, damping=1.0):
    found = correction((w @ g.T).tolist(), (g @ v).tolist(), w, v, metric, damping)
    return found.public + np.asarray(found.coefficients) @ g


@pytest.mark.parametrize("s", [1, 2, 3, 4, 6])
def test_the_compact_form_is_the_dense_recursion(s):
    w, g, v = convex_pairs(s=s)
    rho = (w[-1] @ g[-1]) / (w[-1] @ w[-1])
    expected = dense_bfgs(w, g, rho * np.eye(12)) @ v
    np.testing.assert_allclose(product(w, g, v), expected, rtol=1e-10)


def test_in_a_metric_the_recursion_starts_from_it():
    w, g, v = convex_pairs(seed=1)
    metric = np.random.default_rng(2).uniform(0.1, 3.0, 12)
    rho = 0.5 * (w[-1] @ g[-1]) / (w[-1] @ (metric * w[-1]))
    expected = dense_bfgs(w, g, rho * np.diag(metric)) @ v
    np.testing.assert_allclose(product(w, g, v, metric, 0.5), expected, rtol=1e-10)


@pytest.mark.parametrize("metric", [None, np.linspace(0.5, 2, 12)])
def test_the_newest_pair_fulfils_the_secant_equation(metric):
    w, g, _ = convex_pairs()
    np.testing.assert_allclose(product(w, g, w[-1], metric, 0.5), g[-1], rtol=1e-9)


def test_a_lower_triangle_with_its_diagonal_would_break_the_secant_equation():
    """The paper's printed formula: M with its diagonal. Here is why it is corrected."""
    w, g, _ = convex_pairs()
    a, v = w @ g.T, w[-1]
    rho = a[-1, -1] / (w[-1] @ w[-1])
    m = np.tril(a)
    system = np.block([[-np.diag(np.diag(a)), m.T], [m, rho * w @ w.T]])
    p = np.linalg.solve(system, np.concatenate([g @ v, rho * w @ v]))
    printed = rho * v - p[:4] @ g - rho * p[4:] @ w
    assert np.linalg.norm(printed - g[-1]) > 0.5 * np.linalg.norm(g[-1])


def answer(curvature, g_by_round, v, asked):
    """Drive `estimate`, answering its dot products from clear pairs."""
    method = curvature.estimate(v, None, 1.0)
    reply = None
    while True:
        try:
            request = method.send(reply)
        except StopIteration as end:
            return end.value
        assert isinstance(request, Dots)
        asked.append((len(request.vectors), request.pairs))
        g = np.stack([g_by_round[b] for b in request.pairs])
        reply = request.vectors @ g.T


def test_only_what_is_new_of_a_is_opened():
    w, g, v = convex_pairs(s=6)
    g_by_round = dict(enumerate(g))
    curvature, asked = Curvature(size=3), []
    for b in range(5):
        curvature.add(b, w[b])
    answer(curvature, g_by_round, v, asked)
    assert asked == [(3, (2, 3, 4)), (1, (2, 3, 4))]  # all of A for the pairs in use, then u
    asked.clear()
    answer(curvature, g_by_round, v, asked)
    assert asked == [(1, (2, 3, 4))]
    asked.clear()
    curvature.add(5, w[5])
    found = answer(curvature, g_by_round, v, asked)
    assert asked == [(1, (3, 4, 5)), (2, (5,)), (1, (3, 4, 5))]
    total = found.public + np.asarray(found.coefficients) @ g[3:6]
    np.testing.assert_allclose(total, product(w[3:6], g[3:6], v), rtol=1e-10)


def test_opened_pairs_give_the_same_product():
    w, g, v = convex_pairs(s=5)
    opened = OpenedCurvature(size=4)
    for displacement, difference in zip(w, g, strict=True):
        opened.add(displacement, difference)
    np.testing.assert_allclose(opened.product(v, None, 1.0), product(w[1:], g[1:], v), rtol=1e-10)


def test_a_displacement_of_zero_gives_no_estimate():
    w, g, v = convex_pairs(s=2)
    w[-1] = 0
    assert correction((w @ g.T).tolist(), (g @ v).tolist(), w, v) is None
