"""What was once accepted and wrong, or accepted in silence: each is refused, or read in the only way it can be."""

from pathlib import Path

import pytest
from api import (
    AccountingError,
    ShapeError,
    StrategyError,
    SymcommError,
    ValuesError,
    num,
    parse_problem,
    plain,
    read_problem,
)

import symcomm as sc

EXAMPLES = Path(__file__).parents[2] / "examples"

HEAD = "Computation\tInput\tOutput\n"
BLOCK = HEAD + "h = gelu(x W)\tx [B, D], W [D, F]\th [B, F]\ny = h V\th [B, F], V [F, D]\ty [B, D]\n"
ONE = HEAD + "y = x W\tx [B, D], W [D, F]\ty [B, F]\n"


def told(error):
    """The message and the hint of an error."""
    return f"{error.value.message} | {error.value.hint}"


def test_a_batch_that_the_table_has_already_is_refused():
    with pytest.raises(ShapeError) as error:
        sc.load(BLOCK, batch="B")
    assert told(error) == "B is a size of x already, and batch: B puts another axis before it | leave out 'batch'"
    assert error.value.span.word == "x [B, D]"


@pytest.mark.parametrize("name", ["D", "F", "B"])
def test_a_size_of_the_table_is_no_number_of_repetitions(name):
    with pytest.raises(ShapeError, match=f"{name} is a size of . already, and repeat: {name} stacks the layer"):
        sc.load(BLOCK, repeat=name)


def test_a_layer_whose_output_is_not_the_next_input_is_not_repeated():
    with pytest.raises(ShapeError) as error:
        sc.load(ONE, repeat="N")
    assert error.value.message == "layer cannot be repeated: it makes y [B, F], and the next one would read x [B, D]"
    assert "leave out 'repeat'" in error.value.hint


@pytest.mark.parametrize("twice", ["tensor(2) + tensor(2)", "data(2) + data(2)", "data(2) + zero-1(2)",
                                   "tensor(2) + sequence + sequence"])  # fmt: skip
def test_a_mesh_axis_that_cuts_the_same_axes_twice_is_refused(twice):
    with pytest.raises(StrategyError, match="cuts the same axes twice") as error:
        sc.load(BLOCK).communication(twice)
    assert "name each strategy once" in error.value.hint


@pytest.mark.parametrize(
    ("size", "numbers", "message"),
    [
        ("D-E", {"D": 2, "E": 4}, "D - E of x is -2 at D = 2, E = 4, but a size is a positive whole number"),
        ("D-E", {"D": 4, "E": 4}, "D - E of x is 0 at D = 4, E = 4, but a size is a positive whole number"),
        ("D/3", {"D": 4}, "D/3 of x is 4/3 at D = 4, but a size is a positive whole number"),
    ],
)
def test_a_size_that_numbers_make_no_positive_whole_number_is_refused_at_every_door(size, numbers, message):
    table = HEAD + f"y = x W\tx [B, {size}], W [{size}, F]\ty [B, F]\n"
    model = sc.load(table)
    for ask in (
        lambda: model.flops().at(B=1, F=3, **numbers),
        lambda: model.parameters().at(F=3, **numbers),
        lambda: model.at(**numbers),
        lambda: sc.load(table, values=numbers),
    ):
        with pytest.raises(ValuesError) as error:
            ask()
        assert error.value.message == message
        assert error.value.span.word.startswith("x [B")
    assert str(model.flops().at({"B": 1, "F": 3, "D": 6, "E": 3})) == ("18 FLOP" if size == "D-E" else "12 FLOP")


def test_slots_of_an_expert_are_an_average_and_need_not_divide():
    config = {"model_type": "mixtral", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
              "vocab_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 3,
              "num_experts_per_tok": 2}  # fmt: skip
    assert sc.load(config).flops().at(B=1, L=4).value > 0


def test_a_rank_holds_a_whole_number_of_bytes():
    """32 parameters with 4 bytes each, whole, and 12 bytes each over 7 ranks: 128 + 54.86."""
    model = sc.load(BLOCK)
    for made in (model.state_memory("zero-1(7)").at(D=4, F=4), model.at(D=4, F=4).state_memory("zero-1(7)").at()):
        assert str(made) == "183 B"
    [mean] = (c for c in model.state_memory("zero-1(7)").conventions if c.field == "shards")
    assert mean.statement.endswith("we use the average share, rounded up to whole bytes.")
    assert [*model.state_memory("zero-1(k)").sweep(k=[4, 7], D=4, F=4)["value"]] == [128 + 32 * 12 / 4, 183]
    # Of 16 elements in 4 rows the largest of 7 parts is a row of 4.
    assert model.state_memory("zero-1(7)", accounting="padded_shards").at(D=4, F=4).value == 32 * 4 + 2 * 4 * 12


def test_a_number_of_ranks_is_whole():
    with pytest.raises(ValuesError, match="k is 1/2, but it counts things: it must be whole"):
        sc.load(BLOCK).state_memory("zero-1(k)").at(k="1/2", D=4, F=4)
    with pytest.raises(ValuesError, match="k is 3/2, but it counts things: it must be whole"):
        sc.load(BLOCK).communication("tensor(k)", accounting="sent_per_rank").at(k="3/2", B=4, D=4, F=4)


@pytest.mark.parametrize("strategy", ["data(k)", "fsdp(k)", "tensor(k)"])
def test_a_number_of_ranks_is_whole_where_the_payload_does_not_depend_on_it(strategy: str):
    made = sc.load(BLOCK).communication(strategy)
    for ask in (made.at, made.sweep):
        with pytest.raises(ValuesError, match="k is 1/2, but"):
            ask(k=["1/2"] if ask == made.sweep else "1/2", B=4, D=4, F=4)


@pytest.mark.long
def test_a_share_that_an_answer_does_not_depend_on_may_be_a_fraction():
    """The utilisation of the example is 80 %; not every answer depends on it."""
    problem = read_problem(EXAMPLES / "linear-layer-roofline" / "linear-layer.md")
    made = [sc.key_of(problem, ask).derivation for ask in problem.asks]
    assert all(one.at(eta="4/5") == one.at() for one in made if not {*one.needs} - one.values().keys())


GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 16}
ROBERTA = {"model_type": "roberta", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 18, "type_vocab_size": 2}  # fmt: skip
OPT = {"model_type": "opt", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
       "vocab_size": 64, "max_position_embeddings": 16, "word_embed_proj_dim": 48}  # fmt: skip


@pytest.mark.parametrize("config", [GPT2, ROBERTA, OPT], ids=["gpt2", "roberta", "opt"])
def test_a_sequence_longer_than_the_table_of_positions_is_refused(config):
    """RoBERTa's first position is row 2 of its table; OPT's table has two rows more than its configuration says."""
    model = sc.load(config)
    assert model.flops().at(B=1, L=16).value > 0
    for ask in (lambda: model.flops().at(B=1, L=17), lambda: model.at(L=17), lambda: sc.load(config, values={"L": 17})):
        with pytest.raises(ValuesError, match="L is 17, but the table of positions ends at 16") as error:
            ask()
        assert "choose L up to that, or n_pos = " in error.value.hint


def test_an_mfu_above_one_is_refused():
    model = sc.load("examples/comp4901y-homework2/homework.md")
    for ask in (
        lambda: model.throughput(of="mfu", step="1 us", device="A100-SXM4-80GB"),
        lambda: model.throughput(of="mfu", step="T", device="A100-SXM4-80GB").at(T="1 us"),
    ):
        with pytest.raises(ValuesError) as error:
            ask()
        assert error.value.message == "MFU would be 75 813 450: no device is faster than its peak rate"
        assert error.value.hint == "the time or rate is measured over a whole step of the batch, on all devices"


ADJACENCY = [
    ("h = A X", "A [n, n], X [n, d]", "h [n, d]", "0", "n**2"),
    ("h = A X", "A [L, L], X [B, L, D]", "h [B, L, D]", "0", "L**2"),
    (r"h = \hat{A} X W", r"\hat{A} [n, n], X [n, d], W [d, f]", "h [n, f]", "d*f", "d*f + n**2"),
]


@pytest.mark.parametrize(("row", "inputs", "output", "data", "weight"), ADJACENCY)
def test_a_square_matrix_that_mixes_positions_is_asked_about(row, inputs, output, data, weight):
    """The adjacency of a graph is data, the matrix of a mixer is learned: the table alone does not tell."""
    table = HEAD + f"{row}\t{inputs}\t{output}\n"
    with pytest.raises(ShapeError, match="as data or as a weight: it mixes positions") as error:
        sc.load(table)
    assert "say which: inputs: [A" in error.value.hint
    assert str(sc.load(table, inputs=["A"]).parameters().expr) == data
    assert str(sc.load(table, weights=["A"]).parameters().expr) == weight


def test_a_matrix_that_multiplies_a_vector_or_features_is_a_weight_still():
    assert str(sc.load(HEAD + "y = A x\tA [n, n], x [n]\ty [n]\n").parameters().expr) == "n**2"
    assert str(sc.load(HEAD + "y = x A\tx [B, D], A [D, D]\ty [B, D]\n").parameters().expr) == "D**2"


def test_a_misspelt_key_of_a_configuration_is_told_with_the_near_name():
    config = {"model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_head": 2, "vocab_size": 64, "pretraining_tp": 1}  # fmt: skip
    said = [note for note in sc.load(config).notes if "is not read" in note]
    assert said == ["num_key_value_head is not read: did you mean 'num_key_value_heads'?"]
    config["num_key_value_heads"] = config.pop("num_key_value_head")
    assert not any("is not read" in note for note in sc.load(config).notes)


@pytest.mark.parametrize("strategy", [None, "data(4)"])
def test_a_number_with_a_name_that_means_nothing_is_refused_unless_it_is_one_of_several_questions(strategy):
    model = sc.load(BLOCK)
    made = model.communication(strategy) if strategy else model.flops()
    for _ in range(3):  # the second time a derivation with symbols for the degrees is asked
        with pytest.raises(ValuesError, match="has no symbol 'q'") as error:
            made.at(B=4, D=2, F=3, q=2)
        assert "numbers of several questions go in a mapping: at({...})" in error.value.hint
        assert made.at({"B": 4, "D": 2, "F": 3, "q": 2}) == made.at({"q": 2}, B=4, D=2, F=3) == made.at(B=4, D=2, F=3)
        made = model.communication(strategy) if strategy else model.flops()
    with pytest.raises(ValuesError, match="has no symbol 'd'") as error:
        made.at({"B": 4, "d": 2, "F": 3})  # a slip is refused there, too
    assert error.value.hint == "did you mean 'D'?"


def test_a_letter_is_explained_by_what_is_said_or_by_its_role_and_never_by_guess():
    classes = sc.load(HEAD + "y = x W\tx [n, D], W [D, C]\ty [n, C]\n", values={"C": 1000})
    said = classes.communication("data(r)").notation
    assert {name: said.meaning(name) for name in ("n", "D", "C", "r", "k", "m")} == {
        "n": "batch size", "D": "", "C": "", "r": "number of ranks in the collective", "k": "", "m": "",
    }  # fmt: skip
    own = sc.load(HEAD + "y = x W\tx [n, D], W [D, C]\ty [n, C]\n", notation=sc.Notation(meanings={"C": "classes"}))
    assert own.flops().notation.meaning("C") == "classes"


def test_a_page_does_not_call_a_number_of_classes_the_capacity_of_an_expert():
    table = "| Computation | Input | Output |\n|---|---|---|\n| y = x W | x [B, D], W [D, C] | y [B, C] |\n\n"
    page = table + "```symcomm\nmodel: head\n```\n\n```symcomm\nask: flops\ngiven: {B: 2, D: 3, C: 1000}\n```\n"
    [answer] = sc.solve(parse_problem(page)).answers()
    assert {given.name: given.meaning for given in answer.given} == {"B": "batch size", "D": "", "C": ""}


def test_several_conventions_are_given_as_a_list_in_python_as_in_documents():
    made = sc.load(BLOCK).communication("data(k)", accounting=["sent_per_rank", {"algorithm": "tree"}])
    assert (made.accounting.communication, made.accounting.algorithm) == ("sent_per_rank", "tree")
    with pytest.raises(AccountingError, match="communication is both sent_per_rank and all_links"):
        sc.load(BLOCK).communication("data(k)", accounting=["sent_per_rank", "all_links"])


@pytest.mark.parametrize(("value", "kind"), [(b"x", "bytes"), (["x"], "list"), (3, "int")])
def test_a_convention_that_is_no_name_is_refused(value, kind):
    with pytest.raises(AccountingError) as error:
        sc.Accounting(flops=value)
    assert told(error) == f"flops is of the type {kind}, but a convention is a name | such as 'fma2'"


def test_a_question_that_needs_no_model_is_asked_in_one_call():
    """5 buckets of 6.6 GB: five overheads of 2 ms and one transfer of 66 ms are left."""
    assert str(sc.derive("buckets", s="33 GB", w="100 GB/s", o="2 ms").at(n_b=5)) == "0.076 s = 76 ms"
    assert sc.derive("buckets", s="33 GB").needs == ("n_b", "o", "w")
    with pytest.raises(ValuesError) as error:
        sc.derive("flops")
    assert told(error) == "flops needs a model | sc.load('config.json').flops()"
    with pytest.raises(ValuesError, match="s is given in B/s, but it is in B"):
        sc.derive("buckets", s="33 GB/s")
    with pytest.raises(ValuesError, match="has no symbol 'S'"):
        sc.derive("buckets", S="33 GB")


HUGE = 10**5000


@pytest.mark.parametrize("ask", [
    lambda model: model.flops().at(B=HUGE, D=1, F=1),
    lambda model: model.flops().at(B=-HUGE, D=1, F=1),
    lambda model: model.at(B=HUGE),
    lambda model: sc.load(BLOCK, values={"B": HUGE}),
    lambda model: model.flops().sweep(B=[1, HUGE], D=1, F=1),
])  # fmt: skip
def test_a_number_of_thousands_of_digits_is_refused(ask):
    with pytest.raises(ValuesError, match="B has more than 1,000 digits"):
        ask(sc.load(BLOCK))


def test_a_number_of_thousands_of_digits_is_refused_in_a_configuration():
    with pytest.raises(SymcommError, match=r"this is no JSON: a number has more than 4,300 digits"):
        sc.load('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}")


def test_a_product_of_long_numbers_is_written():
    long = 10**999
    assert str(sc.load(BLOCK).flops().at(B=long, D=long, F=long)).startswith("4 000 000")


FIVE = HEAD + "y = x W\tx [B, C, D, E], W [E, F]\ty [B, C, D, F]\n"


def test_a_result_beyond_4300_digits_is_read_as_a_power_of_ten_at_every_door():
    """Two times five numbers of 1,000 digits each: 2·10^4995."""
    long = dict.fromkeys("BCDEF", 10**999)
    flops = sc.load(FIVE).flops()
    found = flops.at(**long)
    assert found.value == 2 * 10**4995
    assert (str(found), found.relation) == ("2·10^4995 FLOP", "≈")
    assert str(found.to("TFLOP")) == "≈ 2·10^4983 TFLOP"
    assert "2·10^4995 FLOP" in repr(found)
    assert "2·10<sup>4995</sup>" in found._repr_html_()
    given = sc.load(FIVE).at(**long).flops()
    for written in (given.text(), given.markdown(), given.latex(), given.html()):
        assert "4995" in written or "⁴⁹⁹⁵" in written
    with pytest.raises(ValuesError, match=r"2·10\^4995 FLOP is no float: these end at 10\^308"):
        float(found)
    with pytest.raises(ValuesError, match=r"is no float: these end at 10\^308"):
        flops.sweep(**{**long, "B": [1, 10**999]})


def test_a_formula_with_a_number_beyond_4300_digits_is_refused():
    with pytest.raises(ValuesError, match="a number of the formula has more than 4,300 digits"):
        plain(num(10**5000))


def test_two_names_of_conventions_in_a_list_hold_both():
    made = sc.load(BLOCK).communication("data(k)", accounting=["sent_per_rank", "pairwise"])
    assert (made.accounting.communication, made.accounting.algorithm) == ("sent_per_rank", "pairwise")


def test_rows_in_another_order_are_told_at_what_they_miss():
    table = HEAD + "y = h V\th [B, F], V [F, D]\ty [B, D]\nh = x W\tx [B, D], W [D, F]\th [B, F]\n"
    with pytest.raises(ShapeError) as error:
        sc.load(table)
    assert told(error) == "h is read here, and a row below computes it | put the row of h above this one"
    assert (error.value.span.line, error.value.span.word) == (2, "h [B, F]")


def test_a_member_of_a_family_with_an_index_of_its_own_hints_at_repeat():
    row = r"S_i = Q_i K_{j(i)}^T, i = 1, \dots, n_h"
    inputs = r"Q_i [B, L, H], K_j [B, L, H], i = 1, \dots, n_h, j = 1, \dots, n_{kv}"
    with pytest.raises(SymcommError) as error:
        sc.load(HEAD + f"{row}\t{inputs}\tS_i [B, L, L]\n")
    assert error.value.hint == "a row computes all members at once: write K_j, or Repeat(K_j) in a row of its own"


def test_a_member_with_an_index_of_its_own_is_no_input_beside_its_family():
    """Before, K_{j(i)} was read as one more tensor from outside, and K_j by nothing."""
    row = r"S_i = Q_i K_{j(i)}^T, i = 1, \dots, n_h"
    with pytest.raises(SymcommError) as error:
        sc.load(HEAD + f"{row}\tQ_i [B, L, H], K_{{j(i)}} [B, L, H], i = 1, \\dots, n_h\tS_i [B, L, L]\n")
    assert error.value.message == "'K_j(i)' is one member of a family"
    assert error.value.hint == "a row computes all members at once: write K_j, or Repeat(K_j) in a row of its own"
    assert error.value.span.word == "K_{j(i)}"


def test_a_number_that_is_missing_is_asked_for_with_where_to_give_it():
    model = sc.load(BLOCK)
    with pytest.raises(ValuesError) as error:
        model.flops().at(D=3)
    assert error.value.message == "Forward FLOPs needs a value for B, F"
    assert error.value.hint == "for instance at(B=8), --at B=8, or given: {B: 8} in a document"
    with pytest.raises(ValuesError, match="no value is given for D, F, B") as error:
        model.peak_memory()
    assert error.value.hint == "for instance model.at(D=8), --at D=8, or given: {D: 8} in a document"
