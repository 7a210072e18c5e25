"""The bounds of a count, against exact sums: neither tail is larger than what is stated, and no bound is wider than it
must be."""

import math
from fractions import Fraction

import pytest

from attncheck.checks.dropout import SAMPLES, binomial_bounds


def tails(n: int, p: Fraction) -> tuple[list[Fraction], list[Fraction]]:
    """P(X <= k) and P(X >= k) for k = 0 .. n, exactly."""
    mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    below, above = [mass[0]], [mass[-1]]
    for k in range(1, n + 1):
        below.append(below[-1] + mass[k])
        above.append(above[-1] + mass[n - k])
    return below, above[::-1]


CASES = [(n, p, a) for n in (1, 2, 9, 40, 64) for p in ("1/10", "3/10", "1/2", "9/10") for a in (1e-9, 1e-3, 0.1)]
CASES += [(SAMPLES, p, 1e-9) for p in ("1/10", "1/1000", "99/100")]


@pytest.mark.parametrize(("n", "text", "alarm"), CASES)
def test_each_tail_has_less_than_half_of_the_alarm_and_the_bounds_are_the_tightest(
    n: int, text: str, alarm: float
) -> None:
    p = Fraction(text)
    low, high = binomial_bounds(n, float(p), alarm)
    below, above = tails(n, p)
    half = Fraction(alarm) / 2
    assert 0 <= low <= n * p <= high <= n
    assert (below[low - 1] if low else 0) < half <= below[low]
    assert (above[high + 1] if high < n else 0) < half <= above[high]


def test_two_tosses_by_hand() -> None:
    """P(0) = P(2) = 1/4: both are in the interval of an alarm of 0.4, neither in that of 0.6."""
    assert binomial_bounds(2, 0.5, 0.4) == (0, 2)
    assert binomial_bounds(2, 0.5, 0.6) == (1, 1)


def test_the_alarm_that_is_stated_is_the_default() -> None:
    assert binomial_bounds(SAMPLES, 0.1) == binomial_bounds(SAMPLES, 0.1, 1e-9) != binomial_bounds(SAMPLES, 0.1, 1e-8)


def test_keeping_instead_of_dropping_is_far_outside() -> None:
    low, high = binomial_bounds(SAMPLES, 0.1)
    assert not low <= 0.9 * SAMPLES <= high
    assert not low <= 0.05 * SAMPLES <= high
