"""Ulysses over more ranks than key/value heads: every rank runs in NumPy, and agrees with the layer without copies."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from api import Accounting, parse_strategy, plan, training, update_ops, value, with_copied_heads
from proof_cases import Case, superfluous
from proof_ranks import Mesh
from proof_reference import Sizes, outside, run
from proof_tables import graph

SIZES = {"B": 1, "L": 8, "D": 24, "F": 12, "H": 4}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("layer", "heads", "shared", "ranks"),
    [("llama", 8, 2, 4), ("llama", 4, 2, 4), ("llama", 12, 2, 6), ("multi-query", 8, 1, 4)],
)
@pytest.mark.parametrize("beside", ["", "context(2) + ", "fully-sharded(2) + "])
@pytest.mark.parametrize("passes", ["forward", "training"])
def test_every_rank_agrees_and_no_call_is_superfluous(
    layer: str, heads: int, shared: int, ranks: int, beside: str, passes: str
) -> None:
    numbers = SIZES | {"B": 2, "L": 2 * ranks, "n_h": heads, "n_k": shared, "D": heads * 4}
    known = {name: Fraction(size) for name, size in numbers.items()}
    whole = graph(layer).forward()
    copied, strategy = with_copied_heads(whole, parse_strategy(f"{beside}ulysses({ranks})"), known)
    accounting = Accounting()
    made = plan(training(copied) if passes == "training" else copied, strategy, accounting)
    exchanged = Counter(c.phase for c in made.collectives if c.kind == "all-to-all")
    assert exchanged == {"forward": 4} | ({"backward": 4} if passes == "training" else {})

    mesh = Mesh({name: int(value(size)) for name, size in made.strategy.sizes.items()})
    assert np.prod([size for name, size in mesh.sizes.items() if name.startswith("ulysses")]) == ranks
    one = Sizes(update_ops(training(whole)) if passes == "training" else whole, numbers)
    given = outside(one)
    sizes = Sizes(made.graph, numbers)
    mine = {name: array.reshape(sizes.shape(name)) for name, array in given.items()}
    case = Case(made, sizes, mesh, accounting, mine, run(sizes, mine))
    reference = run(one, given)
    ranks_run = case.start()
    results = ranks_run.results()
    for name in results:  # the layer with copies is the layer
        assert np.allclose(case.reference[name], reference[name].reshape(sizes.shape(name))), name
    assert superfluous(case) == []  # which first finds that every rank is right


@pytest.mark.few(2)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("passes", ["forward", "training"])
def test_every_rank_agrees_beside_tensor_parallelism_that_leaves_it_one_head(ranks: int, passes: str) -> None:
    test_every_rank_agrees_and_no_call_is_superfluous("llama", 8, 2, ranks, "tensor(2) + ", passes)
