"""Writes the questions of an exam for other systems: in parallel, every file whole or not there.

A process draws some variants and hands back what each format needs of them. The files of a format are put together
from all pieces; the manifest tells them by their SHA-256, so that a format that is finished is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from symcomm.core.errors import DocumentError
from symcomm.core.files import write_files
from symcomm.core.garbage import uncollected
from symcomm.core.records import dataclass
from symcomm.exams.exports import EXPORTERS, OURS, Files
from symcomm.exams.exports.drawing import exam_of, items_of
from symcomm.exams.manifest import Line, fingerprint, is_whole, read_manifest, write_manifest
from symcomm.exams.papers import AssignedPaper, Exam
from symcomm.exams.problems.problem import Template
from symcomm.exams.processes import Pool, exam_here
from symcomm.exams.roster import Student, numbered

_CHUNK = 20  # variants that one process draws at a time
Progress = Callable[[int, int, str], None]
_Variant = tuple[int, Student, int | None]  # its number, and its attempt where that is settled


@dataclass(frozen=True)
class WrittenExport:
    """The files of one format: the first of them by its name, the questions, and the bytes."""

    path: Path
    files: int
    questions: int
    size: int


@dataclass(frozen=True)
class _Order:
    """What is made of each variant: the title, the formats and the tolerance."""

    title: str
    names: tuple[str, ...]
    tolerance: Fraction | None


@dataclass(frozen=True)
class _DrawnVariant:
    """One variant: its paper, and by format what is made of each question, with the question's name."""

    number: int
    paper: AssignedPaper
    items: dict[str, list[tuple[str, Any]]]


def export(
    template: Template, names: Sequence[str], variants: int, seed: str, output: Path, *,
    tolerance: Fraction | None = None, version: str = "", processes: int | None = None,
    progress: Progress | None = None,
) -> list[WrittenExport]:  # fmt: skip
    """Writes all questions of a document in so many variants for some systems; what is there already is kept.

    Raises ``DocumentError`` for a document without questions and for what a format cannot hold, ``RenderError`` where
    the folder cannot be written.
    """
    if variants < 1:
        raise DocumentError(f"--variants is {variants}; at least 1 is drawn")
    exam = exam_of(template, seed, tolerance)
    exam.check_space(variants)
    tell = progress or (lambda done, total, label: None)
    title, told = exam.example.title, read_manifest(output)
    words = [version, template.digest, seed, str(variants), str(tolerance)]
    marks = {name: fingerprint([*words, name]) for name in names}
    missing = [name for name in names if not _is_there(output, told, marks[name])]
    made = _made(exam, variants, _Order(title, tuple(missing), tolerance), processes, tell) if missing else {}
    for name in missing:
        found = made.pop(name)
        files = EXPORTERS[name].whole(title, [piece for pieces in found.values() for piece in pieces])
        write_files(files, output)
        told = {file: line for file, line in told.items() if line.get("from") != marks[name]}
        told |= _lines(files, marks[name], len(found))
        write_manifest(output, told)
    return [_written(output, [line for line in told.values() if line.get("from") == marks[name]]) for name in names]


def _is_there(output: Path, told: dict[str, Line], mark: str) -> bool:
    lines = [line for line in told.values() if line.get("from") == mark]
    return bool(lines) and all(is_whole(output / line["file"], line, mark) for line in lines)


def _lines(files: Files, mark: str, questions: int) -> dict[str, Line]:
    return {
        file: {"file": file, "from": mark, "sha256": hashlib.sha256(data).hexdigest(), "questions": str(questions)}
        for file, data in files.items()
    }


def _written(output: Path, lines: Sequence[Line]) -> WrittenExport:
    first = min(line["file"] for line in lines)
    path = output / (first if len(lines) == 1 else first.split("/")[0])
    size = sum((output / line["file"]).stat().st_size for line in lines)
    return WrittenExport(path, len(lines), int(lines[0]["questions"]), size)


def _made(
    exam: Exam, variants: int, order: _Order, processes: int | None, tell: Progress
) -> dict[str, dict[str, list[Any]]]:
    """What the formats need of all variants, by their names and by question."""
    students = numbered(variants)
    wanted: list[_Variant] = [(n, student, None) for n, student in enumerate(students, start=1)]
    chunks = [wanted[n : n + _CHUNK] for n in range(0, variants, _CHUNK)]
    found: dict[int, _DrawnVariant] = {}
    draw = partial(_draw, order=order)
    with Pool(exam, processes, len(chunks), {*order.names} - OURS or None) as pool:
        for drawn in chain([draw(chunks[0])], pool.run(draw, chunks[1:])):  # what all need is derived with the first
            found |= {one.number: one for one in drawn}
            tell(len(found), variants + _CHUNK, "drawing")
        chosen = exam.settled([found[number].paper for number, _, _ in wanted])
        again: list[_Variant] = [
            (number, paper.student, paper.attempt) for number, paper in enumerate(chosen, start=1)
            if paper.attempt != found[number].paper.attempt
        ]  # fmt: skip
        found |= {one.number: one for one in draw(again)}
    every: dict[str, dict[str, list[Any]]] = {name: {} for name in order.names}
    for number, _, _ in wanted:
        for name, items in found.pop(number).items.items():
            for question, item in items:
                every[name].setdefault(question, []).append(item)
    return every


@uncollected()
def _draw(variants: Sequence[_Variant], order: _Order) -> list[_DrawnVariant]:
    exam = exam_here()
    papers = [
        (number, exam.paper(student) if attempt is None else exam.exactly(student, attempt))
        for number, student, attempt in variants
    ]
    drawn = {n: _DrawnVariant(n, paper.settled, {name: [] for name in order.names}) for n, paper in papers}
    for item in items_of(exam, papers, order.tolerance):
        for name in order.names:
            drawn[item.variant].items[name].append((item.id, EXPORTERS[name].piece(order.title, item)))
    return [*drawn.values()]
