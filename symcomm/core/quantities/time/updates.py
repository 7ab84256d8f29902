"""The operations and the memory traffic of an optimizer's update."""

from __future__ import annotations

from typing import Annotated

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Num, num
from symcomm.core.quantities.declared import Extent
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, shaped_states
from symcomm.core.quantities.options import Frozen, RecipeName
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, times
from symcomm.core.units import FLOP


def derive_update_flops(
    setting: Setting, recipe: RecipeName = "mixed_muon", frozen: Frozen | None = None
) -> Annotated[Derivation, Extent("model all")]:
    """The operations of one update of the weights.

    Muon makes the update of each hidden matrix nearly orthogonal by iterations of Newton and Schulz. One takes three
    products: of the matrix and its transpose, of that square and itself, and of both. ``mixed_muon(iterations=6)`` says
    how many there are. Shampoo makes two squares of each gradient, and multiplies it by an inverse fourth root of each.
    A root takes 18 iterations of Newton, four products each, and is made at each update:
    ``fp32_shampoo(iterations=10, every=100)`` says otherwise, and an update has its share. Under ``all_ops`` the rules
    count that run for each element, row or column, such as Adam's.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> sc.load(table).at(D=7, F=5).update_flops().at().value
    Fraction(4750, 1)
    >>> sc.load(table).at(D=7, F=5).update_flops("fp32_adam", accounting="all_ops").at().value
    Fraction(420, 1)

    Raises ``ValuesError`` for a recipe without products, or under ``all_ops`` without rules.

    Source: K. Jordan, Muon: an optimizer for hidden layers in neural networks, 2024; of Shampoo's roots, Anil et al.,
    arXiv 2002.09018, and C.-H. Guo and N. Higham, A Schur-Newton method for the matrix pth root, 2006.
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    setting.choice("operations")
    elements = setting.accounting.operations == "all_ops"
    if elements and not all(one.rules for one in kept.classes if one.terms):
        raise ValuesError(f"{kept.name} does not say how it updates a weight", hint="a named recipe, such as fp32_adam")
    if not elements and not any(one.products + one.iterated for one in kept.classes):
        hint = "accounting: all_ops, or recipe: mixed_muon"
        raise ValuesError(f"an update of {kept.name} has no matrix products", hint=hint)
    made = update(setting, ShapeChoice(kept, setting), "operations" if elements else "products", "F",
                  "All rules and products together.", "FLOPs of an update")  # fmt: skip
    if made.answer.form == Num(num(0).number, FLOP):
        raise ValuesError(f"{setting.graph.name} has no hidden matrix", hint="a model with layers")
    return made


def update(setting: Setting, choice: ShapeChoice, role: str, name: str, text: str, title: str) -> Derivation:
    """The operations or the memory traffic of an update of all weights that are trained."""
    work = StepWriter(setting)
    there = [
        (region.name, times(region, num(1)), [w for w in part.graph.weights if w.name not in setting.frozen])
        for region, part in zip(setting.regions, setting.parts, strict=True)
    ]
    shaped_states(work, choice, None, role, name, text, there, lambda *_: ())
    return replace(setting.derivation(title, work.steps), where=tuple(choice.where))


def derive_update_traffic(
    setting: Setting, recipe: RecipeName = "mixed_adam", frozen: Frozen | None = None
) -> Annotated[Derivation, Extent("model all")]:
    """The bytes that one update of the weights reads and writes.

    It reads each gradient, and reads and writes the states and the weight once. Where the states have a copy of the
    weights, the weight itself is only written. Products of matrices, as Muon's, move more; that is not counted.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> str(sc.load(table).at(D=7, F=5).update_traffic("fp32_adam").at())
    '980 B'
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    text = "The update reads gradients, states and weights, and writes states and weights."
    return update(setting, ShapeChoice(kept, setting), "traffic", "M_update", text, "Memory traffic of an update")
