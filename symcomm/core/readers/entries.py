"""The entries of a Hugging Face ``config.json``, each read with its place and its type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any, NoReturn

from symcomm.core.errors import Span
from symcomm.core.readers.blueprint import ReaderError
from symcomm.core.records import dataclass
from symcomm.core.text.table import check_text

DEPTH_LIMIT = 60
SIZE_LIMIT = 10**9
_PRINTED = re.compile(r"\s*\w+Config\s*(?=\{)")
_OBJECT = re.compile(r"\s*(?:\w+Config\s*)?\{\s*(?:\"|\}|$)")


def is_config(text: str) -> bool:
    r"""Whether a text is a configuration: a JSON object, or one printed behind the name of its class.

    >>> is_config('{"model_type": "bert"}'), is_config("BertConfig {"), is_config(r"{\small a}")
    (True, True, False)
    """
    return _OBJECT.match(text) is not None


@dataclass(frozen=True)
class Config:
    """The entries of a configuration, and the text they stand in, for errors."""

    entries: Mapping[str, Any]
    file: str = "<config>"
    text: str = field(default="", repr=False)
    partial: bool = False  # the number of heads may be missing
    used: set[str] = field(default_factory=set, repr=False, compare=False)

    def get(self, key: str) -> Any:
        """The value of a key, or of either of two spellings ``a|b``; None where there is none."""
        self.used.update(key.split("|"))
        return next((self.entries[one] for one in key.split("|") if self.entries.get(one) is not None), None)

    def misspelt(self) -> list[str]:
        """A note for each entry that nothing read, and that is nearly a key that was looked for and is not there."""
        lacking = sorted(self.used - self.entries.keys())
        other = [key for key in self.entries.keys() - self.used if not key.startswith("_")]
        near = {key: get_close_matches(key, lacking, 1, 0.9) for key in other}
        return [f"{key} is not read: did you mean '{found[0]}'?" for key, found in sorted(near.items()) if found]

    def span(self, key: str) -> Span | None:
        """Where a key is with its value."""
        for number, line in enumerate(self.text.splitlines(), start=1):
            found = re.search(rf'"{re.escape(key)}"\s*:\s*([^,\s]*)', line)
            if found:
                return Span(self.file, number, line, found.start(), found.end())
        return None

    def fail(self, message: str, key: str = "", hint: str = "") -> NoReturn:
        """Raises an error at a key."""
        span = self.span(key) if key else None
        raise ReaderError(message if span else f"{self.file}: {message}", span, hint)

    def size(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A size: a positive whole number."""
        value = self.get(key)
        key = next((one for one in key.split("|") if one in self.entries), key)
        if value is None:
            if default is None:
                self.fail(f"the configuration lacks {key}", hint="save the whole config.json of the model")
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{key} is {shown(value)}, but a whole number is needed", key)
        if not least <= value <= SIZE_LIMIT:
            self.fail(f"{key} is {shown(value)}", key, f"a size is a whole number from {least} to {SIZE_LIMIT}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(f"{key} is {shown(value)}, but true or false is needed", key)
        return value

    def rate(self, key: str, default: float) -> float:
        """A probability."""
        value = self.get(key) if key else 0.0
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            self.fail(f"{key} is {shown(value)}, but a probability below 1 is needed", key)
        return float(value)

    def words(self, key: str, default: str) -> str:
        """A text."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(f"{key} is {shown(value)}, but text is needed", key)
        return value


def shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def parse_config(text: str, file: str = "<config>") -> Config:
    """The entries of a configuration's text; bounds are checked before JSON is read.

    Raises ``ReaderError`` for text that is no JSON object, or one nested too deep.
    """
    check_text(text, file)
    printed = _PRINTED.match(text)
    body = " " * printed.end() + text[printed.end() :] if printed and "\n" not in printed.group() else text
    _bounded(body, file)
    try:
        entries = json.loads(body)
    except json.JSONDecodeError as error:
        hint = "is the file cut off or a comma missing?"
        raise ReaderError(f"this is no JSON: {error.msg}", Span.in_text(file, text, error.pos), hint) from None
    if not isinstance(entries, dict):
        raise ReaderError(f"{file}: a configuration is a JSON object", hint='such as {"model_type": "bert", ...}')
    return Config(entries, file, text)


def _bounded(text: str, file: str) -> None:
    """Raises ``ReaderError`` at brackets that nest too deep, and at a number that is none or too long to be read."""
    depth = 0
    for piece in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]|-?(?:NaN|Infinity)|\d{4301,}', text):
        word = piece.group()
        depth += (word in "[{") - (word in "]}")
        if depth > DEPTH_LIMIT:
            what = f"brackets stand more than {DEPTH_LIMIT} deep"
        elif word.endswith(("NaN", "Infinity")):
            what = f"this is no JSON: {word} is no number"
        elif word[0].isdigit():
            what = "this is no JSON: a number has more than 4,300 digits"
        else:
            continue
        raise ReaderError(what, Span.in_text(file, text, piece.start()), "give the config.json as the model has it")
