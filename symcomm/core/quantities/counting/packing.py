"""Sequences packed into rows: how many rows they fill, which part of them is used, and the pairs of attention."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Ratio, num, product, total
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE

_MOST = 2_000  # sequences


def first_fit(lengths: list[int], row: int) -> list[list[int]]:
    """The sequences of each row: the longest first, each into the first row that has room.

    >>> first_fit([3, 5, 2, 8], 8)
    [[8], [5, 3], [2]]
    """
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        free = next((one for one in rows if sum(one) + length <= row), None)
        if free is None:
            rows.append(free := [])
        free.append(length)
    return rows


def lengths_of(text: str) -> list[int]:
    """The lengths that a text lists with commas.

    Raises ``ValuesError`` for what is no length, and for too many of them.
    """
    said = [one.strip() for one in text.split(",")]
    wrong = next((one for one in said if not re.fullmatch(r"[1-9]\d{0,11}", one)), None)
    if wrong is not None or len(said) > _MOST:
        what = f"'{wrong[:40]}' is no length" if wrong is not None else f"{len(said):,} sequences; at most {_MOST:,}"
        raise ValuesError(what, hint="whole numbers with commas, such as 512, 100, 900")
    return [int(one) for one in said]


@cache
def _pairs(length: int) -> int:
    """The pairs of a query and a key that it sees: those within both halves, and the later half sees the earlier one.

    >>> _pairs(4)
    10
    """
    early, late = length // 2, length - length // 2
    return _pairs(early) + _pairs(late) + early * late if early else length


def derive(
    setting: NoModel,
    lengths: Annotated[str, Meaning("tokens of each sequence, such as 512, 100, 900")],
    row: Annotated[int, Meaning("tokens of a row")],
    want: Annotated[
        Literal["rows", "used", "padded", "longest", "pairs", "pairs_across"], Meaning("what is asked for")
    ] = "used",
) -> Derivation:
    """Sequences packed into rows of a training batch.

    Rows are filled by first fit, the longest sequence first. ``used`` is the part of the rows that holds tokens;
    ``padded`` and ``longest`` are that part where each sequence has a row of its own, as long as ``row`` or as the
    longest one. ``pairs`` are those of causal attention whose mask keeps sequences apart (block-diagonal),
    ``pairs_across`` those of one mask over all tokens of a row.

    >>> import symcomm as sc
    >>> sc.derive("packing", lengths="3, 5, 2, 8", row=8, want="rows").at().value
    Fraction(3, 1)

    Raises ``ValuesError`` for a sequence that is longer than a row.

    Source: Krell et al., Efficient sequence packing without cross-contamination, arXiv 2107.02027, section 3.
    """
    every = lengths_of(lengths)
    if not isinstance(row, int) or row < max(every):
        raise ValuesError(f"a sequence of {max(every)} tokens does not fit into a row of {row}",
                          hint=f"row: {max(every)}, or more")  # fmt: skip
    rows, work = first_fit(every, row), StepWriter(setting)
    table = tuple((str(n), ", ".join(map(str, one)), str(sum(one))) for n, one in enumerate(rows, 1))
    shown = Exhibit("Rows", ("row", "sequences", "tokens"), table)
    if want in ("pairs", "pairs_across"):
        parts = every if want == "pairs" else [sum(one) for one in rows]
        text = ("A token sees itself and those before it in its sequence." if want == "pairs"
                else "A token sees itself and all before it in its row.")  # fmt: skip
        work.define("n_pairs", total(*(product(num(Fraction(1, 2)), num(one), num(one + 1)) for one in parts)), ONE,
                    "pairs", text, witness=lambda numbers: Fraction(sum(map(_pairs, parts))))  # fmt: skip
    else:
        made: Form = num(len(rows))
        if want in ("rows", "used"):
            text = "The longest sequence first, each into the first row with room."
            made = work.define("n_rows", made, ONE, "first fit", text, witness=lambda numbers: len(rows))
        else:
            made = num(len(every))
        if want != "rows":
            long = max(every) if want == "longest" else row
            places = long * (len(rows) if want == "used" else len(every))
            text = "The tokens of all sequences over the room of the rows."
            work.define("u", Ratio(total(*map(num, every)), product(made, num(long))), ONE, "used part", text,
                        witness=lambda numbers: Fraction(sum(every), places))  # fmt: skip
    titles = {"rows": "Rows of packed sequences", "pairs": "Pairs of packed sequences",
              "pairs_across": "Pairs over all tokens of a row"}  # fmt: skip
    return setting.derivation(titles.get(want, "Used part of the rows"), work.steps, exhibits=[shown])
