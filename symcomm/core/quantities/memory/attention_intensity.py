"""Operations per byte of the cache: how attention in a decode step compares with its reading of keys and values."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Ratio, Total, from_expr, num
from symcomm.core.graph.graph import Op, Region
from symcomm.core.libraries import sp
from symcomm.core.program.program import batch_of
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.memory.kv_cache import counted, share_bytes, shares
from symcomm.core.quantities.options import Dtype
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, FLOP, Unit


def derive(setting: Setting, dtype: Dtype | None = None) -> Derivation:
    """The operations of a decode step for each byte of the cache that it reads.

    Every cached token adds the same operations to a step, and the bytes of its keys and values. Products with weights
    do not grow with the context. A window counts as not yet full. The batch does not matter: each sequence reads its
    own cache.

    Raises ``ValuesError`` where nothing grows with the context.

    Source: Pope et al., arXiv 2211.05102, section 3; Austin et al., How to Scale Your Model, 2025, "Inference".
    """
    setting = step_of(setting, "decode").in_format(dtype)
    graph, work = setting.graph, StepWriter(setting)
    assert graph.step is not None
    past = next(iter(graph.step.past.free_symbols), None)
    mine = shares(setting, None, num(1), None, "token")
    if past is None or not mine:
        what = "the step says how many positions there are" if past is None else "nothing grows with the context"
        raise ValuesError(what, hint="ask the model itself, or a model with attention")
    size = graph.axes[batch_of(graph.model)].size
    worth = setting.graph.relations.expand(flops.derive(setting, "forward").expr)
    worth = sp.expand(worth.replace(sp.Min, lambda *args: past if past in args else sp.Min(*args)))
    grown = setting.graph.relations.gather(worth.coeff(past, 1) / size)
    ran = [(r, op) for r in graph.regions for op, _ in flops.counted(setting, graph, graph.ops) if op.region == r.name]
    text = "Each cached token meets every query of its sequence's new position, over all heads and layers."
    each = work.define("F_key", from_expr(grown), FLOP, "a cached token", text,
                       witness=partial(_one_more, setting, ran, str(past), str(size)))  # fmt: skip
    token = Total(tuple(share_bytes(setting, None, one) for one in mine))
    read = work.define("C_key", token, BYTE, "a cached token", "The step reads these bytes of it.",
                       witness=partial(counted, None, mine))  # fmt: skip
    work.combine("I", Ratio(each, read), Unit.parse("FLOP/byte"), "definition",
                 "Operations for each byte of the cache.")  # fmt: skip
    return setting.derivation("Intensity of attention in a decode step", work.steps)


def _one_more(
    setting: Setting, ran: list[tuple[Region, Op]], past: str, batch: str, numbers: Numbers
) -> Fraction:  # fmt: skip
    """The loops of a step behind one more position, less those without it; of a sequence, and no window full."""
    numbers = numbers.moved(batch, Fraction(1)) if batch.isidentifier() else numbers
    for window in setting.graph.model.windows:
        numbers = numbers.moved(str(window), Fraction(9)) if window.is_Symbol else numbers
    without, one = (
        flops.looped(setting.accounting, setting.graph, ran, numbers.moved(past, Fraction(n))) for n in (1, 2)
    )
    return one - without
