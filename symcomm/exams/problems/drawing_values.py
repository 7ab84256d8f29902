"""Values that each paper draws for itself: the ``draw`` and ``require`` keys of a problem document.

A draw is a finite list of values with weights: a set, a range with steps, multiples, powers, numbers that are uniform
in their logarithm, words, or records of several values. Requirements are comparisons of formulas over them. Draws that
stand in one requirement are drawn together from all their combinations that satisfy it, so the number of different
papers is known exactly; only where there are too many combinations, some are tried until one fits.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from symcomm.core.blocks import Listing, Scalar, Section, Value
from symcomm.core.errors import DocumentError, Span, SymcommError, ValuesError, nearest
from symcomm.core.form import Form, evaluate, names
from symcomm.core.keys import COUNT, TEXT, UNIT, Schema, Sort, keyed, mapping_of, or_list, read_keys, schema_of
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity, exact_text
from symcomm.exams.problems.randomness import Stream
from symcomm.exams.problems.references import NamedValue

VALUES_LIMIT = 10_000  # of one draw
_EXERCISES = 200
_COMBINATIONS = 20_000  # that are all looked at; of more, some are tried
_TRIES = 5_000
_GENERATORS: dict[str, tuple[str, ...]] = {
    "choices": ("choices",),
    "multiples_of": ("multiples_of", "from", "to", "unit"),
    "powers_of": ("powers_of", "from", "to", "unit"),
    "from": ("from", "to", "step", "unit"),
    "log_uniform": ("log_uniform", "digits", "unit"),
    "formulas": ("formulas", "operations", "inputs", "outputs"),
    "is": ("is", "unit"),
}
_NAME = re.compile(r"[^\W\d]\w{0,39}")
_DIVIDES = re.compile(r"(.+?)\s+divides\s+(.+)")
_COMPARED = re.compile(r"(<=|>=|!=|==|=|<|>|≤|≥|≠)")
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, "≤": operator.le, ">=": operator.ge, "≥": operator.ge,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "≠": operator.ne,
}  # fmt: skip

_ANY: Schema = {"anyOf": [TEXT.schema, mapping_of(TEXT.schema)]}
_CHOICES: Schema = {"type": "array", "minItems": 2, "items": _ANY}


def _list(section: Section, name: str) -> Listing:
    value = section.get(name)
    if not isinstance(value, Listing):
        raise (value or section).wrong_type(name, "a list")
    return value


def _ends(section: Section, name: str) -> tuple[Fraction, Fraction]:
    ends = _list(section, name).items
    if len(ends) != 2:
        raise section.error(name, f"'{name}' has two ends", f"{name}: [1, 1000]")
    return _plain(ends[0]), _plain(ends[1])


def _number_of(section: Section, name: str) -> Fraction:
    said = section.scalar(name, "a number")
    assert said is not None
    return _plain(said)


_NUMBER = Sort(_number_of, TEXT.schema)
_ENDS = Sort(_ends, {"type": "array", "items": TEXT.schema})
_LIMITED = COUNT.like(type="integer", minimum=1)


@dataclass(frozen=True)
class _Drawn:
    """What one name stands for; the first key that is there says how its values are made."""

    choices: Listing | None = keyed("one of a set: numbers, words or records", Sort(_list, _CHOICES))
    multiples_of: Fraction | None = keyed("multiples of a number", _NUMBER)
    powers_of: Fraction | None = keyed("powers of a number", _NUMBER)
    start: Fraction | None = keyed("the least number", _NUMBER, name="from")
    to: Fraction | None = keyed("the greatest number", _NUMBER)
    step: Fraction = keyed("from one number to the next", _NUMBER, default=Fraction(1))
    log_uniform: tuple[Fraction, Fraction] | None = keyed("two ends; each decade is as likely as any other", _ENDS)
    digits: int | None = keyed("the significant digits of a number; 2 unless told", _LIMITED, default=2)
    formulas: int | None = keyed("so many random systems of formulas, each with a point", _LIMITED)
    operations: int | None = keyed("the operations of each", _LIMITED)
    inputs: int | None = keyed("the inputs of each", _LIMITED)
    outputs: int | None = keyed("the outputs of each", _LIMITED)
    formula: Scalar | None = keyed("what follows from other draws", Sort(Section.scalar, TEXT.schema), name="is")
    unit: str = keyed("the unit of the numbers", UNIT)


DRAWN: Schema = mapping_of({"anyOf": [_CHOICES, schema_of(_Drawn)]})
RULES: Schema = or_list({"anyOf": [{"type": "string"}, {"type": "object", "required": ["ask"]}]})
Drawn = Mapping[str, NamedValue]  # a record's values are called by its name and theirs, with a point between


@dataclass(frozen=True)
class Draw:
    """The values that one name may take, each with a whole weight: one value, or a record of several."""

    name: str
    values: tuple[tuple[tuple[str, NamedValue], ...], ...] = field(repr=False)
    weights: tuple[int, ...] = field(repr=False)
    span: Span

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it gives values to."""
        return tuple(name for name, _ in self.values[0])


@dataclass(frozen=True)
class Follows:
    """A value that follows from drawn ones."""

    name: str
    form: Form
    unit: str
    span: Span

    def of(self, numbers: Mapping[str, Fraction]) -> NamedValue:
        """Its value."""
        value = _worth(self.form, numbers, self.span)
        return _number(value / (Quantity.parse(f"1 {self.unit}").value if self.unit else 1), self.unit)


@dataclass(frozen=True)
class Requirement:
    """A condition on drawn values; ``sides`` are compared from left to right."""

    text: str
    sides: tuple[Form, ...]
    relations: tuple[str, ...]
    span: Span

    @property
    def names(self) -> frozenset[str]:
        """The names that stand in it."""
        return frozenset(name for side in self.sides for name in names(side))

    def holds(self, numbers: Mapping[str, Fraction]) -> bool:
        """Whether it is satisfied. Raises ``DocumentError`` where a side has no number."""
        worth = [_worth(side, numbers, self.span) for side in self.sides]
        if self.relations == ("divides",):
            return worth[0] != 0 and (worth[1] / worth[0]).denominator == 1
        return all(_HOLDS[r](a, b) for r, a, b in zip(self.relations, worth, worth[1:], strict=False))


@dataclass(frozen=True)
class Draws:
    """All draws of a document, what follows from them, and what they have to satisfy.

    >>> from symcomm.core.blocks import section_of
    >>> section = section_of("draw: {D: [64, 96], k: {powers_of: 2, from: 2, to: 64}}\\n"
    ...                             "require: [k divides D, D/k >= 8]", "t.md")
    >>> draws = read_draws([section])
    >>> draws.space, {name: told.text for name, told in draws.draw("7", "s001").items()}
    (6, {'D': '64', 'k': '2'})
    """

    draws: tuple[Draw, ...] = ()
    follows: tuple[Follows, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    digest: str = ""

    def __bool__(self) -> bool:
        return bool(self.draws)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a document may refer to."""
        return (*(name for draw in self.draws for name in draw.names), *(one.name for one in self.follows))

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """The draws that requirements tie together, each group with its requirements."""
        behind = {name: draw.name for draw in self.draws for name in draw.names}
        for one in self.follows:
            behind[one.name] = one.name
        ties: list[tuple[set[str], Requirement | None]] = [({behind[n] for n in r.names}, r) for r in self.requirements]
        ties += [({one.name, *(behind[n] for n in names(one.form))}, None) for one in self.follows]
        together: list[set[str]] = [{draw.name} for draw in self.draws]
        for tied, _ in ties:
            joined = [group for group in together if group & tied]
            together = [group for group in together if not group & tied] + [tied.union(*joined)]
        made = []
        for group in together:
            mine = tuple(draw for draw in self.draws if draw.name in group)
            follow = tuple(one for one in self.follows if one.name in group)
            asked = tuple(r for t, r in ties if r is not None and t <= group)
            made.append(_Group(mine, follow, asked))
        return tuple(sorted(made, key=lambda group: [d.name for d in self.draws].index(group.draws[0].name)))

    @property
    def space(self) -> int | None:
        """The number of different combinations of drawn values; None where they are too many to count."""
        sizes = [group.size for group in self._groups]
        return prod(size for size in sizes if size is not None) if None not in sizes else None

    def draw(self, seed: str, student: str, attempt: int = 0) -> Drawn:
        """The values of one paper, which follow from the draws, the seed, the student and the attempt alone.

        Raises ``DocumentError`` where no combination of values satisfies what is required.
        """
        drawn: dict[str, NamedValue] = {}
        for group in self._groups:
            words = (self.digest, seed, student, str(attempt), group.draws[0].name)
            drawn |= group.draw(Stream(*words))
        return {name: drawn[name] for name in self.names}


@dataclass(frozen=True)
class _Group:
    """Draws that are drawn together."""

    draws: tuple[Draw, ...]
    follows: tuple[Follows, ...]
    requirements: tuple[Requirement, ...]

    @property
    def countable(self) -> bool:
        return prod(len(draw.values) for draw in self.draws) <= _COMBINATIONS

    @property
    def size(self) -> int | None:
        return len(self.combinations) if self.countable else None

    @cached_property
    def combinations(self) -> tuple[tuple[dict[str, NamedValue], int], ...]:
        """All combinations that satisfy what is required, with their weights."""
        found = []
        places = [range(len(draw.values)) for draw in self.draws]
        for at in product(*places):
            combination = self.combination(at)
            if combination is not None:
                found.append((combination, prod(d.weights[n] for d, n in zip(self.draws, at, strict=True))))
        if not found:
            raise self.impossible(prod(map(len, places)))
        return tuple(found)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        return tuple(weight for _, weight in self.combinations)

    def combination(self, at: Sequence[int]) -> dict[str, NamedValue] | None:
        found = {name: told for draw, n in zip(self.draws, at, strict=True) for name, told in draw.values[n]}
        numbers = {name: told.quantity.value for name, told in found.items() if told.quantity is not None}
        for one in self.follows:
            found[one.name] = one.of(numbers)
            numbers[one.name] = found[one.name].quantity.value  # type: ignore[union-attr]  # a number follows
        return found if all(r.holds(numbers) for r in self.requirements) else None

    def draw(self, stream: Stream) -> dict[str, NamedValue]:
        if self.countable:
            return self.combinations[stream.choice(self.weights)][0]
        for _ in range(_TRIES):
            found = self.combination([stream.choice(draw.weights) for draw in self.draws])
            if found is not None:
                return found
        raise self.impossible(_TRIES)

    def impossible(self, tried: int) -> DocumentError:
        rules = ", ".join(r.text for r in self.requirements)
        drawn = ", ".join(draw.name for draw in self.draws)
        count = f"none of {tried:,} combinations of {drawn}"
        return DocumentError(
            f"{count} satisfies: {rules}", self.requirements[0].span, "draw from more values, or require less"
        )


# -- reading ----------------------------------------------------------------------------------------


def read_draws(sections: Iterable[Section]) -> Draws:
    """The contents of ``draw`` and ``require`` in the front matter and in blocks, together.

    Raises ``DocumentError`` for an unknown generator, a name that is drawn twice, too many values, and a requirement
    that cannot be read.
    """
    draws: list[Draw] = []
    derived: list[tuple[Scalar, Section]] = []
    required: list[Scalar] = []
    declared: list[Any] = []
    seen: dict[str, Span] = {}
    for section in sections:
        told = section.section("draw", "draw")
        for key, value in told.entries if told else ():
            if not _NAME.fullmatch(key.text):
                raise DocumentError(f"'{key.text[:60]}' is no name that can be drawn", key.span, "letters and digits")
            if key.text in seen:
                raise DocumentError(f"'{key.text}' is drawn twice", key.span, f"first in line {seen[key.text].line}")
            seen[key.text] = key.span
            if isinstance(value, Section) and "is" in value:
                derived.append((key, value))
            else:
                draws.append(_draw(key, value))
        required += [rule for rule in section.items("require") if isinstance(rule, Scalar)]
        declared.append([v.plain for k in ("draw", "require") if (v := section.get(k)) is not None])
    numbers = {n: draw for draw in draws for n, told in draw.values[0] if told.quantity is not None}
    every = {n for draw in draws for n in draw.names}
    follows: list[Follows] = []
    for key, value in derived:
        value.only(_GENERATORS["is"])
        said = read_keys(_Drawn, value)
        assert said.formula is not None
        form = _form(said.formula.text, said.formula.span, [*numbers, *(one.name for one in follows)], every)
        if not names(form):
            raise DocumentError(f"'{key.text}' follows from nothing that is drawn", said.formula.span,
                                "write the number instead")  # fmt: skip
        follows.append(Follows(key.text, form, said.unit, key.span))
    known = [*numbers, *(one.name for one in follows)]
    rules_read = tuple(_requirement(rule, known, every) for rule in required)
    digest = hashlib.sha256(json.dumps(declared, default=str, ensure_ascii=False).encode()).hexdigest()
    return Draws(tuple(draws), tuple(follows), rules_read, digest)


def _draw(key: Scalar, value: Value) -> Draw:
    weights: list[int] = []
    if isinstance(value, Scalar):
        raise DocumentError(
            f"'{key.text}' has one value, so nothing is drawn", value.span, "a list, or {from: 2, to: 8}"
        )
    if isinstance(value, Section):
        kind = next((name for name in _GENERATORS if name in value), None)
        if kind is None:
            near = nearest(value.keys[0] if value.keys else "", [*_GENERATORS])
            raise DocumentError(f"'{key.text}' does not say what is drawn", value.span, near)
        value.only(_GENERATORS[kind])
        if kind == "choices":
            return _draw(key, _list(value, kind))
        said = read_keys(_Drawn, value)
        if kind == "formulas":
            drawn = _exercises(key.text, value, said)
            return Draw(key.text, drawn, (1,) * len(drawn), key.span)
        unit = said.unit
        numbers = [*_numbers(value, kind, said)]
        if not numbers:
            raise DocumentError(f"'{key.text}' has no values to draw from", value.span)
        if kind == "log_uniform":  # as many to a step as the logarithm grows over it
            weights = [int(2**40 * step / number) for number, step in numbers]
        values: list[tuple[tuple[str, NamedValue], ...]]
        values = [((key.text, _number(number, unit)),) for number, _ in numbers]
    else:
        values = [_choice(key.text, item) for item in value.items]
        if not values:
            raise DocumentError(f"'{key.text}' has no values to draw from", value.span)
        first = [name for name, _ in values[0]]
        for item, made in zip(value.items, values, strict=True):
            if [name for name, _ in made] != first:
                raise DocumentError(f"the choices of '{key.text}' have different keys", item.span)
            both = zip(made, values[0], strict=True)
            if any((a[1].quantity is None) != (b[1].quantity is None) for a, b in both):
                raise DocumentError(f"'{key.text}' is a number in one choice and a text in another", item.span)
    if len({tuple(told.text for _, told in made) for made in values}) < len(values):
        raise DocumentError(f"'{key.text}' has one value twice", value.span)
    if len(values) < 2:
        raise DocumentError(f"'{key.text}' has one value, so nothing is drawn", value.span)
    return Draw(key.text, tuple(values), tuple(weights) or (1,) * len(values), key.span)


def _exercises(name: str, section: Section, said: _Drawn) -> tuple[tuple[tuple[str, NamedValue], ...], ...]:
    """So many random systems of formulas with their points: a record of both for each."""
    from symcomm.teaching.differentiation.exercises import exercise

    count = said.formulas or 0
    if not 2 <= count <= _EXERCISES:
        raise section.error("formulas", f"2 to {_EXERCISES} formulas are drawn from", "formulas: 40")
    asked = {"operations": said.operations, "inputs": said.inputs, "outputs": said.outputs}
    sizes = {key: number for key, number in asked.items() if number is not None}
    stream = Stream(name, *(f"{key} {number}" for key, number in sorted(sizes.items())))
    found: dict[str, tuple[tuple[str, NamedValue], ...]] = {}
    try:
        while len(found) < count:
            made = exercise(stream.below, **sizes)
            drawn = {"formulas": made.formulas, "point": made.point}
            found[made.formulas] = tuple((f"{name}.{part}", NamedValue(text)) for part, text in drawn.items())
    except ValuesError as error:
        raise DocumentError(error.message, section.span, error.hint) from None
    return tuple(found.values())


def _choice(name: str, item: Value) -> tuple[tuple[str, NamedValue], ...]:
    if isinstance(item, Scalar):
        return ((name, _told(item)),)
    if isinstance(item, Listing):
        raise DocumentError(f"a choice of '{name}' is a list", item.span, "a value, or a mapping of values")
    made = []
    for key, value in item.entries:
        if not isinstance(value, Scalar) or not _NAME.fullmatch(key.text):
            raise DocumentError(f"'{key.text[:60]}' of '{name}' is no name with a value", key.span)
        made.append((f"{name}.{key.text}", _told(value)))
    return tuple(made)


def _told(scalar: Scalar) -> NamedValue:
    text = " ".join(scalar.text.split())
    if not text:
        raise DocumentError("an empty value", scalar.span)
    if "{{" in text:
        raise DocumentError(
            "a value to draw cannot refer to another one", scalar.span, "refer to both where they stand"
        )
    if scalar.style or not re.match(r"[-+]?[.\d]", text):
        return NamedValue(text)
    try:
        return NamedValue.of(Quantity.parse(text), text)
    except SymcommError as error:
        raise DocumentError(error.message, scalar.span, "put a text that begins with a digit in quotes") from None


def _number(value: Fraction, unit: str) -> NamedValue:
    quantity = Quantity.parse(f"1 {unit}") if unit else Quantity(Fraction(1))
    text = exact_text(value) if value.denominator == 1 or "/" not in exact_text(value) else Quantity(value).rounded(12)
    if Fraction(text.replace(" ", "").replace("·10^", "e")) != value:
        text = exact_text(value)
    return NamedValue(f"{text} {unit}".strip(), Quantity(value * quantity.value, quantity.unit))


def _numbers(section: Section, kind: str, said: _Drawn) -> Iterator[tuple[Fraction, Fraction]]:
    """The numbers of a generator, each with the step to the next one."""
    base = said.multiples_of or said.powers_of or Fraction(kind not in ("multiples_of", "powers_of"))
    if said.log_uniform is None:
        section.need("to")
    low, high = said.log_uniform or (base if said.start is None else said.start, said.to or Fraction(0))
    if not 0 < low < high:
        raise DocumentError(f"'{kind}' needs 0 < {exact_text(low)} < {exact_text(high)}", section.span)
    step, digits = said.step, said.digits or 2
    if kind == "powers_of" and base <= 1:
        raise section.error(kind, "powers are drawn of a number above 1")
    if step <= 0 or base <= 0 or not 1 <= digits <= 6:
        raise DocumentError("steps and bases are positive, and digits are 1 to 6", section.span)
    made = _generated(kind, low, high, base if kind != "from" else step, digits)
    for counted, found in enumerate(made, start=1):
        if counted > VALUES_LIMIT:
            raise DocumentError(f"more than {VALUES_LIMIT:,} values to draw from", section.span, "take larger steps")
        yield found


def _generated(
    kind: str, low: Fraction, high: Fraction, step: Fraction, digits: int
) -> Iterator[tuple[Fraction, Fraction]]:
    if kind == "from":
        count = (high - low) // step
        yield from ((low + n * step, step) for n in range(count + 1))
    elif kind == "multiples_of":
        yield from ((n * step, step) for n in range(-(-low // step), high // step + 1))
    elif kind == "powers_of":
        power = Fraction(1)
        while power <= high:
            if power >= low:
                yield power, power
            power *= step
    else:
        unit = Fraction(1)  # of the first digit
        while unit > low:
            unit /= 10
        while unit * 10 <= low:
            unit *= 10
        while unit <= high:
            last = unit / 10 ** (digits - 1)
            first = -(-max(low, unit) // last)
            yield from ((n * last, last) for n in range(first, min(high, unit * 10 - last) // last + 1))
            unit *= 10


def _plain(value: Value) -> Fraction:
    if not isinstance(value, Scalar) or not re.fullmatch(r"\d{1,20}(\.\d{1,20})?", value.text.replace(" ", "")):
        said = value.text[:40] if isinstance(value, Scalar) else "a list"
        raise DocumentError(f"'{said}' is no positive number", value.span, "write its unit as unit: GHz")
    return Fraction(value.text.replace(" ", ""))


def _requirement(rule: Scalar, known: Sequence[str], every: set[str]) -> Requirement:
    divides = _DIVIDES.fullmatch(rule.text.strip())
    parts = [*divides.groups()] if divides else _COMPARED.split(rule.text.strip())
    relations = ("divides",) if divides else tuple(parts[1::2])
    sides = parts if divides else parts[::2]
    if not relations or not all(side.strip() for side in sides):
        raise DocumentError("this is no comparison", rule.span, "write D = n_H * H, k <= 8 or k divides n_H")
    return Requirement(rule.text.strip(), tuple(_form(s, rule.span, known, every) for s in sides), relations, rule.span)


def _form(text: str, span: Span, known: Sequence[str], every: set[str]) -> Form:
    """A formula over drawn numbers; the parts of records are read with an underscore for their point."""
    from symcomm.core import form as forms
    from symcomm.core.text.formula import read_form

    plain = {name.replace(".", "_"): name for name in known}
    for name in known:
        if "." in name:
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", name.replace(".", "_"), text)
    for word in re.findall(r"[^\W\d][\w.]*", text):
        if word in every and word not in known:
            raise DocumentError(f"'{word}' is drawn as a text, which has no number", span)
    try:
        form = read_form(text, plain.keys())
    except SymcommError as error:
        raise DocumentError(error.message, span, error.hint) from None
    return forms.substitute(form, lambda symbol: forms.Sym(plain.get(symbol.name, symbol.name)))


def _worth(form: Form, numbers: Mapping[str, Fraction], span: Span) -> Fraction:
    try:
        return evaluate(form, numbers)
    except SymcommError as error:
        raise DocumentError(error.message, span, error.hint) from None
    except ZeroDivisionError:
        raise DocumentError("this divides by zero", span) from None
