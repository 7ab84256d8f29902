"""Loss scaling: which gradients a number format keeps when the loss is multiplied by a scale."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Numbers, exact
from symcomm.core.dtypes import NumberFormat, binade, decimal, number_format
from symcomm.core.errors import ValuesError
from symcomm.core.form import num
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE
from symcomm.teaching.quantities.numbers.number_format import first_number


def derive(
    setting: NoModel,
    dtype: Annotated[str, Reads("dtype"), Meaning("the number format of the gradients")] = "fp16",
    scale: Annotated[object, Reads("quantity"), Meaning("the factor of the loss, such as 65536")] = 65536,
    gradient: Annotated[object, Reads("quantity"), Meaning("the gradient to keep, for the scale")] = None,
    want: Annotated[
        Literal["smallest", "flushed_up_to", "smallest_normal", "largest", "least_scale", "largest_scale"],
        Meaning("the result to derive"),
    ] = "smallest",
) -> Derivation:
    """The gradients that a number format keeps when the loss is multiplied by a scale.

    The gradients are multiplied by it, too (they are linear in the loss), and divided by it before the update.
    ``smallest`` is the smallest gradient that is a number of the format then, ``flushed_up_to`` the largest that
    becomes 0, ``smallest_normal`` the smallest that keeps all bits, ``largest`` the largest that does not overflow.
    ``least_scale`` is the least power of two under which a ``gradient`` does not become 0, ``largest_scale`` the
    largest under which it does not overflow. Source: Micikevicius et al., arXiv 1710.03740.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> setting = Setting(Graph("no model", {}, {}, ()))
    >>> str(derive(setting, "fp16", 1024, want="smallest").at())
    '≈ 5.82077·10^-11'
    >>> str(derive(setting, "fp16", gradient="0.00000001", want="least_scale").at())
    '4'
    """
    f, work = number_format(dtype), StepWriter(setting)
    if not f.floating:
        raise ValuesError(f"gradients are not kept in {f.name}", hint="a floating format, such as fp16")
    title = f"Loss scaling in {f.name}"
    if want.endswith("scale"):
        if gradient is None:
            raise ValuesError(f"the {want.replace('_', ' ')} is that for a gradient", hint="gradient: 0.00000001")
        _scale(work, f, abs(exact(gradient, "gradient")), want)
        return setting.derivation(title, work.steps)
    by = exact(scale, "scale")
    if by <= 0:
        raise ValuesError(f"the loss is multiplied by {by}", hint="a positive scale, such as 65536")
    bound, text = {
        "smallest": (f.smallest_subnormal, "the smallest number of the format, a subnormal one"),
        "flushed_up_to": (f.smallest_subnormal / 2, "half of the smallest number, which is rounded to the even 0"),
        "smallest_normal": (f.smallest_normal, "the smallest number with all bits of the mantissa"),
        "largest": (f.largest, "the largest number of the format"),
    }[want]
    edge = work.define("x", num(bound), ONE, "format", f"This is {text}.", witness=partial(_edge, f, want))
    work.define("g", edge / by, ONE, "divide by the scale", "The gradient that the scale brings to this "
                                                                       "number.",
                witness=lambda numbers: _edge(f, want, numbers) / by)  # fmt: skip
    return setting.derivation(title, work.steps)


def _edge(f: NumberFormat, want: str, numbers: Numbers) -> Fraction:
    """The same read off the codes."""
    codes = {"smallest": 1, "flushed_up_to": 1, "smallest_normal": 1 << f.mantissa}
    if want == "largest":
        return first_number(f, 2 ** (f.bits - 1) - 1)(numbers)
    found = f.decoded(codes[want])
    assert not isinstance(found, str)
    return found / 2 if want == "flushed_up_to" else found


def _scale(work: StepWriter, f: NumberFormat, g: Fraction, want: str) -> None:
    if not g:
        raise ValuesError("a gradient of 0 is kept under every scale", hint="gradient: 0.00000001")
    if want == "least_scale":
        half = f.smallest_subnormal / 2
        exponent = binade(half / g)  # 2^e g <= half < 2^(e + 1) g
        exponent += 1
        text = f"The power of two that brings {decimal(g)} above half of the smallest number, {decimal(half)}."
    else:
        exponent = binade(f.largest / g)
        text = f"The power of two that keeps {decimal(g)} at most at the largest number, {decimal(f.largest)}."
    power = work.define("S", num(exponent), ONE, "power of two", text,
                        witness=lambda numbers: _fits(f, g, int(numbers["S"]), want))  # fmt: skip
    text = "A power of two changes no bit of a mantissa."
    work.define("scale", num(2) ** power, ONE, "scale", text,
                witness=lambda numbers: Fraction(2) ** int(numbers["S"]))  # fmt: skip


def _fits(f: NumberFormat, g: Fraction, exponent: int, want: str) -> bool:
    """Whether the power of two does it, and the next one does not."""
    if want == "least_scale":
        return f.rounded(g * Fraction(2) ** exponent) != 0 and f.rounded(g * Fraction(2) ** (exponent - 1)) == 0
    return g * Fraction(2) ** exponent <= f.largest < g * Fraction(2) ** (exponent + 1)
