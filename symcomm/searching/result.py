"""The result of a search: the front of time and memory, the fastest configurations, and why others cannot be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from symcomm.core.accounting import Accounting, Convention
from symcomm.core.errors import ValuesError
from symcomm.core.records import dataclass
from symcomm.core.units import BYTE, Quantity, Unit
from symcomm.searching.explain import Share, percent
from symcomm.searching.template import PIPELINE

SECOND = Unit.parse("second")
RATE = Unit.parse("1/second")
FORMAT = 1  # raised only when a key changes its meaning


@dataclass(frozen=True)
class Configuration:
    """One configuration: its strategy with all sizes, its exact time and memory, and what they are made of.

    ``strategy`` is a text that every method of a model takes; ``accounting`` has the recomputation in it. ``sizes``
    are the buckets and the varied sizes of the model; ``calls`` say which collectives take the network's time.
    """

    strategy: str
    mesh: tuple[tuple[str, int], ...]
    microbatches: int
    sizes: tuple[tuple[str, int], ...]
    recomputation: str
    schedule: str
    time: Quantity
    memory: Quantity
    shares: tuple[Share, ...]
    calls: tuple[Share, ...]
    held: tuple[Share, ...]
    why: str
    accounting: Accounting
    host: Quantity | None = None
    nvme: Quantity | None = None

    TITLES = ("The fastest", "The front of time and memory")
    COLUMNS = ("strategy", "microbatches", "runs with", "step time", "memory per rank", "why")
    CELLS = ("time", "memory", "data x tensor x pipe", "microbatches", "recomputation", "with", "takes the time")
    FRONT, BEST = "time and memory", "fastest"
    AXES = ("time of a training step (s)", "memory of one rank (B)")

    @property
    def order(self) -> tuple[Fraction, Fraction]:
        """The two amounts by which configurations are compared."""
        return self.time.value, self.memory.value

    @property
    def place(self) -> tuple[Quantity, Quantity]:
        """Its place in a picture of the front."""
        return self.time, self.memory

    @property
    def label(self) -> str:
        """Its label beside the mesh."""
        return f"{self.microbatches} microbatches"

    @property
    def family(self) -> str:
        """Its name in a legend: the strategy without sizes, and its recomputation."""
        again = f", {self.recomputation} recomputation" if self.recomputation != "none" else ""
        return re.sub(r"\([^()]*\)", "", self.strategy) + again

    @property
    def amounts(self) -> dict[str, Quantity]:
        """The amounts that may be limited."""
        shared = {"host memory": self.host, "NVMe memory": self.nvme}
        return {"memory": self.memory, **{name: size for name, size in shared.items() if size is not None}}

    @property
    def said(self) -> str:
        """Its name in a sentence."""
        return f"{self.strategy} with {self.microbatches} microbatches"

    @property
    def row(self) -> tuple[str, ...]:
        """Its cells in a table."""
        cells = (self.strategy, str(self.microbatches), ", ".join(self.runs) or "–", read(self.time), read(self.memory))
        shared = {"a host": self.host, "its disks": self.nvme}
        there = [f" On {on}: {read(size)}." for on, size in shared.items() if size is not None]
        return (*cells, self.why + "".join(there))

    @property
    def runs(self) -> tuple[str, ...]:
        """Its recomputation, schedule and sizes."""
        again = [f"{self.recomputation} recomputation"] if self.recomputation != "none" else []
        plan = [self.schedule] if self.schedule else []
        return (*again, *plan, *(f"{name} = {value}" for name, value in self.sizes))

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells in a table of a terminal: numbers of four digits, the mesh, and the parts of its time."""
        sizes = dict(self.mesh)
        mesh = " x ".join(str(sizes.get(axis, 1)) for axis in ("data", "tensor", PIPELINE))
        kinds = [piece.partition("(")[0].strip() for piece in self.strategy.split(" + ")]
        plain = ("data", "tensor", PIPELINE)
        extra = [kind for kind in kinds if kind not in plain] + [run for run in self.runs if "recomp" not in run]
        limits = ", ".join(f"{share.what} {percent(share.part)}" for share in self.shares[:2] if share.part)
        return (four(self.time), read(self.memory), mesh, str(self.microbatches), self.recomputation,
                ", ".join(extra), limits)  # fmt: skip

    def json(self) -> dict[str, Any]:
        """Plain data, ready for JSON; exact numbers are text."""
        return {
            "strategy": self.strategy, "mesh": dict(self.mesh), "microbatches": self.microbatches,
            "sizes": dict(self.sizes), "recomputation": self.recomputation, "schedule": self.schedule,
            "time": as_json(self.time), **{name.replace(" ", "_"): as_json(n) for name, n in self.amounts.items()},
            "shares": parts_json(self.shares),
            "calls": parts_json(self.calls), "held": parts_json(self.held), "why": self.why,
        }  # fmt: skip


@dataclass(frozen=True)
class ServingConfiguration:
    """One configuration of serving: its strategy with all sizes, and its exact times and memory.

    ``time`` is the time of a decode step, ``first`` the time of a prefill where there is a prompt, and ``rate`` the
    tokens that all devices make in a second. ``sizes`` are the batch and the varied sizes of the model.
    """

    strategy: str
    mesh: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    format: str
    rate: Quantity
    time: Quantity
    first: Quantity | None
    memory: Quantity
    shares: tuple[Share, ...]
    held: tuple[Share, ...]
    why: str
    accounting: Accounting

    TITLES = ("The most tokens a second", "The front of tokens a second and time per token")
    COLUMNS = ("strategy", "runs with", "tokens a second", "time per token", "first token", "memory per rank", "why")
    CELLS = ("tokens/s", "time per token", "first token", "memory", "with", "strategy", "takes the time")
    FRONT, BEST = "tokens a second and time per token", "one with the most tokens a second"
    AXES = ("time per token of a sequence (s)", "tokens a second of all devices")

    @property
    def order(self) -> tuple[Fraction, Fraction]:
        """The seconds of a token and of a step, by which configurations are compared."""
        return 1 / self.rate.value, self.time.value

    @property
    def place(self) -> tuple[Quantity, Quantity]:
        """Its place in a picture of the front."""
        return self.time, self.rate

    @property
    def label(self) -> str:
        """Its label beside the mesh."""
        return ", ".join(f"{name} = {value}" for name, value in self.sizes)

    @property
    def family(self) -> str:
        """Its name in a legend: the strategy without sizes, and its number formats."""
        return re.sub(r"\([^()]*\)", "", self.strategy) + (f", {self.format}" if self.format else "")

    @property
    def amounts(self) -> dict[str, Quantity]:
        """The amounts that may be limited."""
        found = {"memory": self.memory, "token of a sequence": self.time}
        return found if self.first is None else found | {"first token": self.first}

    @property
    def runs(self) -> tuple[str, ...]:
        """Its sizes and number formats."""
        return (*(f"{name} = {value}" for name, value in self.sizes), *([self.format] if self.format else []))

    @property
    def said(self) -> str:
        """Its name in a sentence."""
        return " with ".join(part for part in (self.strategy, ", ".join(self.runs)) if part)

    @property
    def row(self) -> tuple[str, ...]:
        """Its cells in a table."""
        first = four(self.first) if self.first is not None else "–"
        return (self.strategy, ", ".join(self.runs), self.rate.rounded(), four(self.time),
                first, read(self.memory), self.why)  # fmt: skip

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells in a table of a terminal."""
        limits = ", ".join(f"{share.what} {percent(share.part)}" for share in self.shares[:2] if share.part)
        strategy, runs, rate, each, first, memory, _ = self.row
        return rate, each, "" if first == "–" else first, memory, runs, strategy, limits

    def json(self) -> dict[str, Any]:
        """Plain data, ready for JSON; exact numbers are text."""
        return {
            "strategy": self.strategy, "mesh": dict(self.mesh), "sizes": dict(self.sizes), "format": self.format,
            "tokens_per_second": {"exact": str(self.rate.value), "unit": str(RATE)},
            "time_per_token": as_json(self.time),
            "first_token": None if self.first is None else as_json(self.first),
            "memory": as_json(self.memory), "shares": parts_json(self.shares),
            "held": parts_json(self.held), "why": self.why,
        }  # fmt: skip


Outcome = Configuration | ServingConfiguration


def as_json(q: Quantity) -> dict[str, str]:
    """An amount as plain data: exact, and as a table shows it."""
    return {"exact": str(q.value), "unit": str(q.unit), "text": read(q)}


def parts_json(shares: Sequence[Share]) -> list[dict[str, str]]:
    """The parts of a whole as plain data."""
    return [{"what": s.what, "exact": str(s.amount), "part": percent(s.part)} for s in shares]


def read(quantity: Quantity) -> str:
    """A quantity as a table shows it: its decimal reading, bytes to four digits.

    >>> read(Quantity.parse("1/3 s")), read(Quantity.parse("66.060288 GB")), read(Quantity.parse("4096 s"))
    ('333.3 ms', '66.06 GB', '4096 s')
    """
    lines = quantity.lines()
    if quantity.unit == SECOND and quantity.value >= 1000:
        return f"{quantity.rounded()} s"
    if quantity.unit == BYTE:
        number, _, unit = quantity.reading.rpartition(" ")
        digits = number.replace(" ", "")
        return f"{Quantity(Fraction(digits)).rounded()} {unit}" if "·" not in digits else f"{number} {unit}"
    return lines[-1][1]


def four(quantity: Quantity) -> str:
    """A time with a prefix and at most four digits.

    >>> four(Quantity.parse("7.81449 s")), four(Quantity.parse("1/4 s"))
    ('7.814 s', '250 ms')
    """
    number, _, unit = quantity.reading.rpartition(" ")
    digits = number.replace(" ", "")
    return f"{Quantity(Fraction(digits)).rounded()} {unit}" if "·" not in digits else quantity.reading


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search; every number in it is exact, and ``front`` and ``top`` are ordered by time.

    ``refused`` counts the configurations that cannot be, by the first reason found; with ``feasible`` they make up
    ``tried``. ``nearest`` are those that do not fit by the least.
    """

    model: str
    devices: int
    capacity: Quantity
    capacity_is: str
    tried: int
    feasible: int
    refused: tuple[tuple[str, int], ...]
    front: tuple[Outcome, ...]
    top: tuple[Outcome, ...]
    nearest: tuple[Outcome, ...]
    conventions: tuple[Convention, ...]
    notes: tuple[str, ...] = ()
    limits: tuple[tuple[str, Quantity], ...] = ()

    @property
    def summary(self) -> str:
        """One sentence on what was tried and what came of it."""
        said = f"{self.tried:,} configurations of {self.model} on {self.devices:,} devices of {read(self.capacity)}"
        said += f" ({self.capacity_is}) each: "
        if self.feasible:
            front = self.front[0].FRONT
            return said + f"{self.feasible:,} can run, {len(self.front):,} of them on the front of {front}."
        if not self.tried:
            return said + "there are none. No shape of the mesh uses all devices with the sizes allowed."
        if not self.nearest:
            return said + "none can run, for none divides evenly."
        first = self.nearest[0]
        limits = {"memory": self.capacity, **dict(self.limits)}
        most = max(limits, key=lambda name: first.amounts[name].value / limits[name].value)
        over = first.amounts[most].value / limits[most].value
        needed = {"memory": "needs", "host memory": "needs on a host", "NVMe memory": "needs on its disks"}
        bound, takes = "capacity" if most in needed else "bound", needed.get(most, f"takes for a {most}")
        return said + (
            f"none fits. The nearest, {first.said}, {takes} {read(first.amounts[most])}: {float(over):.4g} times the "
            f"{bound}."
        )

    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Title, columns and rows of each table that has rows."""
        every = (*self.top, *self.nearest)
        columns, (top, front) = (every[0].COLUMNS, every[0].TITLES) if every else ((), ("", ""))
        shown: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = [
            (top, columns, [c.row for c in self.top]),
            (front, columns[:-1], [c.row[:-1] for c in self.front]),
            ("Does not fit, by the least", columns, [] if self.feasible else [c.row for c in self.nearest]),
            (
                "Configurations that cannot run",
                ("reason", "configurations"),
                [(why, f"{n:,}") for why, n in self.refused],
            ),
        ]
        return [table for table in shown if table[2]]

    def text(self, detail: str = "full", width: int = 0) -> str:
        """The result as plain text, for a terminal of a ``width``; in ``brief`` without its conventions."""
        out = [self.summary]
        shown = [*zip(self.top[0].TITLES, (self.top, self.front), strict=True)] if self.top else []
        for title, found in shown or [("Does not fit, by the least", self.nearest)]:
            out += ["", f"{title}:", *_lined([found[0].CELLS, *(one.cells for one in found)], width)] if found else []
        if self.top:
            out += ["", f"The {self.top[0].BEST} is {self.top[0].strategy}. {self.top[0].why}"]
        if self.refused:
            out += ["", "Configurations that cannot run:", *(f"{n:>12,}  {why}" for why, n in self.refused)]
        named = [*self.notes, f"conventions: {len(self.conventions)}, named by --detail full"]
        lines = [*out, "", *(self._said() if detail == "full" else named)]
        # Sentences are broken, rows of a table stay whole.
        folded = (wrap(line, width) if width and line[:1].strip() else [line] for line in lines)
        return "\n".join(part for several in folded for part in several) + "\n"

    def markdown(self) -> str:
        """The result as Markdown."""
        out = [self.summary, ""]
        for title, columns, rows in self.tables():
            out += [f"**{title}**", "", _line(columns), _line(["---"] * len(columns)), *map(_line, rows), ""]
        out += [f"- {text}" for text in self._said()]
        return "\n".join(out).rstrip() + "\n"

    def html(self) -> str:
        """The result as HTML."""
        out = [f"<p>{escape(self.summary)}</p>"]
        for title, columns, rows in self.tables():
            out.append(f"<table><caption>{escape(title)}</caption>")
            out.append("<tr>" + "".join(f"<th>{escape(c)}</th>" for c in columns) + "</tr>")
            for row in rows:  # a number keeps its unit on its line
                cells = (escape(c).replace(" ", "&nbsp;") if len(c) < 14 else escape(c) for c in row)
                out.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
            out.append("</table>")
        out.append("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in self._said()) + "</ul>")
        return "\n".join(out) + "\n"

    def json(self) -> dict[str, Any]:
        """Plain data, ready for JSON; exact numbers are text."""
        return {
            "format": FORMAT, "model": self.model, "devices": self.devices,
            "capacity": {"exact": str(self.capacity.value), "unit": str(self.capacity.unit), "is": self.capacity_is},
            "summary": self.summary, "tried": self.tried, "feasible": self.feasible,
            "refused": [{"reason": why, "configurations": n} for why, n in self.refused],
            "limits": {name: as_json(most) for name, most in self.limits},
            "front": [c.json() for c in self.front], "top": [c.json() for c in self.top],
            "nearest": [c.json() for c in self.nearest],
            "accounting": {c.field: c.name for c in self.conventions}, "notes": list(self.notes),
        }  # fmt: skip

    def plot(self, path: str | Path | None = None) -> Any:
        """The front and the fastest configurations as a Matplotlib figure, written to ``path`` where one is given.

        Raises ``ValuesError`` where nothing fits, or for an unknown format, and ``RenderError`` where Matplotlib is
        missing or the file cannot be written.
        """
        from symcomm.documents.plots import figure as plots

        if path is not None:
            plots.checked(path)
        return plots.save(_drawn(self), path)

    def _said(self) -> list[str]:
        return [*(f"{c.field}: {c.name}. {c.statement}" for c in self.conventions), *self.notes]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<SearchResult: {self.summary}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return self.html()


def _lined(rows: Sequence[tuple[str, ...]], width: int = 0) -> list[str]:
    """Rows as lines of text with aligned columns, without those that are empty.

    Where they are wider than a ``width``, the columns that are alike in all rows are one line below.
    """
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    set_ = dict(zip(columns, [str.rjust] * 4 + [str.ljust] * len(columns), strict=False))
    fits = not width or sum(max(map(len, column)) + 2 for column in columns) <= width or len(rows) < 3
    alike = [] if fits else [column for column in columns[2:] if len({*column[1:]}) == 1]
    columns = [column for column in columns if column not in alike]
    widths = [max(map(len, column)) for column in columns]
    lined = [[set_[column](cell, w) for cell in column] for column, w in zip(columns, widths, strict=True)]
    table = [("  " + "  ".join(row)).rstrip() for row in zip(*lined, strict=True)]
    return [*table, *(["All: " + "; ".join(f"{head} {cell}" for head, cell, *_ in alike) + "."] if alike else [])]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _drawn(found: SearchResult) -> Any:
    """A Matplotlib figure of the front with the fastest configurations; each family of strategies has its colour."""
    from symcomm.documents.plots import figure as plots

    if not found.front:
        raise ValuesError("no configuration fits, so there is no front to draw")
    made = plots.figure()
    axes = made.add_subplot()
    across, up = found.front[0].AXES
    times, heights = zip(*sorted(map(_at, found.front)), strict=True)
    axes.step(times, heights, where="post", color="#bbbbbb", linewidth=1.2, zorder=1)
    colours, families = plots.COLOURS, dict[str, list[Outcome]]()
    for one in found.front:
        families.setdefault(one.family, []).append(one)
    for n, (name, members) in enumerate(families.items()):
        axes.plot(
            *zip(*map(_at, members), strict=True),
            "os^Dv"[n // len(colours) % 5], color=colours[n % len(colours)], markersize=6, label=name, zorder=3,
        )  # fmt: skip
    top = [c for c in found.top if c not in found.front]
    if top:
        axes.plot(*zip(*map(_at, top), strict=True), "x", color=plots.SOFT, markersize=5,
                  label="other fast ones", zorder=2)  # fmt: skip
    unit, wide, high = found.front[0].place[1].unit, times[-1] - times[0], max(heights)
    if unit == BYTE:
        high = float(found.capacity.value)
        axes.axhline(high, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    labelled: list[tuple[float, float]] = []
    for one in found.front:
        at = _at(one)
        if any(abs(at[0] - x) < 0.4 * wide and abs(at[1] - y) < 0.06 * high for x, y in labelled):
            continue  # there is no room for its label
        labelled.append(at)
        left = at[0] > (times[0] + times[-1]) / 2
        said = " × ".join(str(n) for _, n in one.mesh) + f", {one.label}"
        axes.annotate(said, at, xytext=(-6 if left else 6, 5), textcoords="offset points", fontsize=7,
                      ha="right" if left else "left")  # fmt: skip
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12)
    for axis, of in ((axes.xaxis, found.front[0].place[0].unit), (axes.yaxis, unit)):
        axis.set_major_formatter(plots.prefixed(of))
    axes.grid(which="major", color=plots.GRID, linewidth=0.6)
    axes.set_title(f"{found.model} on {found.devices:,} devices: {found.front[0].FRONT}", fontsize=10)
    axes.legend(fontsize=7.5, loc="best")
    return made


def _at(one: Outcome) -> tuple[float, float]:
    across, up = one.place
    return float(across.value), float(up.value)
