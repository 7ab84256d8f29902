"""What is wrong in a system of formulas is told with its place; nothing hangs and nothing is evaluated."""

import contextlib
import time

import pytest
from api import forward, parse_problem, reverse, solve

import symcomm as sc

WRONG = {
    "an undefined variable": ("y = x_1 + x_3", "x_1=1, x_2=2", "unknown name 'x_3'", "x_3"),
    "the logarithm of 0": ("y = ln(x_1-1)", "x_1=1", "ln(0) is not defined", "ln(x_1-1)"),
    "the logarithm of a negative number": ("y = ln(x_1)", "x_1=-2", "ln(-2) is not defined", "ln(x_1)"),
    "a division by zero": ("y = 1/(x_1-1)", "x_1=1", "a division by 0", "1/(x_1-1)"),
    "a root of a negative number": ("y = sqrt(x_1)", "x_1=-1", "the square root of -1", "sqrt(x_1)"),
    "a pole of the tangent": ("y = tan(x_1)", "x_1 = pi/2", "tan(pi/2) is not defined", "tan(x_1)"),
    "a power that is not real": ("y = x_1^{1/2}", "x_1=-1", "a negative number to the power 1/2", "x_1^{1/2}"),
    "zero to a negative power": ("y = x_1^{-1}", "x_1=0", "0 to the power -1", "x_1^{-1}"),
    "a cycle": ("a = b; b = a + x_1; y = a", "x_1=1", "a is defined by itself: a -> b -> a", "a"),
    "a name used twice": ("y = x_1; y = x_1^2", "x_1=1", "y has two formulas", "y"),
    "an input with a formula": ("x_1 = 3; y = x_1", "x_1=1", "x_1 is an input", "x_1"),
    "an unknown function": ("y = foo(x_1)", "x_1=1", "unknown function 'foo'", "foo"),
    "two values of an input": ("y = x_1", "x_1=1, x_1=2", "x_1 has two values", "x_1=2"),
    "an input without a value": ("y = x_1", "x_1", "a point gives each input a value", "x_1"),
    "no formula": ("x_1 + 2", "x_1=1", "a formula has a name, an equals sign", "x_1 + 2"),
    "a constant output": ("y = 3", "x_1=1", "y depends on no input", "y"),
    "a number too large": ("y = exp(exp(exp(x_1)))", "x_1=100", "too large or too small", "exp(exp(x_1))"),
    "a power too large": ("y = x_1^{900}; z = y^{900}; w = z^{900}", "x_1=2", "too large or too small", "y^{900}"),
    "an argument too many": ("y = sin(x_1, x_1)", "x_1=1", "sin takes one argument, not 2", "sin(x_1, x_1)"),
    "a name of a heading without a value": ("f(x, z) = x^2", "x=1", "f depends on 'z', which is not known", "f(x, z)"),
    "a formula that is called": ("f(x) = g(x) + 1; g(x) = x^2", "x=1", "g has a formula of its own", "g(x)"),
    "a sine with two readings": (r"y = \sin 2x", "x=1", r"what `\sin` takes can be read in two ways", r"\sin 2x"),
    "a tensor's product": (r"y = x_1 \odot x_1", "x_1=1", "multiplies tensors, not numbers", r"\odot"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_system_is_told_with_its_place(name):
    system, point, message, place = WRONG[name]
    with pytest.raises(sc.SymcommError) as caught:
        sc.trace(system, point)
    assert message in str(caught.value)
    assert caught.value.span is not None
    assert caught.value.span.word.strip() == place


KINKS = {
    "y = abs(x_1)": ("x_1=0", "abs has a kink at 0"),
    "y = max(x_1, x_2)": ("x_1=1, x_2=1", "max has a kink where its operands are equal"),
    "y = min(x_1, 2)": ("x_1=2", "min has a kink"),
    "y = sqrt(x_1)": ("x_1=0", "the slope of the square root is infinite at 0"),
    "y = x_1^{1/3}": ("x_1=0", "infinite at 0"),
    "y = x_1^{x_2}": ("x_1=0, x_2=2", "needs the logarithm of the base"),
}


@pytest.mark.parametrize("system", KINKS)
def test_a_point_without_a_derivative_has_a_value_and_is_refused_by_both_modes(system):
    point, message = KINKS[system]
    made = sc.trace(system, point)
    assert made.variables[-1].value is not None
    for sweep in (lambda: forward(made, "x_1"), lambda: reverse(made, "y")):
        with pytest.raises(sc.SymcommError, match=message) as caught:
            sweep()
        assert caught.value.span is not None


HOSTILE = [
    "y = __import__('os').system('true')", "y = " + "(" * 3000 + "x_1" + ")" * 3000, "y = x_1" + "+x_1" * 100_000,
    "; ".join(f"a_{n} = a_{n - 1} a_{n - 1} + a_{n - 1}" if n else "a_0 = x_1" for n in range(50)),
    "; ".join(f"a_{n} = sin(a_{n - 1}) a_{n - 1} + a_{n - 1}" if n else "a_0 = x_1" for n in range(50)),
    "; ".join(f"a_{n} = x_1" for n in range(5000)), "y = x_1^{x_1^{x_1^{x_1}}}", "y = 9^9^9^9 x_1", "y = {{}}",
    "y = sin(x_1^{1000})", "y = tan(exp(x_1^{3}))",
]  # fmt: skip


@pytest.mark.parametrize("system", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_formulas_are_refused_quickly(system):
    start = time.monotonic()
    with contextlib.suppress(sc.SymcommError):
        reverse(made := sc.trace(system, "x_1 = 7"), made.outputs[0][0])
    assert time.monotonic() - start < 10


def test_a_mistake_in_a_document_is_shown_in_its_line():
    text = "```symcomm\nask: forward_mode\nformulas: y = ln(x_1) + x_2\npoint: x_1 = 0, x_2 = 1\n```\n"
    with pytest.raises(sc.SymcommError) as caught:
        solve(parse_problem(text, "quiz.md"))
    assert str(caught.value).startswith("quiz.md:3: ln(0) is not defined at this point")
    assert caught.value.span is not None
    assert caught.value.span.word == "ln(x_1)"


def test_a_mistake_in_a_block_of_lines_is_shown_in_its_line():
    text = "```symcomm\nask: reverse_mode\nformulas: |\n  a = x_1^2\n  y = a + b\npoint: x_1 = 2\n```\n"
    with pytest.raises(sc.SymcommError) as caught:
        solve(parse_problem(text, "quiz.md"))
    assert str(caught.value).startswith("quiz.md:5: unknown name 'b'")


@pytest.mark.parametrize(("key", "value", "message"), [
    ("of", "y_3", "no output 'y_3'"), ("by", "x_9", "no input 'x_9'"), ("outputs", "z", "no formula is called z"),
    ("slip", "typo", "unknown slip 'typo'"),
])  # fmt: skip
def test_an_unknown_name_in_a_question_is_told(key, value, message):
    text = f"```symcomm\nask: reverse_mode\nformulas: y = x_1^2\npoint: x_1 = 2\n{key}: {value}\n```\n"
    with pytest.raises(sc.SymcommError, match=message):
        solve(parse_problem(text, "quiz.md"))
