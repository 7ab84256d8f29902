"""Reasons of collectives that are written as equations: both sides have one shape, and rows meet columns."""

import re

import pytest
from api import training

import symcomm as sc

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 8, "num_key_value_heads": 4,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {
    "model_type": "deepseek_v2", "hidden_size": 8, "num_hidden_layers": 8, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 96, "moe_intermediate_size": 16, "vocab_size": 40,
    "q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 16, "vocab_size": 96}
ASKED = [
    (config, strategy)
    for config in (LLAMA, MIXTRAL, DEEPSEEK, GPT2)
    for strategy in ("tensor(2)", "data(2)", "context(2)", "tensor(2) + sequence", "fully-sharded(2) + tensor(2)")
] + [(MIXTRAL, "data(2) + expert + tensor(2)"), (MIXTRAL, "tensor(2) + expert(2, mesh=tensor)")]  # fmt: skip
FACTOR = re.compile(r"(d?)`([^`]+)`(ᵀ?)|onehot\((d?)`([^`]+)`\)(ᵀ?)")


def reasons(config: dict[str, object], strategy: str) -> list[str]:
    made = sc.load(config).communication(strategy)
    return [str(row[1]) for exhibit in made.exhibits for row in exhibit.rows]


def factors(model: sc.Model, text: str) -> list[tuple[list[str], bool]]:
    """The axes of each factor, and whether it is transposed."""
    graph, found = training(model.graph), []
    for d, name, turned, _, chosen, chosen_turned in FACTOR.findall(text):
        if chosen:
            (op,) = (o for o in graph.ops if o.kind == "onehot" and o.inputs == (chosen,) and o.phase == "forward")
            name, turned = op.output, chosen_turned
        axes = graph.tensors[f"d({name})" if d else name].axes
        found.append(([axis.replace("E~2", "E") for axis in axes], bool(turned)))  # one index of experts, two names
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize(("config", "strategy"), ASKED, ids=lambda v: v if isinstance(v, str) else str(v["model_type"]))
def test_both_sides_of_a_reason_have_one_shape(config: dict[str, object], strategy: str) -> None:
    model = sc.load(config)
    for text in (t for t in reasons(config, strategy) if " = Σ over " in t):
        left, right = text.split(" = Σ over ")
        result = factors(model, left.split(" + ")[0])[0][0]
        terms = right.partition(" of ")[2].split(", added")[0].split(", of which")[0].strip("()")
        for term in terms.split(" + "):
            axes = factors(model, term)
            assert axes, text
            if len(axes) == 1:
                continue
            (a, a_turned), (b, b_turned) = axes
            batch = {*a} & {*b} & {*result}
            summed = ({*a} & {*b}) - batch
            assert {*a, *b} - summed == {*result}, text
            rows, columns = ([x for x in one if x not in summed | batch] for one in (a, b))
            assert [*rows, *columns] == [x for x in result if x not in batch], text
            for one, turned, last in ((a, a_turned, True), (b, b_turned, False)):
                inside = [x in summed for x in one if x not in batch]
                assert inside == sorted(inside, reverse=(not last) != turned) or len({*inside}) < 2, text


def test_a_sum_over_two_axes_of_the_mesh_has_its_product_once() -> None:
    assert "d`W^E` = Σ over `L` and `B` of onehot(`t`)ᵀ d`x`" in reasons(MIXTRAL, "data(2) + context(2)")


def test_a_sum_behind_other_ops_is_no_equation() -> None:
    told = reasons(MIXTRAL, "tensor(2)")
    assert "`d`: each rank has a part of the sum over `F_E`" in told
    assert "d`m`: each rank has a part of the sum over `F_E`" in told
    assert "`x` = Σ over `V` of onehot(`t`) `W^E`" in told
    assert "`sum(exp(head:o - max(head:o)))`: each rank has a part of the sum over `V`" in told
    assert "`max(head:o)` = the largest over `V` of `head:o`" in told
    latent = reasons(DEEPSEEK, "tensor(2)")
    assert "d`n`: each rank has a part of the sum over `n_H`" in latent
    assert "d`m`: each rank has a part of the sum over `F`" in latent  # what is inside silu has no name
    attention = "d`n` = Σ over `n_kv` of (d`V` `W^V`ᵀ + d`K` `W^K`ᵀ + d`Q` `W^Q`ᵀ), added locally first"
    assert attention in told
