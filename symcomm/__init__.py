"""symcomm derives the cost of neural networks in closed form from layer tables, every step shown.

Public names are imported when they are first used, so that ``import symcomm`` costs nothing.

>>> import symcomm as sc
>>> print(sc.peak_rate(clock="1.41 GHz", units=108, fma=512).at())
155 934 720 000 000 FLOP/s ≈ 155.9 TFLOP/s
"""

from __future__ import annotations

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from symcomm.accounting import Accounting
    from symcomm.derivation import Derivation, Reason, Step, symbols
    from symcomm.differentiation.trace import trace
    from symcomm.errors import SymcommError
    from symcomm.exam.classes import grade
    from symcomm.exam.key import Key, check, key_of, mistakes_of
    from symcomm.exam.verdict import Verdict
    from symcomm.fitting import fit
    from symcomm.hardware.devices import Device, device, devices
    from symcomm.hardware.paths import wiring
    from symcomm.hardware.topology import read_topology
    from symcomm.model import Model, broadcast, derive, model_of_parts, peak_rate, ratio
    from symcomm.notation import Notation
    from symcomm.optimum.crossover import crossover
    from symcomm.optimum.minimum import maximise, minimise
    from symcomm.optimum.sensitivity import break_even, sensitivity
    from symcomm.parallel.strategy import (
        Context,
        Cut,
        Data,
        Expert,
        FullySharded,
        HybridSharded,
        OptimizerSharded,
        Pipeline,
        Sequence,
        Strategy,
        Tensor,
        Zero1,
        Zero2,
        parse_strategy,
    )
    from symcomm.problems.load import load
    from symcomm.problems.problem import Problem, read_problem
    from symcomm.problems.solve import solve
    from symcomm.quantities.time.bound import judge
    from symcomm.quantities.time.peak_rate import balance
    from symcomm.searching.run import search
    from symcomm.units import Quantity

# One row a public name: the module it lives in.
_HOMES = {
    "Accounting": "symcomm.accounting",
    "Context": "symcomm.parallel.strategy",
    "Cut": "symcomm.parallel.strategy",
    "Data": "symcomm.parallel.strategy",
    "Derivation": "symcomm.derivation",
    "Device": "symcomm.hardware.devices",
    "Expert": "symcomm.parallel.strategy",
    "FullySharded": "symcomm.parallel.strategy",
    "HybridSharded": "symcomm.parallel.strategy",
    "Key": "symcomm.exam.key",
    "Model": "symcomm.model",
    "Notation": "symcomm.notation",
    "OptimizerSharded": "symcomm.parallel.strategy",
    "Pipeline": "symcomm.parallel.strategy",
    "Problem": "symcomm.problems.problem",
    "Quantity": "symcomm.units",
    "Reason": "symcomm.derivation",
    "Sequence": "symcomm.parallel.strategy",
    "Step": "symcomm.derivation",
    "Strategy": "symcomm.parallel.strategy",
    "SymcommError": "symcomm.errors",
    "Tensor": "symcomm.parallel.strategy",
    "Verdict": "symcomm.exam.verdict",
    "Zero1": "symcomm.parallel.strategy",
    "Zero2": "symcomm.parallel.strategy",
    "balance": "symcomm.quantities.time.peak_rate",
    "break_even": "symcomm.optimum.sensitivity",
    "broadcast": "symcomm.model",
    "check": "symcomm.exam.key",
    "crossover": "symcomm.optimum.crossover",
    "derive": "symcomm.model",
    "device": "symcomm.hardware.devices",
    "devices": "symcomm.hardware.devices",
    "fit": "symcomm.fitting",
    "grade": "symcomm.exam.classes",
    "judge": "symcomm.quantities.time.bound",
    "key_of": "symcomm.exam.key",
    "load": "symcomm.problems.load",
    "maximise": "symcomm.optimum.minimum",
    "minimise": "symcomm.optimum.minimum",
    "mistakes_of": "symcomm.exam.key",
    "model_of_parts": "symcomm.model",
    "parse_strategy": "symcomm.parallel.strategy",
    "peak_rate": "symcomm.model",
    "ratio": "symcomm.model",
    "read_problem": "symcomm.problems.problem",
    "read_topology": "symcomm.hardware.topology",
    "search": "symcomm.searching.run",
    "sensitivity": "symcomm.optimum.sensitivity",
    "solve": "symcomm.problems.solve",
    "symbols": "symcomm.derivation",
    "trace": "symcomm.differentiation.trace",
    "wiring": "symcomm.hardware.paths",
}

__all__ = [
    "Accounting",
    "Context",
    "Cut",
    "Data",
    "Derivation",
    "Device",
    "Expert",
    "FullySharded",
    "HybridSharded",
    "Key",
    "Model",
    "Notation",
    "OptimizerSharded",
    "Pipeline",
    "Problem",
    "Quantity",
    "Reason",
    "Sequence",
    "Step",
    "Strategy",
    "SymcommError",
    "Tensor",
    "Verdict",
    "Zero1",
    "Zero2",
    "__version__",
    "balance",
    "break_even",
    "broadcast",
    "check",
    "crossover",
    "derive",
    "device",
    "devices",
    "fit",
    "grade",
    "judge",
    "key_of",
    "load",
    "maximise",
    "minimise",
    "mistakes_of",
    "model_of_parts",
    "parse_strategy",
    "peak_rate",
    "ratio",
    "read_problem",
    "read_topology",
    "search",
    "sensitivity",
    "solve",
    "symbols",
    "trace",
    "wiring",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        if isfunction(found):
            from symcomm.doors import door

            found = door(found)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'symcomm' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
