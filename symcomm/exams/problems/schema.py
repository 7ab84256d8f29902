"""The JSON schema of what stands in problem documents: the front matter and the fenced ``symcomm`` blocks.

Editors complete and check a block with it. It follows from the declared quantities, the kinds of figures and the
conventions; what depends on the rest of a document (which models and symbols there are) is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from symcomm.core.accounting import COLLECTIVES, CONVENTIONS
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import DeclaredQuantity, Option
from symcomm.exams.problems.figures import FIGURE_KEYS, FIGURES, Kind
from symcomm.exams.problems.problem import (
    ASK_KEYS,
    CONFIG_KEYS,
    DRAW_KEYS,
    FRONT_KEYS,
    MODEL_KEYS,
    MODULE_KEYS,
    WHOLE_KEYS,
)

Schema = dict[str, Any]
_TEXT: Schema = {"type": ["string", "number"]}
_TEXTS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_MEANING: Schema = {"type": "object", "additionalProperties": False, "properties": {
    "meaning": _TEXT, "value": _TEXT, "latex": _TEXT, "names": _TEXTS}}  # fmt: skip

_SHARE: Schema = {"type": ["number", "string"]}
_YES: Schema = {"enum": ["yes", "no", True, False]}
_BOUNDS: Schema = {"type": "object", "additionalProperties": False, "properties": {
    "at_least": _TEXT, "at_most": _TEXT, "digits": {"type": "integer"}, "steps": {"type": "integer"}}}  # fmt: skip
_LINE: Schema = {"type": "object", "additionalProperties": False, "required": ["step", "points"], "properties": {
    "step": {"type": "string"}, "points": _SHARE, "says": _TEXT}}  # fmt: skip
_CHOICE: Schema = {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}]}
_CHOICES: Schema = {"type": "array", "minItems": 2, "items": _CHOICE}
_DRAW: Schema = {"anyOf": [_CHOICES, {"type": "object", "additionalProperties": False, "properties": {
    "choices": _CHOICES, "from": _TEXT, "to": _TEXT, "step": _TEXT, "unit": _TEXT, "multiples_of": _TEXT,
    "powers_of": _TEXT, "log_uniform": {"type": "array", "items": _TEXT}, "digits": {"type": "integer"}, "is": _TEXT,
    **{name: {"type": "integer", "minimum": 1} for name in ("formulas", "operations", "inputs", "outputs")},
}}]}  # fmt: skip
_RULE: Schema = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["ask"]}]}

_OTHER: Schema = {"anyOf": [_TEXT, {"type": "object"}]}
_OTHERS: Schema = {"anyOf": [_OTHER, {"type": "array", "items": _OTHER}]}
_ANSWER: Schema = {"type": "object", "additionalProperties": False, "properties": {
    "left": _TEXT, "in": _TEXT, "step": _TEXT, "symbols": _TEXTS, "names": {"type": "object"},
    "prefixes": {"enum": ["open", "stated"]}, "conventions": _OTHERS, "mistakes": _TEXTS, "ruled_out": _OTHERS,
    "decimal_comma": _YES}}  # fmt: skip
_MISTAKE: Schema = {"type": "object", "additionalProperties": False, "required": ["name", "says", "change"],
                    "properties": {"name": _TEXT, "says": _TEXT, "change": {"type": "object"}}}  # fmt: skip

# One row a key; several blocks share some.
_KEYS: dict[str, tuple[str, Schema]] = {
    "title": ("the title", _TEXT),
    "subtitle": ("the line below the title", _TEXT),
    "course": ("the course, above the title", _TEXT),
    "detail": ("how much of each derivation is shown", {"enum": ["brief", "normal", "full"]}),
    "authors": ("one name, or a list", _TEXTS),
    "date": ("the date, as it shall be printed", _TEXT),
    "language": ("a language tag such as en or de-CH", {"type": "string"}),
    "symbols": ("what the symbols mean", {"type": "object", "additionalProperties": {"anyOf": [_TEXT, _MEANING]}}),
    "accounting": ("a convention, a list of them, or one for each field", {"$ref": "#/$defs/accounting"}),
    "dtype": ("the number format of the model", {"type": "string"}),
    "model": ("the name of a model", _TEXT),
    "table": ("which layer table, or the table itself", _TEXT),
    "module": ("a printed PyTorch module instead of a table", {"type": "string"}),
    "config": ("a configuration (a config.json of transformers) instead of a table", {"type": ["object", "string"]}),
    "loss": ("whether the cross-entropy of a configuration's head counts", {"enum": ["true", "false", True, False]}),
    "formula": ("one formula instead of a table, with the shapes of its operands", {"type": "string"}),
    "repeat": ("the symbol that says how often the table is stacked", {"type": "string"}),
    "batch": ("a batch axis that the table leaves out", {"type": "string"}),
    "values": ("given sizes", {"type": "object", "additionalProperties": _TEXT}),
    "inputs": ("tensors that are inputs", _TEXTS),
    "weights": ("tensors that are weights", _TEXTS),
    "axes": (
        "what axes are, by their symbols: batch, sequence, ...",
        {"type": "object", "additionalProperties": {"type": "string"}},
    ),
    "layers_before": ("the tensor that stands for the result of the layers", {"type": "string"}),
    "parts": ("models that this one is made of", _TEXTS),
    "worksheet": ("the file of a worksheet of one's own, beside this one", {"type": "string"}),
    "label": ("tells the answers of one question apart", _TEXT),
    "verify": ("a run in PyTorch beside it: of its strategy, or of one that is named", {"type": ["boolean", "string"]}),
    "points": ("the points of this answer", {"type": "integer", "minimum": 0}),
    "given": ("further numbers, with units", {"type": "object", "additionalProperties": _TEXT}),
    "printed": ("what a source prints as the answer", _TEXT),
    "divided_by": ("keys in which another question differs, by whose answer this one's is divided", {"type": "object"}),
    "id": ("what references and answer sheets call this answer", {"type": "string"}),
    "choices": ("ask with this many options to choose from", {"type": "integer", "minimum": 2, "maximum": 10}),
    "bounds": ("what the answer of a drawn question has to keep to", _BOUNDS),
    "rubric": ("the points of each step", {"type": "array", "items": _LINE}),
    "credit": (
        "the share of its points that a wrong answer earns, for all or for each mistake",
        {"anyOf": [_SHARE, {"type": "object", "additionalProperties": _SHARE}]},
    ),
    "draw": ("values that each paper draws for itself", {"type": "object", "additionalProperties": _DRAW}),
    "require": ("what drawn values have to satisfy", {"anyOf": [_RULE, {"type": "array", "items": _RULE}]}),
    "exam": (
        "how papers are made",
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "questions": {"type": "integer", "minimum": 0},
                "shuffle": _YES,
                "alike": _YES,
                "credit": {"anyOf": [_SHARE, {"type": "object", "additionalProperties": _SHARE}]},
            },
        },
    ),
    "answer": ("what answers of students look like, and what is told apart in them", _ANSWER),
    "mistake": ("a mistake that answers are held against", _MISTAKE),
    "caption": ("Markdown below the picture", _TEXT),
    "paper": ("whether the paper shows it as well, and not the solution only", {"enum": ["yes", "no"]}),
}
_READ: dict[str, Schema] = {
    "text": _TEXT,
    "formula": {"type": ["string", "object"]},
    "quantity": _TEXT,
    "dtype": {"type": "string"},
    "size": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]},
    "count": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\{\{.*\}\}$"}]},
    "strategy": {"type": ["string", "object"]},
    "schedule": {"type": "string"},
    "links": {"type": ["string", "object"]},
    "recipe": {"type": ["string", "object"]},
}


def problem_schema() -> Schema:
    """The schema of a block; that of the front matter is its definition ``front_matter``.

    >>> sorted(problem_schema()["$defs"])[:3]
    ['accounting', 'block', 'configuration']
    """
    kinds = ("model", "configuration", "printed_model", "whole_model", "question", "figure", "draw", "mistake")
    one = [{"$ref": f"#/$defs/{name}"} for name in kinds]
    questions = [*map(_question, QUANTITIES.values()), _own()]
    defs: Schema = {
        "block": {"oneOf": one},
        "front_matter": _object(_keys(FRONT_KEYS)) | {"additionalProperties": _TEXT},
        "model": _object(_keys(MODEL_KEYS), ["model"]),
        "configuration": _object(_keys(CONFIG_KEYS), ["model", "config"]),
        "printed_model": _object(_keys(MODULE_KEYS), ["model", "module"]),
        "whole_model": _object(_keys(WHOLE_KEYS), ["model", "parts"]),
        "draw": _object(_keys(DRAW_KEYS)) | {"minProperties": 1},
        "question": {"type": "object", "required": ["ask"], "oneOf": questions},
        "figure": {"type": "object", "required": ["figure"], "oneOf": [_figure(k) for k in FIGURES.values()]},
        "mistake": _object(_keys(("mistake",)), ["mistake"]),
        "drawn": {"oneOf": [_drawn(declared) for declared in QUANTITIES.values()]},
        "accounting": _accounting(),
    }
    named: dict[str, str] = {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A symcomm block of a problem document",
        "anyOf": [{"$ref": "#/$defs/block"}, {"type": "array", "items": {"$ref": "#/$defs/block"}}],
        "$defs": {name: _shared(part, named) for name, part in defs.items()}
        | {name: json.loads(text) for text, name in named.items()},
    }


def _shared(schema: Any, named: dict[str, str]) -> Any:
    """The same schema with each key's own schema in one definition, whatever the number of blocks that have it."""
    if isinstance(schema, list):
        return [_shared(item, named) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _shared(value, named) for key, value in schema.items() if key != "properties"}
    for key, value in schema.get("properties", {}).items():
        if "description" in value and "const" not in value:
            text = json.dumps(value)
            number = sum(name.partition(".")[2].partition(".")[0] == key for name in named.values())
            name = named.setdefault(text, f"key.{key}" + (f".{number + 1}" if number else ""))
            value = {"$ref": f"#/$defs/{name}"}
        made.setdefault("properties", {})[key] = value
    return made


def _object(properties: Schema, required: Iterable[str] = ()) -> Schema:
    needed = {"required": [*required]} if required else {}
    return {"type": "object", "additionalProperties": False, "properties": properties, **needed}


def _keys(names: Iterable[str]) -> Schema:
    return {name: {"description": _KEYS[name][0], **_KEYS[name][1]} for name in names}


def _options(options: Iterable[Option]) -> Schema:
    return {option.name: _option(option) for option in options}


def _option(option: Option) -> Schema:
    made: Schema = {"description": option.meaning}
    made |= {"enum": [*option.choices]} if option.kind == "choice" else _READ[option.kind]
    if option.kind != "choice" and option.choices:
        made["examples"] = [*option.choices]
    if option.default not in (None, ""):
        made["default"] = option.default
    return made


def _question(declared: DeclaredQuantity) -> Schema:
    asked = {"ask": {"const": declared.name, "description": declared.summary}}
    properties = _keys(key for key in ASK_KEYS if key not in ("ask", "worksheet")) | _options(declared.options)
    return _object(asked | properties, ["ask", *(o.name for o in declared.options if o.required)])


def _own() -> Schema:
    """A question of a worksheet of the author's, whose options stand in that file."""
    return {"properties": {"ask": _TEXT, **_keys(key for key in ASK_KEYS if key != "ask")}, "required": ["worksheet"]}


def _figure(kind: Kind) -> Schema:
    about = QUANTITIES[kind.of].options if kind.of in QUANTITIES else ()
    taken = _options(o for o in about if o.name != "op" and (not kind.only or o.name in kind.only))
    drawn = {"figure": {"const": kind.name, "description": kind.summary}}
    drawn |= _keys(key for key in FIGURE_KEYS if key != "figure") | taken | _options(kind.options)
    made = {"properties": drawn, "required": ["figure", *kind.needed], "unevaluatedProperties": False}
    return made | ({"$ref": "#/$defs/drawn"} if kind.of == "of" else {})


def _drawn(declared: DeclaredQuantity) -> Schema:
    """The options of a quantity, in a figure that is drawn ``of`` it."""
    own = _options(option for option in declared.options if option.name not in ("op", "of", "over"))
    return {"properties": {"of": {"const": declared.name}, **own}, "required": ["of"]}


def _accounting() -> Schema:
    fields: dict[str, list[str]] = {}
    for row in CONVENTIONS:
        fields.setdefault(row.field, []).append(row.name)
    names = {"enum": [*dict.fromkeys(name for choices in fields.values() for name in choices)]}
    said = {"anyOf": [names, {"type": "string", "pattern": "="}]}
    of_field: dict[str, Schema] = {field: {"enum": choices} for field, choices in fields.items()}
    of_kind = _object(dict.fromkeys(COLLECTIVES, of_field["algorithm"]))
    of_field["algorithm"] = {"anyOf": [of_field["algorithm"], of_kind]}
    each = _object(of_field)
    return {"anyOf": [said, {"type": "array", "items": said}, each]}
