"""The graph as NetworkX sees it: acyclic, with what ops and tensors are on its nodes and edges."""

from fractions import Fraction

import networkx as nx
import pytest
from api import symbol, training

import symcomm as sc

B, D, F = map(symbol, "BDF")
TABLE = """Computation\tInput\tOutput
h = relu(xW^1)\tx [B, D], W^1 [D, F]\th [B, F]
s = h \\odot h\th [B, F]\ts [B, F]
y = x + s W^2\ts [B, F], x [B, D], W^2 [F, D]\ty [B, D]
"""
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_positions": 1024, "vocab_size": 50257,
}  # fmt: skip


@pytest.fixture(scope="module")
def small() -> nx.DiGraph:
    return sc.load(TABLE, repeat="N").graph.nx


@pytest.fixture(scope="module")
def whole() -> nx.DiGraph:
    return sc.load(GPT2, loss=True).graph.nx


def named(graph: nx.DiGraph, names: set[str]) -> set[str]:
    """Those of the nodes that a row declares: what is computed on the way has a dot in its name."""
    return {name for name in names if "·" not in name}


def test_what_a_loop_carries_is_no_edge_so_the_graph_has_no_cycle(small: nx.DiGraph):
    [region] = small.graph["regions"]
    assert (region.times, region.carried) == ("N", (("y", "x"),))
    assert nx.is_directed_acyclic_graph(small)
    assert not small.out_degree("y")
    assert not small.in_degree("x")


def test_each_op_and_each_tensor_from_outside_is_a_node(small: nx.DiGraph):
    # two products, a relu, an elementwise product, a sum; an input and two weights
    kinds = sorted(kind for _, kind in small.nodes(data="kind"))
    assert kinds == ["add", "contraction", "contraction", "contraction", "input", "relu", "weight", "weight"]
    assert {n for n, op in small.nodes(data="op") if op is None} == {"x", "W^1", "W^2"}
    assert small.nodes["W^2"]["tensor"].axes == small.edges["W^2", next(small.successors("W^2"))]["axes"]


def test_an_edge_has_the_symbolic_shape_and_the_places_of_its_tensor(small: nx.DiGraph):
    edge = small.edges["h", "s"]
    assert (edge["tensor"], edge["shape"], edge["role"]) == ("h", (B, F), "activation")
    assert edge["operands"] == (0, 1)  # h times h: one edge
    assert small.number_of_edges() == 8  # x, W^1 -> p -> h -> s -> q <- W^2; x, q -> y
    assert [small.edges[e]["shape"] for e in small.in_edges("y")].count((B, D)) == 2
    assert not any(crosses for *_, crosses in small.edges(data="crosses"))


def test_a_node_says_where_its_row_stands(small: nx.DiGraph):
    h = small.nodes["h"]
    assert (h["row"], h["phase"], h["region"]) == (1, "forward", "layer")
    assert (h["source"].line, h["source"].text[h["source"].start : h["source"].stop]) == (2, "relu(xW^1)")
    assert small.nodes["W^2"]["source"].line == 4
    assert small.nodes["y"]["op"].kind == "add"


def test_ancestors_and_descendants_are_those_of_the_table(small: nx.DiGraph):
    assert named(small, nx.ancestors(small, "h")) == {"x", "W^1"}
    assert named(small, nx.descendants(small, "h")) == {"s", "y"}
    assert named(small, nx.descendants(small, "W^2")) == {"y"}
    assert named(small, nx.ancestors(small, "y")) == {"x", "W^1", "h", "s", "W^2"}
    order = list(nx.topological_sort(small))
    assert order.index("h") < order.index("s") < order.index("y")


def test_the_shared_graph_cannot_be_changed_but_its_copy_can(small: nx.DiGraph):
    with pytest.raises(nx.NetworkXError, match="Frozen graph"):
        small.add_node("another")
    copy = nx.DiGraph(small)
    copy.remove_node("y")
    assert "y" in small


def test_the_backward_pass_is_part_of_the_same_acyclic_graph():
    both = training(sc.load(TABLE, repeat="N").graph).nx
    assert nx.is_directed_acyclic_graph(both)
    assert both.nodes["d(W^1)"]["phase"] == "backward"
    assert both.nodes["d(y)"]["kind"] == "gradient"  # from outside
    # the gradient of W^1 needs what comes before it, but not the other weight's gradient
    assert {"x", "W^2", "h", "d(y)"} < nx.ancestors(both, "d(W^1)")
    assert "d(W^2)" not in nx.ancestors(both, "d(W^1)")


def test_a_whole_model_is_one_acyclic_graph_of_three_regions(whole: nx.DiGraph):
    assert [(r.name, r.times) for r in whole.graph["regions"]] == [
        ("embedding", ""),
        ("layer", "N_layer"),
        ("head", ""),
    ]
    assert nx.is_directed_acyclic_graph(whole)
    assert nx.is_weakly_connected(whole)
    assert {region for _, region in whole.nodes(data="region")} == {"embedding", "layer", "head"}


def test_between_regions_flow_the_residual_stream_and_nothing_else(whole: nx.DiGraph):
    L = symbol("L")
    crossing = [
        (d["tensor"], whole.nodes[b]["region"], d["shape"]) for _, b, d in whole.edges(data=True) if d["crosses"]
    ]
    # x is read by the first norm and by the residual sum of the layer; y by the head's norm
    assert crossing == [("x", "layer", (B, L, D)), ("x", "layer", (B, L, D)), ("y", "head", (B, L, D))]


def test_the_loss_follows_from_all_weights_and_the_tied_one_is_one_node(whole: nx.DiGraph):
    weights = {n for n, kind in whole.nodes(data="kind") if kind == "weight"}
    # embeddings 2, a layer: two norms, four projections and two matrices, a weight and a bias each; the last norm 2
    assert len(weights) == 2 + 16 + 2
    assert weights < nx.ancestors(whole, "ell")
    assert {whole.nodes[n]["region"] for n in whole.successors("W^E")} == {"embedding", "head"}
    # values do not depend on how scores are made, and no token looks at the labels before the loss
    assert "W^K" not in nx.ancestors(whole, "V")
    assert {whole.nodes[n]["row"] for n in nx.descendants(whole, "r")} == {whole.nodes["ell"]["row"]}


def test_walking_the_graph_counts_the_parameters(whole: nx.DiGraph):
    model = sc.load(GPT2)
    sizes = model.values
    times = {r.name: int(sizes[r.times]) if r.times else 1 for r in whole.graph["regions"]}
    total = 0
    for node, data in whole.nodes(data=True):
        if data["kind"] == "weight":
            shape = next(d["shape"] for *_, d in whole.out_edges(node, data=True))
            count = Fraction(times[data["region"]])
            for size in shape:
                known = {**sizes, "H": Fraction(64), "D": Fraction(768)}
                count *= Fraction(str(size.subs({s: known[str(s)] for s in size.free_symbols})))
            total += count
    assert total == 124_439_808
