"""Gradients as matrix formulas with shapes and reasons; ``tests/proof`` works every formula out with NumPy."""

import json
from pathlib import Path

import pytest
from api import Accounting, Names, backward, derive, why
from api import form as forms
from api import gradients_gradients as gradients

import symcomm as sc

HEAD = "Computation\tInput\tOutput\n"
ENTRIES = {e["id"]: e for e in json.loads((Path(__file__).parents[1] / "data/golden_differentiation.json").read_text())}


# -- the table of the course ---------------------------------------------------------------------------------

LINEAR = HEAD + "Y = XW\tX [B, D_1], W [D_1, D_2]\tY [B, D_2]\n"


def asked(**options):
    return derive("gradients", sc.load(LINEAR), options, Accounting(), {})


def test_a_linear_layer_has_the_formulas_shapes_and_reads_of_the_course():
    rows = {row[0].left.name: row for row in asked().exhibits[0].rows}
    assert str(forms.names(rows["dW"][0].right)) == "('X', 'dY')"
    assert rows["dW"][1:3] == ("`D_1` × `D_2`", "`X`")
    assert rows["dX"][1:3] == ("`B` × `D_1`", "`W`")
    notes = asked().notes
    assert any(
        "transpose of `X` is `D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`" in n.lower()
        or "`D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`" in n
        for n in notes
    )


@pytest.mark.parametrize(("entry", "of"), [("001.linear.dW", "W"), ("001.linear.dX", "X")])
def test_the_elements_of_a_gradient_are_those_of_its_tensor(entry, of):
    told, values = ENTRIES[entry], {"B": 2, "D_1": 3, "D_2": 5}
    made = asked(want="elements", of=of)
    assert made.at(**values).value == int(told["value"])
    made.check(deep=True)


def test_the_operations_are_those_of_the_backward_pass_twice_the_forward():
    values = {"B": 2, "D_1": 3, "D_2": 5}
    assert asked().at(**values).value == int(ENTRIES["001.linear.bwd"]["value"])
    forward = derive("flops", sc.load(LINEAR), {}, Accounting(), {})
    assert forward.at(**values).value == int(ENTRIES["001.linear.fwd"]["value"])
    sizes = derive("tensor_size", sc.load(LINEAR), {"tensor": "Y"}, Accounting(), {})
    assert sizes.at(**values).value == 2 * int(ENTRIES["001.linear.dY"]["value"])  # fp16: two bytes an element


def test_an_unknown_gradient_is_told_with_near_names():
    with pytest.raises(sc.SymcommError, match="no gradient of 'U'"):
        asked(of="U")


def test_the_reason_of_a_shape_names_the_factors():
    graph = backward(sc.load(LINEAR).graph)
    names = Names(graph, sc.Notation())
    [dx, dw] = gradients(graph, [op for op in graph.ops if op.phase == "backward"], names)
    assert why(dw) == "The transpose of `X` is `D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`."
    assert why(dx).endswith("the product is `B` × `D_1`.")
