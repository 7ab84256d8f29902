"""The members of a list that dots cut short: the first ones, the last one, and how many there are."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Sym, Total, num
from symcomm.core.notation import symbol
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel, Whole
from symcomm.core.setting import StepWriter
from symcomm.core.text.table import Table
from symcomm.core.units import Unit

COLUMNS = ("first", "second", "last")


def derive(
    setting: NoModel,
    member: Annotated[str, Reads("formula"), Meaning("a member with its index: `(x_i, y_i)`")],
    index: Annotated[str, Meaning("the index that runs")] = "i",
    last: Annotated[Whole, Meaning("its last value, or a symbol")] = "N",
) -> Derivation:
    """The members of a list such as (x_1, y_1), ..., (x_N, y_N): every index goes up by one from each to the next.

    The answer is how many there are. A printed list is set beside it as a table of its first, second and last member.
    """
    plain = _plain(member)
    places = re.findall(rf"_{re.escape(index)}(?![A-Za-z0-9])", plain)
    if not re.fullmatch(r"[A-Za-z]", index) or not places:
        raise ValuesError(f"the member '{member[:60]}' has no index '{index[:20]}'", hint="such as member: (x_i, y_i)")
    end = Sym(last) if isinstance(last, str) else num(last)
    if isinstance(last, str):
        symbol(last)  # refuses what cannot be a name
    work = StepWriter(setting, end)
    work.define("n", Total((end, num(-1), num(1))), Unit.parse("element"), "from the first to the last",
                f"The index {index} runs from 1 to the last one, both counted.",
                witness=lambda n: len(range(1, 1 + int(n[last] if isinstance(last, str) else last))))  # fmt: skip
    members = tuple(_put(plain, index, value) for value in ("1", "2", str(last)))
    shown = tuple(_quoted(one) for one in members)
    table = Exhibit("Members of the list", COLUMNS, (shown,), beside=partial(_beside, members))
    return setting.derivation("Members of a list", work.steps, [table])


def _plain(text: str) -> str:
    """A member without LaTeX's braces and spaces."""
    return re.sub(r"[{}$\\\s]", "", text)


def _put(member: str, index: str, value: str) -> str:
    return re.sub(rf"_{re.escape(index)}(?![A-Za-z0-9])", f"_{value}", member)


def _quoted(member: str) -> str:
    return re.sub(r"[A-Za-z]\w*", lambda match: f"`{match[0]}`", member).replace(",", ", ")


def _beside(members: tuple[str, ...], printed: Table) -> Exhibit:
    """The printed members that are others."""
    rows: list[tuple[str, str, str]] = []
    agreeing = 0
    for row in printed.rows:
        for cell, derived in zip(row, members, strict=False):
            told = _plain(cell.text)
            if told == derived:
                agreeing += 1
                continue
            pairs = zip(re.findall(r"[A-Za-z]\w*", told), re.findall(r"[A-Za-z]\w*", derived), strict=False)
            wrong = [f"`{b}` stands here, not `{a}`" for a, b in pairs if a != b]
            rows.append((_quoted(told), _quoted(derived), "every index goes up by one: " + ", ".join(wrong)))
    title = f"Printed and derived: {agreeing} members agree" + (", and these do not" if rows else "")
    return Exhibit(title, ("printed", "derived", "why"), tuple(rows))
