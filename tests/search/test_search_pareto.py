"""The front of any points, the best of many parts, and rounding, against looking at every pair."""

from itertools import pairwise

import numpy as np
from api import Part, Points, merged, pareto, rounded, undominated
from api import evaluate_nearest as nearest
from hypothesis import given
from hypothesis import strategies as st

POINTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=40)


def points(pairs: list[tuple[int, int]], first: int = 0) -> Points:
    time = np.array([t for t, _ in pairs], dtype=float)
    memory = np.array([m for _, m in pairs], dtype=float)
    return Points(time, memory, memory / 9, np.zeros(len(pairs), dtype=int), np.arange(first, first + len(pairs)))


def part(pairs: list[tuple[int, int]], first: int) -> Part:
    every = points(pairs, first)
    ordered = every.take(np.lexsort((every.index, every.second, every.first)))
    front = ordered.take(pareto(ordered.first, ordered.second))
    return Part(len(pairs), len(pairs), (0,), ((0, (len(pairs),)),), front, ordered.take(slice(5)), nearest(every, 5))


def by_pairs(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The points that no other beats: quadratic, and each value once."""
    every = set(pairs)
    return sorted(a for a in every if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in every))


@given(POINTS)
def test_the_front_is_what_no_other_point_beats(pairs):
    front = part(pairs, 0).front
    assert list(zip(front.first, front.second, strict=True)) == by_pairs(pairs)


@given(POINTS)
def test_of_equal_points_the_first_is_on_the_front(pairs):
    front = part(pairs, 0).front
    for t, m, i in zip(front.first, front.second, front.index, strict=True):
        assert pairs.index((int(t), int(m))) == i


@given(POINTS, st.lists(st.integers(0, 40), max_size=4))
def test_the_front_and_the_top_of_parts_are_those_of_the_whole(pairs, cuts):
    edges = [0, *sorted(min(c, len(pairs)) for c in cuts), len(pairs)]
    parts = [part(pairs[a:b], a) for a, b in pairwise(edges)]
    whole, together = part(pairs, 0), merged(parts, 5)
    for name in ("front", "top", "near"):
        for column in ("first", "second", "index"):
            mine, theirs = getattr(getattr(together, name), column), getattr(getattr(whole, name), column)
            assert mine.tolist() == theirs.tolist()
    assert (together.tried, together.refused) == (len(pairs), ((0, (len(pairs),)),))


@given(st.integers(0, 10**6), st.floats(0.2, 3))
def test_what_is_left_before_sorting_has_the_whole_front(seed, slope):
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 400, 3000).astype(float)
    memory = np.round(300 / time**slope * 100 + rng.integers(0, 300, 3000)) + 1
    every = points(list(zip(time.tolist(), memory.tolist(), strict=True)))
    left = undominated(time, memory)
    some = every.take(left)

    def front(of: Points) -> list[int]:
        ordered = of.take(np.lexsort((of.index, of.second, of.first)))
        return ordered.take(pareto(ordered.first, ordered.second)).index.tolist()

    assert front(some) == front(every)
    assert len(left) < len(time)


@given(POINTS)
def test_the_nearest_have_the_least_memory(pairs):
    found = nearest(points(pairs), 5)
    assert found.second.tolist() == sorted(m for _, m in pairs)[:5]


@given(st.floats(1e-12, 1e18), st.integers(-4, 4))
def test_numbers_that_differ_by_rounding_are_equal_and_others_are_not(x, steps):
    near = x
    for _ in range(abs(steps)):
        near = float(np.nextafter(near, np.inf if steps > 0 else -np.inf))
    a, b, far = rounded(np.array([x, near, x * (1 + 1e-9)]))
    assert abs(a - b) <= abs(x) * 2**-39
    assert a < far
