"""The JSON schema of what is in problem documents: the front matter and the fenced ``symcomm`` blocks.

Editors complete and check a block with it. It follows from the declared quantities, the kinds of figures and the
conventions; what depends on the rest of a document (which models and symbols there are) is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from symcomm.core.accounting import COLLECTIVES, CONVENTIONS
from symcomm.core.keys import TEXT, WORD, BlockKey, Schema, keys_of, object_of, properties_of, schema_of
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import DeclaredQuantity, Option
from symcomm.exams.problems.figures import FIGURES, Figure, Kind
from symcomm.exams.problems.problem import ASKED, FRONT, OTHER_MODELS, TABLE_KEYS, DrawBlock, MistakeBlock, ModelBlock

_READ: dict[str, Schema] = {
    "text": TEXT.schema,
    "formula": {"type": ["string", "object"]},
    "quantity": TEXT.schema,
    "dtype": WORD.schema,
    "size": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]},
    "count": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\{\{.*\}\}$"}]},
    "strategy": {"type": ["string", "object"]},
    "schedule": WORD.schema,
    "links": {"type": ["string", "object"]},
    "recipe": {"type": ["string", "object"]},
}


def problem_schema() -> Schema:
    """The schema of a block; that of the front matter is its definition ``front_matter``.

    >>> sorted(problem_schema()["$defs"])[:3]
    ['accounting', 'block', 'configuration']
    """
    blocks: Schema = {
        "model": _model(TABLE_KEYS),
        "configuration": _model(OTHER_MODELS["config"], "config"),
        "printed_model": _model(OTHER_MODELS["module"], "module"),
        "whole_model": _model(OTHER_MODELS["parts"], "parts"),
        "step": _model(OTHER_MODELS["of"], "of"),
        "question": {"type": "object", "required": ["ask"], "oneOf": [*map(_question, QUANTITIES.values()), _own()]},
        "figure": {"type": "object", "required": ["figure"], "oneOf": [_figure(k) for k in FIGURES.values()]},
        "draw": schema_of(DrawBlock) | {"minProperties": 1},
        "mistake": schema_of(MistakeBlock),
    }
    defs: Schema = {
        "block": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in blocks]},
        "front_matter": object_of(properties_of(FRONT.values())) | {"additionalProperties": TEXT.schema},
        **blocks,
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


def _model(names: Iterable[str], *needed: str) -> Schema:
    """A model with some of the keys of all."""
    keys = keys_of(ModelBlock)
    return object_of(properties_of(keys[name] for name in names), ["model", *needed])


def _but(keys: Mapping[str, BlockKey], *names: str) -> Schema:
    return properties_of(key for name, key in keys.items() if name not in names)


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
    properties = _but(ASKED, "ask", "worksheet") | _options(declared.options)
    return object_of(asked | properties, ["ask", *(o.name for o in declared.options if o.required)])


def _own() -> Schema:
    """A question of a worksheet of the author's, whose options stand in that file."""
    return {"properties": {"ask": TEXT.schema, **_but(ASKED, "ask")}, "required": ["worksheet"]}


def _figure(kind: Kind) -> Schema:
    about = QUANTITIES[kind.of].options if kind.of in QUANTITIES else ()
    taken = _options(o for o in about if o.name != "op" and (not kind.only or o.name in kind.only))
    drawn = {"figure": {"const": kind.name, "description": kind.summary}}
    drawn |= _but(keys_of(Figure), "figure") | taken | _options(kind.options)
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
    of_kind = object_of(dict.fromkeys(COLLECTIVES, of_field["algorithm"]))
    of_field["algorithm"] = {"anyOf": [of_field["algorithm"], of_kind]}
    each = object_of(of_field)
    return {"anyOf": [said, {"type": "array", "items": said}, each]}
