"""A pipeline schedule of one's own: a text file with a line a rank.

``F2.5`` is the forward of stage 2 for microbatch 5, ``B`` the gradient of the input, ``W`` that of the weights, ``D``
both at once; ``F2.5+D1.3`` overlap. Stages and microbatches count from 0; ``#`` begins a comment.
"""

from __future__ import annotations

import re
from pathlib import Path

from symcomm.core.errors import Span, ValuesError
from symcomm.core.files import read_text
from symcomm.core.program.events import OrderError, simulate
from symcomm.core.program.orders import Action, Item, Placement, Schedule

_ACTION = re.compile(r"([FBWD])(\d{1,6})\.(\d{1,6})")


def read_order(path: str | Path) -> Schedule:
    """The schedule in a file, named after it.

    Raises ``ValuesError`` with file, line and caret for what is no action, and for an order that cannot be run: an
    action that is done twice, an input that nothing makes, ranks that wait for one another.
    """
    return parse_order(read_text(path, "a file with a line a rank"), str(path))


def parse_order(text: str, file: str = "<text>") -> Schedule:
    """The schedule in a text; the errors are as in ``read_order``.

    >>> made = parse_order("F0.0 F0.1 D0.0 D0.1\\nF1.0 D1.0 F1.1 D1.1")
    >>> len(made.ranks(2, 2))
    2
    """
    orders: list[list[Item]] = []
    spans: list[list[Span]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [*re.finditer(r"\S+", line.partition("#")[0])]
        if words:
            places = [Span(file, number, line, word.start(), word.end()) for word in words]
            orders.append([_item(word.group(), place) for word, place in zip(words, places, strict=True)])
            spans.append(places)
    if not orders:
        raise ValuesError(f"{file}: there is no order in it", hint="one line a rank, such as F0.0 F0.1 D0.0 D0.1")
    try:
        simulate(orders)  # whether it can be run does not depend on the times
    except OrderError as error:
        place = spans[error.rank][error.position]
        raise ValuesError(error.message, place, error.hint or "an order is run as it stands, rank by rank") from None
    m = 1 + max(a.microbatch for order in orders for item in order for a in item)
    held = [sorted({a.stage for item in order for a in item}) for order in orders]
    local = [
        [tuple(a._replace(stage=stages.index(a.stage)) for a in item) for item in order]
        for order, stages in zip(orders, held, strict=True)
    ]
    needs = (
        f"p = {len(orders)}, m = {m}",
        f"{file} is an order of {len(orders)} ranks and {m} microbatches, not of {{p}} and {{m}}",
        f"pipeline({len(orders)}, microbatches={m})",
    )
    written = Placement(
        "as written", "The order names the stages.",
        lambda rank, chunk, p: held[rank][min(chunk, len(held[rank]) - 1)],
    )  # fmt: skip
    return Schedule(
        Path(file).stem, f"The order of {file}.", lambda rank, *_: local[rank], file, written,
        chunks=max(map(len, held)), needs=(needs,),
    )  # fmt: skip


def _item(word: str, place: Span) -> Item:
    found, start = [], 0
    for part in word.split("+"):
        read = _ACTION.fullmatch(part)
        where = place.within(place.start + start, place.start + start + max(1, len(part)))
        if read is None:
            raise ValuesError(
                f"'{part[:40]}' is no action", where, "F, B, W or D, a stage, a dot and a microbatch: F2.5"
            )
        found.append(Action(read[1], int(read[2]), int(read[3])))
        start += len(part) + 1
    kinds = sorted(action.kind for action in found)
    if len(found) > 1 and not (len(found) == 2 and kinds[1] == "F" and kinds[0] in "BD"):
        raise ValuesError(f"'{word[:40]}' is no pair", place, "a forward and a backward overlap: F2.5+D1.3")
    return tuple(found)
