"""What an axis is follows from what the ops do with it and from what its symbol means, never from where it stands."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from api import (
    Graph,
    Notation,
    Region,
    ShapeError,
    StrategyError,
    SymcommError,
    axis_role,
    backward,
    batch_axes,
    check_divisible,
    paired_axes,
    parse_strategy,
    plan,
    sequence_axes,
    vocabulary_axes,
)

import symcomm as sc

HEAD = "Computation\tInput\tOutput\n"
FFN = (
    ("u = relu(x W^1)", "x [{0}, {1}, D], W^1 [D, F]", "u [{0}, {1}, F]"),
    ("y = u W^2", "W^2 [F, D]", "y [{0}, {1}, D]"),
)


def load(*rows: tuple[str, str, str], **options: object) -> sc.Model:
    return sc.load(HEAD + "".join("\t".join(cell or "-" for cell in row) + "\n" for row in rows), **options)


def graph(*rows: tuple[str, str, str], **options: object) -> Graph:
    return load(*rows, **options).graph


def ffn(first: str, second: str, **options: object) -> Graph:
    return graph(*(tuple(cell.format(first, second) for cell in row) for row in FFN), **options)  # type: ignore[misc]


def labels(made: Graph, axes: tuple[str, ...]) -> list[str]:
    return [made.axes[a].label for a in axes]


def roles(made: Graph) -> list[str]:
    return [*labels(made, batch_axes(made)), *labels(made, sequence_axes(made))]


@pytest.mark.parametrize("order", [("B", "L"), ("L", "B")])
def test_the_order_of_the_axes_says_nothing(order: tuple[str, str]) -> None:
    assert roles(ffn(*order)) == ["B", "L"]


def test_a_batch_that_stands_second_is_cut_by_data_parallelism_and_must_divide() -> None:
    known = {"B": Fraction(8), "L": Fraction(1024), "D": Fraction(64), "F": Fraction(256)}
    with pytest.raises(StrategyError, match=r"B = 8 .*not divisible by 64"):
        check_divisible(ffn("L", "B"), parse_strategy("data(64)"), known)
    check_divisible(ffn("L", "B"), parse_strategy("tensor(8) + sequence"), {**known, "B": Fraction(1)})
    cut = plan(backward(ffn("L", "B")), parse_strategy("data(4)"))
    assert dict(cut.placements["x"]) == {"data": 1}


def test_two_axes_that_nothing_tells_apart_are_asked_for() -> None:
    made = ffn("M", "N")
    with pytest.raises(StrategyError) as caught:
        batch_axes(made)
    assert str(caught.value) == (
        "layer can be read in two ways: the batch is M or N, and no op tells them apart\n"
        "hint: say which: axes: {M: batch, N: sequence} or the other way round"
    )
    with pytest.raises(StrategyError, match="the sequence is M or N"):
        sequence_axes(made)


def test_a_doubt_about_the_batch_does_not_disturb_rules_that_do_not_name_it() -> None:
    plan(backward(ffn("M", "N")), parse_strategy("tensor(2)"))
    plan(backward(ffn("M", "N")), parse_strategy("cut(M, 2)"))


@pytest.mark.parametrize("said", [{"M": "sequence"}, {"N": "batch"}, {"M": "sequence", "N": "batch"}])
def test_one_declared_role_is_enough(said: dict[str, str]) -> None:
    assert roles(ffn("M", "N", axes=said)) == ["N", "M"]


def test_the_declared_meaning_of_a_symbol_decides() -> None:
    assert roles(ffn("S", "N", notation=Notation(meanings={"N": "sequences in the batch"}))) == ["N", "S"]
    swapped = Notation(meanings={"L": "batch size", "B": "sequence length"})
    assert roles(ffn("L", "B", notation=swapped)) == ["L", "B"]


def test_sizes_that_are_numbers_are_declared_by_their_number() -> None:
    rows = ("y = x W", "x [8, 1024, 512], W [512, 64]", "y [8, 1024, 64]")
    with pytest.raises(StrategyError, match="the batch is 8 or 1024"):
        batch_axes(graph(rows))
    assert roles(graph(rows, axes={"1024": "sequence"})) == ["8", "1024"]


def test_a_problem_file_declares_axes_below_its_model() -> None:
    rows = "".join("| " + " | ".join(c.format("M", "N") for c in row) + " |\n" for row in FFN)
    table = "| Computation | Input | Output |\n|---|---|---|\n" + rows
    block = "\n```symcomm\nmodel: ffn\n{}\n```\n"
    made = sc.load(table + block.format("axes: {N: batch}")).graph
    assert roles(made) == ["N", "M"]
    with pytest.raises(SymcommError, match="no tensor has an axis 'Q'"):
        sc.load(table + block.format("axes: {Q: batch}"))


def test_an_unknown_axis_or_role_is_refused() -> None:
    with pytest.raises(ShapeError, match="no tensor has an axis 'T'"):
        ffn("B", "L", axes={"T": "batch"})
    with pytest.raises(ShapeError, match="an axis is the batch or the sequence, not 'heads'"):
        ffn("B", "L", axes={"L": "heads"})


ATTENTION = (
    ("Q = x W^Q", "x [M, N, D], W^Q [D, D]", "Q [M, N, D]"),
    ("K = x W^K", "W^K [D, D]", "K [M, N, D]"),
    ("V = x W^V", "W^V [D, D]", "V [M, N, D]"),
    ("P = softmax(Q K^T)", "", "P [M, N, N]"),
    ("Z = P V", "", "Z [M, N, D]"),
)


def test_attention_uses_the_sequence_under_two_names() -> None:
    assert roles(graph(*ATTENTION)) == ["M", "N"]


def test_given_queries_keys_and_values_have_a_batch_and_a_sequence() -> None:
    scores = ("P = softmax(Q K^T)", "Q [M, N, H], K [M, S, H]", "P [M, N, S]")
    assert roles(graph(scores, ("Z = P V", "V [M, S, H]", "Z [M, N, H]"), inputs=["Q", "K", "V"])) == ["M", "N"]


def test_a_table_of_positions_or_of_angles_has_the_sequence() -> None:
    head = ("h = x W", "x [M, N, D], W [D, D]", "h [M, N, D]")
    assert roles(graph(("e = x + P", "x [M, N, D], P [N, D]", "e [M, N, D]"), head, weights=["P"])) == ["M", "N"]
    assert roles(graph(head, ("r = rope(h)", "", "r [M, N, D]"))) == ["M", "N"]
    assert roles(graph(head, ("r = First(h)", "", "r [M, D]"))) == ["M", "N"]


def test_the_batch_is_in_every_input() -> None:
    rows = [
        ("Q = x W^Q", "x [N, M, D], W^Q [D, D]", "Q [N, M, D]"),
        ("K = m W^K", "m [N, S, D], W^K [D, D]", "K [N, S, D]"),
        ("P = softmax(Q K^T)", "", "P [N, M, S]"),
        ("Z = P K", "", "Z [N, M, D]"),
    ]
    assert roles(graph(*rows, inputs=["x", "m"])) == ["N", "M"]


def test_an_axis_that_is_said_to_be_the_batch_must_not_be_mixed() -> None:
    made = graph(*ATTENTION, axes={"N": "batch"})
    with pytest.raises(StrategyError) as caught:
        batch_axes(made)
    assert str(caught.value) == (
        "N is given as the batch of layer, but P mixes its positions\nhint: say what it is: axes: {N: sequence}"
    )


def test_a_sequence_without_a_batch_is_not_cut_as_one() -> None:
    made = graph(("y = x W", "x [L, D], W [D, F]", "y [L, F]"))
    with pytest.raises(StrategyError) as caught:
        batch_axes(made)
    assert str(caught.value) == (
        "layer has no batch axis to cut: its examples are not independent along any axis of x, L being its sequence\n"
        "hint: say 'batch: B' where the table leaves the batch out, or axes: {L: batch}"
    )
    assert labels(made, sequence_axes(made)) == ["L"]
    assert labels(graph(("y = x W", "x [T, D], W [D, F]", "y [T, F]")), ("T",)) == ["T"]


def test_features_are_no_sequence() -> None:
    made = graph(("y = layernorm(x, g, b)", "x [M, D], g [D], b [D]", "y [M, D]"))
    assert labels(made, batch_axes(made)) == ["M"]
    with pytest.raises(StrategyError, match="no sequence axis"):
        sequence_axes(made)


@pytest.mark.parametrize(
    ("meaning", "role"),
    [
        ("batch size in sequences", "batch"), ("sequences in the batch", "batch"), ("number of examples", "batch"),
        ("sequence length", "sequence"), ("length of the encoder's sequence", "sequence"), ("model dimension", ""),
        ("number of attention heads", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_meaning_says_the_role(meaning: str, role: str) -> None:
    assert axis_role(meaning) == role


# -- pairs and vocabularies -------------------------------------------------------------------------------

EMBED = ("x = Embed(t, W^E)", r"t \in \mathbb{Z}^{B \times L}, W^E [V, D]", "x [B, L, D]")
POSITIONS = ("h = x + Embed(s, W^P)", r"s \in \mathbb{Z}^{L}, W^P [n_pos, D]", "h [B, L, D]")
BLOCK = ("u = gelu(h W^1)", "W^1 [D, F]", "u [B, L, F]"), ("d = u W^2", "W^2 [F, D]", "d [B, L, D]")
NORM = ("n = rmsnorm(h + d)", "", "n [B, L, D]")
UNTIED = ("o = n W^U", "W^U [D, V]", "o [B, L, V]")
TIED = ("o = n (W^E)^T", "", "o [B, L, V]")
LOSS = (r"\ell = CrossEntropy(o, z)", r"z \in \mathbb{Z}^{B \times L}", r"\ell [B, L]")


@pytest.mark.parametrize("head", [UNTIED, TIED], ids=["untied", "tied"])
def test_embedding_head_and_loss_are_cut_along_the_vocabulary_and_positions_stay_whole(
    head: tuple[str, str, str],
) -> None:
    made = graph(EMBED, POSITIONS, *BLOCK, NORM, head, LOSS)
    found = paired_axes(made)
    assert sorted(set(labels(made, found))) == ["F", "V"]
    tables = {name: {*made.tensors[name].axes} & {*found} for name in ("W^E", "W^P")}
    assert labels(made, tuple(tables["W^E"])) == ["V"]
    assert not tables["W^P"]
    assert {*vocabulary_axes(made)} == {a for a in made.axes if made.axes[a].label == "V"}


def test_a_tied_head_pairs_with_the_loss_before_any_other_weight() -> None:
    made = graph(
        EMBED, ("h = tanh(x W^1)", "W^1 [D, D]", "h [B, L, D]"), (TIED[0].replace("n", "h"), "", TIED[2]), LOSS
    )
    assert labels(made, paired_axes(made)) == ["V"]


def test_without_a_loss_the_head_pairs_with_the_ids_that_choose_from_as_many_words() -> None:
    made = graph(EMBED, ("h = rmsnorm(x)", "", "h [B, L, D]"), ("o = h W^U", "W^U [D, V]", "o [B, L, V]"))
    assert labels(made, paired_axes(made)) == labels(made, vocabulary_axes(made)) == ["V", "V"]


def test_without_a_loss_classes_that_are_no_words_have_no_partner() -> None:
    made = graph(EMBED, ("h = rmsnorm(x)", "", "h [B, L, D]"), ("o = h W^U", "W^U [D, C]", "o [B, L, C]"))
    with pytest.raises(StrategyError, match="no pair of weights"):
        paired_axes(made)
    with pytest.raises(StrategyError, match="no vocabulary to cut"):
        vocabulary_axes(made)


def test_what_a_loop_carries_is_not_cut() -> None:
    made = graph(("x = t W^0", "t [B, L, A], W^0 [A, D]", "x [B, L, D]"), ("y = x W^1", "W^1 [D, E]", "y [B, L, E]"))
    assert labels(made, paired_axes(made)) == ["D"]
    with pytest.raises(StrategyError, match="no pair of weights"):
        paired_axes(replace(made, regions=(Region("layer", "N_layer", (("x", "x"),)),)))


def test_a_normed_latent_axis_is_not_cut() -> None:
    rows = [("a = x A", "x [B, L, D], A [D, r]", "a [B, L, r]"), ("c = rmsnorm(a)", "", "c [B, L, r]")]
    made = graph(*rows, ("y = c U", "U [r, F]", "y [B, L, F]"), ("z = y W", "W [F, D]", "z [B, L, D]"))
    assert labels(made, paired_axes(made)) == ["F"]


def grouped(few: str) -> Graph:
    return graph(
        ("Q = x W^Q", "x [B, L, D], W^Q [D, D]", "Q [B, L, D]"),
        ("K = x W^K", f"W^K [D, {few} H]", f"K [B, L, {few} H]"),
        (r"[Q_1, \dots, Q_{n_H}] = Partition_{-1}(Q)", "", r"Q_i [B, L, H], i = 1, \dots, n_H"),
        (rf"[K_1, \dots, K_{{{few}}}] = Partition_{{-1}}(K)", "", rf"K_j [B, L, H], j = 1, \dots, {few}"),
        (r"T_i = Repeat(K_j), i = 1, \dots, n_H", rf"K_j [B, L, H], j = 1, \dots, {few}", "T_i [B, L, H]"),
        (r"P_i = softmax(Q_i T_i^T), i = 1, \dots, n_H", "", "P_i [B, L, L]"),
        (r"Z_i = P_i T_i, i = 1, \dots, n_H", "", "Z_i [B, L, H]"),
        (r"Z = Merge_{-1}([Z_1, \dots, Z_{n_H}])", "", "Z [B, L, D]"),
        ("y = Z W^O", "W^O [D, D]", "y [B, L, D]"),
    )


def test_an_axis_of_size_one_is_no_pair() -> None:
    """Grouped heads are cut by their key heads; one key head is shared by all ranks, which cut the queries' heads."""
    many = grouped("n_{kv}")
    assert labels(many, paired_axes(many)) == ["n_kv"]
    weight = {*many.tensors["W^K"].axes}
    assert weight & {*paired_axes(many)}
    one = grouped("1")
    assert one.axes[paired_axes(one)[0]].size.name == "n_H"
    assert not {*one.tensors["W^K"].axes} & {*paired_axes(one)}
    assert labels(many, paired_axes(many, {"n_kv": Fraction(1)})) == ["n_H/n_kv"]


def test_a_configuration_with_one_key_head_cuts_its_query_heads() -> None:
    model = sc.load({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 1, "intermediate_size": 256, "vocab_size": 100,
    })  # fmt: skip
    layer = model.part("layer").graph
    assert labels(layer, paired_axes(layer)) == ["n_H", "F"]
    heads, narrow, wide = 64 * 64, 64 * 8, 64 * 256
    assert model.parameters().at().value == 2 * 100 * 64 + 64 + 3 * (2 * heads + 2 * narrow + 3 * wide + 2 * 64)
    assert not re.search("n_kv", model.tables[-1])
