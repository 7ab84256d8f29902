"""Facts of a model in worksheets: what ``NAME from QUANTITY(...)`` takes from it, and how much of it that counts.

An amount is of one layer or of the model, of one rank or of all, of a microbatch or of a step, of the forward pass or
of training. A line that mixes the two is as wrong as one that adds bytes and seconds, and is refused like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import mul
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import DerivationError, DocumentError, ValuesError, nearest
from symcomm.core.form import Algebra, Ceiling, Floor, Form, Largest, Num, Power, Product, Ratio, Smallest, Total
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.records import replace
from symcomm.core.units import Unit
from symcomm.core.worksheets.reader import WorksheetLine, WorksheetReader

if TYPE_CHECKING:
    from symcomm.core.setting import Setting

# Amounts of a whole, of a part of it, and what counts the parts.
_WHOLES = {"model": "the whole model", "all": "all ranks", "step": "a whole step", "training": "all of training"}
_PARTS = {
    "layer": ("model", "one layer"), "rank": ("all", "one rank"), "microbatch": ("step", "one microbatch"),
    "forward": ("training", "the forward pass"), "backward": ("training", "the backward pass"),
}  # fmt: skip
_COUNTS = {"layers": "layer", "devices": "rank", "microbatches": "microbatch"}
_COUNTED = {"layer": "layer", "device": "rank"}  # in a unit: dollar/device is a price of one rank


class FactQuantity(Protocol):
    """A quantity that a sheet can take from a model, as ``quantities`` declares it."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def options(self) -> Sequence[Any]: ...
    @property
    def extent(self) -> str: ...
    @property
    def needs_model(self) -> bool: ...
    @property
    def derive(self) -> Callable[..., Derivation]: ...
    def option(self, name: str) -> Any: ...
    def check(self, options: Mapping[str, object]) -> None: ...


Quantities = Mapping[str, FactQuantity]


def passed_on(sheet: WorksheetReader, lines: Iterable[WorksheetLine], quantities: Quantities) -> dict[str, Any]:
    """The options of quantities that a sheet passes on, by name; others keep their defaults, or those of the sheet.

    Raises ``DocumentError`` at a line that takes an unknown quantity, option or choice, or lacks a required option.
    """
    own = {*sheet.choices, *(one.option for one in sheet.symbols.values())}
    free = [(line, line.source.quantity, _free(line, quantities)) for line in lines if line.source]
    taken: dict[str, list[str]] = {}
    for _, quantity, options in free:
        taken.setdefault(f"all of {quantity}", []).extend(one.name for one in options)
    every = (name for word in sheet.passed for name in taken.get(word, [word]))
    order = dict.fromkeys(name for name in every if name not in own)
    known: dict[str, Any] = {}
    for line, quantity, options in free:
        for one in options:
            if one.name not in order:
                if one.required:
                    what = f"{quantity} needs '{one.name}', which the worksheet neither fixes nor passes on"
                    raise DocumentError(what, line.span, f"- {one.name} under Options, or {quantity}({one.name}: ...)")
                continue
            there = known.setdefault(one.name, replace(one, required=one.required and not line.guards))
            if "choice" in (there.kind, one.kind) and there.among != one.among and there.choices != one.choices:
                raise DocumentError(f"'{one.name}' has other choices for another line", line.span, "fix one of them")
    for word, span in sheet.passed.items():
        if word not in taken and word not in known:
            near = nearest(word, [*dict.fromkeys((*taken, *(one.name for _, _, options in free for one in options)))])
            raise DocumentError(f"no line takes '{word[:60]}'", span, near)
    return {name: known[name] for name in order if name in known}


def _free(line: WorksheetLine, quantities: Quantities) -> list[Any]:
    """The options that a line leaves open."""
    assert line.source is not None
    name, fixed = line.source.quantity, dict(line.source.fixed)
    if name not in quantities:
        raise DocumentError(f"there is no quantity or fact '{name[:40]}'", line.span, nearest(name, [*quantities]))
    quantity = quantities[name]
    with line.span.meant():
        for option, choice in fixed.items():
            found = quantity.option(option)
            if choice is None and found.required:
                raise ValuesError(f"'{name}' needs the option '{option}'", hint=found.meaning)
            if choice is not None:
                found.check(choice)
                if found.kind == "strategy":
                    parse_strategy(choice)
    return [one for one in quantity.options if one.name not in fixed]


def derived(
    line: WorksheetLine, quantities: Quantities, setting: Setting, said: Mapping[str, object], passed: Mapping[str, Any]
) -> Derivation:
    """The derivation of a fact for a model, under what is ``said`` of the options that are ``passed`` on.

    What was checked of these is checked again only where the quantity takes something else. Raises ``ValuesError``
    where the fact is nothing and the line does not say that it may be.
    """
    assert line.source is not None
    quantity, fixed = quantities[line.source.quantity], dict(line.source.fixed)
    given = {one.name: fixed.get(one.name) if one.name in fixed else said.get(one.name) for one in quantity.options}
    given = {name: value for name, value in given.items() if value is not None}
    for one in (one for one in quantity.options if one.name not in fixed):
        other = passed.get(one.name, one)
        if (one.required and not given.get(one.name)) or (other.kind, other.takes) != (one.kind, one.takes):
            quantity.check(given)
    made = quantity.derive(setting, **given) if setting.ask is None else setting.ask(quantity, **given)
    if made.expr == 0 and not line.source.may_be_zero:
        problem = f"{line.name} is 0: {made.title[:1].lower()}{made.title[1:]} counts nothing here"
        raise ValuesError(problem, hint="choose other options; a worksheet that allows it says 'or 0'")
    return made


def cited(made: Derivation, unit: Unit) -> Form:
    """The answer of a derivation in one line, with the units that a collected form has lost."""
    from symcomm.core.optimum.cost import units_of
    from symcomm.core.optimum.dimension import in_unit

    form = forms.from_expr(made.expr)
    if unit.is_count:
        return form
    told = {name: one for step in made.steps for name, one in units_of(step.form).items()}
    measured = forms.substitute(form, lambda s: replace(s, unit=told.get(s.name, s.unit)))
    try:
        found = in_unit(measured, unit)
        return found if forms.unit_of(found, {}) == unit else in_unit(form, unit)
    except DerivationError:  # a sum inside of a product lacks the units of what it counts
        return in_unit(form, unit)


# -- extents ---------------------------------------------------------------------------------------------------


def extent_of(
    words: str, unit: Unit, setting: Setting | None = None, options: Mapping[str, object] = MappingProxyType({})
) -> Unit | None:
    """The extent of an amount, as a unit: from words such as ``layer rank``, or from the things a unit counts.

    ``{layer}`` is a layer where the model is one that is repeated, ``{rank}`` one rank of a strategy, other words in
    braces are what was chosen for an option.

    >>> str(extent_of("layer", Unit()))
    'model/layer'
    """
    found = Unit()
    layer = "layer" if setting is not None and setting.graph.repeat else "model"
    said = {**options, "layer": layer, "rank": "rank" if options.get("strategy") else "all"}
    for word in words.format_map(said).split():
        if word in _PARTS:
            found *= Unit(((_PARTS[word][0], 1),)) / Unit(((word, 1),))
        else:
            found *= Unit(((_COUNTS.get(word, word), 1),))
    for base, power in unit.powers:
        found *= Unit(((_COUNTED[base], power),)) if base in _COUNTED and not words else Unit()
    return found if found.powers else None


class _MixedError(Exception):
    """Terms of a sum are of different extents."""


def _together(found: Iterable[Unit | None]) -> Unit | None:
    known = [unit for unit in found if unit is not None]
    return reduce(mul, known) if known else None


def _alike(*parts: Unit | None) -> Unit | None:
    known = [part for part in parts if part is not None]
    found: dict[str, int] = {}
    for whole in _WHOLES:
        bases = (whole, *(part for part, (of, _) in _PARTS.items() if of == whole))
        amounts = [{base: dict(part.powers).get(base, 0) for base in bases} for part in known]
        counted = [amount for amount in amounts if amount[whole]] or amounts  # a bare count goes with anything
        if any(amount != counted[0] for amount in counted if amount[whole]):
            raise _MixedError
        found |= counted[0] if counted else {}
    return Unit(tuple(sorted((base, power) for base, power in found.items() if power))) if known else None


def _over(top: Unit | None, bottom: Unit | None) -> Unit | None:
    return top if bottom is None else (top or Unit()) / bottom


def _raised(form: Power, go: Callable[[Form], Unit | None]) -> Unit | None:
    base, power = go(form.base), form.exponent
    whole = isinstance(power, Num) and power.number.denominator == 1
    return base ** int(power.number) if base is not None and whole else base  # type: ignore[attr-defined]  # a Num


_EXTENTS: Algebra[Unit | None] = Algebra({
    **forms.of_parts({Product: _together, Ratio: _over}), Power: _raised,
    **forms.of_parts(dict.fromkeys((Total, Largest, Smallest), lambda terms: _alike(*terms))),
    **forms.of_parts(dict.fromkeys((Ceiling, Floor), lambda inside: inside)),
}, lambda form, go: None)  # fmt: skip


def mixed(form: Form, known: Mapping[str, Unit]) -> Unit | None:
    """The extent of a formula, from the extents of its names; None where nothing tells.

    Raises ``ValuesError`` where it mixes an amount of a whole with one of a part.
    """
    found, clash = None, False
    try:
        found = _EXTENTS.named(lambda sym, go: known.get(sym.name))(form)
    except _MixedError:
        clash = True
    powers = dict(found.powers) if found else {}
    amounts = {name: dict(known[name].powers) for name in forms.names(form) if name in known}
    for whole, text in _WHOLES.items():
        parts = {part: powers.get(part, 0) for part, (of, _) in _PARTS.items() if of == whole}
        odd = [part for part, power in parts.items() if power]
        right = not odd or (len(odd) == 1 and parts[odd[0]] == -powers.get(whole, 0))
        if right and not clash:
            continue
        of_whole = [n for n, p in amounts.items() if p.get(whole) and not any(p.get(part) for part in parts)]
        of_part = [(n, part) for n, p in amounts.items() for part in parts if p.get(whole) and p.get(part)]
        if of_part and (of_whole or len({part for _, part in of_part}) > 1):
            (name, part), (last, its) = of_part[0], of_part[-1]
            other = f"`{of_whole[0]}` is of {text}" if of_whole else f"`{last}` is of {_PARTS[its][1]}"
            raise ValuesError(f"`{name}` is of {_PARTS[part][1]} and {other}: they do not go together")
        if not right and any(p.get(whole) for p in amounts.values()):
            raise ValuesError(f"this counts {_PARTS[odd[0]][1]} of {text} {'twice' if powers.get(whole) else 'alone'}",
                              hint="an amount of one part times the number of parts is one of the whole")  # fmt: skip
    if clash:
        raise ValuesError("amounts of different parts are added")
    return found
