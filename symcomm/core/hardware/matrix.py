"""The matrix that ``nvidia-smi topo -m`` prints, read from any text, and repaired by symmetry where it lost cells.

The relation is symmetric: what GPU0 is to GPU7, GPU7 is to GPU0. So a row that lost cells can be completed from the
rows that did not, and two cells that contradict each other are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from symcomm.core.errors import Span, TableError, nearest
from symcomm.core.records import dataclass

DEVICE_LIMIT = 1_000
_LOST_LIMIT = 16  # cells that one row may have lost
_REPAIR_LIMIT = 500_000  # cells of damaged rows, each as often as it may have moved
_TEXT_LIMIT = 20_000_000

# How a connection is made, best first below NVLink; what the tool's own legend says.
LEGEND = {
    "X": "Self",
    "SYS": "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
    "NODE": "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
    "PHB": "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
    "PXB": "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
    "PIX": "Connection traversing at most a single PCIe bridge",
    "NV#": "Connection traversing a bonded set of # NVLinks",
}
PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
_KIND = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[1-9]\d{0,2}")
_DEVICE = re.compile(r"(?:GPU|NIC)\d{1,5}|[a-z][a-z0-9]*_[a-z0-9_]{1,20}")
_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_AFFINITY = re.compile(r"[0-9][0-9,\-]*|N/A")


@dataclass(frozen=True)
class Place:
    """A device of the matrix: its name, what it is, and where it hangs. Empty text where the matrix does not say."""

    name: str
    cpus: str = ""
    numa: str = ""
    model: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU; all others are network cards."""
        return self.name.startswith("GPU")


@dataclass(frozen=True)
class Missing:
    """A cell that the printed matrix lost, and what symmetry puts there.

    ``certain`` says that the row itself shows which cell it was; otherwise it is one of several equal neighbours.
    """

    row: str
    column: str
    kind: str
    span: Span
    certain: bool
    printed: str = ""

    @property
    def sentence(self) -> str:
        """The sentence about it in a write-up."""
        where = f"row {self.row}, column {self.column}"
        found = f"prints {self.printed}, which only the diagonal can be" if self.printed else "is missing"
        doubt = "" if self.certain else "; it may as well be an equal cell beside it"
        return f"{where}: the cell {found}; row {self.column} says {self.kind}{doubt}"


@dataclass(frozen=True)
class Matrix:
    """A complete matrix: ``kinds[i][j]`` joins the devices ``i`` and ``j``; ``missing`` are the cells put in."""

    places: tuple[Place, ...]
    kinds: tuple[tuple[str, ...], ...]
    missing: tuple[Missing, ...] = ()
    legend: dict[str, str] = field(default_factory=lambda: dict(LEGEND))
    file: str = "<text>"
    line: int = 1


@dataclass(frozen=True)
class _Row:
    """A printed row: its link types with their columns of text, the words after them, and the place of its name."""

    index: int
    cells: tuple[tuple[str, int], ...]
    rest: tuple[str, ...]
    span: Span

    def at(self, cell: int) -> Span:
        """Where a cell is; the row's name where it does not have so many."""
        if cell >= len(self.cells):
            return self.span
        kind, start = self.cells[cell]
        return self.span.within(start, start + len(kind))


def read_matrix(text: str, file: str = "<text>") -> Matrix:
    """The matrix in a text: the tool's output, or a document that holds it, once.

    Raises ``TableError`` where there is none, where two cells contradict each other, and where lost cells cannot be
    told from the rows that are complete.

    >>> m = read_matrix("      GPU0 GPU1 CPU Affinity\\nGPU0  X   NV4  0-7\\nGPU1 NV4   X   0-7")
    >>> m.kinds, m.places[1].cpus
    ((('X', 'NV4'), ('NV4', 'X')), '0-7')
    """
    if len(text) > _TEXT_LIMIT:
        raise TableError(f"{file}: a matrix of {len(text):,} characters; at most {_TEXT_LIMIT:,} are read")
    lines = [_ESCAPE.sub("", line).rstrip("\r") for line in text.split("\n")]
    head, names, others = _header(lines, file)
    rows = _rows(lines, head, names, file)
    known: list[list[str | None]] = [[None] * len(names) for _ in names]
    missing: list[Missing] = []
    _complete(rows, names, known, missing)
    kinds = _checked(rows, names, known, missing)
    legend = dict(LEGEND)
    models: dict[str, str] = {}
    for line in lines[head:]:
        match = re.match(r"\s*(X|SYS|NODE|PHB|PXB|PIX|NV#)\s+=\s+(\S.*)", line)
        if match:
            legend[match[1]] = match[2].strip()
        named = re.match(r"\s*(NIC\d{1,5}):\s+(\S+)\s*$", line)
        if named:
            models[named[1]] = named[2]
    places = []
    for name, row in zip(names, rows, strict=True):
        said = dict(zip(others, row.rest, strict=False))
        cpus, numa = ("" if said.get(key) in ("N/A", "X") else said.get(key, "") for key in _COLUMNS[:2])
        places.append(Place(name, cpus, numa, models.get(name, "")))
    missing.sort(key=lambda m: (names.index(m.row), names.index(m.column)))
    return Matrix(tuple(places), kinds, tuple(missing), legend, file, head + 1)


def _span(lines: Sequence[str], number: int, file: str, start: int = 0, stop: int | None = None) -> Span:
    text = lines[number]
    return Span(file, number + 1, text, start, len(text) if stop is None else stop)


def _header(lines: Sequence[str], file: str) -> tuple[int, list[str], list[str]]:
    found: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(lines):
        words = line.split()
        if not words or not re.fullmatch(r"GPU\d{1,5}", words[0]):
            continue
        if len(words) > 1 and (_KIND.fullmatch(words[1]) or not (_DEVICE.fullmatch(words[1]) or words[1] == "CPU")):
            continue
        names: list[str] = []
        for word in words:
            if not _DEVICE.fullmatch(word):
                break
            names.append(word)
        rest = " ".join(words[len(names) :])
        others = [column for column in _COLUMNS if column in rest]
        left = rest
        for column in others:
            left = left.replace(column, "", 1)
        if left.strip():
            word = left.split()[0]
            at = line.find(word)
            raise TableError(
                f"'{word[:40]}' is no column of a topology matrix",
                _span(lines, number, file, at, at + len(word)),
                "its columns are GPU0, NIC0, ..., CPU Affinity, NUMA Affinity, GPU NUMA ID",
            )
        if len(names) > DEVICE_LIMIT:
            raise TableError(
                f"a matrix of {len(names):,} devices; at most {DEVICE_LIMIT:,} are read",
                _span(lines, number, file, 0, 4),
            )
        twice = next((n for n in names if names.count(n) > 1), "")
        if twice:
            at = line.rfind(twice)
            raise TableError(
                f"{twice} heads two columns of the matrix", _span(lines, number, file, at, at + len(twice))
            )
        found.append((number, names, others))
    if not found:
        first = next((n for n, line in enumerate(lines) if line.strip()), 0)
        raise TableError(
            "there is no topology matrix here",
            _span(lines, first, file),
            "it starts with a line such as: GPU0  GPU1  NIC0  CPU Affinity, as nvidia-smi topo -m prints it",
        )
    if len(found) > 1:
        raise TableError(
            f"there are {len(found)} topology matrices, in lines {', '.join(str(n + 1) for n, _, _ in found)}",
            _span(lines, found[1][0], file),
            "give one of them",
        )
    return found[0]


def _rows(lines: Sequence[str], head: int, names: Sequence[str], file: str) -> list[_Row]:
    index = {name: i for i, name in enumerate(names)}
    found: dict[str, _Row] = {}
    for number in range(head + 1, len(lines)):
        words = list(re.finditer(r"\S+", lines[number]))
        if not words:
            continue
        name = words[0][0]
        if name not in index:
            if _DEVICE.fullmatch(name) and len(words) > 1 and _KIND.fullmatch(words[1][0]):
                raise TableError(
                    f"the row {name} has no column",
                    _span(lines, number, file, words[0].start(), words[0].end()),
                    nearest(name, [*names]),
                )
            break
        if name in found:
            raise TableError(f"the row {name} is there twice", _span(lines, number, file, *words[0].span()))
        cells: list[tuple[str, int]] = []
        position = 1
        for word in words[1:]:
            if not _KIND.fullmatch(word[0]):
                # An affinity ends the cells; anything else is no way to connect devices.
                if not _AFFINITY.fullmatch(word[0]):
                    raise TableError(
                        f"'{word[0][:40]}' is no link type",
                        _span(lines, number, file, *word.span()),
                        nearest(word[0], ["X", *PCIE, "NV1", "NV2", "NV4", "NV6", "NV8", "NV12", "NV18"]),
                    )
                break
            cells.append((word[0], word.start()))
            position += 1
        rest = tuple(word[0] for word in words[position:])
        found[name] = _Row(index[name], tuple(cells), rest, _span(lines, number, file, *words[0].span()))
    for name in names:
        if name not in found:
            at = lines[head].find(name)
            raise TableError(
                f"the matrix has a column {name}, but no row of that name",
                _span(lines, head, file, at, at + len(name)),
            )
    return [found[name] for name in names]


# -- repair -----------------------------------------------------------------------------------------


def _complete(
    rows: Sequence[_Row], names: Sequence[str], known: list[list[str | None]], missing: list[Missing]
) -> None:
    """Fills ``known``: the whole rows as they stand, and of the short ones what every way to read them agrees on.

    What one row tells is the mirror of a cell in another, so this is repeated until nothing new follows.
    """
    n = len(names)
    short: list[_Row] = []
    for row in rows:
        texts = [kind for kind, _ in row.cells]
        if len(texts) < n:
            if n - len(texts) > _LOST_LIMIT:
                lost = n - len(texts)
                raise TableError(f"the row lost {lost} of {n} cells; at most {_LOST_LIMIT} can be put back", row.span)
            short.append(row)
            continue
        extra = next((k for k in range(n, len(texts)) if texts[k] != "X"), None)
        if extra is not None:
            raise TableError(f"the row {names[row.index]} has more than {n} cells", row.at(extra))
        if texts[row.index] != "X":
            raise TableError(
                f"{names[row.index]} is {texts[row.index]} to itself: the diagonal must be X", row.at(row.index)
            )
        for column in range(n):
            lost = texts[column] == "X" and column != row.index
            known[row.index][column] = None if lost else texts[column]
            if lost:
                missing.append(Missing(names[row.index], names[column], "", row.at(column), True, "X"))
    work = sum(n * (n - len(row.cells) + 1) for row in short)
    if work > _REPAIR_LIMIT:
        raise TableError(
            f"{len(short):,} rows of {n:,} devices have lost cells: too many to repair",
            short[0].span,
            "print the matrix again",
        )
    changed = True
    while changed:
        changed = False
        for row in short:
            if None not in known[row.index]:
                continue
            for column, way in enumerate(_ways(row, known, n)):
                kinds = {kind for kind, _ in way}
                if len(kinds) == 1 and known[row.index][column] not in kinds:
                    known[row.index][column] = kinds.pop()
                    changed = True
    for row in short:
        ways = _ways(row, known, n)
        if any(len({kind for kind, _ in way}) > 1 for way in ways):
            raise TableError(
                f"the row {names[row.index]} has {len(row.cells)} of {n} cells, and the complete rows do not tell "
                "which are missing",
                row.span,
                "print the matrix again",
            )
        # Where several readings agree on the cells, the one whose gaps stand last is told.
        for column in _gaps(row, known, n):
            certain = all(lost for _, lost in ways[column])
            missing.append(Missing(names[row.index], names[column], "", row.span, certain))


def _may(row: _Row, known: list[list[str | None]], column: int, gaps: int) -> tuple[bool, str | None]:
    """Whether the row's next cell may stand in a column, after that many gaps; and what a gap there would hold."""
    i = row.index
    mirror = "X" if column == i else known[column][i]
    taken = column - gaps
    kind = row.cells[taken][0] if taken < len(row.cells) else None
    return kind is not None and (kind == "X") == (column == i) and mirror in (None, kind), mirror


def _open(row: _Row, known: list[list[str | None]], n: int) -> list[set[int]]:
    """For each column, the numbers of gaps before it from which the rest of the row can be read."""
    lost = n - len(row.cells)
    after: list[set[int]] = [set() for _ in range(n)] + [{lost}]
    for column in reversed(range(n)):
        for gaps in range(max(0, column - len(row.cells)), min(lost, column) + 1):
            fits, _ = _may(row, known, column, gaps)
            if (fits and gaps in after[column + 1]) or gaps + 1 in after[column + 1]:
                after[column].add(gaps)
    return after


def _ways(row: _Row, known: list[list[str | None]], n: int) -> list[set[tuple[str | None, bool]]]:
    """What each column can hold over all ways to read a short row: the kind, and whether it would be a gap."""
    after = _open(row, known, n)
    if 0 not in after[0]:
        _explain(row, known, n)
    found: list[set[tuple[str | None, bool]]] = []
    here = {0}
    for column in range(n):
        ways: set[tuple[str | None, bool]] = set()
        there: set[int] = set()
        for gaps in here:
            fits, mirror = _may(row, known, column, gaps)
            if fits and gaps in after[column + 1]:
                ways.add((row.cells[column - gaps][0], False))
                there.add(gaps)
            if gaps + 1 in after[column + 1]:
                ways.add((mirror, True))
                there.add(gaps + 1)
        found.append(ways)
        here = there
    return found


def _gaps(row: _Row, known: list[list[str | None]], n: int) -> list[int]:
    after = _open(row, known, n)
    gaps: list[int] = []
    for column in range(n):
        fits, _ = _may(row, known, column, len(gaps))
        if not (fits and len(gaps) in after[column + 1]):
            gaps.append(column)
    return gaps


def _explain(row: _Row, known: list[list[str | None]], n: int) -> None:
    """Raises the error of a row that fits nowhere, with the cells that contradict each other where one can be named."""
    for column, (kind, _) in enumerate(row.cells):
        mirror = known[column][row.index] if column < n else None
        if kind == "X":
            break  # the cells after the diagonal may have moved
        if mirror is not None and mirror != kind and column != row.index:
            raise TableError(
                f"the cell says {kind}, but its mirror in the column's own row says {mirror}: a link has one type",
                row.at(column),
                "one of the two rows is wrong",
            )
    raise TableError(
        f"the row has {len(row.cells)} of {n} cells, and they fit the complete rows in no way", row.span,
        "print the matrix again",
    )  # fmt: skip


def _checked(
    rows: Sequence[_Row], names: Sequence[str], known: list[list[str | None]], missing: list[Missing]
) -> tuple[tuple[str, ...], ...]:
    """The whole matrix, symmetric; gaps are filled from their mirrors. Raises ``TableError`` with both cells."""
    for number, gap in enumerate(missing):
        i, j = names.index(gap.row), names.index(gap.column)
        kind = "X" if i == j else known[j][i]
        if kind is None:
            raise TableError(
                f"the cells {gap.row}-{gap.column} and {gap.column}-{gap.row} are both missing", gap.span,
                "print the matrix again",
            )  # fmt: skip
        known[i][j] = kind
        missing[number] = Missing(gap.row, gap.column, kind, gap.span, gap.certain, gap.printed)
    for i, row in enumerate(known):
        for j in range(i):
            if row[j] != known[j][i]:
                here, there = rows[i].at(j), rows[j].at(i)
                raise TableError(
                    f"inconsistent link types: {names[i]}-{names[j]} is {row[j]} in line {here.line}, but "
                    f"{names[j]}-{names[i]} is {known[j][i]} in line {there.line}",
                    here,
                    f"line {there.line}: {there.text.strip()[:100]}",
                )
    return tuple(tuple(cell or "" for cell in row) for row in known)
