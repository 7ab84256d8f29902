"""The words of a page in the language of its document: a data file a language, in the folder of the templates.

Sentences of ours are a catalogue by their English pattern, as gettext has them. A pattern is a sentence with ``{}``
where names, numbers and lists stand; these are translated by the same catalogue, or by its ``pieces``, which stand
within a sentence or in a cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from symcomm.core.errors import RenderError, nearest
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES
from symcomm.documents.render.environment import TEMPLATES

_END = re.compile(r"\. [A-Z0-9`]")  # what stands in a hole is no more than a sentence,
_ITEM = re.compile(r"\. [A-Z0-9`]|; ")  # and in a piece no more than one thing of a list
_CITED = re.compile(r", (19[5-9]|20[0-4])\d(?! [a-z])|arXiv \d|, version \d")  # what is cited stays as it is
_WIDE = "[\u3000-\u303f\uff00-\uffef]"  # punctuation that brings its own space
_SPACE = re.compile(rf"(?<={_WIDE}) | (?={_WIDE})|(?<=[\u3000-\u9fff]) (?=[\u3000-\u9fff])")
_DEEP = 120  # things of one list that are translated
_SMALL = re.compile(r"[a-zà-ÿ]{2,}\b")  # a word that begins a sentence
HOLE = re.compile(r"\{\d*\}")
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z0-9`])")
_COUNTED = re.compile(r"((?:≈ )?\d[\d\s.,/]* )([a-z]{4,}(?:/[A-Za-z]+)?)")  # a number with the word for its unit
_EXPLAINED = re.compile(r"(`[^`]*`:) ([A-Z0-9`].*)")  # a name that is explained
# A decimal point: not in a name, nor in what only looks like a number (arXiv 1811.05233, version 1.04, cap=12.5).
_KEPT = r"(?:\b(?:arXiv|[Vv]ersion|[Ss]ections?|PyTorch|CUDA|NumPy) |\w=)[\d.]*\d|\d+\.\d+\.[\d.]*\d"
_DECIMAL = re.compile(rf"({_KEPT})|(?<=\d)\.(?=\d)(?![^`]*`[^`]*(?:`[^`]*`[^`]*)*$)")
_MATHS = re.compile(r"`[^`]*`")
_WORDS = re.compile(r"[A-Za-z].* [a-z]{2,}")


@dataclass
class Catalogue:
    """The sentences and the pieces of sentences of one language; ``missing`` are those without a translation.

    ``decimal`` stands in its numbers where English has a point.

    >>> german = Catalogue({"{} bytes an element ({}).": "{} Bytes je Element ({})."}, {"{} and {}": "{1} und {0}"})
    >>> german("4 bytes an element (a and b). All calls."), list(german.missing)
    ('4 Bytes je Element (b und a). All calls.', ['All calls.'])
    """

    sentences: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, str] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    decimal: str = "."
    _known: dict[tuple[str, bool, bool], str | None] = field(default_factory=dict, repr=False)

    __hash__ = object.__hash__

    def __call__(self, text: str) -> str:
        """The text in the language, sentence by sentence; what has no translation stays and is noted."""
        if not self.sentences or not text:
            return text
        if self.decimal != ".":
            text = _DECIMAL.sub(lambda match: match[1] or self.decimal, text)
        return _SPACE.sub("", self._told(text))

    def _told(self, text: str) -> str:
        if named := _EXPLAINED.fullmatch(text):
            return f"{named[1]} {self._told(named[2])}"
        if counted := _COUNTED.fullmatch(text):
            return counted[1] + (self._part(counted[2], True) or counted[2])
        stopped = text.endswith(".") and not text.endswith("...")
        found = self._whole(text, self._sentences if stopped else self._parts, whole=not stopped)
        if found is not None:
            return found[:1].upper() + found[1:] if stopped and _SMALL.match(found) else found
        parts = _SENTENCES.split(text)
        for n in range(len(parts) - 1, 0, -1):
            if n == 1 or self._whole(" ".join(parts[:n]), self._sentences, whole=False) is not None:
                return f"{self._told(' '.join(parts[:n]))} {self._told(' '.join(parts[n:]))}"
        if stopped and _worded(text):
            self.missing[text] = None
        return text

    def _whole(self, text: str, patterns: _Patterns, whole: bool, depth: int = 0) -> str | None:
        """The text by the first pattern that it has; a ``whole`` one may not leave words in English."""
        key = (text, patterns is self._parts, whole)
        if key not in self._known:
            self._known[key] = None  # of a pattern that is a hole alone
            self._known[key] = next(self._ways(text, patterns, whole, depth), None)
        return self._known[key]

    def _ways(self, text: str, patterns: _Patterns, whole: bool, depth: int) -> Iterator[str]:
        for literal, told, end in patterns.beginning(text):
            holes = _holes(text, literal)
            if holes is not None and not any(map(end.search, holes)):
                parts = [(hole, self._part(hole, whole, depth + 1)) for hole in holes]
                if not (whole and any(one is None and _worded(hole) for hole, one in parts)):
                    yield told.format(*(hole if one is None else one for hole, one in parts))

    def _part(self, text: str, whole: bool, depth: int = 0) -> str | None:
        return None if depth > _DEEP or _CITED.search(text) else self._whole(text, self._parts, whole, depth)

    @cached_property
    def _sentences(self) -> _Patterns:
        return _Patterns({one: told for one, told in self.sentences.items() if one.endswith(".")})

    @cached_property
    def _parts(self) -> _Patterns:
        """Pieces, sentences, and what is a sentence but for its full stop."""
        stopped = {one[:-1]: told.rstrip(".。") for one, told in self._sentences.told.items()}
        return _Patterns(stopped | {**self.sentences}, self.pieces)


@dataclass
class _Patterns:
    """Patterns with their translations, and ``pieces`` that are tried after them; a first letter may be small."""

    told: Mapping[str, str]
    pieces: Mapping[str, str] = field(default_factory=dict)
    _near: dict[str, list[tuple[list[str], str, re.Pattern[str]]]] = field(default_factory=dict)

    def beginning(self, text: str) -> list[tuple[list[str], str, re.Pattern[str]]]:
        """The patterns that may begin like a text, cut at their holes, and what ends one: the most literal first."""
        first = text[:1]
        if first not in self._near:
            self._near[first] = [
                (HOLE.split(one), entries[one], _ITEM if entries is self.pieces and ";" not in one else _END)
                for entries in (self.told, self.pieces)
                for one in sorted(entries, key=lambda one: (-len(HOLE.sub("", one)), one[:1] != first))
                if one[:1].lower() in (first.lower(), "{")
            ]
        return self._near[first]


def _holes(text: str, literal: list[str]) -> list[str] | None:
    """What stands between the literal parts of a pattern, each as short as can be, in one go; None where they are not.

    >>> _holes("4 bytes (a (b))", ["", " bytes (", ")"])
    ['4', 'a (b)']
    """
    first, *middle = literal
    if text[: len(first)] != first and text[:1].lower() + text[1 : len(first)] != first[:1].lower() + first[1:]:
        return None
    if not middle:
        return [] if len(text) == len(first) else None
    last = middle.pop()
    at, end = len(first), len(text) - len(last)
    holes = []
    for part in middle:
        found = text.find(part, at + 1, end)
        if found < 0:
            return None
        holes.append(text[at:found])
        at = found + len(part)
    return [*holes, text[at:end]] if at < end and text.endswith(last) else None


def _worded(text: str) -> bool:
    """Whether a text is more than a name, a unit or a number."""
    return bool(_WORDS.search(_MATHS.sub("", text)))


# -- the files of a language -----------------------------------------------------------------------------------

FOLDER = "languages"
ENGLISH = "sentences.yaml"  # our sentences by their id, which translations hang on
_NAMED = re.compile(r"`[^`]*`|\{[^{}]*\}")  # a name or a number of a sentence that has an id
_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")


@dataclass(frozen=True)
class Words:
    """The words of one language by what they stand for; in a template ``words.given`` and ``words.points(3)``.

    >>> english = words("en")
    >>> english.given, english.points(1), english.points(3)
    ('Given', '1 point', '3 points')
    """

    said: Mapping[str, str]
    catalogue: Catalogue = field(default_factory=Catalogue)

    def __getattr__(self, name: str) -> str:
        try:
            return self.said[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> str:
        return self.said[name]

    def points(self, number: Fraction | int) -> str:
        """A number of points."""
        return self.counted("point", number)

    def questions(self, number: int) -> str:
        """A number of questions."""
        return self.counted("question", number)

    def counted(self, what: str, number: Fraction | int) -> str:
        """So many of something, in the singular for one."""
        return self.said[what if number == 1 else f"{what}s"].replace("#", str(number))


def patterns(ours: Mapping[str, str], others: Mapping[object, object], file: Path) -> Iterator[tuple[str, str]]:
    """English patterns with their translations, which hang on an id of ours or on a pattern of one's own.

    Raises ``RenderError`` for an unknown id, and where a translation has other holes than its pattern.

    >>> dict(patterns({"bytes_of": "{} bytes of {}."}, {"bytes_of": "{} Bytes von {}."}, Path("de.yaml")))
    {'{} bytes of {}.': '{} Bytes von {}.'}
    """
    for key, other in ((str(key), str(other)) for key, other in others.items()):
        if key not in ours and _ID.fullmatch(key):
            raise RenderError(f"{file.name}: no sentence has the id '{key[:60]}'", hint=nearest(key, [*ours]))
        english = ours.get(key, key)
        count, found = len(HOLE.findall(english)), HOLE.findall(other)
        holes = sorted(int(hole[1:-1] or n) for n, hole in enumerate(found))
        mixed = len({hole == "{}" for hole in found}) > 1
        if mixed or holes != [*range(count)] or set(HOLE.sub("", other)) & {*"{}"}:
            hint = "as many {} as there, or {1} and {0} in another order"
            raise RenderError(f"{file.name}: '{other[:60]}' has other holes than '{english[:60]}'", hint=hint)
        yield english, other


def of_id(english: str, other: str, file: Path) -> tuple[str, str]:
    """A sentence with an id and its translation as patterns: names of the one are holes of the other, in any order.

    >>> of_id("`a` of `b`.", "`b`s `a`.", Path("de.yaml"))
    ('{} of {}.', '{1}s {0}.')
    """
    names = _NAMED.findall(english)
    if not {*_NAMED.findall(other)} <= {*names}:
        raise RenderError(f"{file.name}: '{other[:60]}' has other names than '{english[:60]}'",
                          hint=f"names: {', '.join(names) or 'none'}")  # fmt: skip
    return _NAMED.sub("{}", english), _NAMED.sub(lambda name: f"{{{names.index(name[0])}}}", other)


def words(language: str, own: Path | None = None) -> Words:
    """The words of a language, from the files of a folder of one's own or from ours.

    Raises ``RenderError`` for a language that has no file.
    """
    return _words(language, own, len(SENTENCES))


@cache
def _words(language: str, own: Path | None, tables: int) -> Words:
    """The words, where so many tables of sentences were read."""
    import yaml

    def read(file: Path) -> Any:
        return getattr(yaml, "CSafeLoader", yaml.SafeLoader)(file.read_text(encoding="utf-8")).get_single_data()

    folders = [folder / FOLDER for folder in (own, TEMPLATES) if folder is not None]
    known = sorted({file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.yaml")})
    code = language.lower().replace("_", "-")
    name = next((n for n in (code, code.partition("-")[0]) if n in known), "")
    if not name:
        hint = nearest(language, known) + f"; or add {FOLDER}/{code.partition('-')[0]}.yaml to your templates"
        raise RenderError(f"there are no words in the language '{language[:40]}'", hint=hint)
    said: dict[str, str] = {}
    told: dict[str, dict[str, str]] = {"sentences": {}, "pieces": {}}
    ours = told if name == "en" else read(TEMPLATES / ENGLISH)
    for file in (TEMPLATES / FOLDER / "en.yaml", *(f for d in reversed(folders) if (f := d / f"{name}.yaml").exists())):
        try:
            entries = read(file)
        except (OSError, yaml.YAMLError) as error:
            raise RenderError(f"{file} cannot be read: {error}") from error
        for key, text in entries.items():
            if key == "by_id":
                for table, others in text.items():
                    english = SENTENCES.get(table, dict)()
                    for unknown in others.keys() - english.keys() if english else ():
                        hint = nearest(unknown, [*english])
                        raise RenderError(f"{file.name}: {table} have no '{unknown}'", hint=hint)
                    told["sentences"] |= dict(of_id(english[one], others[one], file) for one in others if english)
            elif key in told:
                told[key] |= dict(patterns(ours[key], text, file))
            else:
                said[str(key)] = str(text)
    return Words(said, Catalogue(told["sentences"], told["pieces"], decimal=said["decimal"]))
