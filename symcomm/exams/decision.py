"""Decides an answer: read, brought to the question's unit, and held against what is known.

Residues at random points decide formulas of sums, products and whole powers, one way and the other. Where roots,
rounding or logarithms are in it, equal residues are still equal formulas; different ones are held against real numbers,
which certified intervals have to tell apart; what is equal there has to be proved by cases (``identity``), or is
undecided.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from types import FrameType

from symcomm.core import form as forms
from symcomm.core.answers import UnreadError
from symcomm.core.answers.formula import Side
from symcomm.core.answers.measures import measure, same_kind
from symcomm.core.answers.numbers import Literal
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form
from symcomm.core.identity import identical
from symcomm.core.libraries import Expr
from symcomm.core.real_numbers import are_apart, is_exact, number_of
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.exams.candidates import AnswerKey, ResidueTable, Wrong, residues
from symcomm.exams.points import NoNumberError, ResiduePoint, Residues, is_rational, points, real_points
from symcomm.exams.verdict import Counterexample, Verdict

_SYMPY_NODES = 200  # of a formula that is proved by cases, and the highest power in it
_SYMPY_DEGREE = 20
_EXACT = Fraction(1, 10**30)
_PREFIXES = tuple(Fraction(1000) ** n for n in range(-4, 5))
SECONDS = 2.0  # that the answer itself may take, at each of the places where its size decides
_TIME_UP = "a person has to look at this: it takes too long to decide"


class TimeUpError(BaseException):
    """The time is up; no ``Exception``, so that nothing on the way takes it for a fault of its own."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises ``TimeUpError`` in what computes longer: a busy machine decides as an idle one does.

    A signal does it, which only the main thread of a process gets, and Windows does not have: elsewhere nothing is
    stopped. A timer that somebody else set is set again afterwards. Where it strikes a callback of the garbage
    collector, which drops it, it strikes again.

    >>> with deadline(60):
    ...     done = True
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGVTALRM, stop)
    left, again = signal.setitimer(signal.ITIMER_VIRTUAL, seconds, max(seconds / 2, 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_VIRTUAL, left, again)


def decide(answer: str, key: AnswerKey) -> Verdict:
    """The verdict on an answer, decided anew."""
    try:
        with deadline(SECONDS):
            parts = key.reader.read(answer)
    except UnreadError as why:
        return Verdict("refused" if why.refused else "unreadable", hint=why.hint)
    except TimeUpError:
        return Verdict("undecided", hint=_TIME_UP)
    found = Verdict("right")
    for part in parts:
        found = _decided(part, key)
        if not found.right:
            break
    found = found if found.sides else replace(found, sides=tuple(parts), notation=key.derivation.notation)
    supposed = dict.fromkeys(note for part in parts for note in part.supposed)
    return replace(found, hint="; ".join([*supposed, found.hint]).rstrip("; ")) if supposed else found


def _meant(part: Side, key: AnswerKey) -> str:
    """A symbol that was typed in the other case and read as a unit: d^2 is square days, where D was meant."""
    for name in (name for name in key.reader.spellings if len(name) == 1):
        found = measure(name.swapcase())
        if found is not None and (part.scale, part.unit) in {(found[0] ** n, found[1] ** n) for n in range(1, 5)}:
            return name
    return ""


def _decided(part: Side, key: AnswerKey) -> Verdict:
    """The verdict on one part, whose unit may be the letter of a symbol.

    12 B is 12 bytes; it is twelve times the batch only where that is right.
    """
    try:
        found = _Decision(part, key).verdict()
    except NoNumberError as why:
        return Verdict("unreadable", hint=str(why))
    except TimeUpError:
        return Verdict("undecided", hint=_TIME_UP)
    other = part.otherwise
    if found.right:
        return found
    if other is None:
        return _told_of_letters(found, part, key)
    if isinstance(other, UnreadError):
        return found if part.literal is not None else Verdict("unreadable", hint=other.hint)
    second = _decided(other, key)
    if (part.names - other.names) & {*forms.names(key.candidates.right)}:
        return found  # 16 L^2 B is no number of bytes where the batch B belongs to the answer
    known = ("mistake", "other_convention")  # 512 B without the batch; 2 N B are bytes, where B makes no sense
    better = bool(part.names) and found.verdict == "different" and second.verdict in known
    if better or (second.right and (part.names or found.verdict not in known)):
        return replace(second, sides=(other,), notation=key.derivation.notation)
    if part.names or (part.unit is not None and _same_kind(part.unit, key)):
        letters = " and ".join(sorted(other.names - part.names))
        told = f"{letters} was read as a unit, not as the symbol" if letters else found.hint
        return replace(found, hint=found.hint or told)
    return Verdict("unreadable", hint=_symbol_here(other.names))


def _symbol_here(names: Iterable[str]) -> str:
    return f"{' and '.join(sorted(names))} is a symbol here: write the unit in full, or * before a symbol"


def _told_of_letters(found: Verdict, part: Side, key: AnswerKey) -> Verdict:
    """The verdict that also tells of a symbol which may have been meant as a unit: 2 B * 12 N D^2."""
    strange = part.names - {*forms.names(key.candidates.right)} if part.unit is None and not found.hint else ()
    named = [name for name in strange if (unit := measure(name)) is not None and _same_kind(unit[1], key)]
    return replace(found, hint=_symbol_here(named)) if named else found


_LEVELS = (("conventions", "singles"), ("pairs",), ("mixed",))  # of candidates, in the order in which they are named


# What is known of a key is kept for the answers to come; a changed key has its own.


@lru_cache(maxsize=1024)
def _numbers(held: ByIdentity[AnswerKey], level: str) -> list[tuple[float, Wrong, Fraction]]:
    """The answers of a level that have numbers."""
    made = ((wrong, wrong.number.at(held.it.values)) for wrong in getattr(held.it.candidates, level))
    return [(_float(worth), wrong, worth) for wrong, worth in made if worth is not None]


@lru_cache(maxsize=1024)
def _views(held: ByIdentity[AnswerKey], used: frozenset[str]) -> list[ResidueTable]:
    """Points at which what is not used has its given number."""
    key, fixed = held.it, {n: v for n, v in held.it.values.items() if n not in used}
    made = points(key.candidates.question.symbols, key.relations, fixed, 7)
    return [ResidueTable(point, residues(key.candidates.right, point)) for point in made]


@lru_cache(maxsize=1024)
def _samples(held: ByIdentity[AnswerKey], used: frozenset[str]) -> list[tuple[dict[str, Fraction], Fraction]]:
    """Real points, and the right number there: with symbols free, and with given numbers for those not used."""
    key, fixed = held.it, {n: v for n, v in held.it.values.items() if n not in used}
    made = real_points(key.candidates.question.symbols, key.relations, fixed)
    with_right = [(p, number_of(key.candidates.right, p)) for p in made]
    return [(p, n) for p, n in with_right if n is not None]


@dataclass
class _Decision:
    """One part of an answer against a key."""

    part: Side
    key: AnswerKey

    def verdict(self) -> Verdict:
        """The verdict; raises ``NoNumberError`` where the part has no number at all."""
        key = self.key
        if self.part.unit not in (None, key.unit):  # seconds beside hours: answers are read in base units
            typed = Quantity(self.part.scale, self.part.unit).within(key.unit)
            self.part = replace(self.part, scale=typed.value, unit=typed.unit)
        part = self.part
        if part.unit is not None and not _same_kind(part.unit, key, part.literal is None):
            asked = key.spec.unit or Quantity.counted(Fraction(2), str(key.unit))
            said = f"in {asked}" if asked != "1" else "a plain number"
            meant = _meant(part, key)
            case = f": case matters, did you mean {meant}?" if meant else ""
            mine = Quantity.counted(Fraction(2), str(part.unit))
            return Verdict("different", hint=f"this is in {mine}, but the answer is {said}{case}")
        return self._formula() if part.names else self._number()

    # -- numbers -------------------------------------------------------------------------------------------

    def _number(self) -> Verdict:
        part, key = self.part, self.key
        right = key.number
        if key.spec.formula:
            names = ", ".join(forms.names(key.candidates.right))
            return Verdict("different", hint=f"this is a number: write the formula, in {names}")
        with deadline(SECONDS):
            number = number_of(part.form, {})
        if number is None:
            below = [piece.bottom for piece in forms.walk(part.form) if isinstance(piece, forms.Ratio)]
            divided = any(not number_of(bottom, {}) for bottom in below)
            return Verdict("unreadable", hint="division by zero" if divided else "this is no real number")
        if right is None:
            missing = [n for n in forms.names(key.candidates.right) if n not in key.values]
            if not missing:
                return Verdict("undecided")
            return Verdict("undecided", hint=f"no number is given for {', '.join(missing)}: write a formula")
        scales = [part.scale] if part.unit is not None else [key.bare[0]]
        if part.unit is None and part.literal is None and key.bare[0] != 1:
            scales.append(Fraction(1))  # a calculation may be in the unit of the formula
        said = [(number * scale, part.literal and part.literal.times(scale)) for scale in scales]
        if any(self._says(literal, mine, right.value) for mine, literal in said):
            return Verdict("right")
        bare = part.literal if part.unit is None and not key.spec.unit and right.unit != ONE else None
        if bare and any(bare.times(times).says(right.value) for times in _PREFIXES):  # 130, and 130.2 ms are right
            return self._different(number * scales[0], right)
        for mine, literal in said:
            for levels in _LEVELS:
                matched = [
                    (abs(mine - worth), wrong) for level in levels for wrong, worth in self._numbers(level, mine)
                    if self._says(literal, mine, worth) and self._prefixed(wrong, worth)
                ]  # fmt: skip
                if matched:  # a rounded number may be several: the nearest is named first, of a kind
                    return self._wrong([w for _, w in sorted(matched, key=lambda one: (not one[1].convention, one[0]))])
        return self._different(number * scales[0], right)

    def _numbers(self, level: str, about: Fraction) -> Iterator[tuple[Wrong, Fraction]]:
        """The answers of a level, with their numbers, that a rounded one may be."""
        near = _float(about)
        spread = abs(near) * 0.2
        known = _numbers(ByIdentity(self.key), level)
        return ((wrong, worth) for size, wrong, worth in known if abs(size - near) <= spread)

    def _says(self, literal: Literal | None, number: Fraction, worth: Fraction) -> bool:
        slack = self.part.slack if literal is None else 0
        return bool(literal and literal.says(worth)) or abs(number - worth) <= max(slack, _EXACT) * abs(worth)

    def _prefixed(self, wrong: Wrong, worth: Fraction) -> bool:
        """Whether a confused prefix is the one that was written, or that a number without one would have."""
        if not wrong.prefix:
            return True
        part = self.part
        if part.prefix:
            return wrong.prefix == part.prefix
        if part.unit is None and self.key.bare[1]:
            return wrong.prefix == self.key.bare[1]
        natural = 0
        while abs(worth) >= 1000 ** (natural + 1):
            natural += 1
        return wrong.prefix == natural

    # -- formulas ------------------------------------------------------------------------------------------

    def _formula(self) -> Verdict:
        key, part = self.key, self.part
        form = _with_whole_logarithms(part.form)
        form = form if part.unit is None or part.scale == 1 else forms.product(forms.num(part.scale), form)
        free = key.candidates.free
        views = [*free]
        if any(name not in part.names for name in key.values):
            views += _views(ByIdentity(key), part.names)
        with deadline(SECONDS):
            mine = [_at(form, view.points) for view in views]
        if any(at is not None and at == view.right for at, view in zip(mine, views, strict=True)):
            return Verdict("right")
        if (part.slack and self._near(form)) or self._unrounded(form):
            return Verdict("right")
        undecided = False
        if not (is_rational(form) and self.key.rational):
            with deadline(SECONDS):
                same = self._really(form)
            if same:
                return Verdict("right")
            undecided = same is None
        for some in (range(len(free)), range(len(free), len(views))):
            for levels in _LEVELS:
                matched = [w for level in levels for n in some
                           for w in self._agreeing(form, level, views[n], mine[n], n < len(free))]  # fmt: skip
                matched = [w for w in matched if self._prefixed(w, w.number.at(key.values) or Fraction(0))]
                if matched:
                    return self._wrong(matched)
        if undecided:
            return Verdict("undecided", hint="a person has to look at this: it is equal at all numbers tried")
        with deadline(SECONDS):
            return self._unequal(form)

    def _unrounded(self, form: Form) -> bool:
        """Whether a formula is the right one but for what given numbers decide: n/k is whole, or a less than b."""
        exact = self.key.unrounded
        return exact is not None and exact == residues(form, self.key.candidates.point)

    def _agreeing(
        self, form: Form, level: str, view: ResidueTable, mine: Residues | None, free: bool
    ) -> Iterator[Wrong]:
        """The known answers of a level that agree with a formula at some points.

        Where given numbers are put in, those that agree have its number, too: few are looked at.
        """
        number = None if free or self.key.number is None else number_of(form, self.key.values)
        if number is None:
            yield from view.known(level, getattr(self.key.candidates, level)).get(mine or (), ())
            return
        for wrong, worth in self._numbers(level, number):
            if abs(worth - number) <= _EXACT * abs(number) and residues(wrong.form, view.points) == mine:
                yield wrong

    def _near(self, form: Form) -> bool:
        """Whether a formula with rounded decimals is right as far as they go, wherever it is looked at."""
        found = [(number_of(form, point), right) for point, right in _samples(ByIdentity(self.key), self.part.names)]
        return bool(found) and all(
            mine is not None and abs(mine - right) <= self.part.slack * abs(right) for mine, right in found
        )

    def _really(self, form: Form) -> bool | None:
        """Whether a formula that residues do not decide is right: proved, refuted, or None."""
        key = self.key
        given = number_of(form, key.values)
        if key.number is not None and given is not None and self._differ(form, given, key.number.value, key.values):
            return False
        for used in dict.fromkeys((frozenset(key.values), self.part.names)):
            seen = False
            for point, right in _samples(ByIdentity(key), used):
                mine = number_of(form, point)
                if mine is None:
                    continue
                seen = True
                if self._differ(form, mine, right, point):
                    break
            else:
                if not seen:
                    continue
                return self._proved(form, used)
        return False

    def _differ(self, form: Form, mine: Fraction, right: Fraction, point: Mapping[str, Fraction]) -> bool:
        """Whether an answer and the key have other numbers for certain."""
        if is_exact(form, point) and is_exact(self.key.candidates.right, point):
            return mine != right
        if abs(mine - right) <= _EXACT * max(abs(right), Fraction(1)):
            return False
        return are_apart(form, self.key.candidates.right, point)

    def _proved(self, form: Form, used: frozenset[str]) -> bool | None:
        pieces = [*forms.walk(form)]
        large = len(pieces) > _SYMPY_NODES or forms.degree(form) > _SYMPY_DEGREE
        if large or any(isinstance(piece, forms.Logarithm) for piece in pieces):
            return None
        key = self.key
        numbers = {n: forms.rational(v) for n, v in key.values.items() if n not in used}

        def whole(f: Form) -> Expr:
            put = forms.substitute(f, lambda s: numbers.get(s.name, forms.Sym(s.name, key.candidates.question.symbols
                                                                             .get(s.name, True))))  # fmt: skip
            return key.relations.expand(forms.value(put))

        try:
            return identical(whole(form), whole(key.candidates.right)) or None
        except (SymcommError, TypeError, ValueError, ZeroDivisionError):
            return None

    # -- verdicts ------------------------------------------------------------------------------------------

    def _wrong(self, matched: Sequence[Wrong]) -> Verdict:
        first = matched[0]
        others = tuple(dict.fromkeys(w.names for w in matched[1:] if w.names != first.names))
        right = self.key.number
        mine = Quantity(first.number.at(self.key.values) or Fraction(0), self.key.unit)
        counter = None if right is None else Counterexample((), mine, right)
        if first.convention:
            return Verdict("other_convention", first.names, (), others, first.says, "", counter)
        conventions = first.names[:-1] if first.mixed else ()
        mistakes, says = first.names[len(conventions) :], first.says
        alone = next((one for one in self.key.conventions if one.names == conventions), None)
        if alone is not None and self._unrounded(alone.form):  # its number is that of the mistake alone
            conventions, says = (), says[len(conventions) :]
        return Verdict("mistake", conventions, mistakes, others, says, "", counter)

    def _different(self, number: Fraction, right: Quantity) -> Verdict:
        hint = ""
        ratio = number / right.value if right.value else Fraction(0)
        for size, power in ((size, power) for power in (1, 2, 3, 4) for size in (1000, 1024)):
            for turned, what in ((ratio, "large"), (1 / ratio if ratio else ratio, "small")):
                if not hint and turned and abs(_float(turned) / size**power - 1) < 0.01:
                    times = f"{size}^{power}" if power > 1 else str(size)
                    hint = f"this is {times} times too {what}: which prefix do you mean?"
        if not hint and ratio == 100:
            hint = "this is 100 times too large: is it in percent?"
        if not hint and self.part.unit is None and self.part.literal and right.unit != ONE and not self.key.spec.unit:
            hint = f"a number without a unit is in {right.unit} here: write the unit behind it"
        counter = Counterexample((), Quantity(number, right.unit), right)
        return Verdict("different", hint=hint, counterexample=counter)

    def _unequal(self, form: Form) -> Verdict:
        """A formula that is not right: where it differs, first at the given numbers."""
        key = self.key
        names = [n for n in key.candidates.question.symbols
                 if n in self.part.names or n in forms.names(key.candidates.right)]  # fmt: skip
        given = number_of(form, key.values)
        tried = [(dict(key.values), None), *_samples(ByIdentity(key), frozenset(key.values))]
        for point, known in tried:
            right = number_of(key.candidates.right, point) if known is None else known
            mine = number_of(form, point)
            if right is not None and mine is not None and self._differ(form, mine, right, point):
                agrees = None not in (known, given, key.number)
                hint = "this agrees at the given numbers only: other numbers tell the two apart" if agrees else ""
                values = tuple((n, point[n]) for n in names if n in point)
                counter = Counterexample(values, Quantity(mine, key.unit), Quantity(right, key.unit))
                return Verdict("different", hint=hint, counterexample=counter)
        return Verdict("different")


def _with_whole_logarithms(form: Form) -> Form:
    """The formula with logarithms of powers of their base as whole numbers: log_2(4) is 2."""
    if isinstance(form, forms.Logarithm) and form.base > 1 and isinstance(form.inside, forms.Num):
        number, power = form.inside.number, 0
        while number > 1 and (number / form.base).denominator == 1:
            number, power = number / form.base, power + 1
        return forms.num(Fraction(power)) if number == 1 else form
    return form.mapped(_with_whole_logarithms)


def _float(number: Fraction) -> float:
    """A number near to it; infinite where it is too large."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _at(form: Form, at: tuple[ResiduePoint, ...]) -> Residues | None:
    """A formula at points; raises ``NoNumberError`` for what has no number anywhere."""
    try:
        return tuple(point.worth(form) for point in at)
    except KeyError:
        return None


def _same_kind(unit: Unit, key: AnswerKey, calculated: bool = False) -> bool:
    """Whether a unit measures what the question asks for."""
    asked = {key.unit}
    if key.spec.unit:
        asked.add(Quantity.parse(f"1 {key.spec.unit}").within(key.unit).unit)
    return any(same_kind(unit, one, calculated) for one in asked)
