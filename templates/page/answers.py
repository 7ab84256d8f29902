"""What the page asks of symcomm: texts come in, plain data goes out, and no verdict tells the right answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import symcomm as sc
from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.derivation.writing import numbers, substituted
from symcomm.core.errors import Span
from symcomm.core.printing import html_text, math_element, mathml, name_in, quantity_in, short
from symcomm.core.units import Quantity
from symcomm.documents.render import source
from symcomm.documents.render.document import Answer, Document, Given
from symcomm.documents.render.words import words
from symcomm.exams.key import Key
from symcomm.exams.problems.problem import Ask, read_problem
from symcomm.exams.problems.solve import followed, known_of

QUANTITIES = ("communication", "parameters", "flops", "state_memory")
PLACED = ("communication", "state_memory")  # which need a strategy
_SECTION = re.compile(r'(?s)<section class="solution"[^>]*>\s*<h\d.*?</h\d>(.*)</section>')
_MARKS = re.compile(r"[`$*\\{}]")
_WAYS = 6  # doublings and halvings that a slider reaches
_START = 64  # of a symbol without a number


class Desk:
    """The questions of a document, and what was derived last."""

    def __init__(self, file: str) -> None:
        self.problem = read_problem(file)
        self._asks = dict(zip(self.problem.ids, self.problem.asks, strict=True))
        self._keys: dict[str, Key] = {}
        self._derived: Derivation | None = None

    def questions(self) -> list[dict[str, str]]:
        """Each question: its name, its words, and what is given."""
        headings = {id(ask): one.heading for one in self.problem.questions if one.heading for ask in one.asks}
        return [
            {"name": name, "words": _words(name, ask, headings), "given": self._given(ask)}
            for name, ask in self._asks.items()
        ]

    def _given(self, ask: Ask) -> str:
        known = {one.name: short(one.quantity) for one in known_of(self.problem, ask)}
        return ", ".join(f"{name_in('text', name)} = {said}" for name, said in known.items())

    def check(self, name: str, answer: str, language: str) -> dict[str, Any]:
        """The verdict on an answer with hints, and what was read as MathML; the right answer is not in it."""
        key, told = self.key(name), words(language)
        comma = told.catalogue.decimal == "," or key.spec.decimal_comma
        found = sc.check(answer, key, decimal_comma=comma)
        return {
            "verdict": found.verdict,
            "says": [told.catalogue(one) for one in found.says],
            "hint": told.catalogue(found.hint),
            "read": _read(answer, key, comma) if found.read else "",
        }

    def key(self, name: str) -> Key:
        """The key of a question, derived when it is chosen or first answered."""
        if name not in self._keys:
            self._keys[name] = sc.key_of(self.problem, followed(self.problem, self._asks[name]))
        return self._keys[name]

    def warm(self, name: str) -> str:
        """Derives the key of a question and its mistakes before an answer is typed: a wrong number needs them all."""
        return sc.check("7919", self.key(name)).verdict

    def derive(self, text: str, quantity: str, strategy: str, language: str) -> dict[str, Any]:
        """A derivation for a layer table or a configuration as HTML, and the symbols that a slider may set."""
        if quantity not in QUANTITIES:
            raise sc.SymcommError(f"the page does not derive '{quantity[:40]}'", hint=", ".join(QUANTITIES))
        model = sc.load(json.loads(text) if text.lstrip().startswith("{") else text)
        made = getattr(model, quantity)(*([strategy] if quantity in PLACED else []))
        self._derived = made
        return {"html": as_html(made, language), "symbols": _sliders(made, words(language).catalogue)}

    def at(self, values: Mapping[str, str], along: str, places: Sequence[str], language: str) -> dict[str, Any]:
        """The answer at some numbers, and at ``places`` of one symbol: its formula, number and plot."""
        made = self._derived
        if made is None:
            raise sc.SymcommError("nothing is derived yet", hint="press Derive first")
        known = {name: _number(value, name) for name, value in values.items()}
        found = [(place, _at(made, {**known, along: Fraction(place)})) for place in places]
        points = [{"x": float(Fraction(x)), "y": float(y.value), "said": short(y)} for x, y in found if y is not None]
        try:
            number, spelled = made.at(known), substituted(made, numbers(made, known))
        except sc.SymcommError as error:
            return {"why": words(language).catalogue(str(error)), "points": points}
        symbol, shown = (mathml(form, spelled if form is made.answer.form else None, made.notation)
                         for form in (forms.Sym(made.answer.name), made.answer.form))  # fmt: skip
        return {
            "formula": math_element(f"{symbol}<mo>=</mo>{shown}"),
            "number": math_element(quantity_in("mathml", number), str(number)),
            "said": short(number), "y": float(number.value), "points": points,
        }  # fmt: skip


def as_html(made: Derivation, language: str) -> str:
    """A derivation as the pages of ``symcomm solve`` show it, without a heading."""
    given = tuple(Given(name, "", Quantity(value, made.symbol_unit(name))) for name, value in made.given)
    values = made.values()
    number = made.at() if all(name in values for name in made.needs) else None
    answer = Answer("", made, given, number, Span("", 0, "", 0, 0))
    page = source(Document("symcomm", "", (), "", language, "", made.notation, (answer,)), "html")
    found = _SECTION.search(page)
    assert found is not None
    return found[1]


def _words(name: str, ask: Ask, headings: Mapping[int, Any]) -> str:
    """The heading of a question as plain text, with its label where several stand below it."""
    heading = headings.get(id(ask))
    said = _MARKS.sub("", heading.markdown) if heading else ask.quantity.replace("_", " ")
    return (said if said.startswith(name) else f"{name}  {said}") + (f" ({ask.label})" if ask.label else "")


def _read(answer: str, key: Key, decimal_comma: bool) -> str:
    """What was read of an answer, as MathML."""
    sides = []
    for side in replace(key.reader, decimal_comma=decimal_comma).read(answer):
        unit = "" if side.unit is None else f'<mspace width="0.25em"></mspace><mtext>{html_text(_unit(side))}</mtext>'
        sides.append(mathml(side.form, None, key.derivation.notation) + unit)
    return math_element("<mo>=</mo>".join(sides))


def _unit(side: Any) -> str:
    prefixes = {1000**n: letter for n, letter in enumerate(("", *"kMGTPE"))}
    prefixes |= {1024**n: f"{letter}i" for n, letter in enumerate("KMGTPE", 1)}
    return f"{prefixes.get(side.scale, f'× {side.scale} ')}{side.unit}"


def _sliders(made: Derivation, say: Callable[[str], str]) -> list[dict[str, Any]]:
    """The symbols of an answer: what each means, its number, and the places of its slider."""
    known = made.values()
    sliders = []
    for name in made.needs:
        value = known.get(name, Fraction(_START))
        places = [value * Fraction(2) ** n for n in range(-_WAYS, _WAYS + 1)]
        if value.denominator == 1:  # a count stays one
            places = [place for place in places if place.denominator == 1]
        sliders.append({"name": name, "said": name_in("text", name), "means": say(made.notation.meaning(name)),
                        "unit": str(made.symbol_unit(name)).replace("1", ""), "value": str(value),
                        "places": [str(place) for place in places]})  # fmt: skip
    return sliders


def _number(text: str, name: str) -> Fraction:
    try:
        return Fraction(text[:40])
    except (ValueError, ZeroDivisionError):
        raise sc.SymcommError(f"'{text[:40]}' is no number for {name}", hint="a whole number or 0.5") from None


def _at(made: Derivation, known: Mapping[str, Fraction]) -> Quantity | None:
    """The answer at some numbers; None where its formula does not hold."""
    try:
        return made.at(known)
    except sc.SymcommError:
        return None


DESK: list[Desk] = []
CALLS = ("check", "derive", "at", "warm")


def call(name: str, arguments: str) -> str:
    """One call of the page and its answer, both as JSON; a mistake of the user is ``error``, of ours ``bug``."""
    try:
        given = json.loads(arguments)
        if name == "open":
            DESK[:] = [Desk(*given)]
            return json.dumps(DESK[0].questions())
        return json.dumps(getattr(DESK[0], CALLS[CALLS.index(name)])(*given))
    except json.JSONDecodeError as error:
        return json.dumps({"error": f"this is no JSON: {error}"})
    except sc.SymcommError as error:
        return json.dumps({"error": str(error)})
    except RecursionError:
        return json.dumps({"error": "this is nested too deep"})
    except Exception as error:
        return json.dumps({"bug": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
