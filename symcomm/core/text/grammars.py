"""The parsers of our grammars: built once with the wheel where that can be, else when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import lark

from symcomm.core.records import dataclass
from symcomm.core.text.syntax import Branch

KEPT = ".kept"  # what the name of a grammar's kept parser ends in


class Tokens(lark.lexer.Lexer):
    """Hands the tokens of :mod:`symcomm.core.text.tokens` to Lark."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, data: list[lark.Token]) -> Iterator[lark.Token]:  # type: ignore[override]  # custom lexers take one
        """The tokens as they are."""
        return iter(data)


@dataclass(frozen=True)
class Grammar:
    """A grammar in a file beside our modules, and what Lark is told about it in addition.

    >>> MODULE.parser().parse("Net(8)").children[0].children[0]
    Token('NAME', 'Net')
    """

    folder: str
    file: str
    options: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def source(self) -> str:
        """The grammar's text."""
        return files("symcomm.core").joinpath(self.folder, self.file).read_text(encoding="utf-8")

    @property
    def key(self) -> bytes:
        """The versions that a kept parser depends on, as its first line."""
        said = repr((lark.__version__, sorted(self.options.items()), self.source))
        return sha256(said.encode()).hexdigest().encode() + b"\n"

    def built(self) -> lark.Lark:
        """The parser made of the text."""
        return lark.Lark(self.source, parser="lalr", maybe_placeholders=False, **self.options)

    @lru_cache  # noqa: B019  (there are two of them, and they stay)
    def parser(self) -> lark.Lark:
        """The parser that was kept in the package, if it is that of this grammar and this Lark; else a new one."""
        try:
            with files("symcomm.core").joinpath(self.folder, self.file + KEPT).open("rb") as kept:
                return lark.Lark.load(kept) if kept.readline() == self.key else self.built()
        except FileNotFoundError:
            return self.built()

    def keep(self, package: Path) -> Path:
        """Writes the parser beside its grammar, for the wheel; where it is."""
        path = package / self.folder / (self.file + KEPT)
        with path.open("wb") as kept:
            kept.write(self.key)
            self.built().save(kept)
        return path


FORMULA = Grammar("text", "formula.lark", {"start": "cell", "lexer": Tokens, "tree_class": Branch})
MODULE = Grammar("readers", "module.lark")
