"""Random ways to write an expression, and near misses of it; they share no code with the reader of answers."""

from __future__ import annotations

import random

import sympy as sp

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def rewritten(expr: sp.Expr, rng: random.Random) -> str:
    """The same expression in another form, printed in one of many ways."""
    forms = [
        lambda e: e, sp.expand, sp.factor, sp.together, sp.cancel, sp.factor_terms, lambda e: 1 / (1 / e),
        lambda e: sp.expand(3 * e) / 3, lambda e: sp.nsimplify(e) * 7 * sp.Rational(1, 7),
        lambda e: sp.Add(e, *e.free_symbols) - sp.Add(*e.free_symbols),
    ]  # fmt: skip
    ways = [plain, latex, lambda e, rng: str(e), lambda e, rng: str(e).replace("**", "^")]
    try:
        changed = rng.choice(forms)(expr)
    except (sp.PolynomialError, NotImplementedError):
        changed = expr
    return rng.choice(ways)(changed, rng)


def near_miss(expr: sp.Expr, rng: random.Random) -> sp.Expr:
    """An expression that differs by a factor, a sign, an exponent or a term."""
    symbols = sorted(expr.free_symbols, key=str)
    s = rng.choice(symbols)
    made = rng.choice([
        lambda: expr * rng.choice([2, 3, sp.Rational(1, 2), sp.Rational(9, 8), sp.Rational(1001, 1000), -1]),
        lambda: expr + rng.choice([1, -1, s]),
        lambda: expr * s, lambda: expr / s,
        lambda: expr.xreplace({s: s + 1}), lambda: expr.xreplace({s: 2 * s}), lambda: expr**2,
        lambda: expr + sp.Rational(1, 10**6),
    ])()  # fmt: skip
    return made if sp.simplify(made - expr) != 0 else expr + 1


def latex(expr: sp.Expr, rng: random.Random) -> str:
    """As SymPy's printer of LaTeX has it, with one of several signs for a product."""
    names = {s: s.name.replace("N_layer", rng.choice([r"N_{\text{layer}}", r"N_{layer}", r"N_\mathrm{layer}"]))
             for s in expr.free_symbols}  # fmt: skip
    text = sp.latex(expr, symbol_names=names, mul_symbol=rng.choice([None, "dot", "times"]),
                    fold_short_frac=False)  # fmt: skip
    return rng.choice(["{}", "${}$", r"\[ {} \]", "V = {}"]).replace("{}", text).replace("V = ", "= ")


def plain(expr: sp.Expr, rng: random.Random) -> str:
    """With the factors and terms in a random order, and one of several signs for products and powers."""
    times = rng.choice([" * ", "*", " · ", " × ", " "])
    power = rng.choice(["^", "**", "raised"])

    def go(e: sp.Expr, level: int) -> str:
        text, mine = write(e)
        return f"({text})" if mine < level else text

    def write(e: sp.Expr) -> tuple[str, int]:
        if e.is_Integer:
            return str(e), 9 if e >= 0 else 0
        if e.is_Rational:
            return f"{e.p}/{e.q}", 2 if e.p >= 0 else 0
        if e.is_Symbol:
            return e.name, 9
        if e.is_Add:
            terms = [*e.args]
            rng.shuffle(terms)
            return " + ".join(go(t, 2) for t in terms), 1
        if e.is_Mul:
            top, bottom = sp.fraction(e)
            if bottom != 1:
                return f"{go(top, 5)}/{go(bottom, 5)}", 3
            factors = [*e.args]
            rng.shuffle(factors)
            # Two numbers side by side, or a number behind a name, are read by nobody.
            factors.sort(key=lambda f: not f.is_Number)
            return times.join(go(f, 4) for f in factors), 3 if times != " " else 4
        if e.is_Pow and e.exp == sp.Rational(1, 2):
            return f"sqrt({go(e.base, 0)})", 9
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            base = go(e.base, 9)
            return (base + str(e.exp).translate(_RAISED) if power == "raised" else f"{base}{power}{e.exp}"), 6
        if e.is_Pow and e.exp.is_negative:
            return f"1/{go(e.base**-e.exp, 6)}", 3
        if isinstance(e, sp.ceiling):
            return rng.choice(["ceil({})", "⌈{}⌉", "-floor(-({}))"]).replace("{}", go(e.args[0], 0)), 0
        return f"({e})", 9

    return go(expr, 0)
