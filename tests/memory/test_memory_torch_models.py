"""Whole models in eager PyTorch (BERT with its head, a mixture of experts): their parameters, and what autograd keeps.

The modules are written here with ``torch.nn``; symcomm knows them from their configuration, their print-out, the live
module or a table. Bytes are those of unique storages, without weights and without tables that never change.
"""

from __future__ import annotations

from typing import Any

import memory_tables as tables
import pytest

torch = pytest.importorskip("torch")
from api import Model, load_known  # noqa: E402
from torch_memory import dropout, joined, kept_bytes, repeated, split, turned  # noqa: E402  (needs torch)

pytestmark = pytest.mark.torch
nn, functional = torch.nn, torch.nn.functional


class Dropout(nn.Dropout):  # type: ignore[misc]
    """With the kernel of GPUs on every device."""

    def forward(self, x: Any) -> Any:
        return dropout(x, self.p)


# -- BERT, with the names of its modules as they are printed ------------------------------------------


class BertEmbeddings(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(n["V"], n["D"], padding_idx=0)
        self.position_embeddings = nn.Embedding(n["n_pos"], n["D"])
        self.token_type_embeddings = nn.Embedding(n["n_type"], n["D"])
        self.LayerNorm = nn.LayerNorm(n["D"], eps=1e-12)
        self.dropout = Dropout(n["p"])

    def forward(self, tokens: Any, positions: Any, types: Any) -> Any:
        e = self.word_embeddings(tokens) + self.position_embeddings(positions) + self.token_type_embeddings(types)
        return self.dropout(self.LayerNorm(e))


class BertSelfAttention(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.heads, self.fused = n["n_H"], n["fused"]
        self.query, self.key, self.value = (nn.Linear(n["D"], n["D"]) for _ in "QKV")
        self.dropout = Dropout(0.0 if n["fused"] else n["p"])

    def forward(self, x: Any) -> Any:
        q, k, v = (split(f(x), self.heads) for f in (self.query, self.key, self.value))
        if self.fused:
            return joined(functional.scaled_dot_product_attention(q, k, v))
        return joined(self.dropout(torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1)) @ v)


class BertSelfOutput(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any], width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, n["D"])
        self.LayerNorm = nn.LayerNorm(n["D"], eps=1e-12)
        self.dropout = Dropout(n["p"])

    def forward(self, x: Any, stream: Any) -> Any:
        return self.LayerNorm(stream + self.dropout(self.dense(x)))


class BertOutput(BertSelfOutput):
    pass


class BertIntermediate(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(n["D"], n["F"])
        self.intermediate_act_fn = nn.GELU()

    def forward(self, x: Any) -> Any:
        return self.intermediate_act_fn(self.dense(x))


class BertAttention(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.self = BertSelfAttention(n)
        self.output = BertSelfOutput(n, n["D"])

    def forward(self, x: Any) -> Any:
        return self.output(self.self(x), x)


class BertLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.attention = BertAttention(n)
        self.intermediate = BertIntermediate(n)
        self.output = BertOutput(n, n["F"])

    def forward(self, x: Any) -> Any:
        z = self.attention(x)
        return self.output(self.intermediate(z), z)


class BertEncoder(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(n) for _ in range(n["N_layer"])])


class BertPooler(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.dense, self.activation = nn.Linear(n["D"], n["D"]), nn.Tanh()


class BertModel(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any], pooled: bool = True) -> None:
        super().__init__()
        self.embeddings, self.encoder = BertEmbeddings(n), BertEncoder(n)
        self.pooler = BertPooler(n) if pooled else None

    def forward(self, *ids: Any) -> Any:
        x = self.embeddings(*ids)
        for layer in self.encoder.layer:
            x = layer(x)
        return x if self.pooler is None else self.pooler.activation(self.pooler.dense(x[:, 0]))


class BertPredictionHeadTransform(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.dense, self.transform_act_fn = nn.Linear(n["D"], n["D"]), nn.GELU()
        self.LayerNorm = nn.LayerNorm(n["D"], eps=1e-12)

    def forward(self, x: Any) -> Any:
        return self.LayerNorm(self.transform_act_fn(self.dense(x)))


class BertLMPredictionHead(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(n)
        self.decoder = nn.Linear(n["D"], n["V"])


class BertOnlyMLMHead(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(n)


class BertForMaskedLM(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.bert, self.cls = BertModel(n, pooled=False), BertOnlyMLMHead(n)
        self.cls.predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight

    def forward(self, *ids: Any, labels: Any = None) -> Any:
        head = self.cls.predictions
        logits = head.decoder(head.transform(self.bert(*ids)))
        return logits if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


BERTS: dict[str, dict[str, Any]] = {
    "small": {"B": 2, "L": 16, "D": 24, "F": 56, "n_H": 3, "H": 8, "V": 50, "N_layer": 2, "p": 0.1, "fused": False},
    "larger": {"B": 5, "L": 36, "D": 64, "F": 200, "n_H": 4, "H": 16, "V": 301, "N_layer": 3, "p": 0.2, "fused": False},
    "without dropout": {"B": 3, "L": 20, "D": 32, "F": 72, "n_H": 4, "H": 8, "V": 61, "N_layer": 2, "p": 0.0,
                        "fused": False},
    "fused attention": {"B": 2, "L": 24, "D": 32, "F": 96, "n_H": 2, "H": 16, "V": 77, "N_layer": 2, "p": 0.1,
                        "fused": True},
    "fused attention, larger": {"B": 4, "L": 40, "D": 48, "F": 160, "n_H": 3, "H": 16, "V": 90, "N_layer": 4, "p": 0.3,
                                "fused": True},
}  # fmt: skip
for _sizes in BERTS.values():
    _sizes |= {"n_pos": 64, "n_type": 2}


def ids(n: dict[str, Any]) -> tuple[Any, ...]:
    shape = (n["B"], n["L"])
    positions = torch.arange(n["L"]).repeat(n["B"], 1)
    return torch.randint(1, n["V"], shape), positions, torch.randint(0, n["n_type"], shape)


def configuration(n: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "model_type": "bert", "architectures": [name], "hidden_size": n["D"], "num_hidden_layers": n["N_layer"],
        "num_attention_heads": n["n_H"], "intermediate_size": n["F"], "vocab_size": n["V"],
        "max_position_embeddings": n["n_pos"], "type_vocab_size": n["n_type"], "hidden_dropout_prob": n["p"],
        "attention_probs_dropout_prob": 0.0 if n["fused"] else n["p"],
    }  # fmt: skip


def read(source: Any) -> Model:
    made = load_known(source, dtype="fp32", loss=False)  # the runs end with the logits
    assert made is not None
    return made


def readings(module: Any, n: dict[str, Any], name: str) -> dict[str, Model]:
    """The same model from its configuration, from its print-out and from the module itself.

    A printed head does not say that its decoder is tied, so only a model without one is read from its print-out.
    """
    found = {"configuration": read(configuration(n, name)), "live": read(module)}
    return found if name != "BertModel" else {**found, "printed": read(f"{module}\n")}


def numel(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def accounting(n: dict[str, Any]) -> dict[str, str]:
    return {"saved": "pytorch", "softmax": "fused" if n["fused"] else "library"}


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
@pytest.mark.parametrize("sizes", BERTS)
def test_bert_has_the_parameters_and_keeps_the_bytes_of_eager_pytorch(name: str, sizes: str) -> None:
    n = BERTS[sizes]
    module = {"BertModel": BertModel, "BertForMaskedLM": BertForMaskedLM}[name](n).train()
    given = ids(n)
    measured = kept_bytes(lambda: module(*given), module.parameters())
    for how, model in readings(module, n, name).items():
        assert model.parameters().at().value == numel(module), how
        batch = {key: n[key] for key in ("B", "L", "n_H")}
        assert model.activation_memory(accounting=accounting(n)).at(**batch).value == measured, how


BERT_EMBEDDINGS = tables.table(
    r"w = Embed(t, W^E) + Embed(p, W^P) + Embed(s, W^S) ; $t \in Z^{B \times L}, p \in Z^{B \times L}, "
    r"s \in Z^{B \times L}$, W^E [V,D], W^P [n_pos,D], W^S [n_type,D] ; w [B,L,D]",
    "f = layernorm(w, g, e) ; g [D], e [D] ; f [B,L,D]",
    "y = dropout(f) ; - ; y [B,L,D]",
)


@pytest.mark.parametrize("sizes", ["small", "larger"])
def test_bert_as_tables_with_its_loss_keeps_the_bytes_of_eager_pytorch(sizes: str) -> None:
    """Embeddings, layers, and the head with its cross entropy: the log-softmax, the labels and a number are kept."""
    n = BERTS[sizes]
    module = BertForMaskedLM(n).train()
    given, labels = ids(n), torch.randint(0, n["V"], (n["B"], n["L"]))
    measured = kept_bytes(lambda: module(*given, labels=labels), module.parameters())
    derived, parameters = 0, 0
    for table, times in ((BERT_EMBEDDINGS, 1), (tables.BERT_LAYER, n["N_layer"]), (tables.BERT_HEAD, 1)):
        options = {"repeat": "N_layer"} if times > 1 else {}
        model = tables.load(table, dtype="fp32", **options)
        known = {k: size for k, size in n.items() if k not in ("p", "fused")} | {"n_h": n["n_H"]}
        memory = model.activation_memory(accounting="pytorch")
        derived += memory.at(**{k: known[k] for k in memory.needs}).value
        count = model.parameters()
        parameters += count.at(**{k: known[k] for k in count.needs}).value
    assert derived == measured
    assert parameters == numel(module) + n["V"] * n["D"]  # these tables do not tie the decoder to the embedding


# -- Mixtral with a fixed capacity ----------------------------------------------------------------------


class MixtralRMSNorm(nn.RMSNorm):  # type: ignore[misc]
    pass


class MixtralAttention(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.n, wide, narrow = n, n["n_H"] * n["H"], n["n_kv"] * n["H"]
        self.q_proj, self.o_proj = nn.Linear(n["D"], wide, bias=False), nn.Linear(wide, n["D"], bias=False)
        self.k_proj, self.v_proj = nn.Linear(n["D"], narrow, bias=False), nn.Linear(n["D"], narrow, bias=False)

    def forward(self, x: Any, fixed: dict[str, Any]) -> Any:
        n = self.n
        q, k, v = split(self.q_proj(x), n["n_H"]), split(self.k_proj(x), n["n_kv"]), split(self.v_proj(x), n["n_kv"])
        q, k = (turned(y, fixed["cos"], fixed["sin"]) for y in (q, k))
        k, v = (repeated(y, n["n_H"] // n["n_kv"]) for y in (k, v))
        scores = (q @ k.transpose(-2, -1) / n["H"] ** 0.5).masked_fill(fixed["mask"], float("-inf"))
        return self.o_proj(joined(torch.softmax(scores, -1) @ v))


def slots(gates: Any, top: int, capacity: int) -> Any:
    """The slot of each token in its ``top`` experts, numbered through all experts: expert x capacity + place.

    The likeliest experts with room are taken, so that every one is full and no token is dropped. The slots are whole
    numbers: no gradient flows through the choice.
    """
    b, length, experts = gates.shape
    found = torch.empty(b, length, top, dtype=torch.int64)
    for row in range(b):
        filled = [0] * experts
        for token in range(length):
            # Taking the emptiest first keeps a choice of different experts possible to the end.
            order = sorted(range(experts), key=lambda e: (filled[e], -float(gates[row, token, e])))
            for place, expert in enumerate(order[:top]):
                found[row, token, place] = expert * capacity + filled[expert]
                filled[expert] += 1
        assert max(filled) <= capacity
    return found


def routed(x: Any, gates: Any, top: int, capacity: int, expert: Any) -> Any:
    """Tokens in the slots of their experts by index, and back: weighted, and added up by token."""
    (b, length, d), experts = x.shape, gates.shape[-1]
    slot = slots(gates.detach(), top, capacity)
    weights = gates.gather(-1, slot // capacity)
    row = torch.arange(b)[:, None, None]
    slot = (slot // capacity * b * capacity + row * capacity + slot % capacity).flatten()
    token = torch.arange(b * length).repeat_interleave(top)
    sent = torch.zeros(experts * b * capacity, d).index_put((slot,), x.flatten(0, 1)[token])
    made = expert(sent.view(experts, b * capacity, d))
    weighted = made.flatten(0, 1)[slot] * weights.flatten()[:, None]
    return torch.zeros(b * length, d).index_add(0, token, weighted).view(b, length, d)


class MixtralExperts(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.n = n
        self.gate = nn.Linear(n["D"], n["E"], bias=False)
        for name, shape in (("w1", ("D", "F_E")), ("w3", ("D", "F_E")), ("w2", ("F_E", "D"))):
            setattr(self, name, nn.Parameter(torch.randn(n["E"], *(n[s] for s in shape)) / 8))

    def forward(self, x: Any, fixed: dict[str, Any]) -> Any:
        top, experts = self.n["n_top"], self.n["E"]
        gates = torch.softmax(self.gate(x), -1)

        def expert(own: Any) -> Any:
            return (functional.silu(own @ self.w1) * (own @ self.w3)) @ self.w2

        return routed(x, gates, top, top * x.shape[1] // experts, expert)


class MixtralLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.self_attn, self.block_sparse_moe = MixtralAttention(n), MixtralExperts(n)
        self.input_layernorm, self.post_attention_layernorm = MixtralRMSNorm(n["D"]), MixtralRMSNorm(n["D"])

    def forward(self, x: Any, fixed: dict[str, Any]) -> Any:
        z = x + self.self_attn(self.input_layernorm(x), fixed)
        return z + self.block_sparse_moe(self.post_attention_layernorm(z), fixed)


class Mixtral(nn.Module):  # type: ignore[misc]
    def __init__(self, n: dict[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(n["V"], n["D"])
        self.layers = nn.ModuleList([MixtralLayer(n) for _ in range(n["N_layer"])])
        self.norm, self.lm_head = MixtralRMSNorm(n["D"]), nn.Linear(n["D"], n["V"], bias=False)

    def forward(self, tokens: Any, fixed: dict[str, Any]) -> Any:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, fixed)
        return self.lm_head(self.norm(x))


MIXTRALS: dict[str, dict[str, int]] = {
    "small": {"B": 2, "L": 12, "D": 16, "n_H": 4, "n_kv": 2, "H": 4, "F_E": 24, "E": 4, "n_top": 2, "V": 40,
              "N_layer": 2},
    "larger": {"B": 3, "L": 32, "D": 48, "n_H": 6, "n_kv": 3, "H": 8, "F_E": 80, "E": 8, "n_top": 3, "V": 101,
               "N_layer": 3},
}  # fmt: skip


def unchanging(n: dict[str, int]) -> dict[str, Any]:
    return {
        "mask": torch.ones(n["L"], n["L"], dtype=torch.bool).triu(1),
        "cos": torch.rand(n["L"], n["H"]),
        "sin": torch.rand(n["L"], n["H"]),
    }


@pytest.mark.parametrize("sizes", MIXTRALS)
def test_a_mixture_of_experts_has_the_parameters_and_keeps_the_bytes_of_eager_pytorch(sizes: str) -> None:
    n = MIXTRALS[sizes]
    module, fixed = Mixtral(n).train(), unchanging(n)
    tokens = torch.randint(0, n["V"], (n["B"], n["L"]))
    measured = kept_bytes(lambda: module(tokens, fixed), [*module.parameters(), *fixed.values()])
    model = read({
        "model_type": "mixtral", "hidden_size": n["D"], "num_hidden_layers": n["N_layer"],
        "num_attention_heads": n["n_H"], "num_key_value_heads": n["n_kv"], "intermediate_size": n["F_E"],
        "vocab_size": n["V"], "num_local_experts": n["E"], "num_experts_per_tok": n["n_top"], "head_dim": n["H"],
        "attn_implementation": "eager",  # the module written here keeps its scores
    })  # fmt: skip
    assert model.parameters().at().value == numel(module)
    assert model.activation_memory(accounting="pytorch").at(B=n["B"], L=n["L"]).value == measured


MOE_TABLE = tables.table(
    r"r = softmax(x W^R) ; x [B,L,D], W^R [D,E] ; r [B,L,E]",
    "$M = TopK_{2}(r)$ ; - ; M [B,L,E,C]",
    r"$X_e = Dispatch(x, M), e = 1, \dots, E$ ; - ; X_e [B,C,D]",
    r"$A_e = gelu(X_e W_e^1), e = 1, \dots, E$ ; $W_e^1 \in R^{D \times F}$ ; A_e [B,C,F]",
    r"$Y_e = A_e W_e^2, e = 1, \dots, E$ ; $W_e^2 \in R^{F \times D}$ ; Y_e [B,C,D]",
    "y = Combine(Y_e, M) ; - ; y [B,L,D]",
)


@pytest.mark.parametrize(
    "n",
    [{"B": 2, "L": 10, "D": 12, "E": 5, "C": 6, "F": 20}, {"B": 4, "L": 24, "D": 32, "E": 6, "C": 9, "F": 72}],
    ids=["small, with room to spare", "larger, with room to spare"],
)
def test_experts_with_room_to_spare_keep_their_empty_slots_as_well(n: dict[str, int]) -> None:
    w = {
        "R": torch.randn(n["D"], n["E"], requires_grad=True),
        "1": torch.randn(n["E"], n["D"], n["F"], requires_grad=True),
        "2": torch.randn(n["E"], n["F"], n["D"], requires_grad=True),
    }
    x = torch.randn(n["B"], n["L"], n["D"], requires_grad=True)

    def run() -> Any:
        return routed(x, torch.softmax(x @ w["R"], -1), 2, n["C"], lambda x: functional.gelu(x @ w["1"]) @ w["2"])

    measured = kept_bytes(run, w.values())
    model = tables.load(MOE_TABLE, dtype="fp32")
    assert model.parameters().at(**{k: n[k] for k in "DEF"}).value == sum(t.numel() for t in w.values())
    assert model.activation_memory(accounting="pytorch").at(**n).value == measured


# -- what shares a storage ---------------------------------------------------------------------------------


def test_views_and_transposes_of_one_tensor_are_one_storage() -> None:
    x = torch.randn(6, 8, requires_grad=True)
    made = x * 2  # a tensor of its own; autograd keeps nothing for a number
    assert kept_bytes(lambda: made.transpose(0, 1) @ made, ()) == 4 * 48
    assert kept_bytes(lambda: made[:, :4] * made[:, 4:], ()) == 4 * 48  # the whole storage stays for a part of it
    assert kept_bytes(lambda: made[:, :4].clone() * made[:, 4:].clone(), ()) == 2 * 4 * 24
    assert kept_bytes(lambda: made.t().reshape(-1) * made.reshape(-1), ()) == 2 * 4 * 48  # the first one is a copy


@pytest.mark.parametrize(
    "n", [{"B": 2, "L": 12, "D": 16, "n_h": 2, "H": 8}, {"B": 3, "L": 30, "D": 48, "n_h": 3, "H": 16}]
)
def test_queries_keys_and_values_of_one_product_are_views_of_one_storage(n: dict[str, int]) -> None:
    """A fused attention reads the parts of one product in place; unique storages count them once."""
    x, w = torch.randn(n["B"], n["L"], n["D"], requires_grad=True), torch.randn(n["D"], 3 * n["D"], requires_grad=True)
    out = torch.randn(n["D"], n["D"], requires_grad=True)

    def run() -> Any:
        q, k, v = (split(part, n["n_h"]) for part in (x @ w).chunk(3, dim=-1))
        return joined(functional.scaled_dot_product_attention(q, k, v)) @ out

    rows = (
        *(f"{name} = x W^{name} ; x [B,L,D], W^{name} [D,D] ; {name} [B,L,D]" for name in "QKV"),
        *(tables.heads(name, r"B \times L", "n_h", "H") for name in "QKV"),
        r"$S_i = softmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
        r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
        r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
        "y = Z W^O ; W^O [D,D] ; y [B,L,D]",
    )
    model = tables.load(tables.table(*rows), dtype="fp32")
    derived = model.activation_memory(accounting={"saved": "pytorch", "softmax": "fused"}).at(**n).value
    assert derived == kept_bytes(run, (w, out))


# -- gpt_oss, as transformers has it ----------------------------------------------------------------------

GPT_OSS: dict[str, dict[str, int]] = {
    "one layer": {"B": 2, "L": 16, "D": 64, "n_H": 4, "n_kv": 2, "H": 16, "F_E": 48, "E": 4, "n_top": 2, "V": 100,
                  "N_layer": 1},
    "both kinds of layers": {"B": 3, "L": 20, "D": 48, "n_H": 6, "n_kv": 3, "H": 8, "F_E": 40, "E": 8, "n_top": 3,
                             "V": 90, "N_layer": 2},
    "many experts": {"B": 1, "L": 32, "D": 32, "n_H": 2, "n_kv": 2, "H": 16, "F_E": 24, "E": 16, "n_top": 4, "V": 50,
                     "N_layer": 2},
}  # fmt: skip


@pytest.mark.parametrize("sizes", GPT_OSS)
def test_gpt_oss_keeps_the_bytes_of_transformers_but_for_its_rotations(sizes: str) -> None:
    """Rotations never change; the router's softmax is over the chosen experts, so that it keeps n_top numbers each."""
    transformers = pytest.importorskip("transformers")
    n = GPT_OSS[sizes]
    entries = {
        "hidden_size": n["D"], "intermediate_size": n["F_E"], "num_hidden_layers": n["N_layer"],
        "num_attention_heads": n["n_H"], "num_key_value_heads": n["n_kv"], "head_dim": n["H"], "vocab_size": n["V"],
        "num_local_experts": n["E"], "num_experts_per_tok": n["n_top"],
    }  # fmt: skip
    said = {"attn_implementation": "eager", "experts_implementation": "eager", "use_cache": False}
    module = transformers.GptOssForCausalLM(transformers.GptOssConfig(**entries, **said)).train()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.02)
    tokens = torch.randint(0, n["V"], (n["B"], n["L"]))
    measured = kept_bytes(lambda: module(input_ids=tokens), module.parameters())
    model = read({"model_type": "gpt_oss", **entries})
    assert model.parameters().at().value == numel(module)
    rotations = 2 * 4 * n["L"] * n["H"] // 2
    derived = model.activation_memory(accounting="pytorch").at(B=n["B"], L=n["L"]).value
    assert derived == measured - rotations
