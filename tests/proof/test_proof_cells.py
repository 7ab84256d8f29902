"""LSTM and GRU: the body of their loop, run position by position, against PyTorch, loops and hand counts."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from api import Accounting, Graph, RenderError, SymcommError, parse_strategy, plan, torch_module, training, value
from proof_cases import Case, superfluous
from proof_ranks import Mesh
from proof_reference import Array, Sizes, outside, run

import symcomm as sc

HEADER = "Computation\tInput\tOutput\n"
LAST = "y = h V\tV [H,P]\ty [B,L,P]\n"
TABLES = {
    "LSTM": HEADER + "h = LSTM(x, W, U, b)\tx [B,L,D], W [D,4H], U [H,4H], b [4H]\th [B,L,H]\n" + LAST,
    "GRU": HEADER + "h = GRU(x, W, U, b, b')\tx [B,L,D], W [D,3H], U [H,3H], b [3H], b' [3H]\th [B,L,H]\n" + LAST,
}
GATES, STATES = {"LSTM": 4, "GRU": 3}, {"LSTM": ("c", "h"), "GRU": ("h",)}
SIZES = {"B": 2, "L": 5, "D": 4, "H": 8, "P": 3}
B, L, D, H, P = SIZES.values()


@cache
def body(name: str) -> Graph:
    return training(sc.load(TABLES[name]).graph)


def states(graph: Graph) -> dict[str, str]:
    """What each result of the body becomes at the next position."""
    made = {op.inputs[0]: op.output for op in graph.ops if op.attribute("view") and op.attribute("whole")}
    return {made[of]: state for of, every in graph.states.items() for state in every if of in made}


def through_time(name: str) -> tuple[dict[str, Array], Array, dict[str, Array]]:
    """What is given, the results and the gradients of all positions: forwards and then backwards through them."""
    graph = body(name)
    whole, one = outside(Sizes(graph, SIZES)), Sizes(graph, SIZES | {"L": 1})
    forward = Sizes(graph.forward(), SIZES | {"L": 1})
    weights = {t.name for t in graph.weights}
    links = states(graph)
    constants = {n: whole[n] for n in whole if graph.tensors[n].role == "constant"} | {n: whole[n] for n in weights}
    gates = sorted((n for n in constants if n.startswith("gate(")), key=lambda n: int(n.rpartition("·")[2]))
    constants |= {n: np.eye(GATES[name])[place % GATES[name]] for place, n in enumerate(gates)}
    held = {state: np.zeros((B, 1, H)) for state in links.values()}
    steps: list[dict[str, Array]] = []
    for at in range(L):
        steps.append(run(forward, constants | held | {"x": whole["x"][:, at : at + 1]}))
        held = {state: steps[-1][out] for out, state in links.items()}
    gradients = {n: np.zeros_like(whole[n]) for n in (*weights, "x")}
    later = {f"d({out})": np.zeros((B, 1, H)) for out in links}
    for at in reversed(range(L)):
        given = {n: a for n, a in steps[at].items() if n not in graph.forward().producers}
        found = run(one, given | later | {"d(y)": whole["d(y)"][:, at : at + 1]})
        for n in weights:
            gradients[n] += found[f"d({n})"]
        gradients["x"][:, at : at + 1] = found["d(x)"]
        later = {f"d({out})": found[f"d({state})"] for out, state in links.items()}
    return whole, np.concatenate([step["y"] for step in steps], axis=1), gradients


@pytest.mark.torch
@pytest.mark.parametrize("name", TABLES)
def test_the_loop_and_its_gradients_equal_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    given, y, gradients = through_time(name)
    w = {n: torch.tensor(a, requires_grad=True) for n, a in given.items() if n in gradients}
    cell = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}[name](D, H, batch_first=True, dtype=torch.float64)
    zero = torch.zeros(GATES[name] * H, dtype=torch.float64)
    named = {
        "weight_ih_l0": w["W"].reshape(D, -1).T, "weight_hh_l0": w["U"].reshape(H, -1).T,
        "bias_ih_l0": w["b"].reshape(-1), "bias_hh_l0": w["b'"].reshape(-1) if "b'" in w else zero,
    }  # fmt: skip
    h, _ = torch.func.functional_call(cell, named, (w["x"],))
    made = h @ w["V"]
    assert np.allclose(made.detach().numpy(), y)
    made.backward(torch.tensor(given["d(y)"]))
    for n, found in gradients.items():
        assert np.allclose(w[n].grad.numpy(), found), n
    unused = 0 if name == "GRU" else 4 * H  # the second bias of PyTorch
    numbers = sum(p.numel() for p in cell.parameters()) - unused + H * P
    assert sc.load(TABLES[name]).parameters().at(**SIZES).value == numbers


def unrolled(name: str, torch: Any) -> tuple[Any, list[Any]]:
    """The loop as a person writes it in eager PyTorch, with its weights."""
    many = GATES[name] * H
    w = [torch.randn(*shape, requires_grad=True) for shape in ((D, many), (H, many), (many,), (many,), (H, P))]
    x, h, c = torch.randn(B, L, D, requires_grad=True), *(torch.zeros(B, H, requires_grad=True) for _ in range(2))
    read, made = x @ w[0] + w[2], []
    for at in range(L):
        if name == "LSTM":
            i, f, g, o = (read[:, at] + h @ w[1]).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            (r, z, n), (s, y, m) = read[:, at].chunk(3, -1), (h @ w[1] + w[3]).chunk(3, -1)
            z = (z + y).sigmoid()
            h = (1 - z) * (n + (r + s).sigmoid() * m).tanh() + z * h
        made.append(h)
    return torch.stack(made, 1) @ w[4], w


@pytest.mark.torch
@pytest.mark.parametrize("name", TABLES)
def test_flops_and_saved_bytes_are_those_of_a_loop_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    flop_counter = pytest.importorskip("torch.utils.flop_counter")
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        held.append(tensor)
        return tensor

    held: list[Any] = []
    model = sc.load(TABLES[name], dtype="fp32")
    with flop_counter.FlopCounterMode(display=False) as counted:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
            result, weights = unrolled(name, torch)
        assert model.flops().at(**SIZES).value == counted.get_total_flops()
        result.sum().backward()
    assert model.flops("training").at(**SIZES).value == counted.get_total_flops()
    own = {one.untyped_storage().data_ptr() for one in weights}
    measured = sum(size for at, size in kept.items() if at not in own)
    assert model.activation_memory(accounting="pytorch").at(**SIZES).value == measured
    model.activation_memory().check(deep=True)
    # What is read, the gates, the states and their functions; of an LSTM i, f, g, o, c, its tanh and h.
    each = {"LSTM": 7, "GRU": 6}[name]  # of a GRU r, z, n, the product that r weighs, 1 - z and h
    assert model.activation_memory().at(**SIZES).value == 4 * B * L * (D + each * H)


def test_operations_of_each_element_are_those_that_a_loop_writes_out() -> None:
    """Gates add three terms and the four take 3 sigmoids and a tanh; c takes 3 operations, h a tanh and one."""
    model = sc.load(TABLES["LSTM"])
    functions = sc.load(HEADER + "y = sigmoid(x)\tx [B,H]\ty [B,H]\nz = tanh(x)\t-\tz [B,H]\n")
    sigmoid, tanh = (functions.flops(op=op, accounting="all_ops").at(B=1, H=1).value for op in "yz")
    matrices = 2 * (D * 4 * H + H * 4 * H + H * P)
    element = 4 * 2 + 3 * sigmoid + 2 * tanh + 3 + 1
    assert model.flops(accounting="all_ops").at(**SIZES).value == B * L * (matrices + H * element)


def test_weights_of_all_positions_are_reduced_once() -> None:
    for name in TABLES:
        model = sc.load(TABLES[name]).at(**SIZES)
        assert model.communication("data(2)").at().value == 2 * model.parameters().at().value


@pytest.mark.parametrize(("name", "strategy"), [
    *((name, strategy) for strategy in ("tensor(2)", "data(2) + tensor(2)", "cut(D, 2)") for name in TABLES),
    ("LSTM", "fsdp(2)"), ("LSTM", "zero-1(2)"),
])  # fmt: skip
def test_the_body_is_right_on_every_rank_and_no_call_is_superfluous(name: str, strategy: str) -> None:
    graph, values = body(name), SIZES | {"L": 1}
    made = plan(graph, parse_strategy(strategy))
    mesh = Mesh({axis: int(value(size)) for axis, size in made.strategy.sizes.items()})
    given = outside(Sizes(graph, values))
    given |= {n: np.ones_like(a) for n, a in outside(Sizes(made.graph, values)).items() if n not in given}
    one = Case(made, Sizes(made.graph, values), mesh, Accounting(), given, run(Sizes(made.graph, values), given))
    assert superfluous(one) == []
    for out, state in states(graph).items():  # a state lies where the next position reads it
        assert made.placements[out] == made.placements[state]
        assert made.placements[f"d({out})"] == made.placements[f"d({state})"]


def test_cut_gates_gather_h_at_each_position_and_sum_its_gradient() -> None:
    for name in TABLES:
        model = sc.load(TABLES[name]).at(**SIZES)
        for kind in ("all-gather", "reduce-scatter"):
            assert model.communication("tensor(2)", collective=kind).at().value == 2 * B * L * H
        assert any("what its steps send is L calls, and their bytes are told together" in note for note in model.notes)


def test_every_position_of_a_loop_waits_for_its_calls() -> None:
    """On 2 ranks h is gathered in a round and its gradient scattered in one; y and dx are reduced in two, once."""
    model, rates = sc.load(TABLES["LSTM"]).at(**SIZES), {"peak": "1 PFLOP/s", "network": "1 PB/s", "memory": "1 PB/s"}
    for name in ("time", "step_time"):
        slow = model.derive(name, strategy="tensor(2)", latency="1 s", **rates)
        assert round(slow.at().value, 6) == L * (1 + 1) + 2 + 2
        slow.check(deep=True)
    found = sc.search(model, devices=2, capacity="1 GB", capacity_is="usable", strategies="tensor", microbatches="1",
                      recomputation="none", jobs=1, latency="1 s", **rates)  # fmt: skip
    assert round(float(found.top[0].time.value)) == L * (1 + 1) + 2 + 2


@pytest.mark.parametrize("strategy", ["context(2)", "sequence(2)", "cut(L, 2)", "ring(2)"])
def test_positions_of_a_loop_are_not_cut(strategy: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(TABLES["LSTM"]).communication(strategy)
    name = parse_strategy(strategy).name
    assert str(caught.value) == (
        f"{name} cuts the positions of a loop, each of which reads what the one before has made\n"
        "hint: data(k) cuts the batch, tensor(k) the gates"
    )


@pytest.mark.parametrize("name", TABLES)
def test_a_step_reads_and_writes_the_states_of_the_last_one(name: str) -> None:
    model, many = sc.load(TABLES[name]), len(STATES[name])
    assert model.kv_cache("sequence").at(SIZES | {"c": 7}).value == 2 * many * H
    assert model.kv_cache("token").at(SIZES).value == 0  # nothing grows
    weights = GATES[name] * H * (D + H) + H * P
    assert model.decode(new=1, past=7).flops().at(SIZES).value == 2 * B * weights
    moved = model.decode(new=1, past=7).traffic(accounting="weights_and_cache").at(SIZES).value
    assert moved == 2 * (weights + B * (2 * many * H + P))
    assert model.prefill().flops().at(**SIZES).value == model.flops().at(**SIZES).value
    with pytest.raises(SymcommError, match="is a state of a loop: a step that reads it has one position"):
        model.decode(new=2, past=7).flops()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("h = LSTM(x, W, U)\tx [B,L,D], W [D,3H], U [H,4H]\th [B,L,H]", "W has 3H columns of 4 gates, but U has H"),
        ("h = GRU(x, W, U)\tx [B,L,D], W [D,3H], U [H,4H]\th [B,L,H]", "U has 4H columns of 3 gates, but U has H rows"),
        ("h = GRU(x, W, U, b)\tx [B,L,D], W [D,3H], U [H,3H], b [H]\th [B,L,H]", "b has H columns of 3 gates"),
        ("h = LSTM(x, W)\tx [B,L,D], W [D,4H]\th [B,L,H]", "LSTM"),
        ("h = LSTM(x, W, U)\tx [D], W [D,4H], U [H,4H]\th [H]", "a cell of 4 gates reads x, W and U"),
        ("h = LSTM(x, W, U)\tx [B,L,D], W [E,4H], U [H,4H]\th [B,L,H]", "x has D columns, but W has E rows"),
    ],
)  # fmt: skip
def test_a_cell_that_does_not_fit_says_what_would(row: str, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(HEADER + row + "\n")
    assert message in str(caught.value)


def test_a_cell_is_not_written_in_pytorch() -> None:
    with pytest.raises(RenderError, match=r"a loop over positions, which hands on `before\(h\)`, is not written"):
        torch_module(sc.load(TABLES["GRU"]).graph)


def test_layers_of_cells_are_repeated() -> None:
    rows = "h = LSTM(x, W, U, b)\tx [B,L,D], W [D,4D], U [D,4D], b [4D]\th [B,L,D]\n"
    model = sc.load(HEADER + rows, repeat="N_layer")
    assert model.parameters().at(D=8, N_layer=3).value == 3 * 4 * 8 * (8 + 8 + 1)
    assert model.flops("training").at(B=2, L=5, D=8, N_layer=3).value == 3 * 3 * 2 * 5 * 2 * 2 * 8 * 4 * 8


def test_a_cell_of_another_width_is_not_repeated() -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(TABLES["LSTM"], repeat="N_layer")
    assert "it makes y [B, L, P], and the next one would read x [B, L, D]" in str(caught.value)
