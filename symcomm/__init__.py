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
    from symcomm.core.model import Model, balance, broadcast, derive, model_of_parts, peak_rate, ratio, worksheet
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
    from symcomm.core.quantities.time.judge import judge
    from symcomm.core.units import Quantity
    from symcomm.exams.grading import grade
    from symcomm.exams.key import Key, check, key_of, mistakes_of
    from symcomm.exams.problems.load import load
    from symcomm.exams.problems.problem import Problem, read_problem
    from symcomm.exams.problems.solve import solve
    from symcomm.exams.verdict import Verdict
    from symcomm.searching.run import search
    from symcomm.teaching.differentiation.trace import trace

# The public names by the module they live in.
_MODULES = {
    "core.accounting": "Accounting",
    "core.derivation": "Derivation Reason Step symbols",
    "core.errors": "SymcommError",
    "core.fitting": "fit",
    "core.hardware.devices": "Device Network device devices network networks",
    "core.hardware.paths": "wiring",
    "core.hardware.topology": "read_topology",
    "core.model": "Model balance broadcast derive model_of_parts peak_rate ratio worksheet",
    "core.notation": "Notation",
    "core.optimum.crossover": "crossover",
    "core.optimum.minimum": "maximise minimise",
    "core.optimum.sensitivity": "break_even sensitivity",
    "core.parallel.strategy": "Context Cut Data Expert FullySharded HybridSharded OptimizerSharded Pipeline "
    "Sequence Strategy Tensor Zero1 Zero2 parse_strategy",
    "core.quantities.time.judge": "judge",
    "core.units": "Quantity",
    "exams.grading": "grade",
    "exams.key": "Key check key_of mistakes_of",
    "exams.problems.load": "load",
    "exams.problems.problem": "Problem read_problem",
    "exams.problems.solve": "solve",
    "exams.verdict": "Verdict",
    "searching.run": "search",
    "teaching.differentiation.trace": "trace",
}
_HOMES = {name: f"symcomm.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Accounting", "Context", "Cut", "Data", "Derivation", "Device", "Expert", "FullySharded", "HybridSharded",
    "Key", "Model", "Network", "Notation", "OptimizerSharded", "Pipeline", "Problem", "Quantity", "Reason",
    "Sequence", "Step", "Strategy", "SymcommError", "Tensor", "Verdict", "Zero1", "Zero2", "__version__", "balance",
    "break_even", "broadcast", "check", "crossover", "derive", "device", "devices", "fit", "grade", "judge",
    "key_of", "load", "maximise", "minimise", "mistakes_of", "model_of_parts", "network", "networks",
    "parse_strategy", "peak_rate", "ratio", "read_problem", "read_topology", "search", "sensitivity", "solve",
    "symbols", "trace", "wiring", "worksheet",
]  # fmt: skip


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
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
