r"""The grammar of answers: sums, products with and without a sign, fractions, powers, roots, a unit at the end.

What can be read in two ways is not read: ``a/bc``, ``1/2x``, ``x^1/2``, ``D2``, two numbers side by side. A run of
letters is a declared name, or the only product of declared names. Scanner and grammar are those of table cells; this
says what differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from lark import Token, UnexpectedToken

from symcomm.core import form as forms
from symcomm.core.answers import UnreadError
from symcomm.core.answers.characters import clean, unquoted
from symcomm.core.answers.measures import COUNTED, counts, measure, uncounted
from symcomm.core.answers.numbers import Literal, scan
from symcomm.core.answers.openings import is_scaled, opened
from symcomm.core.errors import SymcommError, nearest
from symcomm.core.form import Form, Num, Power, Product, Sym
from symcomm.core.records import dataclass
from symcomm.core.text.parsing import parsed
from symcomm.core.text.syntax import Branch, Part, branches, canonical, only_factor, start_of, stop_of, term_of
from symcomm.core.text.table import single
from symcomm.core.text.tokens import BRACKETS, EXPONENT_LIMIT, OPENING, Scanner
from symcomm.core.text.vocabulary import CHARACTERS, COMMANDS, words
from symcomm.core.units import ONE, Unit

_BITS_LIMIT = 16_000
_UNIT_POWER = 9  # of a unit: no quantity has a higher one
_FINEST = 10**6  # below the line of an exponent: x^1.0001 is read

_ENDS = frozenset(BRACKETS)
_SIGNS = frozenset({"TIMES", "DOT", "SLASH"})
_KINDS = _ENDS | _SIGNS | OPENING | {*words("PLUS MINUS COMMA UNDER CARET PRIME FRAC SQRT FONT ACCENT")}
_GROUPS = frozenset({"paren", "square", "braces", "set"})
_CALLS = {name: name for name in ("ceil", "floor", "min", "max", "log", "ln", "log2", "log10", "abs")} | {
    "ceiling": "ceil", "log_2": "log2", "log_10": "log10",
}  # fmt: skip
_APART = re.compile(r"(?<=[\s}])[xX](?=\s)")  # a sign of multiplication, where it is no name
_BEFORE_DIGITS = re.compile(r"[xX](?=\s*\d)")
_ROOT = re.compile(r"sqrt(?![A-Za-z0-9])")
_AFTER_A_DOT = re.compile(r"\s*[A-Za-z(\\]")
_FLOPS = re.compile(r"(?:[kMGTPE]|kilo|mega|giga|tera|peta|exa)?(?:FLOP[Ss]|flops)", re.IGNORECASE)
_LEADING = re.compile(r"\s*(?:[≈~=•:]|\\approx(?![A-Za-z])|\\sim(?![A-Za-z]))")
_NO_ANSWER = re.compile(
    r"\s*(?:(?:i\s+)?(?:do\s+not|don['’]?t)\s+know|idk|dunno|no\s+idea|(?:ich\s+)?wei(?:ß|ss)\s+(?:es\s+)?nicht|keine\s+ahnung"
    r"|我?不知道)[\s.!]*",
    re.IGNORECASE,
)
_BRACED = re.compile(r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\s*\.?\s*")  # a box around all of it
_WORDS = {
    "or": "give one answer", "and": "give one answer; of several parts their sum", "to": "give one value",
    "squared": "write powers as ^2", "cubed": "write powers as ^3", "if": "no conditions: give one formula",
    "per": "write a fraction with /", "times": "write * for a product", "plus": "write + for a sum",
    "true": "give a value", "false": "give a value",
}  # fmt: skip
_STRANGE = {
    "|": "write the bars as abs(...)", "!": "no factorials here: remove the exclamation mark",
    "<": "give a value, not an inequality or a tag", ">": "give a value, not an inequality or a tag",
    ":": "give one value: leave out the words before the colon, or write the ratio as a fraction",
    "#": "no comments", "±": "give one value",
    "?": "the end is not clear: what does the question mark mean?", "&": "no tables: one formula",
    ";": "give one answer",
    "@": "'@' means nothing in a formula",
    "\\sum": "write a sum of equal terms as a product",
    "\\underbrace": "write the formula without the brace", "\\overbrace": "write the formula without the brace",
}  # fmt: skip


# The hint where one token cannot follow another: the kinds of both, or any; "" is where the text begins.
_WITHOUT_COMMA = "give one answer, without a comma"
_INDEX = "an index needs a name before it, and letters behind"
_ANY: frozenset[str] = frozenset()
_MISPLACED = (
    (_ANY, {"UNDER"}, _INDEX),
    ({"UNDER"}, _ANY, _INDEX),
    ({"COMMA"}, _ANY, _WITHOUT_COMMA),
    (_ANY, {"COMMA"}, _WITHOUT_COMMA),
    ({"FRAC", "SQRT"}, _ANY, "the fraction or the root is empty"),
    ({"CARET"}, {"$END", *_ENDS}, "the exponent is missing"),
    (_ANY, _ENDS, "a value is missing before the bracket"),
    (_SIGNS, {"$END"}, "the text ends with an operator"),
    ({"RELATION"}, {"$END"}, "the right side of the equals sign is empty"),
    ({"RELATION"}, {"RELATION"}, "one side of two equals signs is empty"),
    (_ANY, {"$END"}, "a value is missing at the end"),
    ({""}, {"CARET", *_SIGNS}, "the text begins with an operator"),
    (_ANY, {"CARET", "PLUS", "MINUS", "RELATION", *_SIGNS}, "two operators in a row"),
)
_MARKS = {"^": "stacked powers: write brackets", "_": _INDEX, "'": "a quotation mark means nothing here"}
# The hints for characters, by the rule of the scanner that they break.
_SAID = {
    "open": "a bracket is not closed: {shown}", "closed": "a bracket is closed that was not opened: {shown}",
    "crossed": "a bracket of another kind is closed: {other}", "brace": "a brace is not closed: {shown}",
    "deep": "brackets are nested more than {limit} deep", "raised": "a number has at most {limit} digits",
    "refused": "\\{name:.20} is not read here", "command": "\\{name:.20} is not read here",
    "character": "'{shown:.20}' means nothing in a formula",
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One side of a chain of equalities: a formula, what its unit makes of it, and how its numbers were written."""

    form: Form
    names: frozenset[str]
    scale: Fraction = Fraction(1)  # of the unit that was typed
    unit: Unit | None = None  # none was typed
    prefix: int = 0  # the power of 1000 or 1024 in the unit
    literal: Literal | None = None  # the number, where the whole answer is one
    slack: Fraction = Fraction(0)  # how far off a calculation with rounded decimals may be, as a share
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
        try:
            return self._read(text)
        except RecursionError:
            raise UnreadError("the formula is nested too deep", refused=True) from None

    def _read(self, text: str) -> tuple[Side, ...]:
        if inside := unquoted(text):
            try:
                return self._read(inside)
            except UnreadError as why:
                raise UnreadError(why.hint, refused=True) from None
        if _NO_ANSWER.fullmatch(text[:100]):
            raise UnreadError("this gives no answer: leave the field empty, or write what you have")
        names = frozenset((*self.spellings, *self.spellings.values()))
        text = clean(text, names)
        for _ in range(4):
            before = text
            if (braced := _BRACED.fullmatch(text)) is not None:
                text = braced[1]
            text = _LEADING.sub("", opened(text, names), 1) if _LEADING.match(text) else opened(text, names)
            if text == before:
                break
        text = text.strip()
        text = text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text
        if not text:
            raise UnreadError("the answer is empty")
        scanner = _Scanner(text, self)
        sides = scanner.sides()
        told: tuple[str, ...] = ()
        lone = only_factor(sides[0])
        name = _factor(lone.children).word if lone is not None else ""
        if len(sides) > 1 and self._is_left(name):
            sides = sides[1:]
        elif len(sides) > 1 and name in self.spellings:
            told = (f"{name} before = is read as the name of the answer",)
            sides = sides[1:]
        elif name == self.left and self._is_left(name):
            raise UnreadError(f"the answer is missing after {name}")
        first, *others = (self._part(side, scanner.literals) for side in sides)
        return replace(first, supposed=(*told, *first.supposed)), *others

    def _part(self, side: Branch, literals: dict[str, Literal]) -> Side:
        """One side: where it has no symbols, 25 302 is one number, and B behind a number is a byte."""
        reading = _Reading(self, literals, letters=True)
        found: Side | None = None
        try:
            found = reading.side(side)
        except UnreadError:
            if not reading.lettered and not reading.joined:
                raise
        if found is not None and not reading.lettered and not (found.names and reading.joined):
            return found
        if found is None or found.names:  # 4 N B, where it is a symbol before it is a byte
            return replace(_Reading(self, literals).side(side), otherwise=found)
        try:
            return replace(found, otherwise=_Reading(self, literals).side(side))
        except UnreadError as why:
            return replace(found, otherwise=why)

    def _is_left(self, word: str) -> bool:
        return bool(word) and (word == self.left or (isinstance(self.names_in(word), str) and not is_scaled(word)))

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
        # The ways to split each beginning of the word: at most three of them.
        ways: list[list[tuple[str, ...]]] = [[()]]
        longest = max(map(len, known), default=0)
        for stop in range(1, len(word) + 1):
            pieces = ((start, word[start:stop]) for start in range(max(0, stop - longest), stop))
            ways.append([(*way, piece) for start, piece in pieces if piece in known for way in ways[start]][:3])
        found = ways[-1]
        if len(found) > 1 and self.supposed:  # what is declared comes first
            found = [way for way in found if not self.supposed & {*way}] or found
        if len(found) == 1:
            names = tuple(known[piece] for piece in found[0])
            told = [f"{piece} was read as {known[piece]}" for piece in found[0] if piece in self.supposed]
            if any(one == other for one, other in pairwise(names)):  # DD may be a slip, or one symbol
                told.append(f"{word} was read as {'*'.join(names)}")
            self.short[word] = tuple(told)
            return names
        if len(found) > 1:
            first, second = sorted(found, key=len)[:2]
            one, other = " times ".join(first), " times ".join(second)
            if len(first) == 1:
                return f"{word} is {known[word]} here, or {other}: write {'*'.join(second)} or {known[word]}"
            return f"{word}: {one}, or {other}? write * between the names"
        return self.unknown(word)

    def unknown(self, word: str) -> str:
        """Why a word is no name, with near ones."""
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        if word in ("e", "E"):
            return "the exponent is missing"
        if word in ("O", "Theta", "calO"):
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
            return self.unknown(strange[0])
        same = [n for n in self.spellings if n.lower() == word.lower()]
        hint = f"did you mean {same[0]}? case matters" if same else nearest(word, [*dict.fromkeys(self.spellings)])
        shown = ", ".join(dict.fromkeys(self.spellings.values()))
        remark = "leave remarks out; " if len(re.sub(r"[^A-Za-z]", "", word)) > 1 else ""
        near = hint.replace("'", "") if hint.startswith("did you mean") else f"{remark}the names are {shown}"
        return f"{word[:30]} is not a name here; {near}"


class _Scanner(Scanner):
    """Reads an answer into the tokens of a table cell: words of the question, numbers as people write them."""

    characters = {c: said for c, said in CHARACTERS.items() if said[0] in _KINDS and c not in _STRANGE} | {
        "=": ("RELATION", "="), "≈": ("RELATION", "="), "∘": ("DOT", "*"), "%": ("WORD", "%"),
    }  # fmt: skip
    commands = {name: said for name, said in COMMANDS.items() if said[0] in _KINDS} | {
        **dict.fromkeys(("approx", "simeq", "sim"), ("RELATION", "=")), "%": ("WORD", "%"), "surd": ("SQRT", ""),
        "cfrac": ("FRAC", ""),
    }  # fmt: skip

    limit = 10_000  # the text is bounded before words and fractions are spelled out
    html = False

    def __init__(self, text: str, reader: AnswerReader) -> None:
        super().__init__(single(text), words_join=False, known=reader.spellings)
        self.reader = reader
        self.literals: dict[str, Literal] = {}

    def sides(self) -> list[Branch]:
        """The sums that equals signs separate."""
        tokens = self.tokens()
        if not tokens:
            raise UnreadError("the answer is empty")
        try:
            item, *others = branches(parsed(tokens))
        except UnexpectedToken as error:
            raise self._misplaced(error.token, tokens) from None
        if others:
            raise UnreadError(_WITHOUT_COMMA)
        if "in" in item.children[1::2]:
            raise UnreadError(self.reader.unknown("in"))
        return branches(item)

    def _misplaced(self, token: Token, tokens: list[Token]) -> UnreadError:
        place = next((n for n, one in enumerate(tokens) if one is token), len(tokens))
        before = tokens[place - 1] if place else Token("", "")
        if before.type == "SQRT" and self.text.startswith("sqrt", before.start_pos):
            return UnreadError("write sqrt(...) with brackets")
        for befores, kinds, told in _MISPLACED:
            if (not befores or before.type in befores) and (not kinds or token.type in kinds):
                return UnreadError(told)
        return UnreadError(f"'{self.text[start_of(token) : stop_of(token)][:20]}' does not fit here")

    def error(self, rule: str, start: int, stop: int, **said: object) -> UnreadError:
        """Why the text is not read, in a student's words."""
        shown = str(said.setdefault("shown", self.text[start:stop]))
        if shown in ("<", ">") and re.search(r"\b(?:if|when|for|where)\b", self.text):
            return UnreadError("no conditions: give one formula")
        if self.text.startswith("<sup>", start):
            return UnreadError("write powers as ^2")
        rule = "brace" if rule == "open" and shown == "{" else rule
        told = _STRANGE.get(shown) or _SAID.get(rule, _SAID["character"]).format(name=shown[1:], **said)
        return UnreadError(told, refused=rule in ("deep", "raised"))

    def _word(self) -> None:
        text, start = self.text, self.position
        between = bool(self.found) and self.found[-1].type == "NUMBER" and _BEFORE_DIGITS.match(text, start)
        if "x" not in self.known and self.found and (between or _APART.match(text, start)):
            self._add("TIMES", "*", start, start + 1)
        elif "sqrt" not in self.known and _ROOT.match(text, start):
            self._add("SQRT", "", start, start + 4)
        else:
            super()._word()

    def _check_name(self, word: str, start: int, stop: int) -> None:
        """A run of letters may be as long as its names are many."""

    def _taker(self) -> str:
        """The command whose argument stands here without braces; an exponent is read as a whole."""
        taker = super()._taker()
        return "" if taker == "CARET" else taker

    def _number(self) -> None:
        start = self.position
        literal, stop = scan(self.text, start, self.reader.decimal_comma, self.known)
        if self._taker() == "FRAC" and stop - start > 1:  # one digit in LaTeX
            if literal.decimal:
                raise UnreadError("write braces around the parts of a fraction")
            literal, stop = scan(self.text[start], 0)[0], start + 1
        self.literals[self.text[start:stop]] = literal
        self._add("NUMBER", self.text[start:stop], start, stop)

    def _raised(self, letters: dict[str, str]) -> None:
        super()._raised(letters)
        if (number := self.found[-1]).type == "NUMBER":
            self.literals[number] = scan(number, 0)[0]

    def _dots(self) -> None:
        start = self.position
        before = self.found[-1] if self.found else Token("", "")
        if before.type not in {"NUMBER", "WORD", *_ENDS} or not _AFTER_A_DOT.match(self.text, start + 1):
            raise self.error("character", start, start + 1)
        self.position += 1
        if before not in COUNTED:  # 3 N.D is a product, and Mrd. an abbreviation
            self._add("DOT", "*", start, start + 1)

    def _tidy(self) -> list[Token]:
        """The tokens with one sign where several stand."""
        tidy: list[Token] = []
        for token in self.found:
            if tidy and {token.type, tidy[-1].type} <= {"PLUS", "MINUS"}:
                before = tidy.pop()
                sign = ("PLUS", "+") if token.type == before.type else ("MINUS", "-")
                token = Token(*sign, start_pos=before.start_pos, end_pos=token.end_pos)
            tidy.append(token)
        return tidy


_SIDE_BY_SIDE = "two numbers side by side: write * between them"
_NOT_CLEAR = "the unit is not clear"
_REMARK = "leave out the remark in brackets"
_UNDER_THE_ROOT = "what is under the root? write brackets: √(...)"
_ONES = (Num(Fraction(1)), Num(Fraction(-1)))
_PER = frozenset({"per", "pro"})
_TIMED = frozenset({Unit.parse("device")})


class _Measured(NamedTuple):
    """The worth of a unit, the unit (None for the size of a count alone: billion), and the power of its prefix."""

    worth: Fraction
    unit: Unit | None
    prefix: int = 0

    @property
    def form(self) -> Form:
        """The same as a factor of a formula."""
        return Num(self.worth, self.unit or ONE)


def _without_units(form: Form) -> Form:
    return Num(form.number) if isinstance(form, Num) else form.mapped(_without_units)


class _Factor(NamedTuple):
    """A factor of a term: the sign before it, what it begins with, its name with indices, the scripts behind it."""

    operator: str
    negative: bool
    atom: Branch
    name: str
    scripts: list[Branch]

    @property
    def word(self) -> str:
        """The name, if it is all there is."""
        return "" if self.scripts else self.name

    @property
    def digits(self) -> str:
        """The digits, if they are all there is."""
        return str(self.atom.children[0]) if self.atom.data == "number" and not self.scripts else ""

    @property
    def group(self) -> Branch | None:
        """The brackets that it is."""
        return self.atom if self.atom.data in _GROUPS and not self.operator else None


_END = _Factor("$END", False, Branch("end", []), "", [])


def _is_spaced(atom: Branch) -> bool:
    """Whether this is two groups of digits, 25 302, which may be two numbers."""
    return atom.data == "number" and len(str(atom.children[0]).split()) == 2


def _factor(parts: Sequence[Part], operator: str = "", negative: bool = False) -> _Factor:
    """The factor of an atom and its scripts."""
    atom, *scripts = (part for part in parts if isinstance(part, Branch))
    name = str(atom.children[0]) if atom.data in ("word", "text") else ""
    while name and scripts and scripts[0].children[0] in ("_", "'"):
        name += canonical(scripts.pop(0))
    return _Factor(operator, negative, atom, name, scripts)


def _factors(parts: Sequence[Part]) -> list[_Factor]:
    """The factors of a term, and one that ends it."""
    found: list[_Factor] = []
    operator, negative = "", False
    for part in parts:
        if isinstance(part, Branch):
            found.append(_factor(part.children, operator, negative))
            operator, negative = "", False
        elif part.type == "MINUS":
            negative = True
        else:
            operator = part.type
    return [*found, _END]


class _Reading:
    """Makes the form of one side of the grammar's tree of it."""

    def __init__(self, reader: AnswerReader, literals: dict[str, Literal], letters: bool = False) -> None:
        self.reader, self.literals = reader, literals
        self.letters = letters  # whether the letter of a symbol may be a unit, and 25 302 a number
        self.lettered = self.joined = False  # whether one was
        self.measures = False  # whether a unit is a factor of a formula
        self.literal: Literal | None = None
        self.names: set[str] = set()
        self.supposed: dict[str, None] = {}
        self.slack = Fraction(0)

    def side(self, tree: Branch) -> Side:
        """The whole side."""
        form, measured = self.sum(tree, top=True)
        if forms.degree(form) > EXPONENT_LIMIT:
            raise UnreadError(f"powers are at most {EXPONENT_LIMIT:,}", refused=True)
        if measured is not None and [t.type for t in tree.tokens()][:3] == ["NUMBER", "MINUS", "NUMBER"]:
            raise UnreadError("a range or a difference? give one value")
        scale, unit, prefix = measured or (Fraction(1), None, 0)
        return Side(form, frozenset(self.names), scale, unit, prefix, self.literal, self.slack, tuple(self.supposed))

    # -- the grammar ---------------------------------------------------------------------------------------

    def sum(self, tree: Branch, top: bool = False) -> tuple[Form, _Measured | None]:
        """Terms with signs between them, and their unit: it may end each of them, where it is the same."""
        terms: list[Form] = []
        units: list[_Measured | None] = []
        negative = False
        for part in tree.children:
            if isinstance(part, Token):
                negative = part.type == "MINUS"
                continue
            form, unit, literal = self.term(part.children, top)
            if top:
                self.literal = None if terms else literal and literal.times(Fraction(-1 if negative else 1))
            terms.append(forms.negative(form) if negative else form)
            units.append(unit)
        if first := next(filter(None, units), None):  # a formula beside quantities is in base units: n/W + 20 us
            base = _Measured(Fraction(1), first.unit)
            units = [base if u is None and forms.names(term) else u for u, term in zip(units, terms, strict=True)]
        given = [u for u in units if u is not None]
        scales = {u.worth for u in given}
        if len({u.unit for u in given}) > 1:
            raise UnreadError("the terms have different units")
        if len(scales) > 1 and len(given) < len(units):
            raise UnreadError("a term has no unit: write one behind each, or one behind the sum")
        if len(scales) > 1:
            terms = [forms.product(Num(unit.worth), term) for term, unit in zip(terms, given, strict=True)]
            given = [_Measured(Fraction(1), given[0].unit)]
        return terms[0] if len(terms) == 1 else forms.Total(tuple(terms)), given[0] if given else None

    def term(self, parts: Sequence[Part], top: bool) -> tuple[Form, _Measured | None, Literal | None]:
        """Factors with and without a sign between them, the unit behind them, and the number that they are."""
        factors = _factors(parts)
        above: list[Form] = []
        below: list[Form] = []
        unit: _Measured | None = None
        literal: Literal | None = None
        place, before, measured, symbolic = 0, _END, False, False
        while (factor := factors[place]) is not _END:
            said = None if factor.operator else self.measured(factors, place, top)
            if said is not None:
                found, stop = said
                if not above:
                    after = factors[stop].name
                    remark = bool(after) and not self.is_name(after)
                    raise UnreadError(self.reader.unknown(after) if remark else "the number is missing before the unit")
                literal = self.written(factors[:place], above) if factors[stop] is _END else None
                only = unit is not None and unit.unit is not None and uncounted(unit.unit, several=True) is None
                if only and unit is not None and before.operator != "SLASH":
                    unit, found = found, unit  # 32 layers * 2 MB: layers say only how often
                if unit is None:
                    unit = found
                elif measured or (top and found.unit == unit.unit and before.operator != "SLASH"):
                    raise UnreadError("the unit is there twice" if found == unit else "two units")
                else:
                    (below if before.operator == "SLASH" else above).append(found.form)
                    self.measures = True
                place, measured = stop, True
                continue
            if above and not factor.operator:
                if measured:
                    if factor.group is not None:
                        raise UnreadError(_REMARK)
                    raise UnreadError("words after the unit" if factor.name else _NOT_CLEAR)
                if factor.atom.data == before.atom.data == "number":
                    raise UnreadError(_SIDE_BY_SIDE)
                if before.operator == "SLASH":
                    raise _sliced([below[-1]], str(next(factor.atom.tokens())))
                if factor.atom.data == "number" and before.word and not self.is_call(before.word):
                    raise UnreadError("a number after a name: write ^ or *")
            made, place = self.factor(factors, place)
            if factor.operator == "SLASH" and len(made) > 1:
                raise _sliced(made)
            made = [Num(Fraction(-1)), *made] if factor.negative else made
            symbolic = symbolic or (unit is not None and any(map(forms.names, made)))
            (below if factor.operator == "SLASH" else above).extend(made)
            before, measured = factor, False
        if unit is None:
            literal = self.written(factors[:-1], above)
        form = Product(tuple(above)) if len(above) > 1 else above[0]
        if below:
            form = forms.Ratio(form, Product(tuple(below)) if len(below) > 1 else below[0])
        form, unit = self.whole(form, unit, any(one.operator for one in factors[:-1]), symbolic)
        return form, unit, literal

    def whole(
        self, form: Form, unit: _Measured | None, several: bool, symbolic: bool
    ) -> tuple[Form, _Measured | None]:
        """A term with all of its units together, and without what the question does not count: 32 layers * 2 MB.

        The unit of a symbol is not known here. With symbols behind its unit (``symbolic``), such as 2 GB / W, a term is
        taken to be in the unit that is asked for.
        """
        if unit is None and not self.measures:
            return form, None
        asked = self.reader.unit
        worth, of, prefix = unit or (Fraction(1), ONE, 0)
        inside = [piece.unit for piece in forms.walk(form) if isinstance(piece, Num) and piece.unit != ONE]
        if inside:
            try:
                together = (asked if of is None else of) * forms.unit_of(form, {})
                if not self.names or uncounted(together, asked) == asked:
                    of = together
            except SymcommError:
                if not self.names:
                    raise UnreadError("the units do not fit together") from None
        form = _without_units(form) if inside else form
        if unit is None and of == ONE:
            return form, None
        kept = uncounted(asked if of is None else of, asked, several)
        if symbolic and kept != asked:
            return forms.product(Num(worth), form), None
        return form, None if kept is None else _Measured(worth, kept, prefix)

    def written(self, factors: list[_Factor], above: list[Form]) -> Literal | None:
        """The number, where there is nothing else: perhaps with a power of ten."""
        found = self.literals.get(factors[0].digits)
        if found is None or len(factors) == 1:
            return found
        match above:
            case [_, Power(base=Num(number=ten), exponent=Num(number=power))] if len(factors) == 2 and ten == 10:
                if power.denominator == 1 and factors[1].operator in ("TIMES", "DOT"):
                    return replace(found.times(ten ** int(power)), decimal=True)
        return None

    def factor(self, factors: list[_Factor], place: int) -> tuple[list[Form], int]:
        """The forms of a name, a number, a call or a group, and where the next factor is."""
        _, _, atom, name, scripts = factors[place]
        place += 1
        if self.is_call(name):
            made = [self.call(name, None if scripts else factors[place].group)]
            scripts, place = factors[place].scripts, place + 1
        elif name:
            made = self.symbols(name, atom, called=not scripts and factors[place].atom.data == "paren")
        else:
            bare = atom.data == "root" and branches(atom)[-1].data not in _GROUPS
            if bare and (scripts or not factors[place].operator):
                raise UnreadError(_UNDER_THE_ROOT)
            made = self.atom(atom)
        if not scripts:
            return made, place
        if _is_spaced(atom):
            raise UnreadError(_SIDE_BY_SIDE)
        mark, *trees = scripts[0].children
        if mark != "^":
            raise UnreadError(_MARKS[str(mark)])
        power = _factor([*trees, *scripts[1:]])
        if power.scripts:
            raise UnreadError(_MARKS[str(next(power.scripts[0].tokens()))])
        if self.is_call(power.name):
            raised, place = [self.call(power.name, factors[place].group)], place + 1
        else:
            raised = self.symbols(power.name, power.atom) if power.name else self.atom(power.atom)
        if len(raised) > 1:
            raise UnreadError("write brackets around the exponent")
        if factors[place].operator == "SLASH" and power.atom.data not in _GROUPS and raised[0] in _ONES:
            raise UnreadError("write x^(1/2) or sqrt(x): what is in the exponent?")
        return [*made[:-1], _powered(made[-1], raised[0])], place

    def is_call(self, name: str) -> bool:
        return name in _CALLS and name not in self.reader.spellings

    def symbols(self, name: str, atom: Branch, called: bool = False) -> list[Form]:
        """The symbols that a run of letters is."""
        reader = self.reader
        names = reader.names_in(name)
        order = isinstance(names, str) and names.startswith("give the exact")
        if atom.data == "text" and name not in reader.spellings and not order:
            raise UnreadError(f"\\{name[:20]} is not read here")
        if isinstance(names, str):
            if name == "%":
                raise UnreadError("a percent sign inside a formula")
            raise UnreadError(f"there is no function {name[:30]} here" if called and not order else names)
        self.names.update(names)
        self.supposed |= dict.fromkeys(reader.short.get(name, ()))
        return [Sym(name, name not in reader.real) for name in names]

    def atom(self, atom: Branch) -> list[Form]:
        """A number, a name without an index, a fraction, a root or a group."""
        inner = branches(atom)
        if atom.data == "number":
            literal = self.literals[str(atom.children[0])]
            self.joined = self.joined or _is_spaced(atom)
            if _is_spaced(atom) and not self.letters:
                raise UnreadError(_SIDE_BY_SIDE)
            if literal.decimal and literal.digits >= 3 and literal.value:
                self.slack = max(self.slack, literal.place / 2 / abs(literal.value))
            return [Num(literal.value)]
        if atom.data in ("word", "text"):
            return self.symbols(str(atom.children[0]), atom)
        if atom.data in ("minus", "signed"):
            made = self.atom(inner[0])
            return made if atom.children[0] == "+" else [forms.negative(made[0]), *made[1:]]
        if atom.data == "frac":
            above, below = (self.argument(one) for one in inner)
            return [forms.Ratio(above, below)]
        if atom.data == "root":
            return [self.root(atom)]
        if atom.data in ("ceil", "floor"):
            [value] = self.values(inner[0])
            return [forms.Ceiling(value) if atom.data == "ceil" else forms.Floor(value)]
        if atom.data not in _GROUPS:
            raise UnreadError(f"\\{next(atom.tokens())} is not read here")
        if not inner:
            raise UnreadError("a value is missing before the bracket")
        return self.values(inner[0])

    def values(self, cell: Branch, several: bool = False) -> list[Form]:
        """The one value between brackets, or several with commas between them."""
        items = branches(cell)
        if len(items) > 1 and not several:
            raise UnreadError(_WITHOUT_COMMA)
        if any(len(item.children) > 1 for item in items):
            raise UnreadError("an equals sign inside brackets")
        found = [self.sum(branches(item)[0]) for item in items]
        self.measures = self.measures or any(unit is not None for _, unit in found)
        return [form if unit is None else forms.product(unit.form, form) for form, unit in found]

    def argument(self, tree: Branch) -> Form:
        """An argument of a LaTeX command: a group, or one digit or letter."""
        if tree.data == "minus":
            raise UnreadError("the fraction or the root is empty")
        made = self.atom(tree)
        return made[0] if len(made) == 1 else Product(tuple(made))

    def root(self, atom: Branch) -> Form:
        *degrees, inside = branches(atom)
        number = self.literals.get(canonical(degrees[0])) if degrees else Literal(Fraction(2), Fraction(1), 1, False)
        if number is None or number.value.denominator != 1 or not 2 <= number.value <= 12:
            raise UnreadError("the degree of a root is a number from 2 to 12")
        value = self.argument(inside)
        if isinstance(value, Product) and inside.data not in _GROUPS:
            raise UnreadError(_UNDER_THE_ROOT)
        return forms.Root(value) if number.value == 2 else Power(value, forms.rational(1 / number.value))

    def call(self, name: str, group: Branch | None) -> Form:
        name = _CALLS[name]
        if group is None:
            raise UnreadError(f"write {name}(...) with brackets")
        inner = branches(group)
        if not inner:
            raise UnreadError(f"{name} needs {'values' if name in ('min', 'max') else 'a value'}")
        values = self.values(inner[0], several=True)
        if len(values) > 1 and name not in ("min", "max"):
            raise UnreadError(f"{name} takes one value")
        if name == "abs":
            return values[0] if isinstance(values[0], (Sym, Product)) else forms.called("max", values[0], -values[0])
        return forms.called(name, *values)

    # -- units ---------------------------------------------------------------------------------------------

    def measured(self, factors: list[_Factor], place: int, top: bool) -> tuple[_Measured, int] | None:
        """The unit that begins here and where it ends; None where this is no unit, or a name of the question."""
        word, following = factors[place].name, factors[place + 1]
        if factors[place].atom.data in ("paren", "square"):
            return self.bracketed(factors, place) if top else None
        if not word or (word in _CALLS and following.group is not None):
            return None
        if word in _PER and following.word and not following.operator and not self.is_name(word):
            each, stop = self.whole_unit(factors, place - 1, _Measured(Fraction(1), ONE))
            if top and factors[stop] is _END and each.unit != ONE:
                raise UnreadError(f"{word} {following.word[:20]}: write the unit before it, or leave it out")
            return each, stop
        if word == "%":
            if following.word == "%":
                raise UnreadError("two percent signs")
            if factors[place].scripts or following is not _END:
                raise UnreadError("a percent sign inside a formula")
            return _Measured(Fraction(1, 100), ONE), place + 1
        if not top and len(word) == 1 and not (word in "Bs" and not factors[place - 1].name):
            return None  # a letter in brackets is a name, or none
        symbols = self.is_name(word)
        if symbols and not (top and self.letters):
            return None
        try:
            one = self.one(word, following)
            found, place = (None, place) if one is None else self.whole_unit(factors, place, one)
        except UnreadError:
            if not symbols:
                raise
            found = None
        if found is None or (symbols and factors[place] is not _END):
            return None
        self.lettered = self.lettered or symbols
        return found, place

    def whole_unit(self, factors: list[_Factor], place: int, more: _Measured) -> tuple[_Measured, int]:
        """The unit that begins with a word, and its end: B/s."""
        scale, unit, prefix, sign = Fraction(1), ONE, more.prefix, 1
        following = factors[place + 1]
        if more.unit is None or more.worth == COUNTED.get(factors[place].word):
            counted = None if following.operator or not following.word else self.one(following.word, factors[place + 2])
            if counted is not None:  # 3.4 billion parameters
                scale, more, place = more.worth, counted, place + 1
            elif following.operator != "SLASH" and following.word not in _PER:
                return more, place + 1
        while True:
            power = sign * _power_of_unit(factors[place], self.literals)
            scale, unit = scale * more.worth**power, unit * (more.unit or self.reader.unit) ** power
            place += 1
            following = factors[place]
            spelled = following.word in _PER and not following.operator
            if spelled:
                place, following = place + 1, factors[place + 1]
            sign = -1 if spelled or following.operator == "SLASH" else 1
            if not following.name and spelled:
                raise UnreadError(_NOT_CLEAR)
            found = measure(following.name) if following.name and not following.negative else None
            beside = found is not None and not following.operator and (
                _power_of_unit(following, self.literals) < 0 or unit in _TIMED)  # B s^-1, GPU hours
            multiplied = following.operator in ("TIMES", "DOT") and not self.is_name(following.name)
            if not following.name or following.negative or (sign > 0 and not multiplied and not beside):
                return _Measured(scale, unit, prefix), place
            if found is None and self.is_name(following.name) and not spelled:
                return _Measured(scale, unit, prefix), place
            if found is None:
                raise UnreadError(_NOT_CLEAR)
            more = _Measured(*found)

    def bracketed(self, factors: list[_Factor], place: int) -> tuple[_Measured, int] | None:
        """A unit in brackets at the end: ``24 N D^2 [bytes]``."""
        group = factors[place].group
        inside = term_of(branches(group)[0]) if group is not None and branches(group) else None
        if not place or inside is None or factors[place].scripts or factors[place + 1] is not _END:
            return None
        within = _factors(inside)
        letters = self.letters and group is not None and group.data == "square" and len(within) == 2
        if any(not one.word or (self.is_name(one.word) and not letters) for one in within[:-1]):
            return None
        found = None if within[0].word in _PER else self.measured(within, 0, True)
        if found is not None and within[found[1]] is _END:
            return found[0], place + 1
        if len(within) > 2 and all(len(one.word) > 1 and not one.operator for one in within[:-1]):
            raise UnreadError(_REMARK)
        return None

    def is_name(self, word: str) -> bool:
        return not isinstance(self.reader.names_in(word), str)

    def one(self, word: str, behind: _Factor) -> _Measured | None:
        """One word as a unit, or as the size of a count."""
        unit = self.reader.unit
        behind_it = measure(behind.name) if behind.name and not behind.operator and measure(word) is None else None
        sized = counts(unit) and (word != "B" or uncounted(unit, several=True) is not None)  # bytes, beside GPUs
        if word in COUNTED and (sized or len(word) > 2 or behind_it is not None):
            return _Measured(Fraction(COUNTED[word]), None)
        found = measure(word)
        if found is not None and _FLOPS.fullmatch(word):
            # The s at the end may be a second or a plural: a plural before /s, else as the question has it.
            count = Unit.parse("FLOP")
            if behind.operator == "SLASH" or behind.word in _PER:
                return _Measured(found[0], count, found[2])
            rate = unit.powers == Unit.parse("FLOP/second").powers
            return _Measured(found[0], unit if rate or unit == count else found[1], found[2])
        return None if found is None else _Measured(*found)


def _power_of_unit(factor: _Factor, literals: dict[str, Literal]) -> int:
    """The power that the scripts of a unit say: 2 for s^2, -1 for s^-1."""
    power = 1
    for script in factor.scripts:
        digits = canonical(script).lstrip("^")
        raised = literals.get(digits.lstrip("-"))
        if raised is None or raised.value.denominator != 1 or raised.value > _UNIT_POWER:
            raise UnreadError(_NOT_CLEAR)
        power *= int(raised.value) * (-1 if digits.startswith("-") else 1)
    return power


def _sliced(below: list[Form], more: str = "") -> UnreadError:
    """The error where it is not clear how far a fraction with / goes."""
    from symcomm.core.printing.forms import plain

    said = [plain(piece).replace("·", "*") for piece in below] + ([more] if more else [])
    one, other = "*".join(said), "*".join(said[1:]) or "..."
    if len(one) > 60 or more in ("(", "[", "{"):
        return UnreadError("what does / divide by? write brackets: a/(b*c), or a/b*c")
    return UnreadError(f"what does / divide by? write /({one}) or /{said[0]}*{other}")


def _powered(base: Form, exponent: Form) -> Form:
    """A power within bounds; a half is a root."""
    if forms.names(exponent):
        return Power(base, exponent)
    try:
        number = forms.evaluate(exponent, {})
    except Exception:
        number = Fraction(EXPONENT_LIMIT + 1)
    if abs(number) > EXPONENT_LIMIT or number.denominator > _FINEST:
        raise UnreadError(f"an exponent is at most {EXPONENT_LIMIT:,}", refused=True)
    if isinstance(base, Num):
        bits = max(base.number.numerator.bit_length(), base.number.denominator.bit_length())
        if bits * abs(number) > _BITS_LIMIT and number != Fraction(1, 2):
            raise UnreadError("this number is too large", refused=True)
    return forms.Root(base) if number == Fraction(1, 2) else Power(base, Num(number))


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
