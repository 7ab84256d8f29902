"""PrairieLearn: a folder for each question that needs nothing but PrairieLearn on the server.

Texts, answers and what is recognised travel as data in ``server.py``; formulas are nested lists that it builds SymPy
expressions from. The seed of a variant picks one of those that were drawn.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from itertools import groupby
from math import lcm
from typing import Any

from symcomm.core.errors import DocumentError
from symcomm.core.form import Sym
from symcomm.exams.exports.item import Item
from symcomm.exams.exports.markup import fill, unpacked, with_tex
from symcomm.exams.exports.spelled import check_names, stands_for, tree, without_relations


def piece(title: str, item: Item) -> dict[str, Any]:
    """The values drawn for a variant, and the parts of the page that all share.

    Raises ``DocumentError`` for names that PrairieLearn takes for others.
    """
    shape = [("text", 1, ()) if isinstance(one, str) else (one.kind, one.points, one.symbols) for one in item.blocks]
    return {"id": item.id, "title": item.title, "folder": f"prairielearn/{item.group}", "drawn": _variant(item),
            "media": item.media, "shape": shape, "place": item.span}  # fmt: skip


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The folders below ``prairielearn``. Raises ``DocumentError`` where variants cannot share their page."""
    made: dict[str, bytes] = {}
    for name, group in groupby(pieces, key=lambda one: one["id"]):
        every = list(group)
        folder, shape = every[0]["folder"], every[0]["shape"]
        if any(one["shape"] != shape for one in every):
            raise DocumentError(f"{name}: its variants have other parts, and share one page", every[0]["place"])
        scale = lcm(*(points.denominator for _, points, _ in shape))
        page = fill("prairielearn-question.html.jinja", blocks=shape, scale=scale)
        server = fill("prairielearn-server.py.jinja", variants=[ascii(one["drawn"]) for one in every])
        made |= {
            f"{folder}/info.json": _info(title, every[0]).encode(), f"{folder}/question.html": page.encode(),
            f"{folder}/server.py": server.encode(),
        }  # fmt: skip
        made |= {f"{folder}/clientFilesQuestion/{picture}": data for picture, data in unpacked(every).items()}
    return made


def _info(title: str, one: dict[str, Any]) -> str:
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"symcomm:{title}:{one['id']}")  # the same question, the same uuid
    kinds = (kind for kind, _, _ in one["shape"] if kind != "text")
    told = {
        "uuid": str(name), "title": one["title"], "topic": title or "symcomm",
        "tags": ["symcomm", *dict.fromkeys(kinds)], "type": "v3", "partialCredit": True,
        "comment": "Made by symcomm; change the document it was made from.",
    }  # fmt: skip
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _html(text: str) -> str:
    shown = text.replace('<img src="media:', '<pl-figure file-name="')
    return with_tex(shown, str, _dollars)


def _dollars(tex: str, display: bool) -> str:
    return f"$${tex}$$" if display else f"${tex}$"


def _variant(item: Item) -> str:
    """All that is drawn for a variant, as JSON."""
    params: dict[str, Any] = {"variant": item.variant, "recognised": {}, "stands": {}, "units": {}}
    answers: dict[str, Any] = {}
    for at, block in enumerate(item.blocks):
        if isinstance(block, str):
            params[f"text{at}"] = _html(block)
    for n, part in enumerate(item.parts, start=1):
        params |= {f"prompt{n}": _html(part.prompt), f"unit{n}": part.unit}
        if part.kind == "choice":
            params[f"options{n}"] = [
                {"text": _html(o.text), "correct": "true" if o.right else "false", "feedback": _html(o.feedback)}
                for o in part.options
            ]
            continue
        if part.kind == "symbolic":
            for name in part.symbols:
                check_names(Sym(name), item)
            answers[f"a{n}"] = tree(part.form, item)
            params["stands"][f"a{n}"] = {name: tree(form, item) for name, form in stands_for(part).items()}
        else:
            said, params[f"spread{n}"] = part.texts(part.answer)
            answers[f"a{n}"] = float(said)
            params["units"][f"a{n}"] = {name: float(times) for name, times in part.units} or {part.unit: 1.0}
        known = part.answers if part.relations else part.recognised  # the element itself does not know them
        params["recognised"][f"a{n}"] = [
            {"credit": float(one.credit), "feedback": _html(one.feedback), "names": list(one.names)}
            | ({"formula": tree(without_relations(one.form, part), item)}
               if part.kind == "symbolic" and one.form is not None else
               {"value": float(part.number(one.value)), "spread": float(part.spread(one.value))})
            for one in known
        ]  # fmt: skip
    params["worked"] = _html(item.worked)
    return json.dumps({"params": params, "answers": answers}, ensure_ascii=True)
