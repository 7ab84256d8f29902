"""Reads a Hugging Face ``config.json``: the sizes of a model, and its parts as layer tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NoReturn

from symcomm.errors import Span, nearest
from symcomm.readers.architectures import ARCHITECTURES, Architecture, HeadKind, class_names
from symcomm.readers.blueprint import Blueprint, ReaderError
from symcomm.text.table import check_text

DEPTH_LIMIT = 60
SIZE_LIMIT = 10**9
# Families whose names are a letter away from one that is read; none of them is a misspelling of it.
_OTHER_FAMILIES = frozenset({"gpt_neo", "ministral"})
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
        """What stands under a key, or under either of two spellings ``a|b``; None where nothing does."""
        self.used.update(key.split("|"))
        return next((self.entries[one] for one in key.split("|") if self.entries.get(one) is not None), None)

    def span(self, key: str) -> Span | None:
        """Where a key stands with its value."""
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
    deep = _depth(body)
    if deep > DEPTH_LIMIT:
        raise ReaderError(f"{file}: brackets stand {deep} deep; at most {DEPTH_LIMIT} are read")
    try:
        entries = json.loads(body, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        lines = text.splitlines() or [""]
        line = lines[min(error.lineno, len(lines)) - 1]
        at = min(error.colno - 1, len(line))
        span = Span(file, error.lineno, line, at, at + 1)
        raise ReaderError(f"this is no JSON: {error.msg}", span, "is the file cut off or a comma missing?") from None
    except (ValueError, RecursionError) as error:
        raise ReaderError(f"{file}: this is no JSON: {str(error)[:100]}") from None
    if not isinstance(entries, dict):
        raise ReaderError(f"{file}: a configuration is a JSON object", hint='such as {"model_type": "bert", ...}')
    return Config(entries, file, text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _depth(text: str) -> int:
    """How deep brackets nest, those in strings left out."""
    depth = deepest = 0
    for piece in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text):
        if piece.group() in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif piece.group() in "]}":
            depth -= 1
    return deepest


def read_config(source: str | Config, file: str = "<config>", architecture: str = "", loss: bool = False) -> Blueprint:
    """The blueprint of a configuration; ``architecture`` is a class name, over the one the file says.

    ``loss`` adds the cross-entropy of a language model's head behind it.

    >>> made = read_config('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, '
    ...                    '"vocab_size": 50257, "n_positions": 1024}')
    >>> made.count()
    124439808

    Raises ``ReaderError`` for an unknown architecture, missing keys (all named) and wrong values.
    """
    from symcomm.readers.writer import Writer

    config = source if isinstance(source, Config) else parse_config(source, file)
    record, head, name = _which(config, architecture)
    if record.rephrased:
        config = replace(config, entries={**config.entries, **record.rephrased(config.entries)})
    sizes = dict(record.sizes)
    if "F" in sizes and record.routed and _without_experts(config, sizes["E"]):
        sizes = {symbol: key for symbol, key in sizes.items() if symbol not in ("E", "F_E", "F_S", "n_top")}
    if config.partial and config.get(sizes["n_H"]) is None:
        del sizes["n_H"]
    needed = {symbol: key for symbol, key in sizes.items() if symbol != "F" or not record.feedforward}
    missing = [key.split("|")[0] for key in needed.values() if config.get(key) is None]
    if missing:
        config.fail(
            f"the configuration of a {record.model_type} model lacks {', '.join(missing)}",
            hint="the whole config.json of the model has these keys",
        )
    values = {symbol: config.size(key) for symbol, key in needed.items()}
    if record.feedforward:
        values["F"] = config.size(sizes["F"], record.feedforward * values["D"])
    return Writer(config, record, head, name, values, loss).blueprint()


def _without_experts(config: Config, key: str) -> bool:
    """Whether a configuration says that there are no experts: null, or none."""
    return any(one in config.entries for one in key.split("|")) and not config.get(key)


def _which(config: Config, architecture: str) -> tuple[Architecture, HeadKind, str]:
    """The architecture, the head and the class name that a configuration means."""
    known = class_names()
    listed = config.entries.get("architectures") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        config.fail(f"architectures is {shown(listed)}, but a list of class names is needed", "architectures")
    name = architecture or (listed[0] if listed else "")
    kind = config.words("model_type", "")
    if not kind and name in known:
        kind = known[name][0].model_type
    if not kind:
        config.fail("the configuration lacks model_type", hint="known: " + ", ".join(ARCHITECTURES))
    inner = config.entries.get("text_config")
    if kind not in ARCHITECTURES and f"{kind}_text" in ARCHITECTURES and inner is None:
        kind = f"{kind}_text"  # a model of several inputs, saved as the one that reads text
    if kind not in ARCHITECTURES:
        inside = inner.get("model_type") if isinstance(inner, Mapping) else None
        hint = _misspelled(kind, name)
        if inside in ARCHITECTURES:
            hint = f"its text_config is a {inside} model: give that mapping alone"
        config.fail(f"unknown architecture '{kind[:60]}'", "model_type", hint)
    record = ARCHITECTURES[kind]
    name = name or record.prefix + next(iter(record.heads))
    if name not in known or known[name][0] is not record:
        mine = [n for n, (a, _) in known.items() if a is record]
        config.fail(f"the class '{name[:60]}' is not known for {kind}", "architectures", nearest(name, mine))
    return record, known[name][1], name


def _misspelled(kind: str, name: str) -> str:
    """The family that is meant, if only its name is wrong; else which there are: a near name may be another family.

    A class of its own, another number (``qwen4``) or a short name is no misspelling.
    """
    known = class_names()
    close = [name and known[name][0].model_type] if name in known else get_close_matches(kind, ARCHITECTURES, 1, 0.85)
    digits = [re.sub(r"\D", "", text) for text in (kind, *close)]
    near = close and (not name or name in known) and len(set(digits)) == 1 and len(kind) > 5
    if near and kind not in _OTHER_FAMILIES:
        return f"did you mean '{close[0]}'?"
    return (
        "a family of its own, whose layers no record here describes; read are " + ", ".join(ARCHITECTURES)
        + "; a layer table can say what it computes, and print(model) which weights it has"
    )  # fmt: skip
