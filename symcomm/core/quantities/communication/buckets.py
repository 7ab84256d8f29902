"""Gradient buckets in data parallelism: what is left of their communication after backward, and how many are best.

The overlap model: s bytes of gradients in equal buckets become ready one after the other, in backward order. One call
at a time runs on the link and takes a fixed overhead and the bucket's transfer time tau. Computing a bucket takes rho
times its transfer, a number or a symbol; ``rho = 1`` is the case of the course (CS336, assignment 2,
ddp_bucketed_benchmarking).
Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers, exact, worked_out
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Ratio, Root, Sym, Total, num, product, total
from symcomm.core.optimum.minimum import minimise
from symcomm.core.optimum.question import no_better_beside
from symcomm.core.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel
from symcomm.core.quantities.witnesses import over
from symcomm.core.setting import Setting
from symcomm.core.units import BYTE, ONE, Number, Quantity

ROWS = (
    Name("n_b", "", "number of buckets", True),
    Name("s", "byte", "bytes of all gradients"),
    Name("w", "byte/second", "algorithm bandwidth of the all-reduce"),
    Name("o", "second", "overhead of one call"),
    Name("rho", "", "time to compute a bucket over the time to transfer it"),
)
N, S, W, O, RHO = (row.sym for row in ROWS)  # noqa: E741
TITLE = "Time left after backward"
_HAIR = Fraction(1, 10**8)  # of a number of buckets


def _left(rho: Fraction | None, numbers: Numbers) -> Fraction:
    count, share = int(numbers["n_b"]), numbers["rho"] if rho is None else rho
    transfer = numbers["s"] / count / numbers["w"]
    return queued([(share * transfer, numbers["o"] + transfer)] * count)


def queued(buckets: Iterable[tuple[Fraction, Fraction]]) -> Fraction:
    """The communication left after backward, from the times to compute and to send each bucket, one after the other.

    A call starts when its bucket is there and the link is free.

    >>> queued([(Fraction(1), Fraction(2)), (Fraction(1), Fraction(2))])
    Fraction(3, 1)
    """
    ready = free = Fraction(0)
    for each, call in buckets:
        ready += each
        free = max(ready, free) + call
    return free - ready


SERIAL = (
    "Calls run one after another: without a gap from the first bucket on, or the last one starts when backward ends. "
    "The later end counts: in between it grows evenly from bucket to bucket."
)


def last_end(count: Form, each: Form, backward: Form, call: Form) -> Form:
    """When the last of so many calls ends, if ``each`` makes one bucket and ``backward`` makes all of them."""
    return Largest((total(each, product(count, call)), total(backward, call)))


def overhead(setting: Setting, rho: Fraction | None = Fraction(1)) -> Derivation:
    """The time after the backward pass until the last bucket is reduced; without a number, ``rho`` is a symbol."""
    tau, call, end, share = Sym("tau"), Sym("c"), Sym("T_end"), _share(rho)
    steps = [
        step("tau", Ratio(S, product(N, W)), SECOND, "transfer", "Each bucket holds the same share of the bytes."),
        step("c", total(O, tau), SECOND, "one call", "A call costs its overhead and its transfer."),
    ]
    compute = product(share, tau)
    said = "a bucket is computed in the time of its transfer"
    if rho != 1:
        said = f"computing a bucket takes {'`rho` times' if rho is None else f'{rho} of'} the time of its transfer"
    steps += [
        step("T_back", product(N, compute), SECOND, "backward", f"Buckets are computed one after the other; {said}."),
        step("T_end", last_end(N, compute, Sym("T_back"), call), SECOND, "serial calls", SERIAL),
        step("V", total(end, forms.negative(Sym("T_back"))), SECOND, "exposed", "Time left after the backward pass.",
             witness=partial(_left, rho)),
    ]  # fmt: skip
    without_gap, last_call = _pieces(rho)
    if rho is not None and rho <= 1:
        why = "A call takes longer than computing a bucket, so the calls run without a gap."
        return made(setting, ROWS, TITLE, [*steps, step("V", without_gap, SECOND, "algebra", why, "=")])
    why = "With many buckets the overheads are left, with few the last call alone."
    if rho is None:
        why = "The first where the calls run without a gap, the second where the link waits for the last bucket."
    steps.append(step("V", Largest((without_gap, last_call)), SECOND, "algebra", why, "="))
    return made(setting, ROWS, TITLE, steps, exhibits=(_regimes(),) if rho is None else ())


def _share(rho: Fraction | None) -> Form:
    return RHO if rho is None else forms.rational(rho)


def _pieces(rho: Fraction | None) -> tuple[Form, Form]:
    """What is left where the calls run without a gap, and where the link waits for the last bucket."""
    moved, last = Ratio(S, W), Ratio(S, product(N, W))
    if rho == 1:
        return total(product(N, O), last), total(O, last)
    slack: Form
    if rho is not None and rho > 1:
        slack = forms.negative(product(forms.rational(rho - 1), moved))
    else:
        slack = product(forms.rational(1 - rho) if rho is not None else Total((num(1), forms.negative(RHO))), moved)
    return total(product(N, O), slack, Ratio(product(_share(rho), S), product(N, W))), total(O, last)


def _regimes() -> Exhibit:
    """Which piece counts when: the first less the second is (n - 1)(o + (1 - rho) s/(n w))."""
    without_gap, last_call = _pieces(None)
    meet, many = _n_meet(None), _n_many(None)
    rows: tuple[tuple[str | Form | Quantity, ...], ...] = (
        ("`rho` at most 1: computing is no slower than the link", "nowhere", without_gap, many),
        ("`rho` above 1, from there on: the calls still have no gap", meet, without_gap, Largest((many, meet))),
        ("`rho` above 1, fewer buckets: the link waits for the last one", meet, last_call, meet),
    )
    columns = ("where", "the pieces meet at", "left after backward", "the best number there")
    return Exhibit("The piece that counts", columns, rows)


def _n_many(rho: Fraction | None) -> Form:
    return Root(Ratio(S, product(O, W)) if rho == 1 else product(_share(rho), Ratio(S, product(O, W))))


def _n_meet(rho: Fraction | None) -> Form:
    slack = Total((RHO, num(-1))) if rho is None else forms.rational(rho - 1)
    return product(slack, Ratio(S, product(O, W)))


def derive(
    setting: NoModel,
    want: Annotated[
        Literal["overhead", "number", "whole_number", "size", "least"], Meaning("the result to derive")
    ] = "overhead",
    rho: Annotated[
        Number | None,
        Meaning("the time to compute a bucket over the time to send it, or rho for a symbol; default: 1"),
    ] = None,
) -> Derivation:
    """The gradient buckets of data parallelism: the time they leave after backward, the best number and size.

    The overhead of ``n_b`` buckets, the best ``number`` of them (real or whole), their ``size``, or the ``least``.

    ``rho`` is the time to compute a bucket's gradients over the time to transfer them: a number (1 where nothing is
    said), or the word ``rho`` for a symbol; both regimes are then derived, with their conditions. Numbers are
    given for ``s``, ``w``, ``o``, ``n_b`` and ``rho``.
    """
    share: Fraction | None = Fraction(1)
    if rho == RHO.name or (rho is None and RHO.name in setting.values):
        share = None
    elif rho is not None:
        share = exact(rho, RHO.name)
    if share is None and RHO.name in setting.values and setting.values[RHO.name] <= 0:
        raise ValuesError(f"rho = {setting.values[RHO.name]}: it must be positive")
    if share is not None and share <= 0:
        raise ValuesError(f"rho = {share}: it must be positive")
    cost = overhead(setting, share)
    if want == "overhead":
        return cost
    given = known(setting, ROWS, ("n_b",))
    cost = replace(cost, given=tuple(given.items()))  # type: ignore[arg-type]
    if want == "whole_number":
        found = minimise(cost, "n_b", title=TITLE)
        return replace(continued(cost, found), exhibits=(*cost.exhibits, *found.exhibits))
    one_valley = share is not None and share <= 1
    if one_valley and want == "least":
        return continued(cost, minimise(cost, "n_b", integer=False, wanted="value"))
    best = continued(cost, minimise(cost, "n_b", integer=False)) if one_valley else _of_two_pieces(cost, share)
    if want == "number":
        return best
    number = Sym(best.answer.name)
    if want == "least":
        at = forms.substitute(cost.answer.form, lambda n: number if n.name == "n_b" else n)
        last = step(
            "V_least",
            at,
            SECOND,
            "minimum",
            "The overhead at the best number of buckets.",
            witness=lambda numbers: worked_out(forms.from_expr(cost.expr), numbers.moved("n_b", numbers[number.name])),
        )
        return replace(best, title="Least time left after backward", steps=(*best.steps, last))
    sizes = [step("b^*", Ratio(S, Sym("n_b^*")), BYTE, "size", "The bytes over the number of buckets.",
                  witness=over(S, Sym("n_b^*")))]  # fmt: skip
    if one_valley and share is not None:
        inside = product(S, W, O) if share == 1 else Ratio(product(S, W, O), forms.rational(share))
        sizes.append(step("b^*", Root(inside), BYTE, "algebra", "Put the number in.", "="))
        text = "There is at least one bucket, and one holds all."
        form = forms.from_expr(cost.expr)

        def best_of_all(numbers: Numbers) -> bool:
            few, here, many = (numbers[S.name] / numbers["b^best"] * (1 + hair) for hair in (-_HAIR, 0, _HAIR))
            left = [worked_out(form, numbers.moved("n_b", n)) for n in (few, here, many) if n >= 1]
            return here >= 1 and min(left) >= worked_out(form, numbers.moved("n_b", here)) * (1 - _HAIR**3)

        sizes.append(step("b^best", forms.Smallest((S, Sym("b^*"))), BYTE, "bounds", text, witness=best_of_all))
    return replace(best, title="Best bucket size", steps=(*best.steps, *sizes))


def _of_two_pieces(cost: Derivation, rho: Fraction | None) -> Derivation:
    """The best number where computing may be slower than transferring: two pieces against each other."""
    never = "" if rho is not None else " For `rho` at most 1 that is nowhere, and this is not positive."
    beside = no_better_beside(forms.from_expr(cost.expr), "n_b", "n_b^*")

    def least(numbers: Numbers) -> bool:
        return numbers["n_b^*"] == 1 or bool(beside(numbers))

    steps = (
        *cost.steps,
        step(
            "n_many", _n_many(rho), ONE, "slope zero",
            "The first piece, `n_b` `o` and a share of 1/`n_b`, is least where its two changing terms are equal.",
        ),
        step(
            "n_meet", _n_meet(rho), ONE, "kink",
            "The two pieces meet where the overhead of a call fills the slack of computing. With fewer buckets the "
            f"second piece is larger and falls.{never}",
        ),
        step(
            "n_b^*", Largest((num(1), Sym("n_many"), Sym("n_meet"))), ONE, "compare",
            "The overhead falls until both the meeting and the first piece's minimum, then rises. There is at least "
            "one bucket.",
            witness=least,
        ),
    )  # fmt: skip
    return replace(cost, title="Best real number of buckets", steps=steps)
