"""Where two terms of a time are equal: the rate or the size at which one overtakes the other, solved symbolically."""

from __future__ import annotations

from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import value
from symcomm.core.optimum.comparison import ComparedTime, Comparison
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, GradientDtype, LinkedRates, OpName, Phase, StrategyOption
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.term_texts import need
from symcomm.core.quantities.time.terms import TERMS
from symcomm.core.records import replace
from symcomm.core.setting import Setting

_WORDS = {"compute": "computing", "memory": "the memory", "network": "the network"}


def derive(
    setting: Setting,
    between: Annotated[str, Meaning("two of compute, memory and network, separated by a comma")],
    over: Annotated[str, Meaning("the symbol to solve for")],
    strategy: StrategyOption | None = None,
    phase: Phase = "microbatch",
    op: OpName | None = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The rate or size at which two terms of a time are equal.

    The value of ``over`` itself, where it is given, is not used. Raises ``ValuesError`` where the terms never meet.
    """
    pair = [part.strip() for part in between.split(",")]
    if len(pair) != 2 or pair[0] == pair[1] or not {*pair} <= {*TERMS}:
        raise ValuesError(f"'{between[:60]}' are no two terms", hint="write for instance between: network, compute")
    setting, work, writer, terms, _ = time.write(setting, strategy, phase, op, dtype, gradient_dtype, rates, True, pair)
    machine = writer.machine
    if any(over in condition.names for condition in machine.where):
        raise ValuesError(f"the number of {over} decides where the axes of the mesh lie in a node",
                          hint="name the links of each axis: tensor=900 GB/s, data=50 GB/s")  # fmt: skip
    first, second = sides = [
        ComparedTime(name, _WORDS[name], (need(getattr(terms, name), f"the {name} term"),)) for name in pair
    ]
    symbols = {s.name: s for one in sides for s in value(one.parts[0], work.known).free_symbols}
    if over not in symbols:
        raise ValuesError(f"{' and '.join(pair)} do not depend on '{over[:40]}'", hint=nearest(over, [*symbols]))
    work.steps = time.ending(work, *first.parts, *second.parts)
    met = Comparison(work, symbols[over], first, second, machine.symbols, machine.given)
    found = met.solve()
    if found.form is None:
        longer = {"always": pair[0], "never": pair[1]}.get(found.kind)
        said = f": the {longer} term is longer at every one" if longer else ""
        raise ValuesError(f"the two terms are equal for no positive {over}{said}")
    text = f"The value at which the {pair[0]} term and the {pair[1]} term are equal"
    if found.rises is not None:
        text += f"; {'above' if found.rises else 'below'} it the {pair[0]} term is the larger one"
    if found.below is not None:
        low = float(found.below)
        text += f". The sign of their difference is proved here and at {low:.12g}; it changes nowhere else"
    met.define(f"{over.replace('^', '')}^*", found, "solve" if found.below is None else "bracket", f"{text}.")
    made = time.with_rates(setting.derivation(f"Where {pair[0]} and {pair[1]} meet", work.steps), writer)
    if found.where is not None:
        said = f"Where {found.where} does not hold, the {pair[0]} term and the {pair[1]} term meet at no {over}."
        made = replace(made, where=(*made.where, found.where), notes=(*made.notes, said))
    return replace(made, given=tuple((n, v) for n, v in made.given if n != over))
