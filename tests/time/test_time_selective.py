"""Selective recomputation in times: the core of attention runs again, and nothing else does."""

from fractions import Fraction

import pytest
from api import model as sc
from time_models import HEAD

TABLE = HEAD + (
    r"| $Q = xW$ | $x \in \mathbb{R}^{B \times L \times D}, W \in \mathbb{R}^{D \times D}$ "
    r"| $Q \in \mathbb{R}^{B \times L \times D}$ |"
    "\n"
    r"| $S = \text{softmax}(\frac{QQ^T}{\sqrt{D}})$ | $Q \in \mathbb{R}^{B \times L \times D}$ "
    r"| $S \in \mathbb{R}^{B \times L \times L}$ |"
    "\n"
    r"| $y = SQ$ | $S \in \mathbb{R}^{B \times L \times L}, Q \in \mathbb{R}^{B \times L \times D}$ "
    r"| $y \in \mathbb{R}^{B \times L \times D}$ |"
    "\n"
)
B, L, D, N = 2, 16, 8, 3
FAST = {"peak": "1 MFLOP/s", "memory": "1000 TB/s", "network": "1000 TB/s"}  # only computing takes time
# By hand: a product of matrices forward, twice as much backward.
FORWARD = 2 * B * L * D * D + 2 * (2 * B * L * L * D)
CORE = 2 * (2 * B * L * L * D)


@pytest.fixture
def model() -> sc.Model:
    return sc.load(TABLE, repeat="N_layer", values={"B": B, "L": L, "D": D, "N_layer": N})


@pytest.mark.parametrize(
    ("convention", "again"),
    [("activations_kept", 0), ("selective_recomputation", CORE), ("full_recomputation", FORWARD)],
)  # fmt: skip
def test_a_step_computes_again_what_the_convention_says(model, convention, again):
    step = model.step_time(accounting=convention, **FAST)
    assert step.at().value == Fraction(N * (3 * FORWARD + again), 10**6)


def test_hardware_utilisation_counts_the_core_of_attention_again(model):
    mfu, hfu = (
        model.throughput(of=of, accounting="selective_recomputation", **FAST).at().value for of in ("mfu", "hfu")
    )
    assert hfu / mfu == Fraction(3 * FORWARD + CORE, 3 * FORWARD)
    assert hfu == 1


def test_the_core_of_attention_keeps_nothing_but_its_operands(model):
    named = model.activation_memory(recomputation="selective").at()
    assert model.activation_memory(accounting="selective_recomputation").at() == named


def test_only_the_collectives_of_the_core_run_again(model):
    kept, selective, full = (
        model.step_time("data(2)", of="network", accounting=name, **FAST).at().value
        for name in ("activations_kept", "selective_recomputation", "full_recomputation")
    )
    assert kept == selective == full  # what data parallelism sends is of gradients only
    # A context that is cut gathers the keys, for the core as well: that is done again.
    cut = {
        name: model.step_time("context(2)", of="network", accounting=name, **FAST).at().value
        for name in ("activations_kept", "selective_recomputation", "full_recomputation")
    }
    assert cut["activations_kept"] < cut["selective_recomputation"] == cut["full_recomputation"]
