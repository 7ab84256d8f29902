"""Steps of generating text as quantities ask for them: of a model, or of a step that is one already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial
from math import ceil, floor

from symcomm.core.derivation import Derivation, Numbers, Witness
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Total, evaluate, from_expr, names, num, product
from symcomm.core.graph.stepping import stepped
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import symbol
from symcomm.core.optimum.cost import closed, units_of
from symcomm.core.optimum.dimension import in_unit, with_units
from symcomm.core.records import replace
from symcomm.core.setting import Setting

WHAT = {"prefill": "the prefill of a prompt", "decode": "a step that makes tokens"}


def count(said: int | str, name: str = "tokens", least: int = 0) -> Expr:
    """A number of positions as SymPy has it: a number or a symbol.

    Raises ``ValuesError`` for what is neither, and for fewer than the ``least``.
    """
    text = str(said)
    number = re.fullmatch(r"-?\d{1,12}", text) is not None
    if isinstance(said, bool) or not (number or re.fullmatch(r"[^\W\d][\w']{0,39}", text)):
        raise ValuesError(f"{name} is {text[:60]}", hint="a number of positions, or a symbol for it")
    if number and int(text) < least:
        raise ValuesError(f"{name} is {text}", hint=f"at least {least}, or a symbol for the number of positions")
    return sp.Integer(int(text)) if number else symbol(text)


def step_of(
    setting: Setting, phase: str, new: int | str | None = None, past: int | str | None = None, again: bool = False
) -> Setting:  # fmt: skip
    """The setting of a step; what is one of that phase already stays, unless it is to be made ``again``.

    A decode step has one new position behind ``c`` others, a prefill all positions of the model, where nothing is said.
    Raises ``ValuesError`` for a step of another phase, and for sizes that a step says already.
    """
    step = setting.graph.step
    if step is not None and not again:
        if step.phase != phase:
            raise ValuesError(f"this is of {WHAT[phase]}, and the model is {WHAT[step.phase]}",
                              hint="ask the model itself")  # fmt: skip
        if new is not None or past is not None:
            raise ValuesError("the step says already how many positions it has", hint="ask the model itself")
        return setting
    model = setting.graph.model
    taken = replace(setting, graph=model).symbols
    if past is None:
        free = (name for name in ("c", "c_past", "c_past'") if name not in taken and name != new)
        past = 0 if phase == "prefill" else next(free)
    if new is None and phase == "decode":
        new = 1
    known = dict(step.values) if step is not None else setting.values
    made = stepped(model, None if new is None else count(new, "new", 1), count(past, "past"), phase, setting.accounting,
                   known)  # fmt: skip
    made.check_sizes(made.relations.complete(setting.values))
    told = {str(said): f"{what} positions of a step" for said, what in ((new, "new"), (past, "earlier"))
            if said is not None and not str(said).isdecimal() and said not in taken}  # fmt: skip
    notation = replace(setting.notation, meanings={**told, **setting.notation.meanings})
    return replace(setting, graph=made, notation=notation)


def up_to(setting: Setting, *parts: Form) -> Setting:
    """The setting with the end of a text of some parts held against the model's table of positions, now and later on.

    Raises ``ValuesError`` where the table has no row for it.
    """
    step = (setting if setting.graph.step is not None else step_of(setting, "decode")).graph.step
    assert step is not None
    check = partial(step.check_length, end=Total(parts) if len(parts) > 1 else parts[0])
    check(setting.values)
    return replace(setting, checks=(*setting.checks, check))


def last_chunk(prompt: int | str, chunk: int | str) -> tuple[int, int]:
    """How many chunks of a prompt come before its last one, and the tokens of that; ``ValuesError`` for symbols."""
    for name, said in (("prompt", prompt), ("chunk", chunk)):
        if not str(said).isdecimal() or not int(said):
            raise ValuesError(f"{name} is {str(said)[:20]}: how many chunks there are takes numbers",
                              hint=f"{name}: 512")  # fmt: skip
    before = -(-int(prompt) // int(chunk)) - 1
    return before, int(prompt) - before * int(chunk)


def chunked(setting: Setting, chunk: int | str) -> tuple[Setting, Expr]:
    """The setting of a chunk of a prompt before its last one, which has no logits; and what is before it."""
    how = replace(setting.accounting, logits="none")
    made = step_of(replace(setting, accounting=how), "prefill", chunk, "c" if "c" not in setting.symbols else "c_past")
    assert made.graph.step is not None
    return made, next(iter(made.graph.step.past.free_symbols))


def pieces(
    setting: Setting, step: Derivation, prompt: int | str, tokens: int | str, name: str, past: Expr | None = None,
    stride: int = 1,
) -> tuple[list[tuple[str, Form, Witness]], Callable[[Mapping[str, Fraction]], None] | None]:  # fmt: skip
    """The sum of a decode step's amount over the tokens behind the first one: in parts in which it grows linearly.

    The sum of what grows linearly is its amount at the mean context, as often as there are steps. Each part has a name,
    its form and a witness; where numbers decide where one ends (a window, the larger of two times), a check of later
    numbers comes with them. Chunks of a prompt follow one another in a ``stride``, and count its contexts in it.

    Raises ``ValuesError`` where such numbers are missing.
    """
    if past is None:
        decode = step_of(setting, "decode").graph.step
        assert decode is not None
        past = next(iter(decode.past.free_symbols))
    worth, many, first = step.expr.subs(past, stride * past), count(tokens), count(prompt)
    units = units_of(closed(step))

    def part(often: Expr, mean: Expr, known: Mapping[str, Fraction] | None = None) -> Form:
        mine = worth if known is None else _decided(worth, {**known, str(past): Fraction(int(mean.p), int(mean.q))})
        one = with_units(from_expr(setting.graph.relations.gather(mine.subs(past, mean))), units)
        return in_unit(product(from_expr(often), one), step.unit)

    def looped(start: Form, often: Form, numbers: Numbers) -> Fraction:
        """Step by step; from many steps on those of one growth together."""
        begin, count = evaluate(start, numbers.of(names(start))), evaluate(often, numbers.of(names(often)))
        form, found = from_expr(worth), Fraction(0)
        other = numbers.of([n for n in names(form) if n != str(past)])
        for place in range(min(int(count), 2000)):
            found += evaluate(form, {**other, str(past): begin + place})
        if count > 2000:
            last = evaluate(form, {**other, str(past): begin + count - 1})
            found += (count - 2000) * (last + evaluate(form, {**other, str(past): begin + 2000})) / 2
        return found

    if not worth.has(sp.Max, sp.Min) and sp.degree(sp.expand(worth), past) <= 1:
        mean = first + (many - 2) / sp.Integer(2)
        witness = partial(looped, from_expr(first), from_expr(many - 1))
        return [(name, part(many - 1, mean), witness)], None
    form = from_expr(worth)
    told = {**setting.values, **dict(step.given)}
    deciding = {s.name for one in worth.atoms(sp.Max, sp.Min) for s in one.free_symbols} - {str(past)}
    asked = [*sorted(deciding), *names(from_expr(first)), *names(from_expr(many))]
    known = dict.fromkeys(names(form), Fraction(1)) | told  # where parts end, other sizes have no say
    missing = [n for n in dict.fromkeys(asked) if n not in told]
    if missing:
        raise ValuesError(f"the larger part, and whether a window is reached, depend on {', '.join(missing)}",
                          hint="give numbers to the model: model.at(...), or values: in its block")  # fmt: skip
    amount = cache(lambda c: evaluate(form, {**known, str(past): Fraction(c)}))
    begin = int(evaluate(from_expr(first), known))
    end = begin + int(evaluate(from_expr(many), known)) - 1
    full = [(int(evaluate(from_expr(one), known)) - 1) / Fraction(stride) for one in setting.graph.model.windows]
    ends = {end, *(w for one in full for w in (floor(one), ceil(one)) if begin < w < end)}
    found: list[tuple[str, Form, Witness]] = []
    for bound in sorted(ends):  # between windows the amount is convex: the larger of linear ones
        while begin < bound:
            slope, last = amount(min(begin + 1, end)) - amount(begin), bound - 1
            while (over := amount(last) - amount(begin) - slope * (last - begin)) and last > begin:
                last = floor(last - over / (amount(last) - amount(last - 1) - slope))  # where the last growth meets it
            stop = min(max(last, begin) + 1, bound)
            mean = sp.Rational(begin + stop - 1, 2)
            witness = partial(looped, num(begin), num(stop - begin))
            found.append((name + "'" * len(found), part(sp.Integer(stop - begin), mean, known), witness))
            begin = stop

    def same(numbers: Mapping[str, Fraction]) -> None:
        """Raises ``ValuesError`` where the parts were found at other numbers."""
        for n in asked:
            if numbers.get(n, known[n]) != known[n]:
                raise ValuesError(f"the steps were added up at {n} = {known[n]}", hint=f"model.at({n}=...) first")

    return found, same


def _decided(worth: Expr, known: Mapping[str, Fraction]) -> Expr:
    """An expression in which the larger, or the smaller, of several amounts is the one that it is at some numbers."""

    if isinstance(worth, (sp.Max, sp.Min)):  # the outer one first: SymPy takes long to build another
        pick = max if isinstance(worth, sp.Max) else min
        return _decided(pick(worth.args, key=lambda one: evaluate(from_expr(one), known)), known)
    return worth.func(*(_decided(one, known) for one in worth.args)) if worth.has(sp.Max, sp.Min) else worth
