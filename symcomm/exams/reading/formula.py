r"""The grammar of answers: sums, products with and without a sign, fractions, powers, roots, a unit at the end.

What can be read in two ways is not read: ``a/bc``, ``1/2x``, ``x^1/2``, ``D2``, two numbers side by side. A run of
letters is a declared name, or the only product of declared names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.errors import nearest
from symcomm.core.form import Form, Num, Power, Product, Sym
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Unit
from symcomm.exams.reading import UnreadError
from symcomm.exams.reading.characters import clean, unquoted
from symcomm.exams.reading.measures import COUNTED, counts, measure
from symcomm.exams.reading.numbers import EXPONENT_LIMIT, Literal, scan

_BITS_LIMIT = 16_000
_NODE_LIMIT = 2_500
_FINEST = 10**6  # below the line of an exponent: x^1.0001 is read

_COMMANDS = {
    "cdot": "*", "times": "*", "ast": "*", "cdotp": "*", "div": "/", "approx": "=", "simeq": "=", "sim": "=",
    "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋", "lbrack": "[", "rbrack": "]", "%": "%", "lbrace": "{",
    "{": "(", "}": ")", "frac": "frac", "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sqrt": "sqrt",
    "surd": "surd", "log": "log", "ln": "ln", "min": "min", "max": "max", "ceil": "ceil", "floor": "floor",
    "abs": "abs", "lg": "log",
}  # fmt: skip
_CALLS = frozenset({"sqrt", "ceil", "ceiling", "floor", "min", "max", "log", "ln", "log2", "log_2", "log10", "log_10",
                    "abs"})  # fmt: skip
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>\d|\.\d)|(?P<word>[A-Za-zμ][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*'*)"
    r"|(?P<command>\\(?:[A-Za-z]+|[%{}]))|(?P<power>\*\*|\^)|(?P<sign>[-+*/=()\[\]{}⌈⌉⌊⌋%,≈])"
)
_BEFORE_A_DOT = frozenset({"word", "number", ")", "]", "}"})
_AFTER_A_DOT = re.compile(r"\s*[A-Za-z(\\]")
_FLOPS = re.compile(r"(?:[kMGTPE]|kilo|mega|giga|tera|peta|exa)?(?:FLOP[Ss]|flops)", re.IGNORECASE)
_CLOSING = {"(": ")", "[": "]", "{": "}", "⌈": "⌉", "⌊": "⌋"}
_LEADING = re.compile(
    r"\s*(?:(?:answer|result|solution|ans)\b\s*[:=]?|(?:is|about|approximately|approx\.?|ca\.?|circa|roughly)(?=[\s\d])|≈|~|="
    r"|\\approx(?![A-Za-z])|\\sim(?![A-Za-z])|:)",
    re.IGNORECASE,
)
_CALLED = re.compile(
    r"\A\s*(?:(?:antwort|lösung|ergebnis|答案|答|结果)\s*(?:ist|是|为)?\s*[:=：]?|etwa|ungefähr|rund|大?约)(?=[\s\d$\\])",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"\s*(?:(?:i\s+)?(?:do\s+not|don['’]?t)\s+know|idk|dunno|no\s+idea|(?:ich\s+)?wei(?:ß|ss)\s+(?:es\s+)?nicht|keine\s+ahnung"
    r"|我?不知道)[\s.!]*",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*\.?\s*")
_WORDS = {
    "or": "give one answer", "and": "give one answer; of several parts their sum", "to": "give one value",
    "squared": "write powers as ^2", "cubed": "write powers as ^3", "if": "no conditions: give one formula",
    "per": "write a fraction with /", "times": "write * for a product", "plus": "write + for a sum",
    "true": "give a value", "false": "give a value",
}  # fmt: skip
_STRANGE = {
    "|": "write the bars as abs(...)", "!": "no factorials here: remove the exclamation mark",
    "<": "give a value, not an inequality or a tag", ">": "give a value, not an inequality or a tag",
    ":": "give one value: write a ratio as a fraction, without a colon", "#": "no comments", "±": "give one value",
    "?": "the end is not clear: what does the question mark mean?", "&": "no tables: one formula",
    ";": "give one answer",
    "@": "'@' means nothing in a formula", "_": "an index needs a name before it, and letters behind",
    "'": "a quotation mark means nothing here", "$": "a dollar sign means nothing inside a formula",
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One side of a chain of equalities: a formula, what its unit makes of it, and how its numbers were written.

    ``scale`` and ``unit`` are those of the unit that was typed (``unit`` None where there is none), ``prefix`` the
    power of 1000 or 1024 in it. ``literal`` is the number where the whole answer is one. ``slack`` is how far off a
    calculation with rounded decimals may be, as a share.
    """

    form: Form
    names: frozenset[str]
    scale: Fraction = Fraction(1)
    unit: Unit | None = None
    prefix: int = 0
    literal: Literal | None = None
    slack: Fraction = Fraction(0)
    supposed: tuple[str, ...] = ()  # how names were read that the question does not say
    otherwise: Side | UnreadError | None = None  # with the letter of its unit as the symbol of that name


@dataclass(frozen=True)
class AnswerReader:
    """Reads answers to one question: ``spellings`` of its symbols, what may stand before ``=``, its unit.

    >>> reader = AnswerReader({"N": "N_layer", "N_layer": "N_layer", "D": "D"}, "V")
    >>> [sorted(part.names) for part in reader.read("V = 24 N_layer D^2 = 24ND^2")]
    [['D', 'N_layer'], ['D', 'N_layer']]
    """

    spellings: dict[str, str]
    left: str = ""
    unit: Unit = ONE
    decimal_comma: bool = False
    real: frozenset[str] = frozenset()  # the symbols that are measured, not counted
    supposed: frozenset[str] = frozenset()  # spellings that nobody declared: N for N_layer
    split: dict[str, tuple[str, ...] | str] = field(default_factory=dict, compare=False)
    short: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def read(self, text: str) -> tuple[Side, ...]:
        """The parts of an answer; raises ``UnreadError``. A quoted text that is no formula is refused."""
        if inside := unquoted(text):
            try:
                return self.read(inside)
            except UnreadError as why:
                raise UnreadError(why.hint, refused=True) from None
        if _NO_ANSWER.fullmatch(text[:100]):
            raise UnreadError("this gives no answer: leave the field empty, or write what you have")
        text = clean(_CALLED.sub("", text[:100]) + text[100:], frozenset((*self.spellings, *self.spellings.values())))
        for _ in range(4):
            before = text
            if (boxed := _BOXED.fullmatch(text)) is not None:
                text = boxed[1]
            leading = _LEADING.match(text)
            if leading is not None and leading.end() and not self._names(leading[0].strip(" :=")):
                text = text[leading.end() :]
            if text == before:
                break
        text = text.strip()
        text = text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text
        if not text:
            raise UnreadError("the answer is empty" if not text else "")
        tokens = self._tokens(text)
        sides = self._sides(tokens)
        told: tuple[str, ...] = ()
        if len(sides) > 1 and self._is_left(sides[0]):
            sides = sides[1:]
        elif len(sides) > 1 and len(sides[0]) == 1 and self._names(sides[0][0].text):
            told = (f"{sides[0][0].text} before = is read as the name of the answer",)
            sides = sides[1:]
        if not sides or not all(sides):
            empty = "the right side of the equals sign" if sides and not sides[-1] else "one side of two equals signs"
            last = f"{empty} is empty"
            raise UnreadError("the answer is missing" if len(sides) <= 1 else last)
        if len(sides) == 1 and len(sides[0]) == 1 and sides[0][0].text == self.left and self._is_left(sides[0]):
            raise UnreadError(f"the answer is missing after {sides[0][0].text}")
        first, *others = (self._part(side) for side in sides)
        return replace(first, supposed=(*told, *first.supposed)), *others

    def _part(self, side: list[Token]) -> Side:
        """One side: where it has no symbols, 25 302 is one number, and B behind a number is a byte."""
        whole = _with_thousands(side)
        parser = _Parser(self, whole, letters=True)
        found: Side | None = None
        try:
            found = parser.part()
        except UnreadError:
            if not parser.lettered and len(whole) == len(side):
                raise
        if found is not None and not parser.lettered and not (found.names and len(whole) < len(side)):
            return found
        if found is None or found.names:  # 4 N B, where it is a symbol before it is a byte
            return replace(_Parser(self, side).part(), otherwise=found)
        try:
            return replace(found, otherwise=_Parser(self, side).part())
        except UnreadError as why:
            return replace(found, otherwise=why)

    def _names(self, word: str) -> bool:
        return word in self.spellings

    def _is_left(self, side: list[Token]) -> bool:
        if len(side) != 1 or side[0].kind != "word":
            return False
        word = side[0].text
        return word == self.left or isinstance(self.names_in(word), str)

    def _sides(self, tokens: list[Token]) -> list[list[Token]]:
        sides: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            depth += (token.kind in _CLOSING) - (token.kind in (")", "]", "}", "⌉", "⌋"))
            if token.kind == "=" and not depth:
                sides.append([])
            else:
                sides[-1].append(token)
        return sides

    def names_in(self, word: str) -> tuple[str, ...] | str:
        """The symbols that a run of letters stands for; a hint where it stands for none, or can be split in two ways.

        >>> reader = AnswerReader({"N": "N", "D": "D", "ND": "N_D"})
        >>> reader.names_in("DN"), reader.names_in("ND")
        (('D', 'N'), 'ND is N_D here, or N times D: write N*D or N_D')
        """
        found = self.split.get(word)
        if found is None:
            found = self._split(word)
            if len(self.split) < 50_000:
                self.split[word] = found
        return found

    def _split(self, word: str) -> tuple[str, ...] | str:
        known = self.spellings
        if len(word) > 60:
            return f"'{word[:20]}...' is not a name here"
        # The ways to split each beginning of the word: how many there are, and two of them.
        ways: list[list[tuple[str, ...]]] = [[()], *([] for _ in word)]
        longest = max(map(len, known), default=0)
        for stop in range(1, len(word) + 1):
            for start in range(max(0, stop - longest), stop):
                piece = word[start:stop]
                if piece in known and ways[start]:
                    ways[stop] += [(*way, piece) for way in ways[start]]
                    del ways[stop][3:]
        found = ways[-1]
        if len(found) > 1 and self.supposed:  # what is declared comes first
            found = [way for way in found if not self.supposed & {*way}] or found
        if len(found) == 1:
            self.short[word] = tuple(piece for piece in found[0] if piece in self.supposed)
            return tuple(known[piece] for piece in found[0])
        if len(found) > 1:
            first, second = sorted(found, key=len)[:2]
            one, other = " times ".join(first), " times ".join(second)
            if len(first) == 1:
                return f"{word} is {known[word]} here, or {other}: write {'*'.join(second)} or {known[word]}"
            return f"{word}: {one}, or {other}? write * between the names"
        return self._unknown(word)

    def _unknown(self, word: str) -> str:
        """Why a word is no name, with near ones."""
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        if word in ("e", "E"):
            return "the exponent is missing"
        if word in ("O", "Theta", "mathcal"):
            return "give the exact count, not its order"
        digits = re.fullmatch(r"(.*?[A-Za-z])(\d+)", word)
        if digits is not None and not isinstance(self.names_in(digits[1]), str):
            return f"{word} is not a name: write {digits[1]}^{digits[2]} or {digits[2]}*{digits[1]}"
        if re.fullmatch(r"(?:[A-Za-z_]+x)+[A-Za-z_]+", word) and all(
            not isinstance(self.names_in(w), str) for w in word.split("x")
        ):
            return "x is not a name here: write * for a product, or x with spaces around it"
        strange = [c for c in word if c not in self.spellings]
        if word.isalpha() and 1 < len(word) <= 8 and 0 < len(strange) < len(word) and len(strange) <= 2:
            return self._unknown(strange[0])
        same = [n for n in self.spellings if n.lower() == word.lower()]
        hint = f"did you mean {same[0]}? case matters" if same else nearest(word, [*dict.fromkeys(self.spellings)])
        shown = ", ".join(dict.fromkeys(self.spellings.values()))
        remark = "leave remarks out; " if len(re.sub(r"[^A-Za-z]", "", word)) > 1 else ""
        near = hint.replace("'", "") if hint.startswith("did you mean") else f"{remark}the names are {shown}"
        return f"{word[:30]} is not a name here; {near}"

    # -- tokens --------------------------------------------------------------------------------------------

    def _tokens(self, text: str) -> list[Token]:
        found: list[Token] = []
        position, spaced = 0, False
        multiplies = "x" not in self.spellings
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                c = text[position]
                if c == "." and found and found[-1].kind in _BEFORE_A_DOT and _AFTER_A_DOT.match(text, position + 1):
                    if found[-1].text not in COUNTED:  # 3 N.D is a product, and Mrd. an abbreviation
                        found.append(Token("*", ".", spaced))
                    position += 1
                    continue
                if c in "<>" and re.search(r"\b(?:if|when|for|where)\b", text):
                    raise UnreadError("no conditions: give one formula")
                if text.count("{") > text.count("}"):
                    raise UnreadError("a brace is not closed: {")
                if text[position:].startswith("<sup>"):
                    raise UnreadError("write powers as ^2")
                raise UnreadError(_STRANGE.get(c, f"'{c}' means nothing in a formula"))
            kind, start, position = match.lastgroup or "", position, match.end()
            if kind == "space":
                spaced = True
                continue
            if kind == "number":
                literal, position = scan(text, start, self.decimal_comma)
                found.append(Token("number", text[start:position], spaced, literal))
            elif kind == "word":
                word = match[0]
                before = found[-1].kind if found else ""
                apart = len(word) == 1 and spaced and text[position : position + 1].isspace() and before
                between = before == "number" and re.match(r"\s*\d", text[start + 1 :])
                if multiplies and word[0] in "xX" and (apart or between):
                    found.append(Token("*", "*", spaced))
                    position = start + 1
                else:
                    found.append(Token("word", word, spaced))
            elif kind == "command":
                name = match[0][1:]
                if name in _COMMANDS:
                    name = _COMMANDS[name]
                    found.append(Token(name if name in _CALLS or len(name) == 1 or name in ("frac", "surd") else "word",
                                       name, spaced))  # fmt: skip
                elif name in self.spellings:
                    found.append(Token("word", name, True))
                elif name in ("mathcal",):
                    raise UnreadError("give the exact count, not its order")
                else:
                    raise UnreadError(f"\\{name[:20]} is not read here")
            elif kind == "power":
                found.append(Token("^", match[0], spaced))
            else:
                found.append(Token("=" if match[0] == "≈" else match[0], match[0], spaced))
            spaced = False
        if len(found) > _NODE_LIMIT:
            raise UnreadError(f"a formula has at most {_NODE_LIMIT:,} signs and names", refused=True)
        self._matched(found)
        return found

    @staticmethod
    def _matched(tokens: list[Token]) -> None:
        """Raises ``UnreadError`` for brackets that do not match."""
        opened: list[str] = []
        for token in tokens:
            if token.kind in _CLOSING:
                opened.append(token.kind)
            elif token.kind in (")", "]", "}", "⌉", "⌋"):
                if not opened:
                    raise UnreadError(f"a bracket is closed that was not opened: {token.kind}")
                if _CLOSING[opened.pop()] != token.kind:
                    raise UnreadError(f"a bracket of another kind is closed: {token.kind}")
        if opened:
            what = "brace" if opened[-1] == "{" else "bracket"
            raise UnreadError(f"a {what} is not closed: {opened[-1]}")


@dataclass(frozen=True)
class Token:
    """A piece of the text; ``spaced`` where a space comes before it."""

    kind: str
    text: str
    spaced: bool = False
    literal: Literal | None = None


_END = Token("end", "")
_OPERATORS = frozenset("*/^")
_STARTS = frozenset({"number", "word", "frac", "surd", *_CLOSING, *_CALLS})
_THREE = re.compile(r"\d{3}(?:\.\d+)?", re.ASCII)
_EACH = frozenset(Unit.parse(name) for name in ("device", "iteration", "step", "layer", "stage", "message"))


class _Parser:
    """Parses the tokens of one side."""

    def __init__(self, reader: AnswerReader, tokens: list[Token], letters: bool = False) -> None:
        self.reader, self.tokens, self.at = reader, tokens, 0
        self.letters = letters  # whether the letter of a symbol may be a unit
        self.lettered = False  # whether one was
        self.unit: tuple[Fraction, Unit, int] | None = None
        self.names: set[str] = set()
        self.supposed: dict[str, None] = {}
        self.slack = Fraction(0)
        self.behind = (-1, -1)  # where the unit stands

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def part(self) -> Side:
        """The whole side."""
        form = self.sum(top=True)
        token = self.next
        if token is not _END:
            raise UnreadError(_ends(token))
        if degree(form) > EXPONENT_LIMIT:
            raise UnreadError(f"powers are at most {EXPONENT_LIMIT:,}", refused=True)
        literal = self._literal()
        kinds = [t.kind for t in self.tokens[:3]]
        if self.unit is not None and kinds == ["number", "-", "number"]:
            raise UnreadError("a range or a difference? give one value")
        scale, unit, prefix = self.unit or (Fraction(1), None, 0)
        return Side(form, frozenset(self.names), scale, unit, prefix, literal, self.slack, tuple(self.supposed))

    def _literal(self) -> Literal | None:
        """The number, where there is nothing else: with a sign, a power of ten, and its unit."""
        tokens = self.tokens
        sign, at = 1, 0
        while at < len(tokens) and tokens[at].kind in ("+", "-"):
            sign, at = -sign if tokens[at].kind == "-" else sign, at + 1
        kinds = [t.kind for t in tokens]
        if kinds[at : at + 1] != ["number"]:
            return None
        found = tokens[at].literal
        assert found is not None
        at += 1
        if kinds[at : at + 1] == ["*"] and kinds[at + 1 : at + 3] == ["number", "^"] and tokens[at + 1].text == "10":
            behind = [t for t in tokens[at + 3 :] if t.kind not in ("(", ")", "{", "}")]
            power = behind[1:2] if behind and behind[0].kind in "+-" else behind[:1]
            if power and power[0].literal is not None and power[0].literal.value.denominator == 1:
                signed = -1 if behind[0].kind == "-" else 1
                found = found.times(Fraction(10) ** (signed * int(power[0].literal.value)))
                at = next(n for n, t in enumerate(tokens) if t is power[0]) + 1
                while at < len(tokens) and kinds[at] in (")", "}"):
                    at += 1
                found = Literal(found.value, found.place, found.digits, True)
        if at < len(tokens) and self.behind != (at, len(tokens)):
            return None  # a calculation, or a formula
        return found.times(Fraction(sign)) if sign < 0 else found

    # -- the grammar ---------------------------------------------------------------------------------------

    def sum(self, top: bool = False) -> Form:
        """Terms with signs between them; a unit may end each of them, where it is the same."""
        terms: list[Form] = []
        units: list[tuple[Fraction, Unit, int] | None] = []
        while True:
            negative = False
            while self.next.kind in ("+", "-"):
                negative ^= self.next.kind == "-"
                self.at += 1
            form, unit = self.term(top)
            terms.append(forms.negative(form) if negative else form)
            units.append(unit)
            if self.next.kind not in ("+", "-"):
                break
        given = [u for u in units if u is not None]
        if given:
            if len({u[1] for u in given}) > 1:
                raise UnreadError("the terms have different units")
            if len(given) < len(units) and len({u[0] for u in given}) > 1:
                raise UnreadError("a term has no unit: write one behind each, or one behind the sum")
            if len({u[0] for u in given}) > 1:
                terms = [forms.product(Num(u[0]), t) if u is not None else t for t, u in zip(terms, units, strict=True)]
                self.unit = (Fraction(1), given[0][1], 0)
            else:
                self.unit = given[0]
        return terms[0] if len(terms) == 1 else forms.Total(tuple(terms))

    def term(self, top: bool) -> tuple[Form, tuple[Fraction, Unit, int] | None]:
        """Factors with and without a sign between them."""
        above: list[Form] = []
        below: list[Form] = []
        divides = sliced = False
        last_number = False
        unit: tuple[Fraction, Unit, int] | None = None
        first = True
        while True:
            token = self.next
            if token.kind in _OPERATORS:
                if first:
                    raise UnreadError("the text begins with an operator" if not self.at else "two operators in a row")
                self.at += 1
                divides = token.kind == "/"
                sliced = divides
                if self.next.kind in _OPERATORS or (self.next.kind in ("+",)):
                    raise UnreadError("two operators in a row")
                if self.next is _END:
                    raise UnreadError("the text ends with an operator")
                last_number = False
            elif not first:
                if token.kind not in _STARTS and token.kind != "%":
                    break
                start = self.at
                said = self.measured(top)
                if said is not None:
                    self.behind = (start, self.at)
                    if unit is not None:
                        again = said[1] == unit[1] and said[0] == unit[0]
                        raise UnreadError("the unit is there twice" if again else "two units")
                    unit = said
                    continue
                if unit is not None:
                    raise UnreadError("words after the unit" if token.kind == "word" else "the unit is not clear")
                if token.kind == "number" and last_number:
                    raise UnreadError("two numbers side by side: write * between them")
                if sliced:
                    raise _sliced([below[-1]], token.text)
                if token.kind == "number" and self.at > 0 and self.tokens[self.at - 1].kind == "word":
                    raise UnreadError("a number after a name: write ^ or *")
                divides = False
            elif token is _END:
                raise UnreadError("the answer is empty" if not self.tokens else "a value is missing at the end")
            elif (said := self.measured(top)) is not None:
                raise UnreadError("the number is missing before the unit")
            first = False
            number = self.next.kind == "number"
            made = self.power()
            if sliced and len(made) > 1:
                raise _sliced(made)
            (below if divides else above).extend(made)
            last_number = number
        top_form = forms.Product(tuple(above)) if len(above) > 1 else above[0]
        if not below:
            return top_form, unit
        return forms.Ratio(top_form, Product(tuple(below)) if len(below) > 1 else below[0]), unit

    def power(self) -> list[Form]:
        """The factors of a run of letters or one other factor, the last one perhaps with a power."""
        negative = False
        while self.next.kind in ("+", "-"):
            negative ^= self.next.kind == "-"
            self.at += 1
        made = self.atom()
        if negative:
            made = [Num(Fraction(-1)), *made]
        if self.next.kind != "^":
            return made
        self.at += 1
        if self.next.kind == "^" or self.next.kind in ("*", "/"):
            raise UnreadError("two operators in a row")
        if self.next is _END or self.next.kind in (")", "]", "}"):
            raise UnreadError("the exponent is missing")
        bracket = self.next.kind in ("(", "{")
        exponent = self._exponent()
        if self.next.kind == "^":
            raise UnreadError("stacked powers: write brackets")
        if not bracket and self.next.kind == "/" and isinstance(exponent, Num) and abs(exponent.number) == 1:
            raise UnreadError("write x^(1/2) or sqrt(x): what is in the exponent?")
        return [*made[:-1], _powered(made[-1], exponent)]

    def _exponent(self) -> Form:
        negative = False
        while self.next.kind in ("+", "-"):
            negative ^= self.next.kind == "-"
            self.at += 1
        made = self.atom()
        if len(made) > 1:
            raise UnreadError("write brackets around the exponent")
        return forms.negative(made[0]) if negative else made[0]

    def atom(self) -> list[Form]:
        token = self.next
        self.at += 1
        if token.kind == "number":
            literal = token.literal
            assert literal is not None
            if literal.decimal and literal.digits >= 3 and literal.value:
                self.slack = max(self.slack, literal.place / 2 / abs(literal.value))
            return [Num(literal.value)]
        if token.kind in _CLOSING:
            inner = self.sum()
            self._close(_CLOSING[token.kind])
            return [forms.Ceiling(inner) if token.kind == "⌈" else forms.Floor(inner) if token.kind == "⌊" else inner]
        if token.kind == "frac":
            above, below = self._argument(), self._argument()
            return [forms.Ratio(above, below)]
        if token.kind in ("sqrt", "surd"):
            return [self._root(token)]
        if token.kind in _CALLS:
            return [self._call(token.text)]
        if token.kind == "word":
            if token.text in _CALLS and token.text not in self.reader.spellings:
                return [self._root(token) if token.text == "sqrt" else self._call(token.text)]
            names = self.reader.names_in(token.text)
            if isinstance(names, str):
                if self.next.kind == "(" and not names.startswith("give the exact"):
                    raise UnreadError(f"there is no function {token.text[:30]} here")
                raise UnreadError(names)
            self.names.update(names)
            for said in self.reader.short.get(token.text, ()):
                self.supposed[f"{said} was read as {self.reader.spellings[said]}"] = None
            return [Sym(name, name not in self.reader.real) for name in names]
        if token.kind == "%":
            raise UnreadError("a percent sign inside a formula")
        if token.kind == ",":
            raise UnreadError("give one answer, without a comma")
        if token.kind == "=":
            raise UnreadError("an equals sign inside brackets")
        self.at -= 1
        raise UnreadError(_ends(token))

    def _close(self, closing: str) -> None:
        if self.next.kind != closing:
            raise UnreadError(_ends(self.next))
        self.at += 1

    def _argument(self) -> Form:
        """An argument of a LaTeX command: a group, or one digit or letter."""
        token = self.next
        if token.kind == "{":
            self.at += 1
            inner = self.sum()
            self._close("}")
            return inner
        if token.kind in ("number", "word") and len(token.text) > 1:
            rest = token.text[1:]
            kind = "number" if rest[0].isdigit() else "word"
            if token.kind == "number" and token.literal is not None and token.literal.decimal:
                raise UnreadError("write braces around the parts of a fraction")
            literal = scan(rest, 0)[0] if kind == "number" else None
            first = Token(
                token.kind, token.text[0], False, scan(token.text[0], 0)[0] if token.kind == "number" else None
            )
            self.tokens = [
                *self.tokens[: self.at],
                first,
                Token(kind, rest, False, literal),
                *self.tokens[self.at + 1 :],
            ]
        if self.next.kind not in _STARTS:
            raise UnreadError("the fraction or the root is empty")
        made = self.atom()
        return made[0] if len(made) == 1 else Product(tuple(made))

    def _root(self, token: Token) -> Form:
        degree = 2
        if token.text == "sqrt" and self.next.kind == "[":
            self.at += 1
            found = self.next.literal
            if found is None or found.value.denominator != 1 or not 2 <= found.value <= 12:
                raise UnreadError("the degree of a root is a number from 2 to 12")
            degree = int(found.value)
            self.at += 1
            self._close("]")
        if self.next.kind in ("(", "{", "["):
            opening = self.next.kind
            self.at += 1
            if self.next.kind == _CLOSING[opening]:
                raise UnreadError("sqrt needs a value")
            inside = self.sum()
            self._close(_CLOSING[opening])
        elif self.next.kind in ("number", "word", "frac", "surd", "sqrt") and token.kind != "word":
            made = self.atom()
            if (
                len(made) > 1
                or (self.next.kind in ("word", "number", "(") and not self.next.spaced)
                or (self.next.kind == "^")
            ):
                raise UnreadError("what is under the root? write brackets: √(...)")
            if self.next.kind in ("word", "number", "("):
                raise UnreadError("what is under the root? write brackets: √(...)")
            inside = made[0]
        else:
            raise UnreadError("write sqrt(...) with brackets")
        return forms.Root(inside) if degree == 2 else Power(inside, forms.rational(Fraction(1, degree)))

    def _call(self, name: str) -> Form:
        name = {"ceiling": "ceil", "log_2": "log2", "log_10": "log10"}.get(name, name)
        if name == "log" and self.next.kind == "word" and self.next.text == "_2":
            name, self.at = "log2", self.at + 1
        if self.next.kind not in ("(", "{", "["):
            raise UnreadError(f"write {name}(...) with brackets")
        closing = _CLOSING[self.next.kind]
        self.at += 1
        if self.next.kind == closing:
            raise UnreadError(f"{name} needs {'values' if name in ('min', 'max') else 'a value'}")
        values = [self.sum()]
        while self.next.kind == ",":
            self.at += 1
            values.append(self.sum())
        self._close(closing)
        if len(values) > 1 and name not in ("min", "max"):
            raise UnreadError(f"{name} takes one value")
        if name == "abs":
            return values[0] if isinstance(values[0], (Sym, Product)) else forms.called("max", values[0], -values[0])
        return forms.called(name, *values)

    # -- units ---------------------------------------------------------------------------------------------

    def measured(self, top: bool) -> tuple[Fraction, Unit, int] | None:
        """The unit that is here, if what follows is one and no names of the question."""
        token = self.next
        if token.kind == "%":
            self.at += 1
            if self.next.kind == "%":
                raise UnreadError("two percent signs")
            if self.next is not _END and self.next.kind not in ("+", "-", ")"):
                raise UnreadError("a percent sign inside a formula")
            return Fraction(1, 100), ONE, 0
        if token.kind in ("(", "["):
            return self._bracketed(top)
        if token.kind != "word":
            return None
        word = token.text
        if word in _CALLS and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].kind == "(":
            return None
        reader = self.reader
        if not top and len(word) == 1:
            return None  # a letter in brackets is a name, or none
        symbols = not isinstance(reader.names_in(word), str)
        one = self._one(word, known=symbols)
        if one is None:
            return None
        if symbols and not (top and self.letters):
            return None
        start = self.at
        try:
            found = self._unit(word, one)
        except UnreadError:
            if not symbols:
                raise
            found = None
        if symbols and (found is None or self.next.kind not in ("end", "+", "-")):
            self.at = start
            return None
        self.lettered = self.lettered or symbols
        return found

    def _unit(self, word: str, one: tuple[Fraction, Unit, int]) -> tuple[Fraction, Unit, int]:
        """The unit that begins with a word, up to its end: B/s."""
        reader = self.reader
        self.at += 1
        scale, unit, prefix = one
        if word in COUNTED and scale == COUNTED[word] and self.next.kind == "word":  # 3.4 billion parameters
            more = measure(self.next.text)
            if more is not None and more[0] == 1:
                self.at += 1
                return scale, more[1], 0
        power = 1
        while self.next.kind in ("/", "*", "^") or (self.next.kind == "word" and self.next.text in ("per", "pro")):
            sign = "/" if self.next.kind == "word" else self.next.kind
            behind = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else _END
            if sign == "^":
                if behind.literal is None:
                    raise UnreadError("the unit is not clear")
                scale, unit = scale ** int(behind.literal.value), unit ** int(behind.literal.value)
                self.at += 2
                continue
            if behind.kind != "word" or (sign == "*" and not isinstance(reader.names_in(behind.text), str)):
                if behind is _END:
                    raise UnreadError("the unit is not clear")
                break
            more = measure(behind.text)
            if more is None:
                raise UnreadError("the unit is not clear")
            self.at += 2
            if sign == "/" and more[1] in _EACH and more[1].powers[0][0] not in dict(reader.unit.powers):
                continue  # GiB per GPU: what it is counted for is the question's to say
            power = -1 if sign == "/" else 1
            scale, unit = scale * more[0] ** power, unit * more[1] ** power
        return scale, unit, prefix

    def _bracketed(self, top: bool) -> tuple[Fraction, Unit, int] | None:
        """A unit in brackets at the end: ``24 N D^2 [bytes]``."""
        start, inside = self.at, self.tokens[self.at + 1 : -1]
        closed = len(self.tokens) > start + 2 and self.tokens[-1].kind == _CLOSING[self.next.kind]
        if not (top and start and closed and all(t.kind in ("word", "/", "%") for t in inside)):
            return None
        if any(t.kind == "word" and not isinstance(self.reader.names_in(t.text), str) for t in inside):
            return None
        try:
            inner = _Parser(self.reader, inside)
            found = inner.measured(top)
        except UnreadError:
            return None
        if found is None or inner.next is not _END:
            return None
        self.at = len(self.tokens)
        return found

    def _one(self, word: str, known: bool) -> tuple[Fraction, Unit, int] | None:
        """One word as a unit, or as the size of a count."""
        unit = self.reader.unit
        if word in COUNTED and (counts(unit) or len(word) > 4):
            return Fraction(COUNTED[word]), unit, 0
        if known:
            try:
                return measure(word)
            except UnreadError:
                return None
        found = measure(word)
        if found is not None and _FLOPS.fullmatch(word):
            # The s at the end may be a second or a plural: a plural before /s, else as the question has it.
            count, behind = Unit.parse("FLOP"), self.tokens[self.at + 1 : self.at + 2]
            if any(token.kind == "/" or token.text in ("per", "pro") for token in behind):
                return found[0], count, found[2]
            rate = unit.powers == Unit.parse("FLOP/second").powers
            return found[0], unit if rate or unit == count else found[1], found[2]
        return found


def _with_thousands(side: list[Token]) -> list[Token]:
    """The side with two groups of digits as one number: 25 302."""
    made: list[Token] = []
    for n, token in enumerate(side):
        before = made[-1] if made else _END
        near = [t.kind for t in (*side[max(n - 2, 0) : n - 1], *side[n + 1 : n + 2])]
        if (
            before.kind == token.kind == "number"
            and re.fullmatch(r"[1-9]\d{0,2}", before.text)
            and _THREE.fullmatch(token.text)
            and not {"number", "^"} & {*near}
        ):
            text = before.text + token.text
            made[-1] = Token("number", text, before.spaced, scan(text, 0)[0])
        else:
            made.append(token)
    return made


def _sliced(below: list[Form], more: str = "") -> UnreadError:
    """What is told where it is not clear how far a fraction with / goes."""
    from symcomm.core.printing.forms import plain

    said = [plain(piece).replace("·", "*") for piece in below] + ([more] if more else [])
    one, other = "*".join(said), "*".join(said[1:]) or "..."
    if len(one) > 60 or more in ("(", "[", "{"):
        return UnreadError("what does / divide by? write brackets: a/(b*c), or a/b*c")
    return UnreadError(f"what does / divide by? write /({one}) or /{said[0]}*{other}")


def _ends(token: Token) -> str:
    if token is _END:
        return "the formula ends too early"
    if token.kind == "*" or token.kind == "/":
        return "two operators in a row"
    if token.kind == ",":
        return "give one answer, without a comma"
    if token.kind in (")", "]", "}"):
        return "a value is missing before the bracket"
    return f"'{token.text[:20]}' does not fit here"


def _powered(base: Form, exponent: Form) -> Form:
    """A power within bounds; a half is a root."""
    if not forms.names(exponent):
        try:
            number = forms.evaluate(exponent, {})
        except Exception:
            raise UnreadError(f"an exponent is at most {EXPONENT_LIMIT:,}", refused=True) from None
        if abs(number) > EXPONENT_LIMIT or number.denominator > _FINEST:
            raise UnreadError(f"an exponent is at most {EXPONENT_LIMIT:,}", refused=True)
        if number == Fraction(1, 2):
            return forms.Root(base)
        if isinstance(base, Num):
            bits = max(base.number.numerator.bit_length(), base.number.denominator.bit_length())
            if bits * abs(number) > _BITS_LIMIT:
                raise UnreadError("this number is too large", refused=True)
        return Power(base, Num(number))
    return Power(base, exponent)


def degree(form: Form) -> Fraction:
    """A bound of the power that anything in a form is raised to."""
    if isinstance(form, Power):
        exponent = forms.evaluate(form.exponent, {}) if not forms.names(form.exponent) else Fraction(1)
        return max(degree(form.base), Fraction(1)) * abs(exponent) + (degree(form.exponent) if exponent == 1 else 0)
    if isinstance(form, Product):
        return sum((max(degree(f), Fraction(0)) for f in form.factors if not isinstance(f, (Num, Sym))), Fraction(0))
    if isinstance(form, (Num, Sym)):
        return Fraction(1) if isinstance(form, Sym) else Fraction(0)
    return max((degree(f) for f in form.parts), default=Fraction(0))


def as_spellings(symbols: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    r"""The spellings of symbols, LaTeX ones as they come out of cleaning.

    >>> as_spellings([("N_layer", ["N", r"N_{\text{layer}}"])])
    {'N_layer': 'N_layer', 'N': 'N_layer'}
    """
    found: dict[str, str] = {}
    for name, others in symbols:
        for said in (name, *others):
            plain = clean(said, frozenset({name})).replace(" ", "").replace("{", "").replace("}", "").lstrip("\\")
            found.setdefault(plain, name)
    return found
