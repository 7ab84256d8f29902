"""Every closed-form optimum against brute force over whole numbers, 1,000 random cases each, ties and bounds included.

The closed form is derived once, in symbols; its integer rule is then evaluated exactly, case by case.
"""

import random
import sys
from collections.abc import Callable
from fractions import Fraction as F  # noqa: N817
from pathlib import Path

import pytest
from api import (
    Derivation,
    Domain,
    Graph,
    Largest,
    Power,
    Ratio,
    Setting,
    Sym,
    amount,
    built_in,
    maximise,
    minimise,
    num,
    pipelines,
    product,
    total,
)
from api import form as forms
from api import optimum_search as search

sys.path.insert(0, str(Path(__file__).parent))
from brute_force import least, least_of_a_valley

CASES = 1000
n, a, b, c = (Sym(name, False) for name in "nabc")
Cost = Callable[[int], F]
Case = tuple[dict[str, F], Cost]


def setting(**values: F) -> Setting:
    return Setting(Graph("no model", {}, {}, ()), values=values)


def number(rng: random.Random, top: int = 200) -> F:
    return F(rng.randint(1, top), rng.randint(1, 20))


def tie(rng: random.Random, case: int) -> int:
    """k (k + 1) in every fourth case: k and k + 1 then cost the same."""
    k = rng.randint(1, 15)
    return k * (k + 1) if case % 4 == 0 else 0


# -- what is asked, and the same cost written for brute force --------------------------------------------------


def bucket_number(rng: random.Random, case: int) -> Case:
    w, o = number(rng), number(rng)
    s = tie(rng, case) * w * o or number(rng)
    return {"s": s, "w": w, "o": o}, lambda k: k * o + s / (k * w)


def pipeline_chunks(rng: random.Random, case: int) -> Case:
    p, t, o = F(rng.randint(2, 12)), number(rng), number(rng, 60)
    if case % 4 == 0:
        k = rng.randint(1, 15)
        o = (p - 1) * t / (k * (k + 1))
    return {"p": p, "t": t, "o": o}, lambda k: (k + p - 1) * (t / k + o)


def broadcast_chunks(rng: random.Random, case: int) -> Case:
    h, size, link, lat = F(rng.randint(2, 12)), number(rng), number(rng, 20), number(rng, 60)
    if case % 4 == 0:
        k = rng.randint(1, 15)
        lat = (h - 1) * size / link / (k * (k + 1))
    return {"h": h, "S": size, "B": link, "a": lat}, lambda k: (k + h - 1) * (size / (k * link) + lat)


def linear_and_share(rng: random.Random, case: int) -> Case:
    x, rest = number(rng), number(rng)
    y = tie(rng, case) * x or number(rng)
    return {"a": x, "b": y, "c": rest}, lambda k: x * k + y / k + rest


def square_and_line(rng: random.Random, case: int) -> Case:
    """a n^2 - b n: neighbours tie where b = a (2 k + 1)."""
    x = number(rng)
    y = x * (2 * rng.randint(1, 30) + 1) if case % 4 == 0 else number(rng, 2000)
    return {"a": x, "b": y}, lambda k: x * k * k - y * k


CLOSED = {
    "the number of buckets": (lambda **o: minimise(built_in()["buckets"].derive(setting()), "n_b", **o), bucket_number),
    "the chunks of a pipeline": (
        lambda **o: minimise(pipelines.derive_pipeline_time(setting()), "m", **o),
        pipeline_chunks,
    ),
    "the chunks of a broadcast": (
        lambda **o: minimise(built_in()["pipelined_broadcast"].derive(setting()), "c", **o),
        broadcast_chunks,
    ),
    "a n + b / n + c": (
        lambda **o: minimise(total(product(a, n), Ratio(b, n), c), "n", **o),
        linear_and_share,
    ),
    "a n^2 - b n": (
        lambda **o: minimise(total(product(a, Power(n, num(2))), forms.negative(product(b, n))), "n", **o),
        square_and_line,
    ),
}  # fmt: skip
BOUNDS = ((1, None), (3, None), (1, 4), (2, 9), (5, 5), (6, 40))


@pytest.mark.long
@pytest.mark.parametrize("name", CLOSED)
def test_the_integer_rule_gives_the_smallest_best_whole_number_in_1000_cases(name):
    ask, draw = CLOSED[name]
    rules: dict[tuple[int, int | None], Derivation] = {(low, high): ask(lower=low, upper=high) for low, high in BOUNDS}
    written = {bounds: forms.from_expr(made.expr) for bounds, made in rules.items()}
    rng = random.Random(name)
    ties = bounded = 0
    for case in range(CASES):
        values, cost = draw(rng, case)
        low, high = BOUNDS[0] if case % 2 else rng.choice(BOUNDS)
        best = least_of_a_valley(cost, low, high)
        found = rules[low, high].at(**values).value if case < 8 else rounded_up(written[low, high], values)
        assert found == best[0], (name, values, low, high, best)
        ties += len(best) > 1
        bounded += best[0] in (low, high) and (low, high) != (1, None)
    assert ties >= 100
    assert bounded >= 100


def rounded_up(form: forms.Form, values: dict[str, F]) -> F:
    """A form whose ceiling holds one square root, exactly: the root lies between two whole square roots."""
    from math import isqrt

    def go(f: forms.Form) -> tuple[F, F]:
        match f:
            case forms.Root(inside):
                exact = forms.evaluate(inside, values)
                top, bottom = isqrt(exact.numerator), isqrt(exact.denominator)
                if F(top, bottom) ** 2 == exact:
                    return F(top, bottom), F(top, bottom)
                below = isqrt((exact * 10**40).__floor__())
                return F(below, 10**20), F(below + 1, 10**20)
            case forms.Ceiling(inside):
                low, high = go(inside)
                assert low.__ceil__() == high.__ceil__()
                return F(low.__ceil__()), F(low.__ceil__())
            case forms.Largest(choices):
                return tuple(max(ends) for ends in zip(*map(go, choices), strict=True))
            case forms.Smallest(choices):
                return tuple(min(ends) for ends in zip(*map(go, choices), strict=True))
            case forms.Total(terms):
                return tuple(sum(ends) for ends in zip(*map(go, terms), strict=True))
            case forms.Product(factors):
                low = high = F(1)
                for factor in factors:
                    ends = go(factor)
                    low, high = min(low * e for e in ends), max(high * e for e in ends)
                return low, high
            case forms.Ratio(top, bottom):
                below = forms.evaluate(bottom, values)
                assert below > 0
                return tuple(end / below for end in go(top))
        one = forms.evaluate(f, values)
        return one, one

    return go(form)[0]


# -- real optima whose whole neighbours are best ---------------------------------------------------------------


def neighbours(root: F, power: int) -> set[int]:
    """The whole numbers beside ``root ** (1 / power)``, found with whole numbers alone."""
    k = 1
    while k**power <= root:
        k += 1
    return {k} if k == 1 else {k - 1} if (k - 1) ** power == root else {k - 1, k}


def test_the_best_whole_numbers_of_a_square_and_a_share_are_beside_the_closed_real_one_in_1000_cases():
    made = minimise(total(product(a, Power(n, num(2))), Ratio(b, n)), "n", integer=False)
    assert isinstance(made.answer.form, Power)
    inside, degree = made.answer.form.base, 1 / forms.evaluate(made.answer.form.exponent, {})
    rng, ties = random.Random(31), 0
    for case in range(CASES):
        x, y, k = number(rng), number(rng, 900), rng.randint(1, 9)
        if case % 4 == 0:  # a (2 k + 1) = b / (k (k + 1))
            y = x * (2 * k + 1) * k * (k + 1)
        best = least_of_a_valley(lambda j, x=x, y=y: x * j * j + y / j)
        assert set(best) <= neighbours(forms.evaluate(inside, {"a": x, "b": y}), int(degree))
        ties += len(best) > 1
    assert ties >= 250


@pytest.mark.long
def test_the_best_numbers_of_buckets_in_both_regimes_are_beside_the_closed_one_in_1000_cases():
    steps = {step.name: step.form for step in built_in()["buckets"].derive(setting(), want="number", rho="rho").steps}
    assert isinstance(steps["n_many"], forms.Root)
    rng, seen = random.Random(32), {"many": 0, "meet": 0, "one": 0}
    for _ in range(CASES):
        values = {"rho": F(rng.randint(1, 40), 10), "o": F(rng.randint(1, 30), 8), "w": F(rng.randint(1, 6)),
                  "s": F(rng.randint(1, 150))}  # fmt: skip
        rho, o, w, s = values.values()

        def cost(k: int, rho: F = rho, o: F = o, w: F = w, s: F = s) -> F:
            ready, free, computed, call = F(0), F(0), rho * s / k / w, o + s / k / w
            for _ in range(k):  # call by call
                ready += computed
                free = max(ready, free) + call
            return free - ready

        many, meet = forms.evaluate(steps["n_many"].inside, values), forms.evaluate(steps["n_meet"], values)
        closed = neighbours(max(F(1), many), 2)
        kind = "one" if max(many, meet) <= 1 else "many"
        if meet > 1 and meet**2 > many:
            closed, kind = {meet.__floor__(), meet.__ceil__()}, "meet"
        seen[kind] += 1
        best = min(closed, key=cost)
        # It falls before and rises after: no neighbour is better.
        assert all(cost(best) <= cost(k) for k in (best - 2, best - 1, best + 1, best + 2) if k >= 1)
    assert min(seen.values()) >= 20


STAGES = {"6, 2, 2, 2": (6, 2, 2, 2), "1, 1": (1, 1), "5, 9, 3": (5, 9, 3), "7, 1, 4, 8, 2": (7, 1, 4, 8, 2)}


@pytest.mark.long
def test_the_rule_for_uneven_stages_gives_the_smallest_best_number_in_1000_cases():
    made = {text: pipelines.derive_pipeline_time(setting(), "whole_chunks", text) for text in STAGES}
    rules = {text: forms.from_expr(one.expr) for text, one in made.items()}
    rng, ties = random.Random(33), 0
    for case in range(CASES):
        text = rng.choice(list(STAGES))
        times, k = STAGES[text], rng.randint(1, 12)
        o = F(sum(times) - max(times), k * (k + 1)) if case % 4 == 0 else number(rng, 60)

        def cost(m: int, times: tuple[int, ...] = times, o: F = o) -> F:
            return F(sum(times), m) + (m - 1) * F(max(times), m) + (m + len(times) - 1) * o

        best = least_of_a_valley(cost)
        assert rounded_up(rules[text], {"o": o}) == best[0]
        ties += len(best) > 1
    assert ties >= 250


def test_the_real_bucket_size_is_least_beside_whole_bytes_in_1000_cases():
    made = minimise(total(Ratio(product(a, b), n), Ratio(n, c)), "n")
    rule, rng = forms.from_expr(made.expr), random.Random(34)
    for case in range(CASES):
        o, w, k = number(rng, 20), number(rng, 20), rng.randint(1, 15)
        s = F(k * (k + 1)) / (o * w) if case % 4 == 0 else number(rng, 40)
        best = least_of_a_valley(lambda j, s=s, o=o, w=w: o * s / j + j / w)
        assert rounded_up(rule, {"a": o, "b": s, "c": w}) == best[0]


# -- costs whose numbers decide: kinks, divisors ------------------------------------------------------------------


def kinked(rng: random.Random) -> tuple[forms.Form, Cost]:
    p, q, r, s = (rng.randint(1, 60) for _ in range(4))
    if rng.random() < 0.3:  # the pieces take turns: both k and k + 1 cost p (k + 1)
        k, r, s = rng.randint(1, 6), 0, 0
        q = p * k * (k + 1)
    form = Largest((total(product(num(p), n), num(r)), total(Ratio(num(q), n), num(s))))
    return form, lambda k: max(F(p * k + r), F(q, k) + s)


def compare_kinks(cases: int) -> int:
    rng, ties = random.Random(35), 0
    for case in range(cases):
        form, cost = kinked(rng)
        low = rng.choice((1, 1, 2, 5))
        high = rng.choice((low, low + 3, low + 30, 60))
        divided = rng.choice((12, 36, 60, 97)) if case % 3 == 0 else None
        allowed = [k for k in range(low, high + 1) if divided is None or divided % k == 0]
        if not allowed:
            continue
        best, value = least(cost, allowed)
        made = search.whole(forms.value(form), amount("n"), Domain(F(low), F(high), True, divided))
        assert set(made.best) <= set(best)
        assert made.best[0] == best[0]
        assert made.value == value
        ties += len(best) > 1
    return ties


def test_kinks_and_divisors_agree_with_brute_force():
    assert compare_kinks(60) >= 3


@pytest.mark.long
def test_kinks_and_divisors_agree_with_brute_force_in_1000_cases():
    assert compare_kinks(CASES) >= 50


def test_whole_calls_agree_with_brute_force():
    rng = random.Random(36)
    for case in range(16):
        x, y = number(rng), number(rng)
        form = total(product(a, n), Ratio(b, n))
        best = least_of_a_valley(lambda k, x=x, y=y: x * k + y / k)
        assert minimise(form, "n", {"a": x, "b": y}).at().value == best[0]
        assert maximise(forms.negative(form), "n", {"a": x, "b": y}).at().value == best[0]
        divided = rng.choice((12, 36, 60, 97))
        allowed = [k for k in range(1, divided + 1) if divided % k == 0]
        expected = least(lambda k, x=x, y=y: x * k + y / k, allowed)[0][0]
        assert minimise(form, "n", {"a": x, "b": y}, divides=divided).at().value == expected, case
