"""What a caller hands to a public name is right or a ``SymcommError``, whatever its type."""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from api import QUANTITIES

import symcomm as sc

LAYER = "Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\nz = yV\tV [F, D]\tz [B, D]\n"
TOPOLOGY = Path(__file__).parents[1] / "data" / "topology_damaged.md"
MODEL = sc.load(LAYER)
MADE = MODEL.communication("data(k)")
WRONG = [
    None,
    True,
    -1,
    0,
    2.5,
    "",
    "x",
    "é\0",
    b"x",
    [],
    [None],
    {},
    {1: 2},
    (),
    object(),
    len,
    np.arange(3),
    1j,
    "9" * 500,
]
MESHES = ("Context", "Data", "Expert", "FullySharded", "OptimizerSharded", "Sequence", "Tensor", "Zero1", "Zero2")
OPTIMUM = {
    "over": "n", "given": {}, "integer": True, "lower": 1, "upper": 9, "divides": 12, "wanted": "place", "title": "",
}  # fmt: skip
CALLS = {
    "check": (("2*D*F", MADE), {}),
    "key_of": ((MADE,), {}),
    "mistakes_of": ((MADE,), {}),
    "trace": (("y = x^2 + 1",), {}),
    "break_even": (("n + 3", "2*n"), {"over": "n", "given": {"n": 1}, "title": ""}),
    "broadcast": (("serial",), {"accounting": None, "size": "4 GB"}),
    "crossover": (("n + 3", "2*n"), {"over": "n", "between": (1, 9), "compared": (), "given": {"n": 1}}),
    "derive": (("buckets",), {"accounting": None, "s": "4 GB"}),
    "device": (("H100-SXM",), {"among": None}),
    "devices": (("/nowhere.yaml",), {}),
    "network": (("DGX-H100",), {}),
    "networks": (("/nowhere.yaml",), {}),
    "fit": (
        ([(1, 2), (2, 3), (3, 5)],),
        {"model": "alpha_beta", "kind": "all-reduce", "algorithm": "ring", "level": Fraction(1, 2)},
    ),
    "grade": (
        ("/nowhere.md", "/nowhere.csv"),
        {"keys": None, "roster": None, "variants": 2, "seed": "0", "decisions": None, "progress": None},
    ),
    "judge": ((MADE, "3 s"), {"D": 3}),
    "load": (
        (LAYER,),
        {"name": "", "table": 1, "repeat": "", "batch": "", "dtype": "", "values": {}, "inputs": (), "weights": (),
         "axes": {}, "notation": None, "file": None, "loss": False, "architecture": ""},
    ),
    "maximise": (("9*n - n^2",), OPTIMUM),
    "minimise": (("n + 9/n",), OPTIMUM),
    "model_of_parts": (([(MODEL, "y")],), {"name": "model", "values": {}, "notation": None}),
    "parse_strategy": (("data(2)",), {}),
    "peak_rate": ((), {"clock": "1 GHz", "units": 2, "fma": 3, "accounting": None}),
    "balance": (("H100-SXM", "bf16"), {"accounting": None, "notation": None}),
    "ratio": ((MADE, MADE), {"title": "", "compared": ()}),
    "read_problem": (("/nowhere.md",), {}),
    "read_topology": (("# x",), {"file": ""}),
    "sensitivity": (("n + 3",), {"to": "n", "given": {"n": 1}}),
    "symbols": (("D k",), {"of": MADE}),
    "solve": ((None,), {"progress": None, "accounting": ()}),
    "wiring": ((), {"topology": None, "device_name": "H100-SXM", "link_rate": "3 GB/s", "pcie": {}, "switch": True}),
    "search": (
        (MODEL,),
        {"devices": 2, "capacity": "80 GB", "capacity_is": "nominal_GB", "device": "H100-SXM", "batch": 8,
         "strategies": "data", "microbatches": None, "recomputation": "none", "schedules": None,
         "sizes": {"D": 4, "F": 8}, "buckets": None, "recipe": "mixed_adam", "gradient_dtype": None,
         "accounting": None, "top": 1, "seconds": 5},
    ),
    **{name: ((2,), {"mesh": "m"}) for name in MESHES},
    "worksheet": (("# A square\n## Symbols\n- a: its side\n## Lines\n- A := a^2\n  area: Side by side.",),
                  {"model": MODEL, "line": "A"}),
    "Cut": (("D", 2), {"mesh": "m"}),
    "HybridSharded": ((2, 2), {}),
    "Pipeline": ((2,), {"layers_per_stage": None, "microbatches": 4, "layers": None}),
}  # fmt: skip
METHODS = {
    "at": (MODEL.at, {"D": 3}),
    "part": (MODEL.part, {"name": "layer"}),
    "derive": (MODEL.derive, {"quantity": "flops", "accounting": None, "asked": None}),
    "derivation.at": (MADE.at, {"D": 3, "F": 4}),
    "derivation.sweep": (MADE.sweep, {"D": [3], "F": 4}),
    "derivation.with_given": (MADE.with_given, {"D": 3}),
    "quantity.to": (MODEL.parameters().at(D=1, F=2).to, {"unit": "parameter"}),
}


def tried(call, *given, **named):
    """Nothing but a result or an error of ours comes out."""
    with suppress(sc.SymcommError):
        call(*given, **named)


def test_every_public_function_is_tried():
    functions = {name for name in sc.__all__ if not isinstance(getattr(sc, name), type) and callable(getattr(sc, name))}
    assert functions == {*CALLS}


@pytest.mark.few(14)
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_of_a_public_function_is_told(name):
    function, (given, named) = getattr(sc, name), CALLS[name]
    tried(function, no_such_option=3)
    tried(function, *given, *given, *given, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    for place in range(len(given)):
        for wrong in WRONG:
            tried(function, *given[:place], wrong, *given[place + 1 :], **named)
    for option in named:
        for wrong in WRONG:
            tried(function, *given, **{**named, option: wrong})


@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_argument_of_a_method_is_told(name):
    method, named = METHODS[name]
    for option in named:
        for wrong in WRONG:
            tried(method, **{**named, option: wrong})


@pytest.mark.few(13)
@pytest.mark.parametrize("name", [*QUANTITIES])
def test_a_wrong_option_of_a_quantity_is_told(name):
    for option in QUANTITIES[name].options:
        for wrong in WRONG:
            tried(MODEL.derive, name, **{option.name: wrong})


def test_an_argument_that_is_left_out_is_named_as_one():
    with pytest.raises(sc.SymcommError) as error:
        sc.sensitivity("n + 1/n")
    assert str(error.value) == "sensitivity needs 'to'\nhint: sensitivity(cost, to, given)"


def test_an_error_in_a_notebook_is_a_few_lines():
    with pytest.raises(sc.SymcommError) as caught:
        sc.minimise(5, over="n")
    assert caught.value._render_traceback_() == [f"ValuesError: {caught.value}"]
    assert "cost is the number 5" in str(caught.value)


def test_a_member_of_a_list_is_looked_at_where_anything_that_runs_is_taken() -> None:
    with pytest.raises(sc.SymcommError, match="inputs: one of them is the number 3, but it must be a text"):
        sc.load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n", inputs=["x", 3])
