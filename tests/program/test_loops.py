"""The loops of a training step: how often its turns run, and what the first layer of a model does without."""

from fractions import Fraction
from math import prod

import pytest
import sympy as sp
from api import Loop, num, repeats
from api import form as forms
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc

TABLE = """Computation\tInput\tOutput
H = relu(X W_1)\tX [B, L, D], W_1 [D, F]\tH [B, L, F]
Y = H W_2\tH [B, L, F], W_2 [F, D]\tY [B, L, D]
"""
MODEL = sc.load(TABLE, repeat="N")
B, L, D, F, N = sp.symbols("B L D F N", positive=True, integer=True)

layers = st.tuples(st.integers(1, 4), st.lists(st.sampled_from("abcdef"), unique=True, min_size=1), st.integers(0, 3))


@given(st.lists(st.tuples(st.integers(1, 3), st.lists(layers, max_size=3)), max_size=3))
def test_each_instruction_runs_as_often_as_in_the_unrolled_loops(step: list[tuple[int, list]]) -> None:
    run: list[str] = []
    for microbatches, body in step:
        for _ in range(microbatches):
            for count, mine, spared in body:
                for layer in range(count):
                    run += mine if layer else mine[spared:]
    counted = dict.fromkeys("abcdef", Fraction(0))
    made = [
        Loop("microbatch", num(often), tuple(Loop("layer", num(n), (*a,), first=(*a[k:],)) for n, a, k in body))
        for often, body in step
    ]
    for name, around in repeats(made):
        counted[name] += prod(forms.evaluate(count, {}) for _, count in around)
    assert counted == {name: run.count(name) for name in "abcdef"}


def test_loops_inside_of_loops_run_as_often_as_the_counts_multiplied() -> None:
    inner = Loop("layer", forms.Sym("N"), ("layer", "sum"), first=("layer",))
    found = dict(repeats((Loop("microbatch", num(4), ("head", inner)), "end")))
    often = {name: [str(forms.value(count)) for _, count in around] for name, around in found.items()}
    assert often == {"head": ["4"], "layer": ["4", "N"], "sum": ["4", "N - 1"], "end": []}


@pytest.mark.parametrize("microbatches", [1, 3])
def test_the_first_layer_of_a_step_does_without_the_gradient_of_an_input_that_needs_none(
    microbatches: int,
) -> None:
    made = MODEL.step_time("tensor(t)", microbatches=microbatches, accounting=sc.Accounting.of("not_needed", "serial"))
    t, rate, network = sp.symbols("t R W_net", positive=True)
    by_name = {s.name: s for s in made.expr.free_symbols}
    terms = sp.expand(made.expr).subs({by_name[n]: s for n, s in {"R": rate, "W_net": network}.items()})
    for name, symbol in {"B": B, "L": L, "D": D, "F": F, "N": N, "t": t}.items():
        terms = terms.subs(by_name[name], symbol)
    # Each product costs 2BLDF forward, and twice that backward; the first layer lacks the one for its input.
    assert sp.simplify(terms.coeff(1 / rate) * t - (12 * N - 2) * B * L * D * F) == 0
    # An all-reduce of BLD forward and one backward in each layer, 2 bytes a number, but for the backward one of the
    # first layer: 2(t-1)/t of them go over a link.
    sent = sp.simplify(terms.coeff(1 / network))
    assert sp.simplify(sent - (2 * N - 1) * 2 * B * L * D * 2 * (t - 1) / t) == 0
    assert not any("Nothing here depends" in note for note in made.notes)


def test_stages_behind_the_first_one_send_for_all_of_their_layers() -> None:
    how, strategy = sc.Accounting.of("not_needed", "sent_per_rank"), "tensor(2) + pipeline(4, microbatches=2)"
    made = [MODEL.communication(strategy, stage=n, collective="all-reduce", accounting=how) for n in (0, 1, 3)]
    sent = [one.at(B=2, L=4, D=8, F=16, N=8).value for one in made]
    # Two layers a stage, two all-reduces of BLD a layer of 2 bytes, of which a ring of two sends 2 * 1/2.
    whole = 2 * 2 * (2 * 4 * 8) * 2
    assert sent == [whole - (2 * 4 * 8) * 2, whole, whole]


def test_a_pipeline_tells_that_its_first_layer_is_timed_as_all_others_are() -> None:
    made = MODEL.step_time("tensor(2) + pipeline(4, microbatches=2)", accounting="not_needed")
    assert "The first layer is timed as all others are." in made.notes
    assert "The first layer is timed as all others are." not in MODEL.step_time("tensor(2)").notes


def test_reduced_every_microbatch_shows_how_often_each_gradient_is_reduced() -> None:
    made = MODEL.communication("data(k)", microbatches=3, accounting="reduced_every_microbatch")
    (rows,) = [shown.rows for shown in made.exhibits if shown.columns[-1] == "times" and "bytes each" in shown.columns]
    assert {str(forms.value(row[-1])) for row in rows} == {"3*N"}
    assert made.at(B=2, L=1, D=2, F=4, N=5, k=2).value == 3 * 5 * (2 * 2 * 4) * 2
