"""Recognises a known architecture in a module tree: its configuration, as far as the tree says it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symcomm.core.errors import SymcommError
from symcomm.core.readers.architectures import Architecture, class_names
from symcomm.core.readers.blueprint import Blueprint
from symcomm.core.readers.config import read_config
from symcomm.core.readers.entries import Config
from symcomm.core.readers.modules import Module, Reading, count
from symcomm.core.readers.writer import KEY_WIDTH, QUERY_WIDTH
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Trace:
    """Where a module tree keeps the sizes of an architecture."""

    families: tuple[str, ...]  # those that keep them so; none: all that no other trace is of
    inner: str  # the name of the base model in models with a head; the family's where it is empty
    sizes: Mapping[str, tuple[str, str]]  # by key of the configuration: a path, and which of the leaf's sizes it is
    layers: str  # the path of the repeated layers
    layers_key: str = "num_hidden_layers"
    dropouts: Mapping[str, str] | None = None


TRACES: tuple[Trace, ...] = (
    Trace(
        ("bert", "roberta"), "",
        {
            "vocab_size": ("embeddings.word_embeddings", "num_embeddings"),
            "hidden_size": ("embeddings.word_embeddings", "embedding_dim"),
            "max_position_embeddings": ("embeddings.position_embeddings", "num_embeddings"),
            "type_vocab_size": ("embeddings.token_type_embeddings", "num_embeddings"),
            "intermediate_size": ("encoder.layer.0.intermediate.dense", "out_features"),
        },
        "encoder.layer",
        dropouts={
            "hidden_dropout_prob": "embeddings.dropout",
            "attention_probs_dropout_prob": "encoder.layer.0.attention.self.dropout",
        },
    ),
    Trace(
        ("gpt2",), "transformer",
        {
            "vocab_size": ("wte", "num_embeddings"), "n_embd": ("wte", "embedding_dim"),
            "n_positions": ("wpe", "num_embeddings"), "n_inner": ("h.0.mlp.c_fc", "nf"),
        },
        "h", "n_layer",
        dropouts={"embd_pdrop": "drop", "attn_pdrop": "h.0.attn.attn_dropout", "resid_pdrop": "h.0.attn.resid_dropout"},
    ),
    Trace(
        (), "model",
        {
            "vocab_size": ("embed_tokens", "num_embeddings"), "hidden_size": ("embed_tokens", "embedding_dim"),
            "intermediate_size": ("layers.0.mlp.gate_proj", "out_features"),
            QUERY_WIDTH: ("layers.0.self_attn.q_proj", "out_features"),
            KEY_WIDTH: ("layers.0.self_attn.k_proj", "out_features"),
        },
        "layers",
    ),
)  # fmt: skip
_PLACE = {"num_embeddings": 0, "embedding_dim": 1, "in_features": 0, "out_features": 1, "nf": 0}


def recognise(module: Module, known: Mapping[str, Any] | None = None) -> Blueprint | None:
    """The blueprint of a tree whose class is known and whose parameters its tables account for; else None.

    ``known`` are entries of a configuration besides (a live module's). The number of heads stands in no printed tree:
    it stays a symbol.
    """
    record, _ = class_names().get(module.kind, (None, None))
    if record is None:
        return None
    if known is not None:
        entries = dict(known)
    else:
        trace = next(t for t in TRACES if record.model_type in t.families or not t.families)
        found = _entries(module, trace, record)
        if found is None:
            return None
        entries = found
    try:
        said = Config({**entries, "architectures": [module.kind]}, f"<{module.kind}>", partial=True)
        blueprint = read_config(said, loss=False)  # a module says itself what it computes
        return blueprint if blueprint.count() == count(module) else None
    except SymcommError:
        return None


def _entries(module: Module, trace: Trace, record: Architecture) -> dict[str, Any] | None:
    """The entries of a configuration that a tree shows."""
    base = module.at(trace.inner or record.model_type) or module
    layers = base.at(trace.layers)
    if layers is None or not layers.children:
        return None
    entries: dict[str, Any] = {"model_type": record.model_type, trace.layers_key: sum(c.count for c in layers.children)}
    for key, (path, which) in trace.sizes.items():
        leaf = base.at(path)
        if leaf is None or not leaf.settings:
            if key == "n_inner":
                continue  # an old print of Conv1D: the usual size, which the count has to bear out
            return None
        entries[key] = Reading(leaf).size(_PLACE[which], which)
    for key, path in (trace.dropouts or {}).items():
        leaf = base.at(path)
        rate = dict(leaf.settings).get("p", 0) if leaf is not None else 0
        entries[key] = float(Fraction(str(rate)))
    normed = base.at(f"{trace.layers}.0.self_attn.q_norm")
    if normed is not None and record.head_norm == "each":  # the norm of a head says how wide it is
        width = Reading(normed).sizes(0, "normalized_shape")[0]
        counts = {"num_attention_heads": QUERY_WIDTH, "num_key_value_heads": KEY_WIDTH}
        entries |= {"head_dim": width, **{name: entries[key] // width for name, key in counts.items()}}
    return entries
