"""A solution as JSON for other programs: every answer with its steps, conventions, lines and points."""

from __future__ import annotations

import json
from typing import Any

from symcomm.core import printing, report
from symcomm.core.derivation.chosen import chosen
from symcomm.documents.editions import Edition
from symcomm.documents.render.document import Answer, Document, Heading


def document_json(document: Document, edition: Edition) -> str:
    """The document as JSON; the paper's has its questions and no answers. Keys are only ever added."""
    answers: list[dict[str, Any]] = []
    question = ""
    for block in document.shown(edition):
        if isinstance(block, Heading):
            question = block.markdown
        elif isinstance(block, Answer):
            answers.append({"question": question, **_answer(block, edition)})
    headings = [{"text": b.markdown, "level": b.level, "points": b.points} for b in document.blocks
                if isinstance(b, Heading)]  # fmt: skip
    made = {
        "format": report.FORMAT,
        "title": document.title,
        "course": document.course,
        "date": document.date,
        "language": document.language,
        "edition": edition,
        "extra": dict(document.extra),
        "headings": headings,
        "answers": answers,
    }
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _answer(answer: Answer, edition: Edition) -> dict[str, Any]:
    d = answer.derivation
    made: dict[str, Any] = {
        "label": answer.label,
        "asked": answer.asked,
        "points": answer.points,
        "quantity": report.quantity(answer.quantity) if answer.quantity else None,
        "given": [{"name": g.name, "meaning": g.meaning, **report.quantity(g.quantity)} for g in answer.given],
        "lead": [*d.lead],
        "lines": [
            {
                "name": line.name,
                "forms": [{"relation": r, "text": printing.plain(f), "latex": printing.tex(f, None, d.notation)}
                          for r, f in line.forms],
                "reason": line.reason,
                "steps": [*line.steps],
            }
            for line in chosen(d)
        ],
        "derivation": report.derivation(d, {g.name: g.quantity.value for g in answer.given}),
        "others": [[report.cell(one) for one in row] for row in answer.others.rows] if answer.others else [],
        "mistakes": [*answer.mistakes],
    }  # fmt: skip
    if edition == "graders":
        made["grading"] = [{"what": p.what, "points": str(p.points)} for p in answer.grading]
    return made
