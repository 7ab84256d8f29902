"""Written modules as Python modules, with given numbers in them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def loaded(source: str, folder: Path, name: str = "written") -> Any:
    """A source as a module."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(network: Any, made: Any, given: Mapping[str, Any], torch: Any) -> dict[str, Any]:
    """Puts given arrays into the weights and tables of a module of one class; gives the weights by tensor."""
    (region,) = made.classes
    weights = {}
    for tensor, attribute in region.weights.items():
        parameter = getattr(network, attribute)
        parameter.data = torch.tensor(given[tensor]).reshape(parameter.shape)
        weights[tensor] = parameter
    for tensor, attribute in region.tables.items():
        setattr(network, attribute, torch.tensor(given[tensor]))
    return weights
