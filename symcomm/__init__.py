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
    from symcomm.core.accounting import Accounting
    from symcomm.core.derivation import Derivation, Reason, Step, symbols
    from symcomm.core.errors import SymcommError
    from symcomm.core.fitting import fit
    from symcomm.core.hardware.devices import Device, Network, device, devices, network, networks
    from symcomm.core.hardware.paths import wiring
    from symcomm.core.hardware.topology import read_topology
    from symcomm.core.model import Model, broadcast, derive, model_of_parts, peak_rate, ratio, worksheet
    from symcomm.core.notation import Notation
    from symcomm.core.optimum.crossover import crossover
    from symcomm.core.optimum.minimum import maximise, minimise
    from symcomm.core.optimum.sensitivity import break_even, sensitivity
    from symcomm.core.parallel.strategy import (
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
    from symcomm.core.quantities.time.bound import judge
    from symcomm.core.quantities.time.peak_rate import balance
    from symcomm.core.units import Quantity
    from symcomm.exams.classes import grade
    from symcomm.exams.key import Key, check, key_of, mistakes_of
    from symcomm.exams.problems.load import load
    from symcomm.exams.problems.problem import Problem, read_problem
    from symcomm.exams.problems.solve import solve
    from symcomm.exams.verdict import Verdict
    from symcomm.searching.run import search
    from symcomm.teaching.differentiation.trace import trace

# One row a public name: the module it lives in.
_HOMES = {
    "Accounting": "symcomm.core.accounting",
    "Context": "symcomm.core.parallel.strategy",
    "Cut": "symcomm.core.parallel.strategy",
    "Data": "symcomm.core.parallel.strategy",
    "Derivation": "symcomm.core.derivation",
    "Device": "symcomm.core.hardware.devices",
    "Expert": "symcomm.core.parallel.strategy",
    "FullySharded": "symcomm.core.parallel.strategy",
    "HybridSharded": "symcomm.core.parallel.strategy",
    "Key": "symcomm.exams.key",
    "Model": "symcomm.core.model",
    "Network": "symcomm.core.hardware.devices",
    "Notation": "symcomm.core.notation",
    "OptimizerSharded": "symcomm.core.parallel.strategy",
    "Pipeline": "symcomm.core.parallel.strategy",
    "Problem": "symcomm.exams.problems.problem",
    "Quantity": "symcomm.core.units",
    "Reason": "symcomm.core.derivation",
    "Sequence": "symcomm.core.parallel.strategy",
    "Step": "symcomm.core.derivation",
    "Strategy": "symcomm.core.parallel.strategy",
    "SymcommError": "symcomm.core.errors",
    "Tensor": "symcomm.core.parallel.strategy",
    "Verdict": "symcomm.exams.verdict",
    "Zero1": "symcomm.core.parallel.strategy",
    "Zero2": "symcomm.core.parallel.strategy",
    "balance": "symcomm.core.quantities.time.peak_rate",
    "break_even": "symcomm.core.optimum.sensitivity",
    "broadcast": "symcomm.core.model",
    "check": "symcomm.exams.key",
    "crossover": "symcomm.core.optimum.crossover",
    "derive": "symcomm.core.model",
    "device": "symcomm.core.hardware.devices",
    "devices": "symcomm.core.hardware.devices",
    "fit": "symcomm.core.fitting",
    "grade": "symcomm.exams.classes",
    "judge": "symcomm.core.quantities.time.bound",
    "key_of": "symcomm.exams.key",
    "load": "symcomm.exams.problems.load",
    "maximise": "symcomm.core.optimum.minimum",
    "minimise": "symcomm.core.optimum.minimum",
    "mistakes_of": "symcomm.exams.key",
    "model_of_parts": "symcomm.core.model",
    "network": "symcomm.core.hardware.devices",
    "networks": "symcomm.core.hardware.devices",
    "parse_strategy": "symcomm.core.parallel.strategy",
    "peak_rate": "symcomm.core.model",
    "ratio": "symcomm.core.model",
    "read_problem": "symcomm.exams.problems.problem",
    "read_topology": "symcomm.core.hardware.topology",
    "search": "symcomm.searching.run",
    "sensitivity": "symcomm.core.optimum.sensitivity",
    "solve": "symcomm.exams.problems.solve",
    "symbols": "symcomm.core.derivation",
    "trace": "symcomm.teaching.differentiation.trace",
    "wiring": "symcomm.core.hardware.paths",
    "worksheet": "symcomm.core.model",
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
    "Network",
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
    "network",
    "networks",
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
    "worksheet",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        if isfunction(found):
            from symcomm.core.doors import door

            found = door(found)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'symcomm' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
