"""Gradient buckets in data parallelism: what is left of their communication after backward, and how many are best.

The overlap model: s bytes of gradients in equal buckets become ready one after the other, in backward order. One call
at a time runs on the link and takes a fixed overhead and the bucket's transfer time tau. Computing a bucket takes rho
times its transfer; ``rho = 1`` is the case of the course (CS336, assignment 2, ddp_bucketed_benchmarking).
Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation, exact
from symcomm.errors import ValuesError
from symcomm.form import Form, Largest, Ratio, Root, Sym, product, total
from symcomm.optimum.minimum import minimise
from symcomm.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.passes.setting import Setting
from symcomm.units import BYTE, ONE

ROWS = (
    Name("n_b", "", "number of buckets", True),
    Name("s", "byte", "bytes of all gradients"),
    Name("w", "byte/second", "algorithm bandwidth of the all-reduce"),
    Name("o", "second", "overhead of one call"),
)
N, S, W, O = (row.sym for row in ROWS)  # noqa: E741
WANTED = "overhead|number|whole_number|size|least"


def overhead(setting: Setting, rho: Fraction = Fraction(1)) -> Derivation:
    """The time after the backward pass until the last bucket is reduced."""
    tau, call, end = Sym("tau"), Sym("c"), Sym("T_end")
    steps = [
        step("tau", Ratio(S, product(N, W)), SECOND, "transfer", "Each bucket holds the same share of the bytes."),
        step("c", total(O, tau), SECOND, "one call", "A call costs its overhead and its transfer."),
    ]
    if rho == 1:
        compute: Form = tau
        said = "a bucket is computed in the time of its transfer"
    else:
        compute = product(forms.rational(rho), tau)
        said = f"computing a bucket takes {rho} of the time of its transfer"
    steps += [
        step("T_back", product(N, compute), SECOND, "backward", f"Buckets are computed one after the other; {said}."),
        step(
            "T_end", Largest((total(compute, product(N, call)), total(Sym("T_back"), call))), SECOND, "serial calls",
            "The calls follow one another: either they run without a gap from the first bucket on, or the last call "
            "starts when backward ends. The later end counts, for between them it grows evenly from bucket to bucket.",
        ),
        step("V", total(end, forms.negative(Sym("T_back"))), SECOND, "exposed", "What is left after backward."),
    ]  # fmt: skip
    share = forms.rational(rho)
    moved = Ratio(S, W)
    if rho == 1:
        form = total(product(N, O), Ratio(S, product(N, W)))
        why = "A call takes longer than computing a bucket, so the calls run without a gap."
    elif rho < 1:
        form = total(product(N, O), product(forms.rational(1 - rho), moved), Ratio(product(share, S), product(N, W)))
        why = "A call takes longer than computing a bucket, so the calls run without a gap."
    else:
        first = total(
            product(N, O), forms.negative(product(forms.rational(rho - 1), moved)),
            Ratio(product(share, S), product(N, W)),
        )  # fmt: skip
        form = Largest((first, total(O, Ratio(S, product(N, W)))))
        why = "With many buckets the overheads are left, with few the last call alone."
    steps.append(step("V", form, SECOND, "algebra", why, "="))
    return made(setting, ROWS, "Time left after backward", steps)


def derive(setting: Setting, want: str = "overhead", rho: object = None) -> Derivation:
    """The overhead of ``n_b`` buckets, the best ``number`` of them (real or whole), their ``size``, or the ``least``.

    ``rho`` is the time to compute a bucket's gradients over the time to transfer them.
    """
    share = Fraction(1) if rho is None else exact(rho, "rho")
    if share <= 0:
        raise ValuesError(f"rho = {share}: it must be positive")
    cost = overhead(setting, share)
    if want == "overhead":
        return cost
    given = known(setting, ROWS, ("n_b",))
    cost = replace(cost, given=tuple(given.items()))  # type: ignore[arg-type]
    if want == "whole_number":
        return continued(cost, minimise(cost, "n_b", title="Time left after backward"))
    if share <= 1:
        if want == "least":
            return continued(cost, minimise(cost, "n_b", integer=False, wanted="value"))
        best = continued(cost, minimise(cost, "n_b", integer=False))
    else:
        best = _compute_bound(cost, share)
    if want == "number":
        return best
    if want == "least":
        at = forms.substitute(cost.answer.form, lambda n: Sym("n_b^*") if n.name == "n_b" else n)
        last = step("V_least", at, SECOND, "minimum", "The overhead at the best number of buckets.")
        return replace(best, title="Least time left after backward", steps=(*best.steps, last))
    sizes = [step("b^*", Ratio(S, Sym("n_b^*")), BYTE, "size", "The bytes over the number of buckets.")]
    if share <= 1:
        inside = product(S, W, O) if share == 1 else Ratio(product(S, W, O), forms.rational(share))
        sizes.append(step("b^*", Root(inside), BYTE, "algebra", "Put the number in.", "="))
    steps = best.steps[:-1] if best.steps[-1].relation == "=" and best.steps[-1].name == "n_b^*" else best.steps
    return replace(best, title="Best bucket size", steps=(*steps, *sizes))


def _compute_bound(cost: Derivation, rho: Fraction) -> Derivation:
    """The best number where computing is slower than transferring: two pieces against each other."""
    ratio = Ratio(S, product(O, W))
    steps = (
        *cost.steps,
        step(
            "n_many", Root(product(forms.rational(rho), ratio)), ONE, "slope zero",
            "The first piece, `n_b` `o` and a share of 1/`n_b`, is least where its two changing terms are equal.",
        ),
        step(
            "n_meet", product(forms.rational(rho - 1), ratio), ONE, "kink",
            "The two pieces meet where the overhead of a call takes up the slack of computing: with fewer buckets the "
            "second piece is the larger one, and it falls.",
        ),
        step(
            "n_b^*", Largest((Sym("n_many"), Sym("n_meet"))), ONE, "compare",
            "Before the meeting the overhead falls; after it, it falls on to the first piece's own minimum, if that "
            "comes later, and rises then.",
        ),
    )  # fmt: skip
    return replace(cost, title="Best real number of buckets", steps=steps)
