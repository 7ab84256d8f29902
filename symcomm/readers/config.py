"""Reads a Hugging Face ``config.json``: the sizes of a model, and its parts as layer tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from symcomm.errors import Span, nearest
from symcomm.readers.architectures import ACTIVATIONS, ARCHITECTURES, MEANINGS, Architecture, Head, class_names
from symcomm.readers.blueprint import Blueprint, PartTable, ReaderError
from symcomm.readers.rows import (
    STREAM,
    Attention,
    Rows,
    attention,
    experts,
    gated_mlp,
    latent_attention,
    linear,
    norm,
    plain_mlp,
)
from symcomm.text.table import check_text

DEPTH_LIMIT = 60
SIZE_LIMIT = 10**9
# What a module tree shows where a configuration has the number of heads.
QUERY_WIDTH, KEY_WIDTH = "query width", "key width"
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
        value = self.entries.get(key)
        if value is None:
            if default is None:
                self.fail(f"the configuration lacks {key}", hint="save the whole config.json of the model")
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{key} is {_shown(value)}, but a whole number is needed", key)
        if not least <= value <= SIZE_LIMIT:
            self.fail(f"{key} is {_shown(value)}", key, f"a size is a whole number from {least} to {SIZE_LIMIT}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no."""
        value = self.entries.get(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(f"{key} is {_shown(value)}, but true or false is needed", key)
        return value

    def rate(self, key: str, default: float) -> float:
        """A probability."""
        value = self.entries.get(key, default) if key else 0.0
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            self.fail(f"{key} is {_shown(value)}, but a probability below 1 is needed", key)
        return float(value)

    def words(self, key: str, default: str) -> str:
        """A text."""
        value = self.entries.get(key, default)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(f"{key} is {_shown(value)}, but text is needed", key)
        return value


def _shown(value: object) -> str:
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
    config = source if isinstance(source, Config) else parse_config(source, file)
    record, head, name = _which(config, architecture)
    sizes = dict(record.sizes)
    if record.block == "experts after dense" and config.entries.get("n_routed_experts") is None:
        for symbol in ("E", "F_E", "n_top"):
            del sizes[symbol]
    if config.partial and config.entries.get(sizes["n_H"]) is None:
        del sizes["n_H"]
    missing = [key for key in sizes.values() if config.entries.get(key) is None]
    if missing:
        config.fail(
            f"the configuration of a {record.model_type} model lacks {', '.join(missing)}",
            hint="the whole config.json of the model has these keys",
        )
    values = {symbol: config.size(key) for symbol, key in sizes.items()}
    return _Writer(config, record, head, name, values, loss).blueprint()


def _which(config: Config, architecture: str) -> tuple[Architecture, Head, str]:
    """The architecture, the head and the class name that a configuration means."""
    known = class_names()
    listed = config.entries.get("architectures") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        config.fail(f"architectures is {_shown(listed)}, but a list of class names is needed", "architectures")
    name = architecture or (listed[0] if listed else "")
    kind = config.words("model_type", "")
    if not kind and name in known:
        kind = known[name][0].model_type
    if not kind:
        config.fail("the configuration lacks model_type", hint="known: " + ", ".join(ARCHITECTURES))
    if kind not in ARCHITECTURES:
        inner = config.entries.get("text_config")
        inside = inner.get("model_type") if isinstance(inner, Mapping) else None
        hint = nearest(kind, [*ARCHITECTURES])
        if inside in ARCHITECTURES:
            hint = f"its text_config is a {inside} model: give that mapping alone"
        config.fail(f"unknown architecture '{kind[:60]}'", "model_type", hint)
    record = ARCHITECTURES[kind]
    name = name or record.prefix + record.head
    if name not in known or known[name][0] is not record:
        mine = [n for n, (a, _) in known.items() if a is record]
        config.fail(f"the class '{name[:60]}' is not known for {kind}", "architectures", nearest(name, mine))
    return record, known[name][1], name


@dataclass
class _Writer:
    """Writes the tables of one model."""

    config: Config
    record: Architecture
    head: Head
    name: str
    values: dict[str, int]
    loss: bool = False
    notes: list[str] = field(default_factory=list)

    def blueprint(self) -> Blueprint:
        record, config, values = self.record, self.config, self.values
        named = config.words(record.activation_key, "") or config.words("hidden_act", record.activation)
        if named not in ACTIVATIONS:
            key = record.activation_key if record.activation_key in config.entries else "hidden_act"
            config.fail(f"unknown activation function '{named[:60]}'", key, nearest(named, [*ACTIVATIONS]))
        self.activation = ACTIVATIONS[named]
        self.drops = tuple(config.rate(key, record.dropout) > 0 for key in record.dropout_keys)
        if record.model_type == "gpt2":
            values["F"] = config.size("n_inner", 4 * values["D"])
        layers = self.layers()
        parts = (self.ends(), *layers)
        return Blueprint(self.name, parts, values, MEANINGS, tuple(dict.fromkeys(self.notes)), one_axis=("V",))

    def choice(self, name: str) -> bool:
        choice = getattr(self.record, name)
        return self.config.flag(choice.key, choice.default) if choice.key else bool(choice.default)

    # -- embedding and head --------------------------------------------------------------------

    def ends(self) -> PartTable:
        """Embedding and head in one table, so that a tied weight is one tensor; the layers stand between x and h."""
        record, rows = self.record, Rows()
        formula, inputs = "Embed(t, W^E)", [r"t \in \mathbb{Z}^{B \times L}", "W^E [V, D]"]
        if record.learned_positions:
            formula += " + Embed(p, W^P)"
            inputs += [r"p \in \mathbb{Z}^{B \times L}", "W^P [n_{pos}, D]"]
        if record.token_types:
            formula += " + Embed(s, W^T)"
            inputs += [r"s \in \mathbb{Z}^{B \times L}", "W^T [n_{type}, D]"]
        normed = record.norms == "after"
        last = "x" if not normed and not self.drops[0] else "e"
        rows.add(f"{last} = {formula}", *inputs, to=f"{last} [{STREAM}]")
        if normed:
            target = "f" if self.drops[0] else "x"
            norm(rows, target, last, (last,), record.norm, "E")
            last = target
        if self.drops[0]:
            rows.add(f"x = dropout({last})", last, to=f"x [{STREAM}]")
        rows.add("h = x", "x", to=f"h [{STREAM}]")
        self.tail(rows)
        return PartTable("embedding and head", rows.text, layers_before="h")

    def tail(self, rows: Rows) -> None:
        """The rows behind the last layer."""
        record, kind = self.record, self.head.kind
        last = "h"
        if record.norms != "after":
            norm(rows, "n", "h", ("h",), record.norm, "F")
            last = "n"
        if kind in ("pooler", "classes"):
            rows.add("c = First(h)", "h", to="c [B, D]")
            linear(rows, "y", "c", "pool", "D, D", "B, D", "pool", "tanh")
        if kind == "classes":
            labels = self.config.entries.get("id2label")
            self.values["n_label"] = self.config.size("num_labels", len(labels) if isinstance(labels, dict) else 2)
            linear(rows, "o", "y", "label", r"D, n_{label}", r"B, n_{label}", "label")
        if kind == "masked":
            linear(rows, "m", "h", "M", "D, D", STREAM, "M", self.activation)
            norm(rows, "n", "m", ("m",), record.norm, "M")
            last = "n"
        if kind in ("masked", "causal"):
            tied = self.config.flag("tie_word_embeddings", record.tied)
            bias = " + b^U" if kind == "masked" else ""
            matrix, shape = ("{W^E}^T", "W^E") if tied else ("W^U", "W^U [D, V]")
            rows.add(f"o = {last} {matrix}{bias}", last, shape, "b^U [V]" if bias else "", to="o [B, L, V]")
            if tied:
                self.notes.append("the head uses the word embedding W^E (tied): it is one tensor, counted once")
            if self.loss:
                target = r"\ell \in \mathbb{R}"
                rows.add(r"\ell = CrossEntropy(o, r)", "o", r"r \in \mathbb{Z}^{B \times L}", to=target)
            self.notes.append(f"the cross-entropy of the logits is {'counted' if self.loss else 'not counted'}")
        elif self.loss:
            self.config.fail(f"the class {self.name} has no logits over a vocabulary", "architectures",
                             "loss is the cross-entropy of a language model's head")  # fmt: skip

    # -- layers --------------------------------------------------------------------------------

    def layers(self) -> tuple[PartTable, ...]:
        """The repeated layers: one table for each kind of layer."""
        if self.record.block != "experts after dense":
            return (PartTable("layer", self.layer(self.record.block == "experts"), "N_layer"),)
        count = self.values["N_layer"]
        if "E" not in self.values:
            return (PartTable("layer", self.layer(False), "N_layer"),)
        if self.config.size("moe_layer_freq", 1) != 1:
            self.config.fail("moe_layer_freq is not 1: experts in some layers only are not read", "moe_layer_freq")
        dense = min(self.config.size("first_k_dense_replace", 0, least=0), count)
        found = []
        if dense:
            found.append(PartTable("dense layer", self.layer(False), "N_dense"))
            self.values["N_dense"] = dense
        if count > dense:
            found.append(PartTable("layer with experts", self.layer(True), "N_moe"))
            self.values["N_moe"] = count - dense
        del self.values["N_layer"]
        if not dense:
            del self.values["F"]
        return tuple(found)

    def layer(self, routed: bool) -> str:
        """The rows of one layer."""
        record, rows = self.record, Rows()
        rows.declared(f"x [{STREAM}]")
        before = record.norms in ("before", "around")
        source = "x"
        if before:
            norm(rows, "n", "x", ("x",), record.norm, "1")
            source = "n"
        self.mix(rows, source)
        middle = self.residual(rows, "x", "o", "z", "2" if record.norms == "around" else "1")
        source = middle
        if before:
            norm(rows, "m", middle, (middle,), record.norm, "3" if record.norms == "around" else "2")
            source = "m"
        if routed:
            shared = 0
            if record.mixer == "latent":
                shared = self.config.size("n_shared_experts", 0, least=0)
                if shared:
                    self.values["F_S"] = shared * self.values["F_E"]
            experts(rows, source, "d", self.activation, bool(shared))
            self.notes.append(
                "every expert takes an equal share of the tokens, n_top L/E of each sequence, and none is dropped"
            )
        elif record.gated:
            gated_mlp(rows, source, "d", self.activation, self.choice("mlp_bias"))
        else:
            plain_mlp(rows, source, "d", self.activation, self.choice("mlp_bias"))
        self.residual(rows, middle, "d", "y", "4" if record.norms == "around" else "2")
        return rows.text

    def residual(self, rows: Rows, stream: str, branch: str, target: str, mark: str) -> str:
        """The sum of the stream and a branch, with the dropout and norm that stand there."""
        if self.drops[2]:
            rows.add(f"{branch}' = dropout({branch})", branch, to=f"{branch}' [{STREAM}]")
            branch += "'"
        if self.record.norms == "around":
            norm(rows, f"{branch}''", branch, (branch,), self.record.norm, mark)
            branch += "''"
        if self.record.norms == "after":
            norm(rows, target, f"{stream} + {branch}", (stream, branch), self.record.norm, mark)
        else:
            rows.add(f"{target} = {stream} + {branch}", stream, branch, to=f"{target} [{STREAM}]")
        return target

    def mix(self, rows: Rows, source: str) -> None:
        """The attention of a layer, from ``source`` to ``o``."""
        config, record, values = self.config, self.record, self.values
        bias = self.choice("qkv_bias")
        if record.mixer == "latent":
            ranked = config.entries.get("q_lora_rank") is not None
            if ranked:
                values["r_Q"] = config.size("q_lora_rank")
            latent_attention(rows, source, "o", ranked, bias)
            return
        heads, width = values.get("n_H"), values["D"]
        if heads is None:  # a printed module tree does not say
            queries, keys = (config.size(key, width) for key in (QUERY_WIDTH, KEY_WIDTH))
            if queries != width:
                values["D_q"] = queries
            if keys != queries:
                values["D_kv"] = keys
            broad = "D" if queries == width else "D_q"
            attention(rows, source, "o", Attention(
                bias, self.choice("out_bias"), keys != queries, not record.learned_positions, record.head_norm,
                record.causal, self.drops[1], broad, broad if keys == queries else "D_{kv}",
            ))  # fmt: skip
            return
        few = heads
        if record.prefix not in ("Bert", "GPT2"):
            few = config.size("num_key_value_heads", heads)
        size = config.entries.get("head_dim")
        if size is not None or record.head_dim:
            values["H"] = config.size("head_dim", record.head_dim)
        elif width % heads:
            key = record.sizes["n_H"]
            config.fail(f"{record.sizes['D']} is {width}, which {heads} heads do not divide", key)
        else:
            values["H"] = width // heads
        if heads % few:
            config.fail(f"{few} key/value heads do not divide {heads} heads", "num_key_value_heads")
        grouped = few != heads
        # One key head is an axis of size 1 and not of a size that happens to be 1: nothing can cut it.
        shared = few == 1
        if grouped and not shared:
            values["n_kv"] = few
        wide = "D" if heads * values["H"] == width else "D_q"
        attention(rows, source, "o", Attention(
            bias, self.choice("out_bias"), grouped, not record.learned_positions, record.head_norm, record.causal,
            self.drops[1], wide, ("H" if shared else "D_{kv}") if grouped else wide, "1" if shared else "n_{kv}",
        ))  # fmt: skip
