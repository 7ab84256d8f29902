"""What is written, placed and expected for runs in PyTorch; PyTorch itself is not needed here."""

from __future__ import annotations

import ast
import json
import socket
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from api import (
    EMITTERS,
    EXERCISES,
    FOUR,
    MAPS,
    METHODS,
    TWO,
    CallEntry,
    ComparedRow,
    GridCell,
    RenderError,
    RunCase,
    RunContext,
    StrategyError,
    SymcommError,
    ValuesError,
    Verification,
    VerificationError,
    _notes,
    batch_first,
    context_of,
    derived_flops,
    derived_parameters,
    derived_peak,
    derived_saved,
    expected_calls,
    identifier,
    launch,
    main,
    make_case,
    method,
    needed_memory,
    parse_strategy,
    practice,
    prepare,
    small_sizes,
    torch_module,
    with_products,
    without_dropout,
    write_practice,
)
from api import conventions_CONVENTIONS as CONVENTIONS
from api import grid_markdown as markdown
from api import model_load as load
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import HOMEWORK, LAYERS, configured, falcon, layer, model, shared_keys, whole


def lines(source: str, name: str) -> list[str]:
    """The lines of a written module that assign a name."""
    return [line.strip() for line in source.splitlines() if line.strip().startswith(f"{name} =")]


@pytest.mark.parametrize("beside", ["tensor(2)", "context(2)"])
def test_ulysses_beside_another_cut_of_heads_or_positions_is_not_run(beside: str):
    with pytest.raises(SymcommError) as caught:
        method(parse_strategy(f"{beside} + ulysses(2)"))
    name = beside.partition("(")[0].capitalize()
    assert str(caught.value) == (
        f"PyTorch has no way here to run {name} + Ulysses: DTensor does not exchange parts of parts\n"
        "hint: ulysses(2), or data(2) + ulysses(2)"
    )
    assert method(parse_strategy("data(2) + ulysses(2)")).name == "replicate+dtensor"


def test_a_ring_is_not_run():
    with pytest.raises(SymcommError) as caught:
        method(parse_strategy("data(2) + ring(2)"))
    assert str(caught.value) == (
        "PyTorch has no way here to run Data + Ring: DTensor gathers keys and values, it has no ring\n"
        "hint: context(2) sends as many bytes in the forward pass"
    )


def test_spread_tables_are_not_run():
    with pytest.raises(SymcommError) as caught:
        method(parse_strategy("data(2) + tables"))
    assert str(caught.value) == (
        "PyTorch has no way here to run Data + Tables: TorchRec, which spreads tables, is not run\n"
        "hint: data(2), which sums the gradients of all tables"
    )


def test_every_op_kind_has_an_emitter():
    others = {"contraction", "add", "convolution", "route", "onehot", "attention"}
    assert {kind.name for kind in MAPS} | others == {*EMITTERS}


@pytest.mark.few(10)
@pytest.mark.parametrize("path", [HOMEWORK, *LAYERS], ids=lambda p: p.stem)
def test_an_example_is_written_as_python_with_a_line_a_row(path: Path):
    graph = model(path).graph
    source = torch_module(graph).source
    tree = ast.parse(source)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(classes) == 1 + bool(graph.repeat)
    source = source.partition("class Model")[0]
    for op in graph.ops:
        tensor = graph.tensors[op.output]
        if tensor.latex and not (op.kind == "layernorm" and path.stem == "encoder"):  # there its gain follows
            assert len(lines(source, identifier(op.output))) == 1, op.output


def test_the_lines_of_the_homework_are_those_that_one_would_write():
    source = torch_module(model(HOMEWORK).graph).source
    assert lines(source, "Q") == ["Q = x @ self.W_Q  # Q: B × L × D"]
    assert lines(source, "Score_i") == [
        "Score_i = torch.softmax((Q_i @ K_i.mT) / math.sqrt(self.H), dim=-1)  # Score_i: n_H × B × L × L"
    ]
    assert lines(source, "Z") == ["Z = Z_i.permute(1, 2, 0, 3).flatten(2, 3)  # Z: B × L × D"]


@given(st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_name_becomes_one_python_name(name: str):
    made = identifier(name)
    assert made.isidentifier()
    assert made.isascii()
    assert identifier(name, [made]) != made


HOSTILE = 'x"""\n__import__("os").system("true")\n#'


def test_a_title_cannot_leave_its_docstring():
    graph = load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n").graph
    tree = ast.parse(torch_module(graph, HOSTILE).source)
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "__import__" not in calls


def test_what_only_names_weights_is_not_written():
    graph = replace(model(HOMEWORK).graph, flow=False)
    with pytest.raises(RenderError, match="not what feeds what"):
        torch_module(graph)


# -- sizes ------------------------------------------------------------------------------------------------


def test_small_sizes_keep_the_relations_and_what_is_given():
    sizes = small_sizes(model(HOMEWORK).graph, {"L": Fraction(5)}, unit=4)
    assert sizes["L"] == 5
    assert sizes["D"] == sizes["n_H"] * sizes["H"]
    assert sizes["B"] % 4 == sizes["n_H"] % 4 == 0


@given(st.integers(1, 12), st.integers(1, 9), st.sampled_from([2, 4]))
def test_a_product_that_is_given_is_met_by_its_factors(heads: int, width: int, unit: int):
    graph = model(HOMEWORK).graph
    whole_product = heads * width * unit
    sizes = small_sizes(graph, {"D": Fraction(whole_product)}, unit)
    assert sizes["D"] == whole_product == sizes["n_H"] * sizes["H"]
    sizes = small_sizes(graph, {"D": Fraction(whole_product), "n_H": Fraction(heads)}, unit)
    assert (sizes["n_H"], sizes["H"]) == (heads, width * unit)


@pytest.mark.parametrize(
    ("given_sizes", "said"),
    [
        ({"Q": Fraction(2)}, "the model has no size 'Q'"),
        ({"L": Fraction(3, 2)}, "L is 3/2, which is no size of an axis"),
    ],
)
def test_sizes_that_cannot_be_are_refused(given_sizes: dict[str, Fraction], said: str):
    with pytest.raises(ValuesError, match=said):
        small_sizes(model(HOMEWORK).graph, given_sizes)


# -- what is expected -------------------------------------------------------------------------------------


def calls(name: str, strategy: str, schedule: str = "1f1b") -> dict[tuple[str, str, str], tuple[Fraction, int | None]]:
    case = make_case(model(HOMEWORK) if name == "homework" else layer(name), strategy, {}, schedule, 2)
    return expected_calls(case, context_of(case))[1]


def test_a_rank_of_tensor_parallelism_computes_its_part_of_the_operations():
    one = make_case(model(HOMEWORK), None, {}, "1f1b", 2)
    two = make_case(model(HOMEWORK), "tensor(2)", dict.fromkeys((), Fraction(1)), "1f1b", 2)
    assert one.sizes == two.sizes
    assert derived_flops(one) == 2 * derived_flops(two)


def test_a_pipeline_sends_one_boundary_less_where_its_chunks_meet_on_a_rank():
    elements = {s: calls("homework", "pipeline(2, microbatches=4)", s)["send", "forward", "pipe"] for s in
                ("1f1b", "interleaved", "zb-v")}  # fmt: skip
    # 8 · 6 · 32 numbers over each boundary, in 4 messages: 1 boundary, 3 of 4 chunks, and 2 where the V turns.
    assert elements == {"1f1b": (1536, 4), "interleaved": (4608, 12), "zb-v": (3072, 8)}


def test_the_rows_of_a_weight_are_filled_up_for_all_ranks():
    made = CONVENTIONS["padded_rows"].rewrite(
        [
            CallEntry("all-gather", "forward", "data", "W", Fraction(35)),
            CallEntry("send", "forward", "pipe", "x", Fraction(9)),
        ],
        RunContext({"W": (7, 5)}, {"data": 4}),
    )
    assert [e.elements for e in made] == [40, 9]  # 8 rows of 5


def test_a_partial_sum_is_reduced_before_a_product_reads_it():
    case = make_case(layer("mixture-of-experts"), "tensor(2)", {}, "1f1b", 2)
    raw = expected_calls(case, context_of(case))[0]
    made = calls("mixture-of-experts", "tensor(2)")
    experts = 2 * case.number(case.graph.volume("Y_e"))  # in two layers
    assert made["all-reduce", "forward", "tensor"][0] == experts
    assert raw["all-reduce", "forward", "tensor"][0] == 2 * case.number(case.graph.volume("y"))


def test_a_weight_that_two_stages_share_is_counted_on_both():
    one, folded = (make_case(whole("gpt2"), "pipeline(2, microbatches=4)", {}, s, 2) for s in ("1f1b", "zb-v"))
    table = Fraction(one.sizes["V"] * one.sizes["D"])
    alone = make_case(whole("gpt2"), None, {n: Fraction(v) for n, v in one.sizes.items()}, "1f1b", 2)
    assert derived_parameters(one) == derived_parameters(alone) + table
    assert expected_calls(one, context_of(one))[1]["all-reduce", "backward", "pipe"] == (2 * table, 2)
    # A V has its first and its last stage on one rank: nothing is held or summed twice.
    known = {n: Fraction(v) for n, v in folded.sizes.items()}
    assert derived_parameters(folded) == derived_parameters(make_case(whole("gpt2"), None, known, "1f1b", 2))
    assert ("all-reduce", "backward", "pipe") not in expected_calls(folded, context_of(folded))[1]


def test_dtensor_sums_the_gradient_of_a_weight_for_each_microbatch_but_not_between_stages():
    context = RunContext({"g": (4,)}, {"tensor": 2}, microbatches=3)
    made = CONVENTIONS["reduced_each_time"].rewrite(
        [CallEntry("all-reduce", "backward", group, tensor, Fraction(4)) for group, tensor in
         (("tensor", "g"), ("tensor", "x"), ("pipe", "g"))], context)  # fmt: skip
    assert [(e.total, e.calls) for e in made] == [(12, 3), (4, 1), (4, 1)]


def test_what_stands_around_dtensor_sums_a_gradient_once_and_gathers_a_weight_once_for_all_microbatches():
    context = RunContext({"W": (4,)}, {"data": 2}, microbatches=3, outside=frozenset({"data"}))
    gathers = (("forward", "W"), ("forward", "x"), ("update", "W"))
    entries = [CallEntry("all-gather", phase, "data", tensor, Fraction(4), None, 6) for phase, tensor in gathers]
    assert [e.times for e in CONVENTIONS["gathered_once"].rewrite(entries, context)] == [2, 6, 6]
    summed = CallEntry("all-reduce", "backward", "data", "W", Fraction(4))
    assert CONVENTIONS["reduced_each_time"].rewrite([summed], context) == [summed]


def test_a_pipeline_of_sharded_stages_gathers_each_weight_once_and_scatters_its_gradient_once():
    case = make_case(model(HOMEWORK), "pipeline(2, microbatches=4) + fully-sharded(2)", {}, "1f1b", 2)
    derived, made, _ = expected_calls(case, context_of(case))
    weights = 4 * 12 * case.sizes["D"] ** 2  # of all layers, and each of four ranks takes part in calls for two of them
    assert made["all-gather", "forward", "data"][0] == made["reduce-scatter", "backward", "data"][0] == weights
    assert derived["all-gather", "forward", "data"][0] == 4 * weights  # for each microbatch


@pytest.mark.parametrize(
    ("name", "strategy", "algorithm", "said"),
    [
        ("gpt2", "context(2) + tensor(2)", "", "is a loss over cut classes, which loss_parallel takes on a mesh"),
        ("llama", "zero-1(2) + tensor(2)", "", "run ZeRO-1 . Tensor: ZeroRedundancyOptimizer deals out whole weights"),
        ("llama", "zero-1(2) + pipeline(2, microbatches=4)", "", "ZeroRedundancyOptimizer deals out whole weights"),
        ("llama", "cut(D, 2)", "", "is reduced along a cut axis: DTensor gathers the axis, where statistics are"),
        ("llama", "data(2)", "double_tree", "gloo, which carries these runs, does not send by 'double_tree'"),
        ("llama", "pipeline(2, microbatches=4)", "ring", "messages between stages are sent as they are"),
    ],
)
def test_what_pytorch_cannot_do_is_refused_with_its_reason(name: str, strategy: str, algorithm: str, said: str):
    with pytest.raises(StrategyError, match=said):
        prepare(whole(name), strategy, algorithm=algorithm)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [("data(2)", "ddp"), ("zero-1(2)", "zero1"), ("fully-sharded(2)", "fsdp2"), ("hybrid-sharded(2, 2)", "fsdp2"),
     ("context(2)", "dtensor"), ("fully-sharded(2) + tensor(2)", "fsdp2+dtensor"),
     ("zero-2(2) + tensor(2)", "fsdp2+dtensor"), ("hybrid-sharded(2, 2) + tensor(2)", "fsdp2+dtensor"),
     ("data(2) + tensor(2)", "replicate+dtensor"), ("expert + data(2)", "dtensor"),
     ("pipeline(2)", "pipelining"), ("pipeline(2) + data(2)", "pipelining+replicate"),
     ("pipeline(2) + tensor(2)", "pipelining+dtensor"), ("pipeline(2) + zero-2(2)", "pipelining+fsdp2"),
     ("pipeline(2) + fully-sharded(2)", "pipelining+fsdp2"),
     ("pipeline(2) + data(2) + tensor(2)", "pipelining+replicate+dtensor"),
     ("pipeline(2) + hybrid-sharded(2, 2) + context(2)", "pipelining+fsdp2+dtensor")],
)  # fmt: skip
def test_a_strategy_is_run_by_its_part_of_pytorch(strategy: str, name: str):

    assert method(parse_strategy(strategy)).name == name
    assert name.removeprefix("pipelining+") in {one.name for one in METHODS} | {"pipelining"}


def test_a_product_of_rows_that_two_axes_of_the_mesh_cut_is_refused():
    """BERT's head multiplies what rests in parts of parts of a sequence with a weight that no axis cuts."""
    with pytest.raises(StrategyError) as told:
        prepare(whole("bert"), "context(2) + tensor(2) + sequence")
    assert str(told.value) == (
        "m·13 is a product of rows that two axes of the mesh cut behind another axis: DTensor flattens them with the "
        "axes before them, and cannot split them again\nhint: one of the two: context(2), or tensor(2) + sequence"
    )


@pytest.mark.parametrize(("name", "what"), [("mixtral", "d"), ("deepseek", "q")])
def test_tokens_of_experts_that_sequence_parallelism_alone_cuts_are_refused(name: str, what: str):
    """Each rank has all experts; derived is a gather of what comes back to its tokens, DTensor sums over the slots."""
    with pytest.raises(StrategyError) as told:
        prepare(configured(name), "sequence(2)")
    assert str(told.value) == (
        f"{what} is cut, and autograd cuts the gradients of what it reads from experts, too: here they are derived for "
        "all tokens\nhint: tensor(2) + sequence, or data(2)"
    )


@pytest.mark.parametrize(("heads", "sequences", "strategy", "told"), [
    (1, 1, "", True), (1, 2, "", False), (2, 1, "", False), (1, 2, "data(2)", True), (1, 2, "fully-sharded(2)", True),
    (1, 1, "context(2)", True), (1, 2, "context(2)", False),
])  # fmt: skip
def test_saved_bytes_are_not_compared_where_a_repetition_of_heads_is_a_view(
    heads: int, sequences: int, strategy: str, told: bool
):
    """A rank repeats one head of keys of one sequence by a stride of 0; of several the product makes a copy."""
    sizes = {"n_kv": Fraction(heads), "B": Fraction(sequences)}
    notes = _notes(prepare(whole("llama", loss=False), strategy, sizes, softmax="library").case)
    note = ("Saved bytes are not compared: PyTorch repeats one head of one sequence by a view, and a copy for each "
            "head that shares it is derived.")  # fmt: skip
    assert (note in notes) == told


def test_biases_of_heads_are_cut_with_the_heads_where_the_embedding_is_whole():
    """No gradient of a bias for each pair of positions is gathered for a table that has a column for each head."""
    plan = make_case(configured("t5"), "tensor(2, embedding=whole)", {}, "1f1b", 2).plan
    assert plan.placements["w^R_i"] == plan.placements["positions:w^R_i"] == (("tensor", 0),)  # n_H × n_bucket
    assert not any("b_i" in call.tensor for call in plan.collectives)


def test_a_class_token_of_a_sequence_that_is_cut_is_refused():
    with pytest.raises(StrategyError) as told:
        prepare(configured("vit"), "context(2)")
    assert str(told.value) == (
        "c takes one place of an axis that is cut: DTensor gathers the axis, where the place alone is derived\n"
        "hint: cut the batch or the heads: data(2), tensor(2)"
    )


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_layer_gathers_and_scatters_twice_a_pass_wherever_its_norms_stand(name: str):
    """Korthikanti et al., arXiv 2205.05198, section 4.2.2: before and behind attention and feed-forward.

    Behind the norm of BERT the gradient of a residual is added to three partial sums, of queries, keys and values.
    """
    plan = make_case(whole(name), "tensor(2) + sequence", {}, "1f1b", 2).plan
    layer = {op.output for op in plan.graph.ops if op.region == "layer"}
    found = Counter((c.kind, c.phase) for c in plan.collectives if c.op in layer and c.kind != "all-reduce")
    kinds, phases = ("all-gather", "reduce-scatter"), ("forward", "backward")
    assert found == {(kind, phase): 2 for kind in kinds for phase in phases}


def test_two_units_cannot_share_a_weight_on_one_rank():
    strategy = "pipeline(2, microbatches=4) + fully-sharded(2)"
    with pytest.raises(StrategyError, match="the first and the last stage share a weight on one rank"):
        prepare(whole("gpt2"), strategy, schedule="zb-v")
    assert prepare(whole("llama"), strategy, schedule="zb-v").spec["homes"] == [0, 1, 1, 0]  # two tables
    assert prepare(whole("gpt2"), strategy).spec["shard_meshes"] == ["data"]


@pytest.mark.parametrize(
    ("strategy", "schedule", "said"),
    [
        ("data(16)", "1f1b", "Data takes 16 processes; at most 8 are started"),
        ("data(k)", "1f1b", "k of Data has no number"),
        ("expert + data(2)", "1f1b", "transformer has no experts to spread"),
        ("pipeline(layers=1:1, microbatches=2)", "1f1b", "a pipeline of stages that are all alike"),
        ("pipeline(2, microbatches=4)", "dualpipe", "has no schedule 'dualpipe' here"),
    ],
)
def test_what_cannot_be_run_is_told(strategy: str, schedule: str, said: str):
    with pytest.raises((StrategyError, VerificationError), match=said):
        make_case(model(HOMEWORK), strategy, {}, schedule, 2)


# -- what is found ----------------------------------------------------------------------------------------


def found(*rows: ComparedRow, error: float = 0.0) -> Verification:
    return Verification("m", "Data", "DistributedDataParallel", 2, {"B": 2}, rows, error, "2.13.0")


SAME = ComparedRow("FLOPs", "FLOP", Fraction(8), Fraction(8), Fraction(8))
EXPLAINED = ComparedRow("all-gather", "B", Fraction(35), Fraction(40), Fraction(40), ("padded_rows",))
OTHER = ComparedRow("all-gather", "B", Fraction(35), Fraction(40), Fraction(41), ("padded_rows",))


def test_a_run_holds_where_nothing_is_left_unexplained():
    assert found(SAME, EXPLAINED).holds
    assert not found(SAME, OTHER).holds
    assert not found(SAME, error=0.01).holds
    assert found(SAME, OTHER).json()["rows"][1]["difference"] == 1
    json.dumps(found(SAME, EXPLAINED).json())


def test_the_grid_is_a_table_with_the_conventions_below():
    cells = [GridCell("m", "data(2)", "", found(SAME)), GridCell("n", "data(2)", "", found(EXPLAINED)),
             GridCell("m", "tensor(2)", "", None, "no pair"), GridCell("n", "tensor(2)", "", found(OTHER))]  # fmt: skip
    number = [*CONVENTIONS].index("padded_rows") + 1
    text = markdown(cells)
    assert f"| `data(2)` | DistributedDataParallel | = | = ({number}) |" in text
    assert f"| `tensor(2)` | DistributedDataParallel | – | ≠ ({number}) |" in text
    assert f"- ({number}) *padded_rows*" in text


def test_the_grid_runs_two_and_four_processes():
    for runs, ranks in ((TWO, 2), (FOUR, 4)):
        for strategy, schedule in runs:
            if "expert" not in strategy:
                assert make_case(model(HOMEWORK), strategy, {}, schedule or "1f1b", 2).ranks == ranks


# -- errors before anything is started ----------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def version(said: str | None) -> None:
        def answer(name: str) -> str:
            if said is None:
                raise metadata.PackageNotFoundError(name)
            return said

        monkeypatch.setattr(launch.metadata, "version", answer)

    return version


def test_pytorch_that_is_missing_or_too_old_is_told(installed: Any):
    installed(None)
    with pytest.raises(VerificationError) as told:
        launch.torch_version()
    assert str(told.value) == 'PyTorch is not installed\nhint: pip install "torch<3,>=2.6"'
    installed("2.1.0")
    with pytest.raises(VerificationError, match=r"PyTorch 2\.1\.0 is too old"):
        launch.torch_version()
    installed("2.13.0+cpu")
    assert launch.torch_version() == "2.13.0+cpu"


def test_verify_without_pytorch_ends_with_status_2_and_leaves_no_file(installed: Any, tmp_path: Path):
    installed(None)
    out = tmp_path / "out.json"
    result = CliRunner().invoke(main, ["verify", str(HOMEWORK), "--strategy", "data(2)", "--json", "-o", str(out)])
    assert result.exit_code == 2
    assert "PyTorch is not installed" in result.output
    assert not out.exists()


def test_small_sizes_have_a_row_of_a_table_for_every_position():
    for length in ({}, {"L": Fraction(10)}):
        sizes = small_sizes(whole("gpt2").graph, length)
        assert sizes["n_pos"] >= sizes["L"]
        whole("gpt2").graph.check_sizes({name: Fraction(size) for name, size in sizes.items()})


def test_small_sizes_of_a_mixture_leave_experts_out_and_a_token_goes_to_no_more_than_there_are():
    graph = configured("mixtral").graph
    sizes = small_sizes(graph, {})
    assert sizes["n_top"] < sizes["E"]
    assert sizes["n_kv"] < sizes["n_H"]
    with pytest.raises(ValuesError, match="a token goes to 4 of 2 experts\nhint: n_top is at most E: --at"):
        small_sizes(graph, {"E": Fraction(2), "n_top": Fraction(4)})


@pytest.mark.parametrize(("name", "ends"), [("mixtral", ".contiguous()"), ("gpt_oss", ".contiguous()"),
                                            ("deepseek", ".contiguous().permute(1, 0, 2, 3)")])  # fmt: skip
def test_tokens_in_the_slots_of_experts_lie_expert_by_expert_so_that_no_product_copies_them(name: str, ends: str):
    case = make_case(configured(name), None, {}, "1f1b", 2)
    found = lines(torch_module(case.graph).source, "X_e")  # one a kind of layers with experts
    assert found
    assert all("->daec" in x and x.partition("  #")[0].endswith(ends) for x in found)


def test_the_choice_of_slots_gets_no_gradient_so_that_gates_over_the_chosen_experts_are_kept_once():
    """In each of 4 layers two tensors with a number a token and slot; without them two orders, weighted results, M."""
    case = make_case(configured("gpt_oss"), None, {}, "1f1b", 2)
    more = derived_saved(case, with_products(case.graph)) - derived_saved(case, case.graph)
    batch, length, width, chosen = (case.sizes[name] for name in ("B", "L", "D", "n_top"))
    hits = batch * length * chosen
    assert more == 4 * (2 * 4 * hits * length - (2 * 8 * hits + 4 * hits * width + 4 * hits)) == -256


def test_a_lookup_gives_its_axes_as_the_table_has_them():
    b = lines(torch_module(configured("t5").graph).source, "b_i")[0]
    assert b == "b_i = F.embedding(r, self.w_R_i.mT).permute(2, 0, 1)  # b_i: n_H × L_enc × L_enc"


def test_heads_that_share_keys_stand_behind_the_batch_so_that_no_product_copies_the_scores():
    """Saved at B 2, D 4, H 6, L 8, n_H 10: x, Q, K, V, P and Z, in 4 bytes."""
    case = make_case(shared_keys(), None, {}, "1f1b", 2)
    [q] = lines(torch_module(case.graph).source, "Q_i")
    assert q.endswith("# Q_i: B × n_H × L × H")
    assert batch_first(layer("grouped-query-attention").graph) is layer("grouped-query-attention").graph
    sizes = 2 * 8 * (4 + 10 * 6 + 6 + 6 + 10 * 8 + 10 * 6)
    assert derived_saved(case, case.graph) == 4 * sizes


def test_the_gradient_of_what_whole_and_cut_products_read_is_summed_beside_those_of_keys_and_values():
    """DTensor sums dK and dV [B, L, H] before their products, and then still dx [B, L, D], partial by the queries."""
    case = make_case(shared_keys(), "tensor(2)", {}, "1f1b", 2)
    _, expected, _ = expected_calls(case, context_of(case))
    assert expected["all-reduce", "backward", "tensor"] == (2 * 2 * 8 * 6 + 2 * 8 * 4, 3)


def test_what_experts_and_router_give_back_is_whole_and_cut_so_that_nothing_of_it_is_scattered():
    """Scattered are the gradients of what attention reads, in each layer, and of what the head reads: B L D each."""
    case = make_case(configured("mixtral"), "tensor(2) + sequence", {}, "1f1b", 2)
    _, expected, _ = expected_calls(case, context_of(case))
    numbers, calls = case.sizes["B"] * case.sizes["L"] * case.sizes["D"], case.sizes["N_layer"] + 1
    assert expected["reduce-scatter", "backward", "tensor"] == (calls * numbers, calls)


def test_a_class_token_is_put_in_its_place_without_a_product():
    assert context_of(make_case(configured("vit"), None, {}, "1f1b", 2)).routing_flops == 0


def test_axes_of_one_rank_are_left_out_and_a_pipeline_of_one_stage_is_refused():
    case = make_case(layer("swiglu"), "data(1)", {}, "1f1b", 2)
    assert (case.ranks, case.method.name) == (1, "single")
    assert dict(make_case(layer("swiglu"), "data(1) + tensor(2)", {}, "1f1b", 2).mesh) == {"tensor": 2}
    with pytest.raises(StrategyError, match="a pipeline of one stage sends nothing\nhint: leave the pipeline out"):
        make_case(layer("swiglu"), "pipeline(1, microbatches=4)", {}, "1f1b", 2)


WEIGHTLESS = "Computation\tInput\tOutput\ny = relu(x)\tx [B, D]\ty [B, D]\n"


@pytest.mark.parametrize("strategy", ["data(2)", "zero-1(2)"])
def test_what_wraps_weights_alone_is_refused_where_there_are_none(strategy: str):
    said = "has no weights, and .*DistributedDataParallel takes only what is trained\nhint: one process runs it: leave"
    with pytest.raises(StrategyError, match=said):
        prepare(load(WEIGHTLESS), strategy)
    assert prepare(load(WEIGHTLESS), "cut(D, 2)").case.ranks == 2


def test_what_is_not_compared_and_not_run_is_told():
    sizes, *others = _notes(make_case(layer("mixture-of-experts"), None, {}, "1f1b", 2))
    assert not others
    assert sizes == ("The model's own sizes are not run, small ones are; --at B=64,C=32,D=2048,E=64,F=8192,L=1024,"
                     "N_layer=24 runs them.")  # fmt: skip
    moved = make_case(layer("mixture-of-experts"), "expert + data(2)", {}, "1f1b", 2)
    assert _notes(moved)[0] == "Saved bytes are not compared: DTensor keeps what it gathers for experts."
    own = {name: Fraction(value) for name, value in layer("swiglu").values.items()}
    assert _notes(make_case(layer("swiglu"), None, own, "1f1b", 2)) == []
    staged = make_case(layer("swiglu"), "pipeline(2, microbatches=2)", own, "1f1b", 2)
    assert _notes(staged) == [
        "Saved bytes are not compared: a stage keeps those of several microbatches at once.",
        "The peak is not compared: torch.distributed.pipelining has buffers of its own.",
    ]
    shared = make_case(layer("grouped-query-attention"), None, {}, "1f1b", 2, "fused")
    assert _notes(shared)[0].startswith("The peak is not compared: the CPU's kernel of attention adds up the gradients")


def test_the_written_module_keeps_of_a_mixture_what_its_products_read():
    """B 2, L 4, D 6, E 8, C 4, F 10: x, gates, choice, its product with the gates, X, before and after gelu, Y."""
    case = make_case(layer("mixture-of-experts"), None, {}, "1f1b", 2)
    numbers = 2 * 4 * 6 + 2 * 4 * 8 + 2 * (2 * 4 * 8 * 4) + 8 * 2 * 4 * (6 + 10 + 10 + 6)
    assert derived_saved(case, with_products(case.graph)) == 2 * 4 * numbers


def test_data_parallelism_adds_its_buckets_to_the_peak_of_experts_and_nothing_else():
    """A rank holds no choice of slots for the sequences of other ranks. B 2, L 4, D 6, E 8, C 4, F 10; two layers."""
    two = make_case(layer("mixture-of-experts"), "data(2)", {"B": Fraction(2)}, "1f1b", 2)
    alone = make_case(layer("mixture-of-experts"), None, {"B": Fraction(1)}, "1f1b", 2)
    buckets = 4 * 2 * (6 * 8 + 2 * 8 * 6 * 10)  # gradients of the router and of both matrices of each expert, in fp32
    assert derived_peak(two) == derived_peak(alone) + buckets == 30016  # as PyTorch 2.13 has it


def test_each_layer_of_a_decoder_keeps_what_it_gathers_of_the_encoder():
    """With the sequence cut, each layer keeps a copy of e, as autograd does; and half of K, V and their scores."""

    def saved(layers: int, length: int) -> Fraction:
        sizes = {"N_dec": layers, "L_enc": length, "B": 2, "D": 4, "H": 8, "n_H": 8, "L_dec": 10}
        values = {name: Fraction(size) for name, size in sizes.items()}
        case = make_case(configured("t5"), "tensor(2) + sequence", values, "1f1b", 2)
        return derived_saved(case, without_dropout(case.graph))

    of_two, of_three = (saved(layers, 8) - saved(layers, 4) for layers in (2, 3))
    assert of_three - of_two == 4 * 2 * (8 - 4) * (4 + 2 * 64 / 2 + 8 * 10 / 2)


def test_words_that_the_ranks_do_not_divide_are_run_in_whole_words():
    """50 words on four ranks: 13, 13, 13 and 11; the first one has a part of the head of 52."""
    fifty, more = (make_case(whole("llama"), "tensor(4)", {"V": Fraction(v)}, "1f1b", 2) for v in (50, 52))
    assert derived_flops(fifty) == derived_flops(more)
    assert (fifty.smaller, more.smaller) == (1, 0)
    assert derived_parameters(more) - derived_parameters(fifty) == 2 * 2 * more.sizes["D"]  # embedding and head
    assert make_case(whole("llama"), "tensor(8)", {"V": Fraction(50)}, "1f1b", 2).smaller == 1  # 7 x 7 and one word


def test_another_version_than_the_one_that_was_held_against_is_told():
    case = make_case(layer("swiglu"), None, {}, "1f1b", 2)
    assert _notes(case, "2.13.0+cpu") == _notes(case)
    told = _notes(case, "2.14.1")[-1]
    assert told.startswith("PyTorch 2.14.1: the conventions here were held against 2.13.0")


@pytest.mark.parametrize(
    ("option", "said"),
    [("--limit=nan", "--limit is nan: a run takes more than 0 s and at most a day"), ("--limit=0", "--limit is 0"),
     ("--limit=inf", "--limit is inf"), ("--port=99999", "99999 is not in the range 1<=x<=65535")],
)  # fmt: skip
def test_limits_and_ports_that_cannot_be_are_told(option: str, said: str):
    result = CliRunner().invoke(main, ["verify", str(HOMEWORK), "--strategy", "data(2)", option])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_port_in_use_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(VerificationError, match=f"port {port} is in use"):
            launch.free_port(port)


def test_sizes_that_are_given_are_run_and_those_that_do_not_fit_are_told_with_both_numbers():
    given_sizes = {"L": Fraction(10), "D": Fraction(48), "N_layer": Fraction(3)}
    made = prepare(model(HOMEWORK), "data(2)", given_sizes)
    assert {name: made.case.sizes[name] for name in given_sizes} == given_sizes
    assert made.spec["sizes"]["L"] == 10
    with pytest.raises(VerificationError, match=r"the run needs about \d+\.\d GB, but \d+\.\d GB of memory are free"):
        prepare(model(HOMEWORK), "data(2)", {"L": Fraction(10**6), "B": Fraction(100)})


def test_the_memory_of_a_run_grows_with_its_layers_and_ranks():
    def needed(layers: int, ranks: int) -> int:
        known = dict.fromkeys("BDHL", Fraction(64)) | {"n_H": Fraction(1), "N_layer": Fraction(layers)}
        return needed_memory(model(HOMEWORK).graph, known, ranks)

    assert needed(2, 4) == 2 * needed(2, 2)
    assert needed(30, 1) - needed(20, 1) == needed(20, 1) - needed(10, 1) > 0


def test_too_little_memory_is_told():
    with pytest.raises(VerificationError, match=r"the run needs about 1000000\.0 GB, but .* GB of memory are free"):
        launch.enough_memory(10**15)


# -- practice -----------------------------------------------------------------------------------------------


def test_the_solution_has_no_gaps_and_the_paper_has_them():
    solution, paper = (practice(model(HOMEWORK), edition) for edition in ("solution", "paper"))
    assert [*solution] == [*paper]
    assert not [name for name, text in solution.items() if "TODO" in text]
    gaps = {name: text.count("NotImplementedError") for name, text in paper.items() if "TODO" in text}
    assert gaps == {"question3_dp.py": 2, "question3_fsdp.py": 2, "question3_pp.py": 3, "question3_tp.py": 3}
    assert "DistributedDataParallel(net)" not in paper["question3_dp.py"]
    assert {name: text for name, text in paper.items() if "question3" not in name} == {
        name: text for name, text in solution.items() if "question3" not in name
    }


def test_the_check_knows_what_each_exercise_moves():
    tree = ast.parse(practice(model(HOMEWORK))["check.py"])
    derived = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign)
                   and isinstance(n.targets[0], ast.Name) and n.targets[0].id == "DERIVED")  # fmt: skip
    assert [*derived] == [*EXERCISES]
    sizes = small_sizes(model(HOMEWORK).graph, {}, 4, 4, 4)
    n = sizes["N_layer"]
    tokens = sizes["B"] * sizes["L"] * sizes["D"] * 4
    weights = 12 * sizes["D"] ** 2 * 4 * n
    assert derived["dp"]["2"] == derived["dp"]["4"] == {"all-reduce": weights}
    assert derived["fsdp"]["2"] == {"all-gather": 2 * weights, "reduce-scatter": weights}
    assert derived["pp"] == {"2": {"send": 2 * tokens}, "4": {"send": 6 * tokens}}
    # Two sums in either pass of a layer, but the first layer's input needs no gradient.
    assert derived["tp"]["4"] == {"all-reduce": (4 * n - 1) * tokens}


def test_the_check_knows_what_each_process_computes():
    """Three times 2 · 12 D² a token and layer, and 4 B L² D for the scores; x itself needs no gradient from Q, K, V."""
    tree = ast.parse(practice(model(HOMEWORK))["check.py"])
    work = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign)
                and isinstance(n.targets[0], ast.Name) and n.targets[0].id == "WORK")  # fmt: skip
    sizes = small_sizes(model(HOMEWORK).graph, {}, 4, 4, 4)
    b, length, d, n = (sizes[name] for name in ("B", "L", "D", "N_layer"))
    one = n * 3 * (2 * 12 * d**2 * b * length + 4 * b * length**2 * d) - 3 * 2 * d**2 * b * length
    for name in ("dp", "fsdp", "tp"):
        assert work[name] == {"2": one // 2, "4": one // 4}, name
    assert work["pp"] == {"2": one, "4": one}


def test_the_weights_are_cut_where_tensor_parallelism_cuts_them():
    text = practice(model(HOMEWORK))["question3_tp.py"]
    assert "CUT = {'W_Q': 1, 'W_K': 1, 'W_V': 1, 'W_O': 0, 'W_1': 1, 'W_2': 0}" in text
    grouped_heads = practice(layer("grouped-query-attention"))["question3_tp.py"]
    assert "module.n_kv //= ranks" in grouped_heads
    assert "module.n_H //= ranks" in grouped_heads


def test_a_model_that_is_no_stack_has_no_exercises():
    with pytest.raises(RenderError, match="the exercises train a stack of layers; language model is none"):
        practice(layer("language-model"))


def test_scripts_are_written_whole_and_launchers_may_be_run(tmp_path: Path):
    folder = tmp_path / "scripts"
    write_practice({"a.py": "pass\n", "b.sh": "true\n"}, folder)
    assert sorted(p.name for p in folder.iterdir()) == ["a.py", "b.sh"]
    assert (folder / "b.sh").stat().st_mode & 0o111
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RenderError, match="cannot be written"):
        write_practice({"a.py": ""}, blocked)
    result = CliRunner().invoke(main, ["practice", str(HOMEWORK), "-o", str(folder), "--edition", "paper"])
    assert result.exit_code == 0, result.output
    assert (folder / "question3_tp.sh").exists()


@pytest.mark.long
def test_show_writes_a_module(tmp_path: Path):
    result = CliRunner().invoke(main, ["show", str(HOMEWORK), "--to", "torch"])
    assert result.exit_code == 0
    ast.parse(result.output)
    assert "SIZES = dict(" in result.output


# -- attention as one kernel -------------------------------------------------------------------------------

SCORES = """Computation\tInput\tOutput
Q = xW^Q\tx [B, T, D], W^Q [D, D]\tQ [B, T, D]
K = mW^K\tm [B, S, D], W^K [D, D]\tK [B, S, D]
V = mW^V\tm [B, S, D], W^V [D, D]\tV [B, S, D]
P = softmax(\\frac{Q K^T}{\\sqrt{D}})\tQ, K\tP [B, T, S]
Z = P V\tP, V\tZ [B, T, D]
"""


def attention_line(case: RunCase) -> str:
    """What is written for the attention of a case."""
    [line] = [x for x in torch_module(case.graph).source.splitlines() if "scaled_dot_product_attention(" in x]
    return line.partition("  #")[0].strip()


def test_a_configuration_is_written_with_the_kernel_that_it_is_derived_with():
    line = attention_line(make_case(whole("llama"), None, {}, "1f1b", 2))
    assert line.startswith("Z_i = F.scaled_dot_product_attention(R_i")
    assert "is_causal=True, enable_gqa=True" in line
    assert "enable_gqa" not in attention_line(make_case(whole("gpt2"), None, {}, "1f1b", 2))
    eager = torch_module(make_case(whole("llama"), None, {}, "1f1b", 2, "library").graph).source
    assert "torch.softmax" in eager
    assert "scaled_dot_product_attention" not in eager


def test_a_table_is_written_with_a_kernel_where_that_is_asked():
    assert "torch.softmax" in torch_module(make_case(load(SCORES), None, {}, "1f1b", 2).graph).source
    line = attention_line(make_case(load(SCORES), None, {}, "1f1b", 2, "fused"))
    one = "Z = F.scaled_dot_product_attention(Q.unsqueeze(1), K.unsqueeze(1), V.unsqueeze(1)).squeeze(1)"
    assert line == one
    unscaled = load(SCORES.replace("\\frac{Q K^T}{\\sqrt{D}}", "Q K^T"))
    assert "scale=1.0" in attention_line(make_case(unscaled, None, {}, "1f1b", 2, "fused"))


@pytest.mark.long
def test_scores_that_a_kernel_makes_again_are_hardware_flops():
    known = {n: Fraction(v) for n, v in {"B": 2, "T": 3, "S": 5, "D": 4}.items()}
    fused, plain = (make_case(load(SCORES), None, known, "1f1b", 2, how) for how in ("fused", "library"))
    assert derived_flops(fused) - derived_flops(plain) == 2 * 2 * 3 * 5 * 4  # one product over all pairs
    tensors = 4 * (2 * 3 * 4 + 2 * 5 * 4)  # x and m
    kept = 4 * (2 * 3 * 4 + 2 * 2 * 5 * 4 + 2 * 3 * 4 + 2 * 3)  # Q, K and V, the result, a number a row
    assert derived_saved(fused, fused.graph) == tensors + kept


@pytest.mark.parametrize(
    ("name", "strategy", "why"),
    [
        ("t5", "", "what is added to its scores gets a gradient, which PyTorch's CPU kernel lacks"),
        ("llama", "context(2)", "a rank has no whole heads: scaled_dot_product_attention would see a part of the keys "
         "or queries"),
    ],
)  # fmt: skip
def test_why_attention_is_written_out_is_told(name: str, strategy: str, why: str):
    of = whole(name) if name == "llama" else configured(name)
    case = make_case(of, strategy, {}, "1f1b", 2)
    assert f"Attention is written out and derived so, not as one kernel: {why}." in _notes(case)
    assert not case.graph.fused


def test_a_constant_may_be_added_to_scores_beside_a_causal_mask():
    """ALiBi: a row of constants for each head."""
    case = make_case(falcon(), None, {}, "1f1b", 2)
    assert "attn_mask=b_mask_i.unsqueeze(0).unsqueeze(2) + self.mask" in attention_line(case)
    assert len(prepare(falcon()).spec["fixed"]) == 3  # ids, labels and the constants


def test_a_softmax_that_is_not_written_is_refused():
    with pytest.raises(StrategyError, match="the written module has no softmax 'by_hand'"):
        make_case(load(SCORES), None, {}, "1f1b", 2, "by_hand")


def test_the_small_table_of_positions_reaches_as_far_as_the_sequence():
    sizes = make_case(whole("gpt2"), None, {}, "1f1b", 2).sizes
    assert sizes["n_pos"] >= sizes["L"]
