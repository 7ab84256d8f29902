r"""Reads the characters of a cell into tokens, LaTeX and plain spellings into the same ones.

Everything that can be refused without a grammar is refused here: cells that are too long, brackets that are
never closed, nesting that is too deep, characters that mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from html import unescape

from lark import Token

from symcomm.core.errors import FormulaError
from symcomm.core.text.syntax import start_of, stop_of
from symcomm.core.text.table import CELL_LIMIT, Cell
from symcomm.core.text.vocabulary import (
    CHARACTER_HINTS,
    CHARACTERS,
    COMMANDS,
    GREEK_LETTERS,
    LETTER_FONTS,
    LOWERED,
    RAISED,
    REFUSED_COMMANDS,
    SPACES,
    SPACING_COMMANDS,
    TEXT_FONTS,
    VARIANTS,
)

DEPTH_LIMIT = 60
NAME_LIMIT = 40
DIGITS_LIMIT = 40
EXPONENT_LIMIT = 1_000


# The token that closes a bracket: which one it closes, and how it is written.
BRACKETS = {
    "RPAREN": ("LPAREN", ")"),
    "RSQUARE": ("LSQUARE", "]"),
    "RBRACE": ("LBRACE", "}"),
    "RSET": ("LSET", r"\}"),
    "RCEIL": ("LCEIL", r"\rceil"),
    "RFLOOR": ("LFLOOR", r"\rfloor"),
}
_PARTNER = dict(BRACKETS.values())
OPENING = frozenset(_PARTNER)
_ENDS = {"NUMBER", "WORD", "TEXT", "QUOTED", "PRIME", "TRANSPOSED", *BRACKETS}

_USE = "write formulas in LaTeX or plainly: x W^Q + b, \\frac{a}{b}, softmax(S), R^{B \\times L}"
# The error and its hint for each rule that a cell may break; ``{shown}`` is the text that breaks it.
MESSAGES: dict[str, tuple[str, str]] = {
    "long": ("this formula has {size:,} characters; at most {limit:,} are read", "split it into several rows"),
    "deep": ("this formula is nested more than {limit} deep", "name a part of it in a row of its own"),
    "dollar": ("this `$` is never closed", "write a `$` where the math ends"),
    "open": ("this `{shown}` is never closed", "write a `{wanted}` where it ends"),
    "crossed": ("this `{shown}` is never closed: `{other}` comes first", "write a `{wanted}` where it ends"),
    "closed": ("this `{shown}` closes nothing", "take it away, or open it before"),
    "character": ("unexpected character `{shown}`", "{hint}"),
    "dots": ("unexpected character `{shown}`", "a decimal is written 0.5; a list is cut short by `...`"),
    "dotted": ("unexpected character `{shown}`", "write names and functions without a dot: relu(A), x [B, L, D]"),
    "dollar sign": (r"unexpected character `\$`", "write `$` around formulas, not `\\$`"),
    "backslash": ("this backslash starts no command", "take it away"),
    "refused": ("`{shown}` is not read here", "{hint}"),
    "command": ("unexpected `{shown}`", "{hint}"),
    "name": (
        f"this name has {{size}} characters; names have at most {NAME_LIMIT}", "put spaces or operators between names"
    ),
    "text": ("unexpected character `{shown}` in a name", "a name has letters, digits, `_`, `-` and `.`"),
    "font": ("`{shown}` needs a letter in braces", r"for example \mathbb{{R}}"),
    "root": ("a root without braces takes one digit", r"write \sqrt{{{shown}}}, or braces around one digit"),
    "two ways": ("'{shown}' can be read in two ways", "{hint}"),
    "grouped": ("`{shown}` may be one number or several sizes", "write {one}, or a space behind a comma between sizes"),
    "exponent": (f"the exponent of this number is over {EXPONENT_LIMIT:,}", "write a smaller number"),
    "digits": (f"this number has more than {DIGITS_LIMIT} digits", "write it as a product or a power"),
    "raised": ("this number has more than {limit} digits", ""),
}  # fmt: skip

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*|__[A-Za-z0-9_]+")
# Digits in groups of three are one number: `12 345`, `12{,}345`, `12\,345`.
_NUMBER = re.compile(
    r"\d{1,3}(?:(?:\{,\}|\\[, ]|[ ~\u00a0\u2009\u202f])\d{3}(?!\d))+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+", re.ASCII
)
_GROUPED = re.compile(r"(\d{1,3}(?:,\d{3})+)(?![\d,]) *(×|\\times|x(?![A-Za-z]))?")
_FIRST_DIGIT = re.compile(r"\.?[0-9]")
_SCIENTIFIC = re.compile(r"([eE])([+-]?)(\d+)(?![0-9_])", re.ASCII)
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)", re.DOTALL)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_SCRIPT = re.compile(r"<(/?)su([bp])>", re.IGNORECASE)
_ENTITY = re.compile(r"&#?\w{1,10};")
# What says nothing to a formula: marks of footnotes, and tags that only set its type.
_NOTE = re.compile(
    r"\[\^[\w-]+\]|(?:(?<=\$)|(?<=\$[ ~]))\$\^\{?\\d?dagger\}?\$|</?(?:b|i|em|strong|code|span|var|p)(?:\s[^<>]*)?>"
    r"|\\(?:tnote|footnotemark|footnote|cite[pt]?|label)(?![a-zA-Z])(?:\[[^][]*\])*(?:\{[^{}]*\})?", re.IGNORECASE
)  # fmt: skip
_JOINING = {"and", "for", "where", "with", "all"}
_QUOTES = "\"'“”"
_QUOTED = re.compile(r"""["“”][^"“”]*["“”]|'[^']*'""")
_TEXT_CONTENT = re.compile(r"[A-Za-z0-9 _.\-~'α-ωΑ-Ω]*")


class Scanner:
    """Reads one cell into tokens; ``Scanner(cell).tokens()``. ``known`` are names that are never split."""

    characters: Mapping[str, tuple[str, str]] = CHARACTERS
    commands: Mapping[str, tuple[str, str]] = COMMANDS
    limit = CELL_LIMIT
    html = True  # scripts and signs of HTML are read, and marks that say nothing are left out

    def __init__(self, cell: Cell, words_join: bool = True, known: Container[str] = ()) -> None:
        self.cell, self.known = cell, known
        self.text = cell.text if cell.text.isascii() else cell.text.translate(VARIANTS)
        self.position = 0
        self.found: list[Token] = []
        self.words_join = words_join
        self.hangs = False  # whether it makes a difference which names are known
        self.open: list[Token] = []
        self.taking: list[tuple[str, int, int]] = []  # what takes arguments: kind, brackets around it, how many more
        self.dollar: int | None = None

    def tokens(self) -> list[Token]:
        """All tokens of the cell."""
        text = self.text
        if len(text) > self.limit:
            raise self.error("long", 0, 20, size=len(text), limit=self.limit)
        while self.position < len(text):
            self._next()
        if self.dollar is not None:
            raise self.error("dollar", self.dollar, self.dollar + 1)
        if self.open:
            raise self._unclosed("open", self.open[-1])
        return self._tidy()

    def error(self, rule: str, start: int, stop: int, **said: object) -> Exception:
        """An error with its place in the cell, as the table of messages has it."""
        message, hint = (one.format(**{"shown": self.text[start:stop], **said}) for one in MESSAGES[rule])
        return FormulaError(message, self.cell.span(start, stop), hint)

    def _unclosed(self, rule: str, opened: Token, other: str = "") -> Exception:
        return self.error(rule, start_of(opened), stop_of(opened), wanted=_PARTNER[opened.type], other=other)

    def _add(self, kind: str, value: str, start: int, stop: int) -> None:
        """One more token; what comes next stands behind it."""
        self.position = stop
        token = Token(kind, value, start_pos=start, end_pos=stop)
        if kind in OPENING:
            self.open.append(token)
            if len(self.open) > DEPTH_LIMIT:
                raise self.error("deep", start, stop, limit=DEPTH_LIMIT)
        elif kind in BRACKETS:
            if not self.open:
                raise self.error("closed", start, stop)
            opened = self.open.pop()
            if opened.type != BRACKETS[kind][0]:
                raise self._unclosed("crossed", opened, self.text[start:stop])
        self._take(kind)
        self.found.append(token)

    def _take(self, kind: str) -> None:
        """Counts the arguments of fractions, roots and exponents, of which each takes one token or group."""
        last, depth = self.found[-1].type if self.found else "", len(self.open)
        if kind in ("FRAC", "SQRT") or (kind == "CARET" and last in _ENDS - {"WORD", "TEXT"}):
            self.taking.append((kind, depth, 2 if kind == "FRAC" else 1))
        elif kind == "LSQUARE" and last == "SQRT":  # the degree of a root is no argument
            self.taking.append((kind, depth - 1, 2))
        elif kind in _ENDS:
            while self.taking and self.taking[-1][1] >= depth:
                taker, at, more = self.taking.pop()
                if at == depth and more > 1:
                    self.taking.append((taker, at, more - 1))
                    break

    def _taker(self) -> str:
        """The kind of token whose argument stands here without braces: one token in LaTeX."""
        return self.taking[-1][0] if self.taking and self.taking[-1][1] == len(self.open) else ""

    def _next(self) -> None:
        text, start = self.text, self.position
        char = text[start]
        if char in SPACES or char == "`":
            self.position += 1
        elif char in "[\\$<" and self.html and (note := _NOTE.match(text, start)):
            self.position = note.end()
        elif char == "$":
            width = 2 if text.startswith("$$", start) and self.dollar is None else 1
            width = 2 if self.dollar is not None and text.startswith("$$", self.dollar) else width
            self.dollar = start if self.dollar is None else None
            self.position += width if text.startswith("$" * width, start) else 1
        elif char == "\\":
            self._command()
        elif char.isascii() and (char.isalpha() or text.startswith("__", start)):
            self._word()
        elif _FIRST_DIGIT.match(text, start):
            self._number()
        elif char == ".":
            self._dots()
        elif char == "<" and (found := _BREAK.match(text, start)):
            self._add("AND", ",", start, found.end())
        elif char == "<" and self.html and (script := _SCRIPT.match(text, start)):
            if not script[1]:
                self._add(*(("UNDER", "_") if script[2] in "bB" else ("CARET", "^")), start, start)
            self._add(*(("RBRACE", "}") if script[1] else ("LBRACE", "{")), start, script.end())
        elif char == "&" and self.html and (named := _ENTITY.match(text, start)):
            self.hangs |= named.group()[1] == "#"  # on digits, which alike cells may differ in
            self._sign(unescape(named.group()), start, named.end())
        elif char == "*" and self._raises():
            self._add("WORD", "*", start, start + 1)  # n^*, the best n
        elif char in _QUOTES and (found := _QUOTED.match(text, start)) and (char != "'" or self._begins()):
            self._add("QUOTED", found.group()[1:-1], start, found.end())
        elif char in RAISED or char in LOWERED:
            self._raised(RAISED if char in RAISED else LOWERED)
        else:
            sign = both if (both := text[start : start + 2]) in self.characters else char
            self._sign(sign, start, start + len(sign))

    def _sign(self, sign: str, start: int, stop: int) -> None:
        """A sign, or a letter of another alphabet."""
        if sign in GREEK_LETTERS:
            self._add("TEXT", GREEK_LETTERS[sign], start, stop)
        elif sign in self.characters:
            self._add(*self.characters[sign], start, stop)
        elif sign in SPACES:
            self.position = stop
        else:
            raise self.error("character", start, stop, shown=_shown(sign), hint=CHARACTER_HINTS.get(sign, _USE))

    def _begins(self) -> bool:
        """Whether an argument begins here, so that a `'` has nothing to stand at."""
        return bool(self.found) and self.found[-1].type in ("LPAREN", "COMMA")

    def _raises(self) -> bool:
        """Whether what stands here is all that a `^` raises."""
        kinds = [token.type for token in self.found[-2:]]
        return kinds == ["CARET", "LBRACE"] or (kinds[-1:] == ["CARET"] and self.text[self.position - 1] == "^")

    def _word(self) -> None:
        start = self.position
        found = _WORD.match(self.text, start)
        if found is None:  # a lone `__`
            self._add("UNDER", "_", start, start + 1)
            return
        word, stop = found.group(), found.end()
        if self._taker() and (word[1:2].isalpha() or (self._taker() == "FRAC" and word[1:2].isdigit())):
            self.hangs = True
            if word not in self.known:
                word, stop = word[0], start + 1
        self._check_name(word, start, stop)
        script = bool(self.found) and self.found[-1].type in ("UNDER", "CARET")
        before = start == 0 or self.text[start - 1] in SPACES or self.text[start - 1] in "$`"
        after = stop == len(self.text) or self.text[stop] in SPACES or self.text[stop] in "$`\\"
        if not script and not self.open and before and after:
            if word == "in" and self.found and self.found[-1].type in _ENDS:
                self._add("RELATION", "in", start, stop)
                return
            if word in _JOINING and self.words_join:
                self._add("AND", ",", start, stop)
                return
        self._add("WORD", word, start, stop)

    def _check_name(self, word: str, start: int, stop: int) -> None:
        if len(word) > NAME_LIMIT:
            raise self.error("name", start, stop, size=len(word))

    def _number(self) -> None:
        start = self.position
        found = _NUMBER.match(self.text, start)
        assert found is not None
        stop = found.end()
        grouped = _GROUPED.match(self.text, start)
        if grouped and (grouped[2] or (self.found and (self.found[-1].type == "TIMES" or self.found[-1] == "x"))):
            raise self.error("grouped", start, grouped.end(1), one=grouped[1].replace(",", ""))
        raised = bool(self.found) and self.found[-1].type in ("CARET", "UNDER") and stop_of(self.found[-1]) == start
        single = self._taker() == "FRAC" and self.text[start] != "."
        if single:
            stop = start + 1
        elif raised and not found.group().replace(".", "").isdigit():
            stop = start + len(found.group()) - len(found.group().lstrip("0123456789"))
        elif self._taker() == "SQRT" and stop - start > 1 and self.text[start - 1] != "√":
            raise self.error("root", start, stop)
        digits = re.sub(r"[^0-9.]", "", self.text[start:stop])
        power = None if single or raised else _SCIENTIFIC.match(self.text, stop)
        self.hangs |= power is not None
        if power and power[1] in self.known and not power[2] and power[1] + power[3] not in self.known:
            hint = f"write {digits}*10^{power[3]}, or {digits}*{power[1]}*{power[3]}"
            raise self.error("two ways", start, power.end(), hint=hint)
        if power and power[1] not in self.known:
            stop = power.end()
            if len(power[3].lstrip("0")) > 4 or int(power[3]) > EXPONENT_LIMIT:
                raise self.error("exponent", start, stop)
            digits += f"e{power[2]}{int(power[3])}"
        if len(digits.partition("e")[0].replace(".", "")) > DIGITS_LIMIT:
            raise self.error("digits", start, stop)
        self._add("NUMBER", digits, start, stop)

    def _dots(self) -> None:
        start = self.position
        stop = start
        while stop < len(self.text) and self.text[stop] == ".":
            stop += 1
        if stop - start in (2, 3):
            self._add("DOTS", "...", start, stop)
        elif self.text.startswith(".T", start) and not self.text[start + 2 : start + 3].isalnum() and self.found:
            stop = start + 2
            self._add("TRANSPOSED", "T", start, stop)
        elif self.text.startswith(".*", start):
            stop = start + 2
            self._add("ODOT", "o", start, stop)
        elif stop - start == 1 and not self.text[stop:].replace("\\]", "").replace("\\)", "").strip(" \t\n$`"):
            pass  # the full stop of a sentence
        else:
            within = self.text[start - 1 : start].isalpha() and self.text[stop : stop + 1].isalpha()
            raise self.error("dotted" if within else "dots", start, stop)
        self.position = stop

    def _raised(self, letters: dict[str, str]) -> None:
        start = stop = self.position
        while stop < len(self.text) and self.text[stop] in letters:
            stop += 1
        value = "".join(letters[char] for char in self.text[start:stop])
        self._add("CARET" if letters is RAISED else "UNDER", "^" if letters is RAISED else "_", start, start)
        if value.startswith("-"):
            self._add("MINUS", "-", start, start)
            value = value[1:]
        if value.isdigit() and len(value) > DIGITS_LIMIT:
            raise self.error("raised", start, stop, limit=DIGITS_LIMIT)
        self._check_name(value, start, stop)
        self._add("NUMBER" if value.isdigit() else "WORD", value, start, stop)

    def _command(self) -> None:
        text, start = self.text, self.position
        found = _COMMAND.match(text, start)
        if found is None:
            raise self.error("backslash", start, start + 1)
        name, stop = found.group()[1:], found.end()
        if name.endswith("*") and name not in TEXT_FONTS:
            name, stop = name[:-1], stop - 1
        self.position = stop
        if name in SPACING_COMMANDS:
            if name in ("left", "right", "middle") and text.startswith(".", stop):
                self.position = stop + 1  # `\left.` stands for no bracket at all
        elif name == "$":
            raise self.error("dollar sign", start, stop)
        elif name in TEXT_FONTS:
            self._text_command(name, start, stop)
        elif name in LETTER_FONTS:
            self._letter_font(LETTER_FONTS[name], start, stop)
        elif name in REFUSED_COMMANDS:
            raise self.error("refused", start, stop, shown=f"\\{name}", hint=REFUSED_COMMANDS[name])
        elif name in self.commands:
            self._add(*self.commands[name], start, stop)
        elif name.isalpha() and name.isascii():
            # A command of the author's own (\softmax, \Out): a word like any other.
            self._check_name(name, start, stop)
            self._add("TEXT", name, start, stop)
        else:
            raise self.error("command", start, stop, shown=f"\\{_shown(name)}", hint=_USE)

    def _text_command(self, name: str, start: int, stop: int) -> None:
        r"""``\text{...}``: the words inside are one word; one with formulas inside is only a change of font."""
        text = self.text
        opening = stop
        while opening < len(text) and text[opening] in SPACES:
            opening += 1
        if opening >= len(text) or text[opening] != "{":
            self._add("FONT", name, start, stop)
            return
        closing = text.find("}", opening)
        if closing < 0:
            raise self.error("open", opening, opening + 1, wanted="}")
        if quoted := _QUOTED.fullmatch(text[opening + 1 : closing].strip()):
            at = text.index(quoted.group(), opening)
            self._add("QUOTED", quoted.group()[1:-1], at, at + len(quoted.group()))
            self.position = closing + 1
            return
        content = text[opening + 1 : closing].replace(r"\_", "_").replace("\\ ", " ").replace("\\-", "-")
        content = content.replace("\\,", " ").replace("`", "'").replace("$", "")
        if not _TEXT_CONTENT.fullmatch(content):
            if any(mark in content for mark in "{^\\"):
                self._add("FONT", name, start, stop)  # formulas inside: only the font changes
                return
            bad = next(char for char in content if not _TEXT_CONTENT.fullmatch(char))
            where = text.find(bad, opening)
            raise self.error("text", where, where + 1, shown=_shown(bad))
        word = re.sub(r"[\s~]+", " ", content).strip()
        self.position = closing + 1
        if not word:
            return
        if not self.open and self.words_join and word.rstrip(".").lower() in _JOINING | {"for all"}:
            self._add("AND", ",", start, closing + 1)
        elif word == "in" and not self.open:
            self._add("RELATION", "in", start, closing + 1)
        else:
            self._check_name(word, start, closing + 1)
            self._add("TEXT", word.replace(" ", "_"), start, closing + 1)

    def _letter_font(self, prefix: str, start: int, stop: int) -> None:
        r"""``\mathbb{R}``, ``\mathcal{L}``: another letter than the plain one, so another name."""
        found = re.compile(r"\s*(?:\{\s*([A-Za-z0-9]{1,20})\s*\}|([A-Za-z0-9]))").match(self.text, stop)
        if found is None:
            raise self.error("font", start, stop)
        self._add("TEXT", prefix + (found.group(1) or found.group(2)), start, found.end())

    def _tidy(self) -> list[Token]:
        """Commas where words or dots separate, each once, and none at the end."""
        tidy: list[Token] = []
        soft = False  # a comma that `and` or dots stand for is wanted, unless one is there
        for token in self.found:
            if token.type == "AND":
                soft = True
                continue
            wanted = soft or token.type == "DOTS" or bool(tidy and tidy[-1].type == "DOTS")
            starts = not tidy or tidy[-1].type in OPENING or tidy[-1].type == "COMMA"
            if wanted and not starts and token.type != "COMMA" and token.type not in BRACKETS:
                tidy.append(Token("COMMA", ",", start_pos=start_of(token), end_pos=start_of(token)))
            if soft and token.type == "COMMA" and starts:
                continue
            soft = False
            tidy.append(token)
        while tidy and tidy[-1].type == "COMMA":
            tidy.pop()
        return tidy


def _shown(char: str) -> str:
    """A character as an error can show it."""
    return char if char.isprintable() else f"U+{ord(char[:1] or ' '):04X}"
