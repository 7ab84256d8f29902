"""Writes the layer tables of an architecture with the sizes and choices of one configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import pairwise

from symcomm.core.errors import nearest
from symcomm.core.graph.regions import Edge
from symcomm.core.readers.architectures import ACTIVATIONS, MEANINGS, Architecture, HeadKind, Switch
from symcomm.core.readers.blueprint import Blueprint, PartTable, Ties
from symcomm.core.readers.entries import Config, shown
from symcomm.core.readers.rows import (
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
from symcomm.core.records import dataclass

# What a module tree shows where a configuration has the number of heads.
QUERY_WIDTH, KEY_WIDTH = "query width", "key width"
LAYERS_LIMIT = 10**5
FURTHER_LIMIT = 16  # tokens that are predicted behind the next one, each by a module of its own

# How transformers may attend, and whether that is one kernel.
ATTENTION = {
    "eager": False, "sdpa": True, "flash_attention_2": True, "flash_attention_3": True, "flex_attention": True,
}  # fmt: skip

# Keys that add, take or share weights in some family, with what changes nothing: refused where a family has no such.
STRUCTURE: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("add_cross_attention", "is_encoder_decoder", "qk_layernorm", "use_qk_norm"), (False,)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), (0, 1)),
    **dict.fromkeys(("n_shared_experts", "shared_expert_intermediate_size", "first_k_dense_replace"), (0,)),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "num_kv_shared_layers", "_remove_final_layer_norm"), (0, False)),
    **dict.fromkeys(("moe_layer_freq", "decoder_sparse_step"), (1,)),
    **dict.fromkeys(("mlp_only_layers", "pruned_heads"), ([], {})),
    "position_embedding_type": ("absolute",),
    "vision_config": (), "audio_config": (), "word_embed_proj_dim": (), "embedding_size": (),
}  # fmt: skip
# Keys that change no weight, and are not counted: what changes nothing, and what is said of the rest.
LEFT_OUT: Mapping[str, tuple[tuple[object, ...], str]] = {
    "alibi": ((False,), "layers of this family have no such bias: not used"),
    "attn_logit_softcapping": ((), "the cap of the scores is left out"),
    "final_logit_softcapping": ((), "the cap of the logits is left out"),
    "num_nextn_predict_layers": ((0,), "the layers that predict further tokens are left out, as in transformers; "
                                 "the class DeepseekV3ForMultiTokenPrediction has them"),
    "quantization_config": ((), "every tensor has the number format of the model, quantized or not"),
    "sinusoidal_pos_embds": ((False,), "the table of positions is counted as trained"),
    **dict.fromkeys(
        ("attention_bias", "mlp_bias", "qkv_bias"), ((False,), "layers of this family have no such switch: not used")
    ),
}  # fmt: skip


@dataclass
class ModelWriter:
    """Writes the tables of one model."""

    config: Config
    record: Architecture
    head: HeadKind
    name: str
    values: dict[str, int]
    loss: bool | None = False  # None: counted where there are logits over a vocabulary
    notes: list[str] = field(default_factory=list)
    limits: list[tuple[str, str, int]] = field(default_factory=list)
    order: tuple[str, ...] = ()

    def blueprint(self) -> Blueprint:
        """The blueprint; raises ``ReaderError`` for a key whose weights the tables do not have."""
        record, config, values = self.record, self.config, self.values
        named = config.words(record.activation_key, "") or config.words("hidden_act", record.activation)
        if named not in ACTIVATIONS:
            key = record.activation_key if record.activation_key in config.entries else "hidden_act"
            config.fail(f"unknown activation function '{named[:60]}'", key, nearest(named, [*ACTIVATIONS]))
        self.activation = ACTIVATIONS[named]
        self.drops = {place for place, (key, usual) in record.drops.items() if config.rate(key, usual) > 0}
        self.norms = ("sum",) if self.choice(record.sums) else record.norms
        edges: tuple[Edge, ...] = ()
        ties: Ties = ()
        if record.stacks == "both":
            parts, edges, ties = self.two_stacks()
        else:
            parts = (self.ends(), *self.layers())
        if self.head == "further":
            parts, edges, ties = self.further(parts)
        fused = self.fused()
        if self.drops:
            keys = ", ".join(dict.fromkeys(key for place, (key, _) in record.drops.items() if place in self.drops))
            self.notes.append(f"dropout runs in training and keeps its masks, 1 byte a number; 0 as {keys} leaves it "
                              "out")  # fmt: skip
        self.told()
        self.notes += config.misspelt()
        notes = (*record.notes, *dict.fromkeys(self.notes))
        return Blueprint(
            self.name, parts, values, MEANINGS, notes, one_axis=("V", "B"), dtype=self.number_format(), edges=edges,
            ties=ties, limits=tuple(self.limits), fused=fused, order=self.order,
        )  # fmt: skip

    def fused(self) -> bool:
        """Whether attention runs as one kernel: as the configuration says, else as its class does by default."""
        record, config = self.record, self.config
        key = "attn_implementation" if config.get("attn_implementation") else "_attn_implementation"
        said = config.words(key, "")
        if said and said not in ATTENTION:
            config.fail(f"unknown attention '{said[:60]}'", key, nearest(said, [*ATTENTION]))
        if said == "sdpa" and not record.sdpa:
            config.fail(f"{key} is \"sdpa\", which the class {self.name} does not have in transformers", key,
                        "eager, which keeps the scores, or flash_attention_2")  # fmt: skip
        how = said or ("sdpa" if record.sdpa else "eager")
        why = f"as {key} says" if said else f"as {self.name} does in transformers"
        if ATTENTION[how]:
            self.notes.append(f"attention is one kernel ({how}), {why}: its scores are computed again for backward; "
                              "attn_implementation: eager or softmax: library keeps them")  # fmt: skip
        else:
            self.notes.append(f"attention is written out ({how}), {why}: its scores are kept; softmax: fused is one "
                              "kernel")  # fmt: skip
        return ATTENTION[how]

    def choice(self, choice: Switch) -> bool:
        """Whether a choice holds."""
        return self.config.flag(choice.key, choice.default) if choice.key else choice.default

    def told(self) -> None:
        """Refuses keys whose weights are not in the tables; says what else is left out."""
        config, kind = self.config, self.record.model_type
        for key, (harmless, said) in LEFT_OUT.items():
            value = config.entries.get(key)
            if value is not None and value not in harmless and key not in config.used:
                self.notes.append(f"{key} is {shown(value)}: {said}")
        for key, harmless in STRUCTURE.items():
            value = config.entries.get(key)
            if value is not None and value not in harmless and key not in config.used:
                config.fail(
                    f"{key} is {shown(value)}: it changes the weights, and no table of a {kind} model has that", key,
                    "a layer table can say what is computed; a live module has the weights",
                )  # fmt: skip
        kinds = config.entries.get("layer_types") or ()
        other = [one for one in kinds if one not in ("full_attention", "sliding_attention")]
        if other:
            config.fail(f"layers of type {shown(other[0])} are not read for a {kind} model", "layer_types")
        window = config.entries.get("sliding_window")
        if self.record.window is None and window and config.flag("use_sliding_window", True):
            self.notes.append(f"sliding_window is {shown(window)}: layers of this family have no window: not used")

    def number_format(self) -> str:
        """The number format a configuration says, in our spelling; empty where it says none that is known."""
        said = self.config.get("dtype|torch_dtype")
        key = "dtype" if self.config.entries.get("dtype") else "torch_dtype"
        if said in (None, "auto"):
            return ""
        name = str(said).removeprefix("torch.")
        short = {"float64": "fp64", "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16",
                 "half": "fp16", "double": "fp64"}.get(name, "fp8" if name.startswith("float8") else "")  # fmt: skip
        if not short:
            self.config.fail(f"{key} is {shown(said)}", key, "such as bfloat16, float16 or float32")
        return short

    # -- embedding and head --------------------------------------------------------------------

    def ends(self, length: str = "L") -> PartTable:
        """Embedding and head in one table, so that a tied weight is one tensor; the layers stand between x and h."""
        rows = Rows(length=length)
        self.entrance(rows)
        rows.add("h = x", "x", to=f"h [{STREAM}]")
        self.tail(rows)
        return PartTable("embedding and head", rows.text, layers_before="h")

    def entrance(self, rows: Rows) -> None:
        """The rows before the first layer, which reads x."""
        dropped, normed = "embedding" in self.drops, "sum" in self.norms and self.record.stacks == "encoder"
        last = "e" if dropped or normed else "x"
        self.embedding(rows, last)
        if normed:
            target = "f" if dropped else "x"
            self.norm(rows, last, target, "E")
            last = target
        if dropped:
            rows.add(f"x = dropout({last})", last, to=f"x [{STREAM}]")

    def embedding(self, rows: Rows, target: str) -> None:
        """The row that makes the first stream of tokens or patches."""
        record, config, values = self.record, self.config, self.values
        if record.patches:
            image, patch = config.size("image_size", 224), config.size("patch_size", 16)
            if image % patch:
                config.fail(f"patches of {patch} do not divide an image of {image}", "patch_size")
            values["L"] = (image // patch) ** 2 + 1
            values["C_P"] = config.size("num_channels", 3) * patch**2
            self.notes.append("the class token is read as one more patch: its place is projected like the others")
            formula = "p W^E + b^E + b^C + W^P"
            weights = ("W^E [C_P, D]", "b^E [D]", "b^C [D]", "W^P [L, D]")
            rows.add(f"{target} = {formula}", "p [B, L, C_P]", *weights, to=f"{target} [{STREAM}]")
            return
        width = "D"
        narrow = config.size("word_embed_proj_dim", values["D"]) if record.model_type == "opt" else values["D"]
        if narrow != values["D"]:
            values["D_E"], width = narrow, "D_E"
        formula, inputs = "Embed(t, W^E)", [r"t \in \mathbb{Z}^{B \times L}", f"W^E [V, {width}]"]
        if width != "D":
            formula += " W^{in}"
            inputs.append("W^{in} [D_E, D]")
        if record.positions == "learned":
            values["n_pos"] += record.more_positions
            self.limits.append((rows.length, "n_pos", record.first_position))
            formula += " + Embed(p, W^P)"
            inputs += [r"p \in \mathbb{Z}^{B \times L}", "W^P [n_{pos}, D]"]
        if record.token_types:
            formula += " + Embed(s, W^T)"
            inputs += [r"s \in \mathbb{Z}^{B \times L}", "W^T [n_{type}, D]"]
        rows.add(f"{target} = {formula}", *inputs, to=f"{target} [{STREAM}]")

    def tail(self, rows: Rows) -> None:
        """The rows behind the last layer."""
        record, kind = self.record, self.head
        last = "h"
        if "sum" not in self.norms:
            last = self.last_norm(rows, "h")
        width = "D_E" if "D_E" in self.values else "D"
        if width != "D":
            linear(rows, "w", last, "out", "D, D_E", "B, L, D_E")
            last = "w"
        if kind in ("pooler", "classes"):
            wide = self.config.size("pooler_output_size", self.values["D"])
            if wide != self.values["D"]:
                self.config.fail(f"a pooler of {wide} outputs is not read", "pooler_output_size")
            rows.add(f"c = First({last})", last, to="c [B, D]")
            linear(rows, "y", "c", "pool", "D, D", "B, D", "pool", record.pooled)
        if kind == "first":
            rows.add(f"y = First({last})", last, to="y [B, D]")
        if kind in ("classes", "first", "score", "tokens"):
            labels = self.config.get("id2label")
            self.values["n_label"] = self.config.size("num_labels", len(labels) if isinstance(labels, dict) else 2)
            source, axes = ("y", "B") if kind in ("classes", "first") else (last, "B, L")
            bias = "" if kind == "score" else "label"
            linear(rows, "o", source, "label", rf"{width}, n_{{label}}", rf"{axes}, n_{{label}}", bias)
        if kind == "masked":
            linear(rows, "m", "h", "M", "D, D", STREAM, "M", self.activation)
            self.norm(rows, "m", "n", "M")
            last = "n"
        if kind in ("masked", "causal", "further"):
            self.logits(rows, last, width)
        elif self.loss:
            self.config.fail(f"the class {self.name} has no logits over a vocabulary", "architectures",
                             "loss is the cross-entropy of a language model's head")  # fmt: skip

    def last_norm(self, rows: Rows, source: str) -> str:
        """The norm behind the last layer, and the dropout that may follow it."""
        self.norm(rows, source, "n", "F")
        if "last" not in self.drops:
            return "n"
        rows.add("n' = dropout(n)", "n", to=f"n' [{STREAM}]")
        return "n'"

    def logits(self, rows: Rows, last: str, width: str) -> None:
        """The logits over the vocabulary, and their loss."""
        tied = self.config.flag("tie_word_embeddings", self.record.tied)
        bias = " + b^U" if self.head == "masked" or self.record.head_bias else ""
        matrix, shape = ("{W^E}^T", "W^E") if tied else ("W^U", f"W^U [{width}, V]")
        product = f"{last} {matrix}"
        if tied and self.record.stacks == "both":
            product = rf"\frac{{{product}}}{{\sqrt{{D}}}}"
        rows.add(f"o = {product}{bias}", last, shape, "b^U [V]" if bias else "", to="o [B, L, V]")
        if tied:
            self.notes.append("the head uses the word embedding W^E (tied): it is one tensor, counted once")
        if self.loss is not False:
            target = r"\ell \in \mathbb{R}"
            rows.add(r"\ell = CrossEntropy(o, r)", "o", r"r \in \mathbb{Z}^{B \times L}", to=target)
        counted = {True: "counted", None: "counted (loss: false leaves it out)", False: "not counted"}
        self.notes.append(f"the cross-entropy of the logits is {counted[self.loss]}")

    # -- layers --------------------------------------------------------------------------------

    def norm(self, rows: Rows, source: str, target: str, mark: str) -> None:
        """A row that normalises the stream."""
        rows.shapes.setdefault(source, f"{source} [{STREAM}]")
        norm(rows, target, source, (source,), self.record.norm, mark, affine=self.choice(self.record.affine))

    def layers(self) -> tuple[PartTable, ...]:
        """The repeated layers: one table for each kind of layer."""
        values, count = self.values, self.values["N_layer"]
        dense, local = self.dense_layers(), self.local_layers()
        if isinstance(dense, bool) and isinstance(local, bool):
            kinds = {(dense, local): count}
        else:
            if count > LAYERS_LIMIT:
                self.config.fail(f"{count} layers of several kinds", self.record.sizes["N_layer"],
                                 f"at most {LAYERS_LIMIT} are looked at one by one")  # fmt: skip
            each = [(dense if isinstance(dense, bool) else dense(n), local if isinstance(local, bool) else local(n))
                    for n in range(count)]  # fmt: skip
            kinds = Counter(each)
        for plain, symbols in ((True, ("F",)), (False, ("E", "F_E", "F_S", "n_top"))):
            if not any(kind[0] is plain for kind in kinds):
                for symbol in symbols:
                    values.pop(symbol, None)
        if not any(kind[1] for kind in kinds):
            values.pop("L_w", None)
        if len(kinds) == 1:
            [(plain, windowed)] = kinds
            return (PartTable("layer", self.layer(not plain, windowed=windowed), "N_layer"),)
        del values["N_layer"]
        parts, names = [], dict[tuple[bool, bool], str]()
        several = [len({kind[n] for kind in kinds}) > 1 for n in (0, 1)]
        for plain, windowed in sorted(kinds, reverse=True):
            words = [("sliding" if windowed else "full")] if several[1] else []
            symbol = "_".join(["N", *words, *([("dense" if plain else "moe")] if several[0] else [])])
            name = " ".join(["-".join([*words, *(["dense"] if plain and several[0] else [])]), "layer"]).strip()
            name += " with experts" if several[0] and not plain else ""
            names[plain, windowed] = name
            values[symbol] = kinds[plain, windowed]
            parts.append(PartTable(name, self.layer(not plain, windowed=windowed), symbol))
        told = ("layers with experts are read behind those without", "layers with a window are read before others")
        where = "wherever they stand in between; stages hold each in its place"
        self.notes += [f"{told[n]}, {where}" for n in (0, 1) if several[n]]
        if each != sorted(each, reverse=True):
            self.order = tuple(names[kind] for kind in each)
        return tuple(parts)

    def dense_layers(self) -> bool | Callable[[int], bool]:
        """The layers without experts, by their place; or whether none has any."""
        config = self.config
        if "E" not in self.values or "F" not in self.values:
            return "E" not in self.values
        if self.record.mixer == "latent":
            first = config.size("first_k_dense_replace", 0, least=0)
            if first >= config.size(self.record.sizes["N_layer"]):
                config.used.add("n_shared_experts")  # no layer has experts, and so none has shared ones
            return lambda n: n < first
        step, without = config.size("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
        if not isinstance(without, list) or not all(isinstance(n, int) for n in without):
            config.fail(f"mlp_only_layers is {shown(without)}, but a list of layers is needed", "mlp_only_layers")
        named = {*without}
        return lambda n: n in named or (n + 1) % step != 0

    def local_layers(self) -> bool | Callable[[int], bool]:
        """The layers with a window, by their place; or whether all have one or none. The window's size is ``L_w``."""
        config, window = self.config, self.record.window
        kinds = config.get("layer_types")
        if window is None:
            return False
        size = config.get("sliding_window") if "sliding_window" in config.entries else window.size
        if not config.flag("use_sliding_window", not window.switched) or not size:
            return False
        size = config.size("sliding_window", window.size)
        if config.flag("use_bidirectional_attention", False):
            self.notes.append(f"a window of {size} positions to both sides is a mask: all scores are counted")
            return False
        self.values["L_w"] = size
        self.notes.append(
            f"a window of {size} positions is a mask: with attention: full, the default, all scores are counted; "
            "with windowed or causal_half those in it"
        )
        sees, number = window.sees, config.size(window.key, window.usual, least=0) if window.key else window.usual
        if kinds is not None:
            if not isinstance(kinds, list) or len(kinds) != self.values["N_layer"]:
                config.fail(f"layer_types names {len(kinds) if isinstance(kinds, list) else shown(kinds)} layers of "
                            f"{self.values['N_layer']}", "layer_types")  # fmt: skip
            return lambda n: kinds[n] == "sliding_attention"
        if sees is None:
            return True
        if window.key == "sliding_window_pattern" and not number:
            config.fail("sliding_window_pattern is 0", window.key, "every so many layers one sees all positions")
        return lambda n: sees(n, number)

    def layer(
        self, routed: bool, length: str = "L", memory: str = "", causal: bool = False, windowed: bool = False
    ) -> str:
        """The rows of one layer; with a ``memory`` of that length, attention to it is behind that to the stream.

        In a ``windowed`` one a query sees ``L_w`` positions.
        """
        record, rows = self.record, Rows(length=length)
        rows.declared(f"x [{STREAM}]")
        parallel = self.choice(record.parallel)
        self.marks = 0
        source = self.entered(rows, "x", "n")
        self.mix(rows, source, causal or record.stacks == "decoder", windowed=windowed)
        mixed = self.left(rows, "o", "mixed")
        middle = "x" if parallel else self.added(rows, "x", (mixed,), "z")
        if memory:
            self.mix(rows, self.entered(rows, middle, "l"), False, "o^C", memory)
            middle = self.added(rows, middle, (self.left(rows, "o^C", "mixed"),), "v")
        if not parallel or not self.choice(record.one_norm):
            source = self.entered(rows, middle, "m")
        self.feed(rows, source, routed)
        fed = self.left(rows, "d", "fed")
        self.added(rows, middle, (mixed, fed) if parallel else (fed,), "y")
        return rows.text

    def mark(self) -> str:
        """The number of the next norm of a layer."""
        self.marks += 1
        return str(self.marks)

    def entered(self, rows: Rows, stream: str, target: str) -> str:
        """The input of a branch: the stream, or its norm."""
        if "input" not in self.norms:
            return stream
        self.norm(rows, stream, target, self.mark())
        return target

    def left(self, rows: Rows, branch: str, place: str) -> str:
        """The tensor that a branch adds, behind its dropout and norm."""
        if place in self.drops:
            rows.add(f"{branch}' = dropout({branch})", branch, to=f"{branch}' [{STREAM}]")
            branch += "'"
        if "output" in self.norms:
            self.norm(rows, branch, f"{branch}''", self.mark())
            branch += "''"
        return branch

    def added(self, rows: Rows, stream: str, branches: tuple[str, ...], target: str) -> str:
        """The sum of the stream and its branches, and its norm where that is there."""
        terms = (stream, *branches)
        if "sum" in self.norms:
            norm(rows, target, " + ".join(terms), terms, self.record.norm, self.mark(),
                 affine=self.choice(self.record.affine))  # fmt: skip
        else:
            rows.add(f"{target} = {' + '.join(terms)}", *terms, to=f"{target} [{STREAM}]")
        return target

    def feed(self, rows: Rows, source: str, routed: bool) -> None:
        """The feed-forward block of a layer, from ``source`` to ``d``."""
        record, config, values = self.record, self.config, self.values
        if not routed:
            block = gated_mlp if self.choice(record.gated) else plain_mlp
            block(rows, source, "d", self.activation, self.choice(record.mlp_bias), "inner" in self.drops)
            return
        if values["n_top"] > values["E"]:
            config.fail(f"each token goes to {values['n_top']} of {values['E']} experts", record.sizes["n_top"])
        shared = record.shared
        if shared == "plain":
            many = config.size("n_shared_experts", 0, least=0)
            shared = shared if many else ""
            if many:
                values["F_S"] = many * values["F_E"]
        limit = ""
        if record.clipped is not None:
            key, usual = record.clipped
            said = config.get(key) or usual
            if isinstance(said, bool) or not isinstance(said, (int, float)) or said <= 0:
                config.fail(f"{key} is {shown(said)}", key, "how far from 0 a gate may be, such as 7.0")
            limit = f"{said:g}"
            self.notes.append("the gates of experts are quick_gelu of what is cut at the limit, as the library has it")
        activation = "quick_gelu" if limit else self.activation
        experts(rows, source, "d", activation, record.router_bias, shared, limit, record.gates)
        self.notes.append(
            "every expert takes an equal share of the tokens, n_top L/E of each sequence, and none is dropped"
        )

    def mix(
        self, rows: Rows, source: str, causal: bool, target: str = "o", memory: str = "", windowed: bool = False
    ) -> None:
        """The attention of a layer, from ``source`` to ``target``; with a ``memory`` of that length, to it."""
        config, record, values = self.config, self.record, self.values
        bias = self.choice(record.qkv_bias)
        if record.mixer == "latent":
            ranked = config.get("q_lora_rank") is not None
            if ranked:
                values["r_Q"] = config.size("q_lora_rank")
            latent_attention(rows, source, target, ranked, bias)
            return
        if record.sinks:
            self.notes.append("the sink of each head is taken off its scores: beside them it is a score of 0")
        causal = (causal or config.flag("is_decoder", False)) and not config.flag("use_bidirectional_attention", False)
        alibi = record.model_type == "falcon" and config.flag("alibi", False)
        if alibi:
            self.notes.append(
                "the linear bias of the scores (alibi) is a row of constants for each head, added to them"
            )
        made = Attention(
            qkv_bias=bias, out_bias=self.choice(record.out_bias),
            rope=record.positions == "rotary" and not alibi, positions="b_i^{mask} [L]" if alibi else "",
            head_norm=record.head_norm, causal=causal, window="L_w" if windowed else "",
            dropout="attention" in self.drops, sinks=record.sinks,
        )  # fmt: skip
        if record.positions == "relative":
            made = replace(made, scaled=False, positions="" if memory else f"b_i [L, {memory or 'L'}]")
        if memory:
            made = replace(made, memory="e", keys=memory, mark="C")
        heads, width = values.get("n_H"), values["D"]
        if heads is None:  # a printed module tree does not say
            queries, keys = (config.size(key, width) for key in (QUERY_WIDTH, KEY_WIDTH))
            if queries != width:
                values["D_q"] = queries
            if keys != queries:
                values["D_kv"] = keys
            broad = "D" if queries == width else "D_q"
            narrow = broad if keys == queries else "D_{kv}"
            attention(rows, source, target, replace(made, grouped=keys != queries, width=broad, narrow=narrow))
            if made.rope and record.rotated[1] != 1:
                self.notes.append(
                    "a part of each head is rotated, and how wide a head is is not known: all of it counts"
                )
            return
        few = config.size(record.grouped or "num_key_value_heads", heads)
        if few != heads and not record.grouped:
            config.fail(f"{few} key/value heads, but each head of a {record.model_type} model has its own",
                        "num_key_value_heads")  # fmt: skip
        key = record.sizes["n_H"]
        if "H" not in values:
            if config.get("head_dim") is not None or record.head_dim:
                values["H"] = config.size("head_dim", record.head_dim)
            elif width % heads:
                config.fail(f"{record.sizes['D']} is {width}, which {heads} heads do not divide", key)
            else:
                values["H"] = width // heads
        made = replace(made, rotated=self.rotated() if made.rope else "")
        if heads % few:
            config.fail(f"{few} key/value heads do not divide {heads} heads", record.grouped)
        grouped = few != heads
        # One key head is an axis of size 1 and not of a size that happens to be 1: nothing can cut it.
        one = few == 1
        if grouped and not one:
            values["n_kv"] = few
        wide = "D" if heads * values["H"] == width else "D_q"
        narrow = ("H" if one else "D_{kv}") if grouped else wide
        made = replace(made, grouped=grouped, width=wide, narrow=narrow, few="1" if one else "n_{kv}")
        attention(rows, source, target, made)

    def rotated(self) -> str:
        """The symbol of the features of a head that are rotated, where they are a part of them."""
        config, (key, usual) = self.config, self.record.rotated
        rope = config.entries.get("rope_parameters")
        inside = rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else None
        head, part = self.values["H"], config.get(key) if key in config.entries else usual
        part = inside if inside is not None else config.get("partial_rotary_factor") or part
        if part is None:
            return ""
        if isinstance(part, bool) or not isinstance(part, (int, float)) or part <= 0:
            config.fail(f"{key} is {shown(part)}", key, "the share of a head that is rotated, or of its features")
        many = int(part) if key == "rotary_dim" and inside is None else int(head * part)
        if many >= head:
            return ""
        if many < 2:
            config.fail(f"{many} of the {head} features of a head would be rotated", key, "they turn in pairs")
        self.values["H_R"] = many
        return "H_R"

    def ending(self) -> Rows:
        """The rows of a head by itself, which reads h; a weight that it shares is in both tables."""
        rows = Rows()
        rows.declared("W^E [V, D]")
        rows.declared(f"h [{STREAM}]")
        self.tail(rows)
        return rows

    def further(self, parts: tuple[PartTable, ...]) -> tuple[tuple[PartTable, ...], tuple[Edge, ...], Ties]:
        """The parts with a module for each further token: it joins the stream with the embedding of the token before.

        Its layer and norms are its own; embedding and head are those of the model (arXiv 2412.19437, section 2.2).
        """
        many, count = self.config.size("num_nextn_predict_layers"), self.config.size("num_hidden_layers")
        if many > FURTHER_LIMIT:
            self.config.fail(f"{many} further tokens", "num_nextn_predict_layers", f"at most {FURTHER_LIMIT} are read")
        dense = self.dense_layers()
        routed = not (dense if isinstance(dense, bool) else dense(count))
        shared = "W^E" if self.config.flag("tie_word_embeddings", self.record.tied) else "W^U"
        home = "embedding" if shared == "W^E" else "head"
        names = ["embedding", *(part.name for part in parts[1:])]
        edges = [Edge(one, "x" if one == "embedding" else "y", other, "x") for one, other in pairwise(names)]
        edges.append(Edge(names[-1], "y", "head", "h"))
        begin, end, last, losses = Rows(), self.ending(), names[-1], ("head", "ell")
        self.entrance(begin)
        made = [PartTable("embedding", begin.text), *parts[1:], PartTable("head", end.text, inputs=("h",))]
        ties = [(("embedding", "W^E"), ("head", "W^E"))] * (home == "embedding")
        for n in range(1, many + 1):
            token, head, join, tail = f"token{n + 1}", f"head{n + 1}", Rows(), self.ending()
            self.embedding(join, "e")
            join.declared(f"h [{STREAM}]")
            for source, mark in (("h", "H"), ("e", "E")):
                self.norm(join, source, f"{source}'", mark)
            join.add("x = [h', e'] W^P", "h'", "e'", "W^P [2 D, D]", to=f"x [{STREAM}]")
            made.append(PartTable(token, join.text + self.layer(routed), inputs=("h",)))
            if self.loss is not False:
                total, before = r"\ell' \in \mathbb{R}", r"\ell^1 \in \mathbb{R}"
                tail.add(rf"\ell' = \ell^1 + \frac{{3}}{{{10 * many}}} \ell", before, r"\ell", to=total)
                edges.append(Edge(*losses, head, "ell^1"))
                losses = head, "ell'"
            made.append(PartTable(head, tail.text, inputs=("h", "ell^1")))
            edges += [Edge(last, "y", token, "h"), Edge(token, "y", head, "h")]
            ties += [(("embedding", "W^E"), (token, "W^E")), ((home, shared), (head, shared))]
            last = token
        what = "token is" if many == 1 else "tokens are"
        self.notes.append(f"{many} further {what} predicted at each place; 0.3 of the mean of their losses is added")
        return tuple(made), tuple(edges), tuple(ties)

    def two_stacks(self) -> tuple[tuple[PartTable, ...], tuple[Edge, ...], Ties]:
        """An encoder and, unless the class leaves it out, a decoder whose layers all read its result.

        A table of relative positions is one for all layers of a stack.
        """
        values, config = self.values, self.config
        config.flag("is_encoder_decoder", True)
        alone = self.name.endswith("EncoderModel")

        def positions(stack: str, length: str) -> PartTable:
            rows, which = Rows(length=length), r", i = 1, \dots, n_H"
            ids = r"r \in \mathbb{Z}^{L \times L}"
            rows.add(f"b_i = Embed(r, w_i^R){which}", ids, "w_i^R [n_{bucket}]", to="b_i [L, L]")
            return PartTable(f"positions of the {stack}", rows.text)

        def layers(stack: str, count: str, rows: str) -> PartTable:
            reads = ("b_i", "e") if stack == "decoder" else ("b_i",)
            return PartTable(f"{stack} layer", rows, count, reads)

        if alone:
            parts = [self.ends(), positions("encoder", "L"), layers("encoder", "N_enc", self.layer(False))]
            return tuple(parts), (
                Edge("embedding", "x", "encoder layer", "x"),
                Edge("positions of the encoder", "b_i", "encoder layer", "b_i"),
                Edge("encoder layer", "y", "head", "h"),
            ), ()  # fmt: skip
        values["N_dec"] = config.size("num_decoder_layers", values["N_enc"])
        first, end = Rows(length="L_enc"), Rows(length="L_enc")
        self.entrance(first)
        end.declared(f"x [{STREAM}]")
        result = self.last_norm(end, "x")
        parts = [
            PartTable("encoder embedding", first.text),
            positions("encoder", "L_enc"),
            layers("encoder", "N_enc", self.layer(False, "L_enc")),
            PartTable("end of the encoder", end.text),
            self.ends("L_dec"),
            positions("decoder", "L_dec"),
            layers("decoder", "N_dec", self.layer(False, "L_dec", "L_enc", causal=True)),
        ]
        return tuple(parts), (
            Edge("encoder embedding", "x", "encoder layer", "x"),
            Edge("positions of the encoder", "b_i", "encoder layer", "b_i"),
            Edge("encoder layer", "y", "end of the encoder", "x"),
            Edge("end of the encoder", result, "decoder layer", "e"),
            Edge("embedding", "x", "decoder layer", "x"),
            Edge("positions of the decoder", "b_i", "decoder layer", "b_i"),
            Edge("decoder layer", "y", "head", "h"),
        ), ((("encoder embedding", "W^E"), ("embedding", "W^E")),)  # fmt: skip
