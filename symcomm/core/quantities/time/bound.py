"""The least time that physics allows, and what a measured time would need: a time below a bound is impossible."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation, exact
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Ratio, Sym
from symcomm.core.quantities.counting import tensor_size
from symcomm.core.quantities.counting.load import ONE_DEVICE
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.machine import RATES, machine
from symcomm.core.quantities.options import Amount, Dtype, OpName, Phase, Rates
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.term_texts import need
from symcomm.core.quantities.time.terms import SECOND, TimeWriter
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import Quantity


@dataclass(frozen=True)
class Judgement:
    """Whether a measured time is possible, the bound it was held against, and one sentence that says so."""

    possible: bool
    measured: Quantity
    bound: Quantity

    @property
    def text(self) -> str:
        """The verdict as a sentence with the bound."""
        if self.possible:
            factor = float(self.measured.value / self.bound.value) if self.bound.value else float("inf")
            return f"{_said(self.measured)} is possible: {factor:.3g} times the bound of {_said(self.bound)}."
        factor = float(self.bound.value / self.measured.value)
        return (
            f"{_said(self.measured)} is impossible: it takes at least {_said(self.bound)}, {factor:.3g} times as long. "
            "Something else was timed, such as an asynchronous launch."
        )


def _said(quantity: Quantity) -> str:
    return quantity.lines()[-1][1]


def judge(bound: Derivation, measured: object, /, **values: object) -> Judgement:
    """Holds a measured time against a derived bound.

    Raises ``ValuesError`` where the bound is no time or the measured time is not positive.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Reason, Step
    >>> from symcomm.core.form import num
    >>> floor = Derivation("floor", Accounting(), (Step("t", num(3, SECOND), SECOND, Reason("given", "so")),))
    >>> judge(floor, "2 s").possible, judge(floor, "4 s").possible
    (False, True)
    """
    if bound.unit != SECOND:
        raise ValuesError(f"{bound.title} is in {bound.unit}, but a bound of a time is in s")
    return Judgement(
        exact_time(measured) >= bound.at(**values).value, Quantity(exact_time(measured), SECOND), bound.at(**values)
    )


def exact_time(measured: object) -> Fraction:
    """A measured time in seconds. Raises ``ValuesError`` for another unit, or zero and less."""
    quantity = Quantity.parse(measured) if isinstance(measured, str) else measured
    if isinstance(quantity, Quantity) and quantity.unit != SECOND:
        said = quantity.unit if quantity.unit.powers else "no unit"
        raise ValuesError(f"measured is given in {said}, but a time is in s", hint="for instance 0.000222 s")
    number = exact(quantity, "measured")
    if number <= 0:
        raise ValuesError(f"measured = {measured}: a measured time is positive")
    return number


def derive(
    setting: Setting,
    of: Annotated[
        Literal["least_time", "implied_rate", "implied_bandwidth"], Meaning("the result to derive")
    ] = "least_time",
    op: OpName | None = None,
    tensor: Annotated[str | None, Meaning("only writing this tensor once")] = None,
    phase: Phase = "forward",
    measured: Annotated[Amount, Meaning("a measured time, such as 0.000222 s")] = None,
    dtype: Dtype | None = None,
    **rates: Unpack[Rates],
) -> Derivation:
    """The least time that physics allows, or the rate that a measured time implies.

    The least time of a pass or a row, or of writing one ``tensor`` once; or the rate that a measured time implies.

    With ``measured`` the verdict is a note of the derivation.
    """
    setting = setting.in_format(dtype)
    given: dict[str, Fraction] = {} if measured is None else {"t_measured": exact_time(measured)}
    if tensor is not None:
        size = tensor_size.derive(setting, tensor)
        made = machine(setting, **rates)
        work = StepWriter(setting, *made.symbols)
        work.steps, work.known = [*size.steps], dict(size.worth)
        writer = TimeWriter(work, made, ONE_DEVICE)
        flops: Form | None = None
        moved: Form | None = Sym(size.answer.name)
        if of == "least_time":
            work.combine("t_least", Ratio(Sym(size.answer.name), made.sustained(made.memory)), SECOND, "memory",
                         f"Bytes of `{tensor}` over the bandwidth of the memory.")  # fmt: skip
    else:
        setting, work, writer, terms, _ = time.write(setting, None, phase, op, dtype, None, rates, of != "least_time")
        flops, moved = terms.flops, terms.moved
        if of == "least_time":
            form = Largest(terms.local) if len(terms.local) > 1 else need(terms.compute or terms.memory, "this model")
            work.combine("t_least", form, SECOND, "bound", "No less than computing and no less than memory takes.")
    if of != "least_time":
        amount = need(flops if of == "implied_rate" else moved, of.replace("_", " "))
        assert isinstance(amount, Sym)
        work.steps = time.ending(work, amount)
        unit = RATES["peak" if of == "implied_rate" else "memory"].unit
        work.combine("v_implied", Ratio(amount, Sym("t_measured", whole=False, unit=SECOND)), unit, "implied",
                     "The operations done, over the measured time.")  # fmt: skip
    titles = {"least_time": "Least time", "implied_rate": "Implied rate", "implied_bandwidth": "Implied bandwidth"}
    result = time.with_rates(setting.derivation(titles[of], work.steps), writer)
    result = replace(result, given=tuple({**dict(result.given), **given}.items()))
    if given and of == "least_time" and not result.needs:
        result = replace(result, notes=(judge(result, given["t_measured"]).text,))
    return result
