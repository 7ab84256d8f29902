"""The words of a page in the language of its document: a data file a language, in the folder of the templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from symcomm.core.errors import RenderError, nearest
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES
from symcomm.documents.render.catalogue import HOLE, Catalogue
from symcomm.documents.render.environment import TEMPLATES

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
