"""One algorithm for each kind of collective: its default, how one is named, and where the answer says which ran."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import Derivation, main, parse_problem
from api import derivation as reported
from click.testing import CliRunner

import symcomm as sc

B, L, D, N_LAYER, V, F, TOP = 64, 4096, 4096, 32, 32000, 14336, 2
NVLINK, CARD = 450 * 10**9, 50 * 10**9
# An expert layer exchanges two bytes for each of n_top B L D numbers: to the experts and back, forward and backward.
EXCHANGED = 4 * N_LAYER * 2 * TOP * B * L * D


def mixtral(experts: int = 8) -> sc.Model:
    """Mixtral 8x7B, or the same with other numbers of experts."""
    return sc.load({
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": D, "intermediate_size": F,
        "num_hidden_layers": N_LAYER, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": V,
        "num_local_experts": experts, "num_experts_per_tok": TOP,
    }).at(B=B, L=L)  # fmt: skip


def replicated(experts: int = 8) -> int:
    """The bytes of gradients that all ranks have: all but those of the experts."""
    attention = 2 * D * D + 2 * D * (D // 4)
    return 2 * (2 * V * D + N_LAYER * (attention + D * experts + 2 * D) + D)


def network(strategy: str, accounting: Any = None, experts: int = 8, **options: Any) -> Derivation:
    rates = {"device": "H100-SXM", "network": "450 GB/s", "of": "network", **options}
    return mixtral(experts).step_time(strategy, accounting=accounting, **rates)


def shown(made: Derivation) -> set[tuple[str, str]]:
    return {(c.field, c.name) for c in made.conventions if c.field.startswith("algorithm")}


# A ring passes (k - 1)/(2k) of the tokens over each link; of direct messages a rank sends (k - 1)/k of its share.
RING, DIRECT, REDUCED = Fraction(7, 16), Fraction(7, 64), Fraction(7, 4)


@pytest.mark.few(3)
@pytest.mark.parametrize(("accounting", "exchange", "milliseconds", "said"), [
    (None, DIRECT, 146, {("algorithm of all-to-all", "pairwise"), ("algorithm of all-reduce", "ring")}),
    ("pairwise", DIRECT, 146, {("algorithm of all-to-all", "pairwise"), ("algorithm of all-reduce", "ring")}),
    ("ring", RING, 547, {("algorithm", "ring")}),
    ({"algorithm": {"all-to-all": "ring"}}, RING, 547, {("algorithm", "ring")}),
    ({"algorithm": "all-to-all: ring"}, RING, 547, {("algorithm", "ring")}),
])  # fmt: skip
def test_the_experts_of_mixtral_exchange_tokens_directly_unless_a_ring_is_named(
    accounting: Any, exchange: Fraction, milliseconds: int, said: set[tuple[str, str]]
) -> None:
    made = network("data(8) + expert", accounting)
    assert made.at().value == (exchange * EXCHANGED + REDUCED * replicated()) / NVLINK
    assert round(made.at().value * 1000) == milliseconds
    assert shown(made) == said


def test_a_ring_of_64_ranks_takes_32_times_as_long_as_direct_messages() -> None:
    rest = 2 * Fraction(63, 64) * replicated(64) / NVLINK
    direct, ring = (network("data(64) + expert", how, 64).at().value - rest for how in (None, "ring"))
    assert ring == 32 * direct == 32 * Fraction(63, 64**2) * EXCHANGED / NVLINK


LINKS = "node=8, inside=450 GB/s, between=50 GB/s"


def test_beyond_a_node_direct_messages_go_over_the_links_that_join_their_two_ranks() -> None:
    """16 ranks in 2 nodes: 7 of 15 messages stay in the node, 8 leave it; the ring is as slow as the network cards."""
    made = network("data(16) + expert", experts=16, network=None, links=LINKS)
    exchange = EXCHANGED * (Fraction(7, 256) / NVLINK + Fraction(8, 256) / CARD)
    assert made.at().value == exchange + Fraction(15, 8) * replicated(16) / CARD


def test_a_hierarchical_exchange_goes_inside_nodes_first_and_then_between_them() -> None:
    """In the node blocks for both nodes go to 7 ranks; between the nodes, what 8 ranks had for one of the other."""
    made = network("data(16) + expert", "hierarchical", 16, network=None, links=LINKS)
    exchange = EXCHANGED * (Fraction(14, 256) / NVLINK + Fraction(8, 256) / CARD)
    inside, between = 2 * Fraction(7, 8), 2 * Fraction(1, 2) / 8  # of a ring in each node, and of its parts between
    assert made.at().value == exchange + replicated(16) * (inside / NVLINK + between / CARD)
    assert shown(made) == {("algorithm", "hierarchical")}
    made.check(deep=True)


def test_fewer_messages_of_a_hierarchical_exchange_wait_for_their_latency() -> None:
    """64 ranks in 8 nodes: 7 + 7 rounds instead of 7 + 56."""
    links = f"{LINKS}, latency_inside=1 us, latency_between=5 us"
    for how, inside, between, part in ((None, 7, 56, 7), ({"algorithm": {"all-to-all": "hierarchical"}}, 7, 7, 56)):
        made = network("data(64) + expert", how, 64, network=None, links=links)
        waits = 4 * N_LAYER * (inside * Fraction(1, 10**6) + between * Fraction(5, 10**6))
        sent = EXCHANGED * (Fraction(part, 64**2) / NVLINK + Fraction(56, 64**2) / CARD)
        rest = 2 * 63 * (Fraction(replicated(64), 64) / CARD)
        calls = made.at().value - waits - sent - rest
        assert calls > 0
        assert (calls / (2 * 63 * Fraction(5, 10**6))).denominator == 1  # whole all-reduces of gradients


def test_a_rank_sends_all_of_its_share_but_what_it_keeps() -> None:
    """Each of 8 ranks holds an eighth of the tokens, and sends 7/8 of that."""
    made = mixtral().communication("data(8) + expert", collective="all-to-all", accounting="sent_per_rank")
    assert made.at().value == EXCHANGED * Fraction(1, 8) * Fraction(7, 8)
    assert shown(made) == {("algorithm", "pairwise")}
    made.check(deep=True)


def test_an_answer_in_which_kinds_of_collectives_differ_names_each_of_them() -> None:
    made = network("data(8) + expert")
    assert reported(made)["accounting"]["algorithm"] == {"all-to-all": "pairwise", "all-reduce": "ring"}
    statements = {c.field: c.statement for c in made.conventions}
    assert statements["algorithm of all-to-all"] == "Ranks send to each other directly, as over a crossbar."
    again = network("data(8) + expert", {"algorithm": reported(made)["accounting"]["algorithm"]})
    assert again.expr == made.expr


def test_an_algorithm_that_none_of_the_collectives_can_run_is_told() -> None:
    made = mixtral().step_time("data(8)", device="H100-SXM", accounting="pairwise")
    assert shown(made) == {("algorithm", "ring")}
    assert "Nothing here depends on `algorithm: pairwise`." in made.notes


GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 4, "n_head": 4,
        "vocab_size": 100, "n_positions": 32}  # fmt: skip


def test_a_pipeline_names_the_algorithm_of_its_tied_weights_and_the_directions_of_its_links() -> None:
    model = sc.load(GPT2).at(B=8, L=32)
    rates = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 MB/s"}

    def step(**accounting: str) -> Derivation:
        return model.step_time("pipeline(2, microbatches=4)", accounting=accounting, **rates)

    usual = step()
    for field, choice in (("algorithm", "tree"), ("link", "bidirectional")):
        other = step(**{field: choice})
        assert other.at().value != usual.at().value
        assert (field, choice) in {(c.field, c.name) for c in other.conventions}
    assert {("algorithm", "ring"), ("link", "full_duplex")} <= {(c.field, c.name) for c in usual.conventions}


def test_sends_of_a_pipeline_have_no_algorithm() -> None:
    made = sc.load(GPT2).at(B=8, L=32).communication("pipeline(2, microbatches=4)", accounting="sent_per_rank", stage=1,
                                                     collective="send")  # fmt: skip
    assert not shown(made)


def test_one_rank_does_not_send_over_all_boundaries() -> None:
    """Stage 1 of 4 sends activations on and gradients back: two messages; all boundaries have six."""
    model = sc.load(GPT2).at(B=8, L=32)
    per_rank = {"communication": "sent_per_rank", "pipeline": "all_boundaries"}
    with pytest.raises(sc.SymcommError) as caught:
        model.communication("pipeline(4, microbatches=4)", collective="send", accounting=per_rank)
    assert str(caught.value) == (
        "sent_per_rank counts one rank, but all_boundaries adds up what all stages send\n"
        "hint: name a stage, such as stage=1; or count all_links"
    )
    message = 2 * 8 * 32 * 64
    mine = model.communication("pipeline(4, microbatches=4)", collective="send", accounting=per_rank, stage=1)
    assert mine.at().value == 2 * message
    every = model.communication("pipeline(4, microbatches=4)", collective="send", accounting="all_boundaries")
    assert every.at().value == 6 * message


def test_two_answers_with_other_algorithms_of_one_collective_are_not_combined() -> None:
    one, two = network("data(8)"), network("data(8) + expert", {"algorithm": {"all-reduce": "tree"}})
    with pytest.raises(sc.SymcommError, match=r"under algorithm: ring, but .* under algorithm: tree"):
        sc.ratio(one, two)
    sc.ratio(network("data(8)"), network("data(8) + expert", {"algorithm": {"all-to-all": "ring"}}))


EXPERTS = Path(__file__).parents[2] / "examples" / "layers" / "mixture-of-experts.md"


def asked(accounting: str) -> list[Derivation]:
    """The answers of the example's file; its last question is asked under other conventions."""
    label = "  label: dispatch"
    text = EXPERTS.read_text(encoding="utf-8").replace(label, f"  accounting: {accounting}\n{label}")
    return [answer.derivation for answer in sc.solve(parse_problem(text)).answers()]


def test_a_document_names_the_algorithm_of_one_collective_beside_those_of_the_whole_file() -> None:
    """24 layers, 4 calls of 2 bytes for each of B E C D numbers, of which a rank sends 7/64, on a ring 7/16."""
    payload = 24 * 4 * 2 * 64 * 64 * 32 * 2048
    for how, part in (
        ("sent_per_rank", DIRECT),
        ("{communication: sent_per_rank, algorithm: {all-to-all: ring, all-gather: bruck}}", RING),
    ):
        made = asked(how)[-1]
        assert made.at().value == part * payload
        assert shown(made) == {("algorithm", "ring" if part == RING else "pairwise")}


def test_a_document_that_misspells_a_collective_is_refused_at_that_place() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        asked("{algorithm: {all-to-al: ring}}")
    assert "'all-to-al' is no collective with an algorithm" in str(caught.value)
    assert "did you mean 'all-to-all'" in str(caught.value)


def derived(*more: str, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "num_local_experts": 8, "num_experts_per_tok": 2}))  # fmt: skip
    told = CliRunner().invoke(main, [
        "derive", "communication", "--model", str(file), "--strategy", "data(8) + expert", "--collective", "all-to-all",
        "--at", "B=8,L=16", "--to", "json", "--accounting", "sent_per_rank", *more])  # fmt: skip
    assert told.exit_code == 0, told.output
    return json.loads(told.output)  # type: ignore[no-any-return]  # a report


def test_the_command_line_names_the_algorithm_of_one_collective(tmp_path: Path) -> None:
    """2 layers, 4 calls, 2 bytes, 2 experts a token: of 8 x 16 x 64 numbers a rank sends 7/64 directly."""
    numbers = 2 * 4 * 2 * 2 * 8 * 16 * 64
    usual = derived(tmp_path=tmp_path)
    assert (usual["value"]["exact"], usual["accounting"]["algorithm"]) == (str(numbers * 7 // 64), "pairwise")
    ring = derived("--accounting", "algorithm=all-to-all:ring,algorithm=all-reduce:tree", tmp_path=tmp_path)
    assert (ring["value"]["exact"], ring["accounting"]["algorithm"]) == (str(numbers * 7 // 16), "ring")
