"""What is written as a PyTorch module computes what the NumPy run of the graph does, gradients included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api import RenderError, torch_module
from proof_reference import EPSILON_VALUE, Sizes, outside, run, targets_of_losses
from proof_tables import ALL, graph
from torch_source import filled, loaded

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


# What has no spelling in PyTorch yet, and what is said of it.
REFUSED = {
    "tables of bags": "a lookup that is no row of a table is not written in PyTorch yet",
    "function lstm": "a loop over positions, which hands on `before(h)`, is not written in PyTorch yet",
    "function gru": "a loop over positions, which hands on `before(h)`, is not written in PyTorch yet",
}


@pytest.mark.parametrize("layer", [name for name in ALL if name not in REFUSED])
def test_a_written_module_and_its_gradients_equal_the_numpy_run(layer: str, tmp_path: Path, monkeypatch) -> None:
    both = graph(layer)
    sizes = Sizes(both, ALL[layer].values((2,)))
    given = outside(sizes)
    given |= {n: np.ones_like(a) for n, a in given.items() if both.tensors[n].dtype == "bool"}  # no dropout
    given |= {
        n: np.eye(*a.shape, 1)[:, 0] if a.ndim > 1 else np.eye(len(a))[0]
        for n, a in given.items()
        if n.startswith("first(")
    }
    given |= {n: np.eye(len(a)) for n, a in given.items() if n.startswith("eye(")}
    at = 0
    for name, array in given.items():  # what is joined stands in the order of its places
        if name.startswith("place("):
            given[name], at = np.eye(*array.shape, at), (at + len(array)) % array.shape[1]
    found = run(sizes, given)
    made = torch_module(both.forward())
    module = loaded(made.source, tmp_path)
    module.EPSILON = EPSILON_VALUE
    torch.set_default_dtype(torch.float64)
    try:
        numbers = {
            name: int(value)
            for symbol, value in sizes.numbers.items()
            for name in [made.symbols.get(symbol.name)]
            if name
        }
        network = module.model(**numbers)
        weights = filled(network, made, given, torch)
        inputs = {name: torch.tensor(given[name]) for name in made.inputs}
        learning = {t.name for t in both.inputs} - targets_of_losses(both)
        trained = {n: t.requires_grad_() for n, t in inputs.items() if n in learning}
        results = network(*inputs.values())
    finally:
        torch.set_default_dtype(torch.float32)
    results = results if isinstance(results, tuple) else (results,)
    for name, result in zip(made.results, results, strict=True):
        assert np.allclose(result.detach().numpy().reshape(found[name].shape), found[name], rtol=1e-8, atol=1e-10), name
    given_gradients = [
        torch.tensor(given[f"d({n})"]).reshape(r.shape) for n, r in zip(made.results, results, strict=True)
    ]
    torch.autograd.backward(results, given_gradients)
    for name, tensor in {**weights, **trained}.items():
        wanted = found[f"d({name})"]
        assert np.allclose(tensor.grad.numpy().reshape(wanted.shape), wanted, rtol=1e-7, atol=1e-9), name


@pytest.mark.parametrize("layer", REFUSED)
def test_a_layer_without_a_spelling_in_pytorch_is_refused_at_its_row(layer: str) -> None:
    with pytest.raises(RenderError) as refused:
        torch_module(graph(layer).forward())
    assert refused.value.message == REFUSED[layer]
    assert refused.value.span is not None
