"""What a teacher writes in a first homework is read, or the error says what to write."""

import pytest
from api import QUANTITIES, parse_problem

import symcomm as sc

HEAD = "Computation\tInput\tOutput\n"
TABLE = (
    "| Computation | Input | Output |\n|-|-|-|\n"
    r"| $y = xW$ | $x \in R^{B \times D}, W \in R^{D \times n_{KV}}$ | $y \in R^{B \times n_{KV}}$ |"
)


def answers(block: str, model: str = "model: layer", table: str = TABLE) -> list[str]:
    text = f"---\ntitle: x\n---\n\n{table}\n\n```symcomm\n{model}\n```\n\n## 1. Q\n\n```symcomm\n{block}\n```\n"
    return [str(answer.quantity) for answer in sc.solve(parse_problem(text, "h.md")).answers()]


def test_a_name_in_latex_is_a_key_of_yaml():
    assert answers("ask: flops\ngiven:\n  n_{KV}: 8\n  B: 2\n  $D$: 4") == ["128 FLOP"]
    with pytest.raises(sc.SymcommError, match="hint: inside of braces a name has none of its own: write n_KV"):
        answers("ask: flops\ngiven: {n_{KV}: 8, B: 2, D: 4}")


@pytest.mark.parametrize("given", ["h, V [F, D]", "V [F, D], h", "h [B, F], V [F, D]"])
def test_a_name_of_a_row_above_has_its_shape(given: str):
    model = sc.load(HEAD + f"h = xW\tx [B, D], W [D, F]\th [B, F]\ny = hV\t{given}\ty [B, D]\n")
    assert str(model.flops().at(B=2, D=3, F=5)) == "120 FLOP"  # 2·2·3·5, twice


def test_a_contradicting_shape_is_still_refused():
    with pytest.raises(sc.SymcommError, match="h is F × D here, but B × F above"):
        sc.load(HEAD + "h = xW\tx [B, D], W [D, F]\th [B, F]\ny = hV\th [F, D], V [F, D]\ty [B, D]\n")


def test_an_index_of_a_row_above_runs_below_and_the_row_that_lacks_it_is_told():
    rows = HEAD + "Q_i = xW_i, i = 1, \\dots, n\tx [B, D], W_i [D, H]\tQ_i [B, H]\nS_i = Q_i V\tV [H, H]\tS_i [B, H]\n"
    assert str(sc.load(rows).flops().at(B=2, D=3, H=5, n=7)) == "1120 FLOP = 1.12 kFLOP"  # 2·7·2·5·(3 + 5)
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(rows + "T = S_i U\tU [H, H]\tT [B, H]\n")
    assert str(caught.value).startswith("<text>:4, column Computation: T and its formula do not run over the same")


def test_an_index_that_ran_to_two_ends_above_has_to_be_said_again():
    rows = (
        "Q_i = xW_i, i = 1, \\dots, n\tx [B, D], W_i [D, H]\tQ_i [B, H]\n"
        "P_i = xV_i, i = 1, \\dots, m\tV_i [D, H]\tP_i [B, H]\nS_i = xU_i\tU_i [D, H]\tS_i [B, H]\n"
    )
    with pytest.raises(sc.SymcommError, match=r"<text>:4.*the index i ran to different ends in the rows above"):
        sc.load(HEAD + rows)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("bubble", "pipeline_time"), ("FLOP", "flops"), ("comm", "communication"), ("mem", "activation_memory"),
     ("param", "parameters"), ("xyzzy", "parameters, flops, communication")],
)  # fmt: skip
def test_an_unknown_quantity_finds_what_is_meant(asked: str, meant: str):
    assert meant in QUANTITIES.hint(asked)
    with pytest.raises(sc.SymcommError) as caught:
        answers(f"ask: {asked}")
    assert f"unknown quantity '{asked}'" in str(caught.value)
    assert QUANTITIES.hint(asked) in str(caught.value)


def test_a_gain_with_the_wrong_sign_of_multiplication_hints_at_the_right_one():
    with pytest.raises(sc.SymcommError, match=r"a product element by element is written \\odot"):
        sc.load(HEAD + "y = gamma * RMSNorm(x)\tx [B, D], gamma [D]\ty [B, D]\n")


def test_a_configuration_is_the_model_of_a_problem_file():
    said = "{model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, vocab_size: 128, n_positions: 32}"
    layer, embedding = 12 * 64 * 64 + 13 * 64, (128 + 32) * 64 + 2 * 64
    count = f"{(2 * layer + embedding):,} parameters".replace(",", " ")
    assert answers("ask: parameters", f"model: gpt\nconfig: {said}", "") == [count]
    with pytest.raises(sc.SymcommError, match=r"h\.md:10: 'loss' is yes or no, not 'maybe'"):
        answers("ask: parameters", f"model: gpt\nconfig: {said}\nloss: maybe", "")
    with pytest.raises(sc.SymcommError, match="'config' must be a configuration"):
        answers("ask: parameters", "model: gpt\nconfig: words", "")
