"""The students of a class: a roster as CSV, and cells that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from symcomm.core.errors import DocumentError, Span
from symcomm.core.files import read_text
from symcomm.core.records import dataclass

STUDENT_LIMIT = 20_000
# What a spreadsheet takes for a formula, also behind spaces and in full width.
_FORMULA = re.compile(r"[\s\u200b\ufeff]*[-=+@|%＝＋－＠]|[\t\r\n]")
_LONGEST = 120  # characters of an id or a name
_ROSTER = {"id": ("id", "student", "student id", "student_id", "matriculation"), "name": ("name", "student name"),
           "seat": ("seat", "place")}  # fmt: skip


@dataclass(frozen=True)
class Student:
    """One student; the name and the seat may be empty."""

    id: str
    name: str = ""
    seat: str = ""


def numbered(count: int) -> tuple[Student, ...]:
    """Students without names, for papers that are handed out as they lie.

    >>> [student.id for student in numbered(3)]
    ['001', '002', '003']
    """
    if not 1 <= count <= STUDENT_LIMIT:
        raise DocumentError(f"{count} papers: from 1 to {STUDENT_LIMIT:,} are made")
    return tuple(Student(f"{number:0{max(3, len(str(count)))}d}") for number in range(1, count + 1))


def read_roster(path: Path) -> tuple[Student, ...]:
    """The students of a CSV file with the columns id, name and seat (of which only id is needed).

    Raises ``DocumentError`` with the line for a student without an id, or one that is there twice.
    """
    header, rows = read_csv(path)
    columns = {key: next((n for n, h in enumerate(header) if h.lower() in names), None)
               for key, names in _ROSTER.items()}  # fmt: skip
    if columns["id"] is None:
        raise no_column(path, header, "id")
    found: dict[str, int] = {}
    made: list[Student] = []
    for line, row in rows:
        told = {key: row[at].strip() if at is not None and at < len(row) else "" for key, at in columns.items()}
        place = Span(str(path), line, ",".join(row), 0, max(1, len(told["id"])))
        if not told["id"]:
            raise DocumentError("a student without an id", place)
        if told["id"] in found:
            raise DocumentError(f"the id {told['id'][:40]} is there twice", place, f"first in line {found[told['id']]}")
        strange = next((c for text in told.values() for c in text if not c.isprintable()), "")
        if strange or any(len(text) > _LONGEST for text in told.values()):
            what = f"the character U+{ord(strange):04X}" if strange else f"more than {_LONGEST} characters"
            raise DocumentError(f"an id, a name or a seat has {what}", place)
        found[told["id"]] = line
        made.append(Student(**told))
        if len(made) > STUDENT_LIMIT:
            raise DocumentError(f"more than {STUDENT_LIMIT:,} students", place)
    if not made:
        raise DocumentError(f"{path} has no students")
    return tuple(made)


def no_column(path: Path, header: Sequence[str], name: str) -> DocumentError:
    """The error of a CSV file that lacks a column."""
    line = ",".join(header)
    hint = f"the first line names the columns; one of them is {name}"
    return DocumentError(f"the file has no column {name}", Span(str(path), 1, line, 0, len(line)), hint)


def read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, and its rows with their line numbers; commas, semicolons or tabs are told apart."""
    text = read_text(path)
    first = text.split("\n", 1)[0]
    mark = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=mark, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise DocumentError(f"{path} is no CSV file: {error}", Span(str(path), reader.line_num, "", 0, 0)) from None
    if not rows:
        raise DocumentError(f"{path} is empty")
    return [cell.strip() for cell in rows[0][1]], rows[1:]


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file, in which no cell is a formula to a spreadsheet.

    >>> csv_text(["id", "answer"], [["=1+1", "-3"]])
    "id,answer\\r\\n'=1+1,-3\\r\\n"
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([safe_cell(str(cell)) for cell in header])
    writer.writerows([safe_cell(str(cell)) for cell in row] for row in rows)
    return out.getvalue()


def safe_cell(text: str) -> str:
    """The text with a mark before what a spreadsheet would run; numbers stay numbers.

    >>> [safe_cell(t) for t in ("@SUM(1)", " =x", "-1.5e9", "+", "N D")]
    ["'@SUM(1)", "' =x", '-1.5e9', "'+", 'N D']
    """
    number = re.fullmatch(r"[-+]?\d[\d.]*(e[-+]?\d+)?", text) is not None
    return text if number or not _FORMULA.match(text) else "'" + text
