"""Writes the questions of an exam for other systems: in parallel, resumable, every file whole or not there.

A process draws some variants and writes what each format needs of them into a piece; what is finished is kept and told
by its SHA-256 in the manifest. The files of a format are put together from all pieces.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from symcomm.core.errors import DocumentError
from symcomm.core.files import write_files
from symcomm.core.garbage import uncollected
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity
from symcomm.exams.exports import EXPORTERS, OURS, Files
from symcomm.exams.exports.drawing import exam_of, items_of
from symcomm.exams.kept_answers import Learned
from symcomm.exams.manifest import Line, fingerprint, is_whole, read_manifest, write_manifest
from symcomm.exams.papers import AssignedPaper, Exam
from symcomm.exams.problems.problem import Template
from symcomm.exams.problems.solve import following
from symcomm.exams.processes import Pool, exam_here
from symcomm.exams.roster import Student, numbered

_CHUNK = 20  # variants in a piece
_FIRST = 40  # variants whose questions are derived before the others
_PIECES = ".pieces"
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class WrittenExport:
    """The files of one format: the first of them by its name, the questions, and the bytes."""

    path: Path
    files: int
    questions: int
    size: int


@dataclass(frozen=True)
class _SomeVariants:
    """Some variants with their numbers; ``attempts`` are empty where the first paper of each is wanted."""

    start: int
    students: tuple[Student, ...]
    attempts: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Order:
    """What pieces are made of: the title, the formats, the tolerance, and what all is made from in one word."""

    title: str
    names: tuple[str, ...]
    tolerance: Fraction | None
    mark: str
    output: Path

    def file(self, piece: _SomeVariants) -> str:
        """Where a piece is kept while others are made."""
        return f"{_PIECES}/{piece.start:05}{'-again' if piece.attempts else ''}.json"

    def made_from(self, piece: _SomeVariants) -> str:
        return fingerprint([self.mark, *(student.id for student in piece.students), *map(str, piece.attempts)])


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
    made: dict[str, dict[str, list[Any]]] = {}
    if missing:
        order = _Order(title, tuple(missing), tolerance, fingerprint([*words, *missing]), output)
        made = _made(exam, variants, order, told, processes, tell)
    for name in missing:
        found = made.pop(name)
        files = EXPORTERS[name].whole(title, [piece for pieces in found.values() for piece in pieces])
        write_files(files, output)
        told = {file: line for file, line in told.items() if line.get("from") != marks[name]}
        told |= _lines(files, marks[name], len(found))
        write_manifest(output, told)
    if missing:
        write_manifest(output, {file: line for file, line in told.items() if not file.startswith(_PIECES)})
        shutil.rmtree(output / _PIECES, ignore_errors=True)
    told = read_manifest(output)
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
    exam: Exam, variants: int, order: _Order, told: dict[str, Line], processes: int | None, tell: Progress
) -> dict[str, dict[str, list[Any]]]:
    """What the formats need of all variants, by their names and by question."""
    students = numbered(variants)
    pieces = [_SomeVariants(n + 1, tuple(students[n : n + _CHUNK])) for n in range(0, variants, _CHUNK)]
    found: dict[int, dict[str, Any]] = {}

    def read(piece: _SomeVariants, known: bool = False) -> bool:
        """Whether a piece is there, and read; ``known`` is one that was written just now."""
        line = told.get(order.file(piece))
        if not known and not is_whole(order.output / order.file(piece), line, order.made_from(piece)):
            return False
        found[piece.start] = json.loads((order.output / order.file(piece)).read_text(encoding="utf-8"))
        tell(len(found) * _CHUNK, variants + _CHUNK, "drawing")
        return True

    def make(wanted: Sequence[_SomeVariants]) -> None:
        work = partial(_write_piece, order=order)
        for piece, line in pool.run(work, wanted):
            told[line["file"]] = line
            write_manifest(order.output, told)
            read(piece, known=True)

    with Pool(exam, processes, len(pieces), {*order.names} - OURS or None) as pool:
        missing = [piece for piece in pieces if not read(piece)]
        if pool.forks and len(missing) > 1:
            _derive_first(exam, pool, [student for piece in missing for student in piece.students][:_FIRST])
            make(missing[:1])  # all processes know what was met with it
            missing = missing[1:]
        make(missing)
        first = [
            AssignedPaper(student, attempt, signature)
            for piece in pieces
            for student, (attempt, signature) in zip(piece.students, found[piece.start]["papers"], strict=True)
        ]
        chosen = exam.settled(first)
        again = []
        for piece in pieces:
            at = slice(piece.start - 1, piece.start - 1 + len(piece.students))
            attempts = tuple(paper.attempt for paper in chosen[at])
            if attempts != tuple(paper.attempt for paper in first[at]):
                again.append(_SomeVariants(piece.start, piece.students, attempts))
        make([piece for piece in again if not read(piece)])
    every: dict[str, dict[str, list[Any]]] = {name: {} for name in order.names}
    for piece in pieces:
        for name, items in found[piece.start]["items"].items():
            for question, item in items:
                every[name].setdefault(question, []).append(item)
    return every


def _derive_first(exam: Exam, pool: Pool, students: Sequence[Student]) -> None:
    """Derives what most variants need, each question in one process, for all that are started then."""
    wanted: dict[Hashable, tuple[AssignedPaper, int]] = {}
    for student in students:
        paper = exam.paper(student)
        for n, part in enumerate(paper.parts):
            wanted.setdefault(exam.kept.like(paper.problem, part.ask), (paper.settled, n))
    for learned in pool.told(_learned, wanted.values()):
        exam.kept.learn(learned)
    pool.renew()


def _learned(wanted: tuple[AssignedPaper, int]) -> Learned:
    """What a process learned by answering one question."""
    exam, (settled, number) = exam_here(), wanted
    paper = exam.exactly(settled.student, settled.attempt)
    entries, wrong = exam.kept.learned
    part, answers = paper.parts[number], dict[str, Quantity | None]()
    before = {name for _, name, _ in part.ask.exam.follows}
    for one in (*(one for one in paper.parts[:number] if one.id in before), part):
        asked = following(one.ask, answers)
        answer = exam.kept.answer(paper.problem, asked)
        answers[one.id] = answer.quantity
    found, values = exam.kept.wrong(paper.problem, asked, answer)
    found.numbers.at(values)
    now, known = exam.kept.learned
    return (
        {about: entry for about, entry in now.items() if about not in entries},
        {about: one for about, one in known.items() if about not in wrong},
    )


@uncollected()
def _write_piece(piece: _SomeVariants, order: _Order) -> tuple[_SomeVariants, Line]:
    exam = exam_here()
    attempts = piece.attempts or (None,) * len(piece.students)
    papers = [
        exam.paper(student) if attempt is None else exam.exactly(student, attempt)
        for student, attempt in zip(piece.students, attempts, strict=True)
    ]
    items = items_of(exam, list(enumerate(papers, start=piece.start)), order.tolerance)
    told = {
        "papers": [[paper.attempt, paper.settled.signature] for paper in papers],
        "items": {one: [[item.id, EXPORTERS[one].piece(order.title, item)] for item in items] for one in order.names},
    }
    data = json.dumps(told).encode()
    write_files({order.file(piece): data}, order.output)
    line = {"file": order.file(piece), "from": order.made_from(piece), "sha256": hashlib.sha256(data).hexdigest()}
    return piece, line
