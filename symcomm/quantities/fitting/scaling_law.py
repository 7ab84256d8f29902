"""Compute-optimal training: how a budget is split between parameters and tokens, from a fitted loss.

The loss is E + A/N^alpha + B/D^beta, a training run costs 6 N D operations, a token of inference 2 N.
Source: Hoffmann et al., Training compute-optimal large language models, arXiv 2203.15556, section 3.3.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from symcomm import form as forms
from symcomm.derivation import Derivation, Step
from symcomm.errors import ValuesError
from symcomm.form import Form, Power, Ratio, Sym, Total, num, product, total
from symcomm.optimum.writing import Name, known, made, step
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import NoModel
from symcomm.quantities.setting import Setting
from symcomm.units import FLOP, ONE, PARAMETER, Unit

# Fitted constants have no whole units; what a result counts is said on its step.
ROWS = (
    Name("N", "", "number of parameters"),
    Name("D", "", "number of training tokens"),
    Name("C", "", "training budget in operations"),
    Name("E", "", "loss that no model goes below"),
    Name("A", "", "weight of the parameters' term of the loss"),
    Name("B", "", "weight of the tokens' term of the loss"),
    Name("alpha", "", "exponent of the parameters"),
    Name("beta", "", "exponent of the tokens"),
    Name("x", "", "size of the smaller model over the compute-optimal one"),
    Name("q_N", "", "factor of the root of the budget in a rule for the parameters"),
    Name("q_D", "", "factor of the root of the budget in a rule for the tokens"),
    Name("N_1", "", "parameters of the first model"),
    Name("N_2", "", "parameters of the second model"),
)
N, D, C, E, A, B, ALPHA, BETA, X, Q_N, Q_D, N_1, N_2 = (row.sym for row in ROWS)
LAMBDA = Sym("lambda", False)
TOKEN = Unit.parse("token")


def _conditions() -> list[Step]:
    """Lagrange's conditions, and the balance that follows."""
    loss = total(E, Ratio(A, Power(N, ALPHA)), Ratio(B, Power(D, BETA)))
    budget = product(num(6), N, D)
    one = num(1)
    return [
        step("L", loss, ONE, "the loss", "As it was fitted."),
        step("Lambda", total(Sym("L"), product(LAMBDA, Total((budget, forms.negative(C))))), ONE, "Lagrange",
             "The budget 6`N``D` = `C` is added with a multiplier `lambda`."),
        step("Lambda_N", total(product(num(6), LAMBDA, D),
             forms.negative(Ratio(product(ALPHA, A), Power(N, Total((ALPHA, one)))))), ONE, "differentiate",
             "With respect to `N`; it is zero at the optimum."),
        step("Lambda_D", total(product(num(6), LAMBDA, N),
             forms.negative(Ratio(product(BETA, B), Power(D, Total((BETA, one)))))), ONE, "differentiate",
             "With respect to `D`; it is zero at the optimum."),
        step("b_N", Ratio(product(ALPHA, A), Power(N, ALPHA)), ONE, "balance",
             "`N` times the first condition: this is 6`lambda``N``D` at the optimum."),
        step("b_D", Ratio(product(BETA, B), Power(D, BETA)), ONE, "balance",
             "`D` times the second: this is 6`lambda``N``D`, too, so `b_N` = `b_D`. Along `N``D` = `C`/6 the one falls "
             "and the other rises with `N`, so they are equal once, and the loss is least there."),
    ]  # fmt: skip


def _optimum(counted: bool) -> list[Step]:
    """The optimum in closed form; ``counted`` says that parameters and tokens are told as such."""
    parameter, token = (PARAMETER, TOKEN) if counted else (ONE, ONE)
    both = Total((ALPHA, BETA))
    per_budget = Ratio(C, num(6))
    return [
        step("a", Ratio(BETA, both), ONE, "exponent", "Put `D` = `C`/(6`N`) into the balance: `N` has this power."),
        step("b", Ratio(ALPHA, both), ONE, "exponent", "The powers add up to one, since `N``D` grows as `C`."),
        step("G", Power(Ratio(product(ALPHA, A), product(BETA, B)), Ratio(num(1), both)), ONE, "solve",
             "What the balance leaves beside the powers of the budget."),
        step("N_opt", product(Sym("G"), Power(per_budget, Sym("a"))), parameter, "solve", "The compute-optimal size."),
        step("D_opt", Ratio(Power(per_budget, Sym("b")), Sym("G")), token, "solve", "What the budget leaves."),
    ]  # fmt: skip


def _unfolded(name: str, steps: list[Step], text: str = "Put in.") -> Step:
    """A step that writes an answer without the names of earlier steps, so that numbers can be put in."""
    by = {s.name: s.form for s in steps}

    def put(s: Sym) -> Form:
        return forms.substitute(by[s.name], put) if s.name in by else s

    last = next(s for s in steps if s.name == name)
    return step(name, forms.substitute(last.form, put), last.unit, "algebra", text, "=")


def _rule(setting: Setting, want: str) -> Derivation:
    """What a quoted pair of rules, both with the root of the budget, says about compute and tokens per parameter."""
    root = forms.Root(C)
    parameter, token = (ONE, ONE) if want == "rule_compute" else (PARAMETER, TOKEN)
    steps = [
        step("N_rule", product(Q_N, root), parameter, "rule", "The parameters grow as the root of the budget."),
        step("D_rule", product(Q_D, root), token, "rule", "So do the tokens."),
    ]
    if want == "rule_compute":
        share = Ratio(product(num(6), Sym("N_rule"), Sym("D_rule")), C)
        steps += [
            step("c", share, ONE, "divide", "What the run costs at 6`N``D`, over the budget: 1 where the rules fit."),
            step("c", product(num(6), Q_N, Q_D), ONE, "algebra", "The budget cancels.", "="),
        ]
    else:
        unit = Unit.parse("token/parameter")
        steps += [
            step("r", Ratio(Sym("D_rule"), Sym("N_rule")), unit, "divide", "Tokens for each parameter."),
            step("r", Ratio(Q_D, Q_N), unit, "algebra", "The budget cancels: it is the same for every budget.", "="),
        ]
    return made(setting, ROWS, _TITLES[want], steps)


def _same_compute(setting: Setting) -> Derivation:
    """The factor on the tokens with which another model costs as much to train."""
    steps = [
        step("C_1", product(num(6), N_1, D), ONE, "training", "The first model's operations, with `D` tokens."),
        step("D_2", Ratio(Sym("C_1"), product(num(6), N_2)), ONE, "solve",
             "The tokens with which the second model costs as much."),
        step("q", Ratio(Sym("D_2"), D), ONE, "divide", "Over the tokens of the first."),
        step("q", Ratio(N_1, N_2), ONE, "algebra", "The tokens cancel.", "="),
    ]  # fmt: skip
    return made(setting, ROWS, _TITLES["same_compute"], steps)


def derive(
    setting: NoModel,
    want: Annotated[
        Literal[
            "parameters",
            "tokens",
            "tokens_per_parameter",
            "exponent_parameters",
            "exponent_tokens",
            "coefficient_parameters",
            "coefficient_tokens",
            "doubling",
            "loss",
            "break_even",
            "rule_compute",
            "rule_tokens_per_parameter",
            "same_compute",
        ],
        Meaning("what is asked for"),
    ] = "parameters",
) -> Derivation:
    """The compute-optimal parameters and tokens of a fitted loss, and what follows from them.

    The compute-optimal ``parameters`` and ``tokens``, their powers of the budget, and what follows from them.

    ``rule_compute`` and ``rule_tokens_per_parameter`` are about a quoted pair of rules with the root of the budget,
    ``same_compute`` is the factor on the tokens that keeps the compute of a model of another size.
    Numbers are given for ``alpha``, ``beta``, ``A``, ``B``, ``E``, ``C``, ``x``, ``q_N``, ``q_D``, ``N_1``, ``N_2``.
    """
    if want in ("rule_compute", "rule_tokens_per_parameter"):
        return _rule(setting, want)
    if want == "same_compute":
        return _same_compute(setting)
    steps = [*_conditions(), *_optimum(want not in ("loss", "break_even"))]
    notes: list[str] = []
    numbers = known(setting, ROWS)
    alpha, beta = numbers.get("alpha"), numbers.get("beta")
    if isinstance(alpha, Fraction) and isinstance(beta, Fraction):
        notes.append(_note(alpha, beta))
    more = {
        "parameters": (), "tokens": (), "exponent_parameters": (), "exponent_tokens": (),
        "tokens_per_parameter": (
            step("r", Ratio(Sym("D_opt"), Sym("N_opt")), Unit.parse("token/parameter"), "divide",
                 "Tokens for each parameter at the optimum."),),
        "coefficient_parameters": (
            step("G_N", Ratio(Sym("G"), Power(num(6), Sym("a"))), ONE, "factor", "It stands before `C`."),),
        "coefficient_tokens": (
            step("G_D", Ratio(num(1), product(Sym("G"), Power(num(6), Sym("b")))), ONE, "factor",
                 "What stands before the power of `C`."),),
        "doubling": (
            step("q", Power(num(2), Ratio(Sym("b"), Sym("a"))), ONE, "powers",
                 "`D_opt` grows as the power `b`/`a` of `N_opt`: this is what twice the parameters need."),),
        "loss": (
            step("L_opt", total(E, Ratio(A, Power(Sym("N_opt"), ALPHA)), Ratio(B, Power(Sym("D_opt"), BETA))), ONE,
                 "the loss", "The loss at the optimum."),),
        "break_even": _over_training(numbers),
    }  # fmt: skip
    if want not in more:
        raise ValuesError(f"'{want[:40]}' is not derived from a scaling law")
    steps += more[want]
    last = {"parameters": "N_opt", "tokens": "D_opt", "exponent_parameters": "a", "exponent_tokens": "b"}.get(
        want, steps[-1].name
    )
    if want.startswith("exponent"):
        steps = steps[:-3]
    if want == "parameters":
        steps = steps[:-1]
    steps.append(_unfolded(last, steps))
    return made(setting, ROWS, _TITLES[want], steps, notes=tuple(notes))


_TITLES = {
    "parameters": "Compute-optimal number of parameters",
    "tokens": "Compute-optimal number of tokens",
    "exponent_parameters": "Power of the budget in the parameters",
    "exponent_tokens": "Power of the budget in the tokens",
    "tokens_per_parameter": "Tokens per parameter",
    "coefficient_parameters": "Coefficient of the optimal parameters",
    "coefficient_tokens": "Coefficient of the optimal tokens",
    "doubling": "Factor on the tokens for twice the parameters",
    "loss": "Loss at the compute optimum",
    "break_even": "Inference tokens from which the smaller model pays",
    "rule_compute": "Compute of a quoted pair of rules over the budget",
    "rule_tokens_per_parameter": "Tokens per parameter of a quoted pair of rules",
    "same_compute": "Factor on the tokens that keeps the compute",
}


def _note(alpha: Fraction, beta: Fraction) -> str:
    a = beta / (alpha + beta)
    if alpha == beta:
        return (
            "The two exponents of the loss are equal, so parameters and tokens grow equally, as the root of the budget."
        )
    return (
        f"These constants do not give equal exponents: parameters grow as the power {a}, about {float(a):.4f}, of the "
        f"budget and tokens as {1 - a}, about {float(1 - a):.4f}. The rule 1/2 and 1/2 needs equal ones in the loss."
    )


def _over_training(numbers: object) -> tuple[Step, ...]:
    """A smaller model with the same loss: more tokens to train, fewer operations for each token of inference."""
    if isinstance(numbers, dict) and "x" in numbers:
        x, alpha, beta = numbers["x"], numbers.get("alpha"), numbers.get("beta")
        if not x < 1:
            raise ValuesError(f"x = {x}: the smaller model must be smaller than the compute-optimal one")
        if alpha and beta and 1 + float(beta / alpha) * (1 - float(x) ** -float(alpha)) <= 0:
            raise ValuesError(f"x = {x}: so small a model never reaches the loss of the compute-optimal one")
    one = num(1)
    inside = Total((one, product(Ratio(BETA, ALPHA), Total((one, forms.negative(Ratio(one, Power(X, ALPHA))))))))
    return (
        step("y", Power(Ratio(one, inside), Ratio(one, BETA)), ONE, "same loss",
             "A model of `x` times the size reaches the same loss with this many times the tokens: in the loss, "
             "A/N^alpha is beta/alpha times B/D^beta at the optimum."),
        step("C_extra", product(num(6), Sym("N_opt"), Sym("D_opt"), Total((product(X, Sym("y")), num(-1)))), FLOP,
             "training", "Operations that training the smaller model costs more."),
        step("c_saved", product(num(2), Sym("N_opt"), Total((one, forms.negative(X)))), FLOP,
             "inference", "Operations that it saves with each token, at 2 for each parameter."),
        step("D_inf", Ratio(Sym("C_extra"), Sym("c_saved")), TOKEN, "break even", "From here on it is cheaper."),
        step("D_inf", Ratio(product(num(3), Sym("D_opt"), Total((product(X, Sym("y")), num(-1)))),
             Total((one, forms.negative(X)))), TOKEN, "algebra", "`N_opt` cancels.", "="),
    )  # fmt: skip
