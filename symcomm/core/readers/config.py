"""Reads a Hugging Face ``config.json``: the sizes of a model, and its parts as layer tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from symcomm.core.errors import nearest
from symcomm.core.readers.architectures import ARCHITECTURES, Architecture, HeadKind, class_names
from symcomm.core.readers.blueprint import Blueprint
from symcomm.core.readers.entries import Config, parse_config, shown
from symcomm.core.readers.writer import ModelWriter

# Families whose names are a letter away from one that is read; none of them is a misspelling of it.
_OTHER_FAMILIES = frozenset({"gemma3n_text", "gpt_neo", "ministral", "mllama", "molmo2", "pixtral", "qwen3_vl_moe"})


def read_config(
    source: str | Config, file: str = "<config>", architecture: str = "", loss: bool | None = None
) -> Blueprint:
    """The blueprint of a configuration; ``architecture`` is a class name, over the one the file says.

    ``loss`` says whether the cross-entropy of a language model's head counts: where there is one, if not said.

    >>> made = read_config('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, '
    ...                    '"vocab_size": 50257, "n_positions": 1024}')
    >>> made.count()
    124439808

    Raises ``ReaderError`` for an unknown architecture, missing keys (all named) and wrong values.
    """
    config = source if isinstance(source, Config) else parse_config(source, file)
    record, head, name = _which(config, architecture)
    if record.rephrased:
        config = replace(config, entries={**config.entries, **record.rephrased(config.entries)})
    sizes = dict(record.sizes)
    named = any(one in config.entries for one in sizes.get("E", "").split("|"))
    if "F" in sizes and record.routed and named and not config.get(sizes["E"]):  # null, or none
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
    return ModelWriter(config, record, head, name, values, loss).blueprint()


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
    if name in known:
        return f"did you mean '{known[name][0].model_type}'?"
    close = get_close_matches(kind, ARCHITECTURES, 1, 0.85) if len(kind) > 5 and not name else []
    digits = {re.sub(r"\D", "", text) for text in (kind, *close)}
    if close and len(digits) == 1 and kind not in _OTHER_FAMILIES:
        return f"did you mean '{close[0]}'?"
    return (
        "a family of its own, whose layers no record here describes; read are " + ", ".join(ARCHITECTURES)
        + "; a layer table can say what it computes, and print(model) which weights it has"
    )  # fmt: skip
