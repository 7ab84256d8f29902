"""Random formulas: derivatives by both modes against SymPy's and against central differences."""

import random

import mpmath
import pytest
import sympy as sp
from api import SymcommError, exercise, forward, hessian_product, jacobian, reverse

import symcomm as sc

X = sp.symbols("x_1:4", real=True)
UNARY = {  # as SymPy has it, and as mpmath works it out
    "sin": (sp.sin, mpmath.sin), "cos": (sp.cos, mpmath.cos), "tan": (sp.tan, mpmath.tan), "exp": (sp.exp, mpmath.exp),
    "ln": (sp.log, mpmath.log), "sqrt": (sp.sqrt, mpmath.sqrt), "tanh": (sp.tanh, mpmath.tanh), "abs": (sp.Abs, abs),
    "sigmoid": (lambda u: 1 / (1 + sp.exp(-u)), lambda u: 1 / (1 + mpmath.exp(-u))),
}  # fmt: skip
POWERS = {"square": 2, "cube": 3, "inverse": -1}
BINARY = {
    "+": (lambda u, w: u + w), "-": (lambda u, w: u - w), "*": (lambda u, w: u * w), "/": (lambda u, w: u / w),
    "max": max, "min": min,
}  # fmt: skip
EXTREME = {"max": sp.Max, "min": sp.Min}


def formula(rng: random.Random, size: int):
    """A random formula: as text in full brackets, as SymPy has it, and as a function of numbers."""
    if size == 0:
        if rng.random() < 0.2:
            number = rng.randint(1, 4)
            return str(number), sp.Integer(number), lambda args: mpmath.mpf(number)
        n = rng.randrange(len(X))
        return X[n].name, X[n], lambda args: args[n]
    if rng.random() < 0.4:
        name = rng.choice([*UNARY, "neg", *POWERS])
        text, value, call = formula(rng, size - 1)
        if name == "neg":
            return f"(-({text}))", -value, lambda args: -call(args)
        if name in POWERS:
            power = POWERS[name]
            return f"(({text})^{{{power}}})", value**power, lambda args: call(args) ** power
        symbolic, numeric = UNARY[name]
        return f"{name}({text})", symbolic(value), lambda args: numeric(call(args))
    left = rng.randrange(size)
    (a, u, f), (b, w, g) = formula(rng, left), formula(rng, size - 1 - left)
    sign = rng.choice([*BINARY])
    operator = BINARY[sign]
    if sign in EXTREME:
        value, text = EXTREME[sign](u, w, evaluate=False), f"{sign}({a}, {b})"
    else:
        value, text = operator(u, w) if sign != "/" or w != 0 else sp.zoo, f"(({a}) {sign} ({b}))"
    return text, value, lambda args: operator(f(args), g(args))


def derivatives_agree(seed: int, symbolic: bool = True) -> bool:
    """Whether one random system was differentiated by all ways; False where the point suits none of them."""
    rng = random.Random(seed)
    point = {x.name: sp.Rational(rng.randint(-5, 9), rng.choice([1, 2, 4])) for x in X}
    text, value, call = formula(rng, rng.randint(1, 6))
    system, exprs, calls = f"y_1 = {text} + 0 x_1", [value], [call]
    if rng.random() < 0.5:  # a value that is used several times
        system = f"s = {text}; y_1 = s x_1 + s; y_2 = s - x_2"
        exprs = [value * X[0] + value, value - X[1]]
        calls = [lambda args: call(args) * args[0] + call(args), lambda args: call(args) - args[1]]
    try:
        made = sc.trace(system, {name: str(number) for name, number in point.items()})
        both = [jacobian(made, mode) for mode in ("forward", "reverse")]
    except SymcommError:
        return False
    at = {x: point[x.name] for x in X}
    with mpmath.workdps(60):
        args = [mpmath.mpf(int(point[x.name].p)) / int(point[x.name].q) for x in X]
        for row, (expr, number) in enumerate(zip(exprs, calls, strict=True)):
            worth = _float(made[dict(made.outputs)[f"y_{row + 1}"]].value)
            assert abs(number(args) - worth) < 1e-30 * _large(worth)
            for column, x in enumerate(X):
                step = mpmath.mpf(10) ** -20
                up, down = ([a + s * (n == column) for n, a in enumerate(args)] for s in (step, -step))
                central = (number(up) - number(down)) / (2 * step)
                slope = sp.diff(expr, x).subs(at).evalf(30) if symbolic else sp.nan
                for found in (_float(jacobians[row][column]) for jacobians in both):
                    assert abs(found - central) < 1e-12 * _large(central), (system, point, x)
                    if slope.is_Float or slope.is_Integer:
                        assert abs(found - _float(slope)) < 1e-12 * _large(central), (system, point, x)
    return True


def _float(number) -> mpmath.mpf:
    return mpmath.mpf(str(sp.N(number, 50)))


def _large(number) -> float:
    return 1 + abs(number)


@pytest.mark.long
def test_fifty_random_formulas_have_the_derivatives_of_central_differences_and_some_those_of_sympy():
    assert sum(derivatives_agree(seed, symbolic=not seed % 5) for seed in range(50)) >= 25


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_two_thousand_random_formulas_have_the_derivatives_of_sympy_and_of_central_differences(block):
    found, seed = 0, 1_000_000 * (block + 1)
    while found < 100:
        found += derivatives_agree(seed)
        seed += 1


def test_the_sum_of_adjoints_times_tangents_is_the_same_at_every_cut():
    """A property of both modes together: adjoints of the inputs times a direction are the tangent of the output."""
    made = sc.trace("y = sin(x_1 x_2) + x_2 exp(x_1) - x_3^2/x_1", "x_1 = 1/2, x_2 = 3, x_3 = -2")
    direction = {"x_1": sp.Integer(2), "x_2": sp.Rational(1, 3), "x_3": sp.Integer(-1)}
    tangents, adjoints = forward(made, direction), reverse(made, "y").adjoints
    along = sum(adjoints[v.number] * direction[v.input] for v in made.inputs)
    assert sp.N(along - tangents[dict(made.outputs)["y"]], 40) < 1e-30


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(8))
def test_a_hessian_times_a_vector_is_the_hessian_of_sympy_times_it(seed):
    rng = random.Random(seed)
    text, value = "", sp.Integer(0)
    while not value.free_symbols or value.has(sp.Max, sp.Min, sp.Abs):
        text, value, _ = formula(rng, 4)
    point = {x.name: sp.Rational(rng.randint(3, 9), 4) for x in X}
    vector = {x.name: sp.Integer(rng.randint(-3, 3)) for x in X}
    try:
        made = sc.trace(f"y = {text} + 0 x_1", {name: str(number) for name, number in point.items()})
        found = hessian_product(made, "y", vector)
    except SymcommError:
        pytest.skip("the point is outside the domain")
    matrix = sp.hessian(value, X).subs({x: point[x.name] for x in X})
    told = matrix * sp.Matrix([vector[x.name] for x in X])
    assert all(abs(sp.N(a - b, 40)) < 1e-25 * (1 + abs(sp.N(b, 20))) for a, b in zip(found, told, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_random_exercises_are_as_difficult_as_asked_and_have_whole_numbers(seed):
    operations, inputs = 3 + seed % 4, 1 + seed % 3
    if operations < inputs:
        operations += 1
    made = exercise(random.Random(seed).randrange, operations, inputs)
    traced = made.trace
    assert len(traced.operations) == operations
    assert len(traced.inputs) == inputs
    for name, _ in traced.outputs:
        for v in traced.variables:
            assert v.value.is_Integer
            assert reverse(traced, name).adjoints[v.number].is_Integer
            assert abs(v.value) <= 99
    wrong = [reverse(traced, name, overwrite=True).adjoints for name, _ in traced.outputs]
    assert wrong != [reverse(traced, name).adjoints for name, _ in traced.outputs]
