"""Derivations as a person would write them down: steps, reasons, exhibits and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from textwrap import wrap
from typing import Literal

from symcomm.core import form as forms
from symcomm.core.derivation.chosen import chosen
from symcomm.core.derivation.steps import Derived, Exhibit, Step
from symcomm.core.derivation.tables import cell_maths, in_one_unit, to_the_right
from symcomm.core.errors import IrrationalError, LongNumberError, ValuesError
from symcomm.core.form import Form
from symcomm.core.notation import Notation
from symcomm.core.printing.dialects import DialectName
from symcomm.core.printing.escape import html_text, markdown_text, printable, tex_text
from symcomm.core.printing.forms import PRINTERS, name_in, plain
from symcomm.core.printing.quantities import RELATIONS, amounts, quantity_in, short
from symcomm.core.printing.sentences import html_sentence, markdown_maths, markdown_sentence, math_element, sentence
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity

DerivationDialect = Literal["latex", "markdown", "text", "html"]


@dataclass(frozen=True)
class PrintedLine:
    """One line of a derivation: ``name`` is empty where the line above has the same left side.

    ``number`` counts the steps from 1; ``names`` is what is substituted in the form, if anything.
    """

    number: int
    name: str
    relation: str
    form: Form
    reason: str
    rule: str
    condition: str
    step: Step


def lines(derivation: Derived) -> tuple[PrintedLine, ...]:
    """The steps as numbered lines, continuations without their left side; only the answer where a table says them."""
    out: list[PrintedLine] = []
    last = ""
    for i, step in enumerate((derivation.answer,) if derivation.is_laid_out else derivation.steps, 1):
        name = "" if step.name == last else step.name
        last = step.name
        reason = step.reason
        out.append(PrintedLine(i, name, step.relation, step.form, reason.text, reason.rule, step.condition, step))
    return tuple(out)


class KnownNumbers(Mapping[str, Fraction]):
    """Numbers that are given, and the steps' own, which are worked out when the first of them is looked for.

    A step whose number is unknown or irrational is left out.
    """

    def __init__(self, given: dict[str, Fraction], steps: tuple[Step, ...]) -> None:
        self._found, self._later = given, steps

    def _every(self) -> dict[str, Fraction]:
        for step in self._later:
            if step.relation == ":=":
                with suppress(ValuesError):
                    self._found[step.name] = forms.evaluate(step.form, self._found)
        self._later = ()
        return self._found

    def __getitem__(self, name: str) -> Fraction:
        return self._found[name] if name in self._found else self._every()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._every())

    def __len__(self) -> int:
        return len(self._every())


def numbers(derivation: Derived, values: Mapping[str, Fraction] | None = None) -> KnownNumbers:
    """All numbers known at the given values: the values, what relations imply, and the steps that follow."""
    return KnownNumbers(derivation.values(values), derivation.steps)


def result(
    derivation: Derived, values: Mapping[str, Fraction] | None = None
) -> tuple[KnownNumbers, Quantity] | None:
    """The numbers and the exact quantity of the answer, or None where a value is missing."""
    known = numbers(derivation, values)
    form = derivation.answer.form
    if any(name not in known and name not in derivation.worth for name in forms.names(form)):
        return None
    try:
        if any(name not in known for name in forms.names(form)):  # an irrational step
            return known, derivation.at(values)
        return known, Quantity(derivation.whole(forms.evaluate(form, known)), derivation.unit)
    except (IrrationalError, LongNumberError):
        return known, derivation.at(values)
    except ValuesError:
        return None


def substituted(derivation: Derived, known: Mapping[str, Fraction]) -> dict[str, Fraction] | None:
    """The names of the answer with their numbers; None where the answer's form has no names (nothing to show)."""
    if derivation.is_laid_out and isinstance(derivation.answer.form, forms.Sym):
        return None  # a table says its number
    used = {name: known[name] for name in forms.names(derivation.answer.form) if name in known}
    return used or None


def written(
    d: Derived, dialect: DerivationDialect = "text", values: Mapping[str, Fraction] | None = None, wide: int = 0,
    exact: bool = False,
) -> str:  # fmt: skip
    """A derivation as a person writes it: title, conventions, steps with reasons, exhibits, and the number.

    The number needs all values, given in the derivation or in ``values``. With ``wide`` it is text in short, in lines
    of so many characters: the answer, why, and what is summed; a fraction of many digits then has to be ``exact``.
    """
    if wide:
        return _brief(d, values, wide, exact)
    return {"text": _as_text, "latex": _as_latex, "markdown": _as_markdown, "html": _as_html}[dialect](d, values)


def _cell(dialect: DialectName, cell: object, notation: Notation) -> str:
    found = cell_maths(dialect, cell, notation)
    return _plain_sentence(str(cell)) if found is None else found


def _reason(line: PrintedLine) -> str:
    return line.reason + (f" (if {line.condition})" if line.condition else "")


def _plain_sentence(text: str) -> str:
    return sentence("text", text, printable, lambda _, name: printable(name))


def _tex_sentence(text: str, notation: Notation) -> str:
    return sentence("latex", text, tex_text, lambda printed, _: f"${printed}$", notation)


def _as_text(d: Derived, values: Mapping[str, Fraction] | None) -> str:
    out = [_plain_sentence(d.title)]
    out += [f"  convention {c.field}: {c.name}. {c.statement}" for c in d.conventions]
    out.append("")
    rows, count = _equations(d, "text", values), len(lines(d))
    left = max(len(name) for name, *_ in rows[:count])
    right = min(48, max(len(formula) for _, _, formula, _ in rows[:count]))
    for name, relation, formula, reason in rows[:count]:
        gap = right - len(formula)
        beside = " " * gap + "   " if gap >= 0 else "\n" + " " * (left + 7)
        out.append(f"  {name:>{left}} {relation} {formula}{beside}{_plain_sentence(reason)}")
    head = name_in("text", d.answer.name)
    for _, relation, formula, _ in rows[count:]:
        out += [*([""] if head else []), f"  {head:>{left}} {relation} {formula}"]
        head = ""
    if len(rows) == count and str(d.unit) != "1":
        out.append(f"  {'':>{left}}   in {d.unit}")
    for exhibit in d.exhibits:
        out += ["", *_text_table(exhibit, d.notation)]
    out += ["", *(_plain_sentence(n) for n in d.notes)] if d.notes else []
    return "\n".join(line.rstrip() for line in out)


def _text_table(e: Exhibit, notation: Notation, wide: int = 0) -> list[str]:
    """A table as text; one that is wider than ``wide`` has its widest column in several lines."""
    e = in_one_unit(e)
    rows = [list(e.columns)] + [[_cell("text", c, notation) for c in row] for row in e.rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(e.columns))]
    over = sum(widths) + 2 * len(widths) - wide
    if wide and over > 0:
        most = widths.index(max(widths))
        widths[most] = max(widths[most] - over, 16)
        parts = [(r, wrap(r[most], widths[most]) or [""]) for r in rows]
        rows = [[*(c if not n else "" for c in r[:most]), text, *(c if not n else "" for c in r[most + 1 :])]
                for r, texts in parts for n, text in enumerate(texts)]  # fmt: skip
    set_ = [str.rjust if right else str.ljust for right in to_the_right(e)]
    lined = ["  " + "  ".join(put(c, w) for put, c, w in zip(set_, r, widths, strict=True)).rstrip() for r in rows]
    head = 1 if not (wide and over > 0) else len(parts[0][1])
    return [f"  {_plain_sentence(e.title)}", *lined[:head], "  " + "  ".join("-" * w for w in widths), *lined[head:]]


def _brief(d: Derived, values: Mapping[str, Fraction] | None, wide: int, exact: bool) -> str:
    """The formula of an answer and its number, the lines it names, why, what is summed, and its conventions by name."""
    *before, last = chosen(d)
    exact_forms = [form for relation, form in last.forms if relation != "≈"]
    form = next((f for f in reversed(exact_forms) if len(plain(f)) < wide - 16), exact_forms[-1])
    head = f"  {name_in('text', last.name)} "
    out = [_plain_sentence(d.title), "", f"{head}= {plain(form)}"]
    pad = " " * len(head)
    if found := result(d, values):
        known, quantity = found
        used = {name: known[name] for name in forms.names(form) if name in known}
        unread = not exact and any(Quantity(number, d.unit).is_long for number in used.values())
        put_in = plain(form, used) if len(used) == len(forms.names(form)) and not unread else ""
        out += [f"{pad}= {put_in}"] if used and put_in and len(put_in) < wide - 16 else []
        ways = amounts("text", quantity)
        said = ways[1:] if quantity.is_long and not exact else ((quantity.relation, ways[0][1]), *ways[1:])
        out.append(pad + " ".join(part for way in said for part in way))
    elif str(d.unit) != "1":
        out.append(f"{pad}in {d.unit}")
    known, units = numbers(d, values), {step.name: step.unit for step in d.steps}
    for line in before:
        if line.name in forms.names(form):
            told = [] if isinstance(line.last, forms.Num) and line.name in known else [f"= {plain(line.last)}"]
            if line.name in known:
                quantity = Quantity(known[line.name], units[line.name])
                worth = amounts("text", quantity)[0][1] if exact else short(quantity)
                told += [worth if worth.startswith("≈") else f"= {worth}"]
            out.append(" ".join((f"  {name_in('text', line.name)}", *told)))
    for text in (*(d.lead or (last.reason,)), *d.notes):
        out += wrap(_plain_sentence(text), wide - 2, initial_indent="  ", subsequent_indent="  ")
    for exhibit in d.exhibits:
        if exhibit.place == "before":
            out += ["", *(line for line in _text_table(exhibit, d.notation, wide) if line.strip())]
    named = [f"{c.field} {c.name}" for c in d.conventions]
    ending = f"conventions: {', '.join(named)}"
    out += ["", *wrap(ending, wide - 2, initial_indent="  ", subsequent_indent="  ")] if named else []
    return "\n".join(line.rstrip() for line in out)


def _equations(
    d: Derived, dialect: DialectName, values: Mapping[str, Fraction] | None
) -> list[tuple[str, str, str, str]]:
    """Rows of (left, relation, right, reason) with the substituted line and the quantity at the end."""
    rel = RELATIONS[dialect]
    rows = [
        (
            name_in(dialect, line.name, d.notation) if line.name else "",
            rel[line.relation],
            PRINTERS[dialect](line.form, None, d.notation),
            _reason(line),
        )
        for line in lines(d)
    ]
    found = result(d, values)
    if found:
        known, quantity = found
        used = substituted(d, known)
        approximate = d.steps[-1].relation == "≈"
        left = name_in(dialect, d.answer.name, d.notation) if approximate else ""
        if used:
            rows.append((left, rel["="], PRINTERS[dialect](d.answer.form, used, d.notation), "with the given numbers"))
            left = ""
        rows.append((left, rel[quantity.relation], quantity_in(dialect, quantity), ""))
    return rows


def _as_latex(d: Derived, values: Mapping[str, Fraction] | None) -> str:
    rows = [
        f"{left} &{relation} {right}" + (rf" && \text{{{_tex_sentence(reason, d.notation)}}}" if reason else "")
        for left, relation, right, reason in _equations(d, "latex", values)
    ]
    steps = "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"
    return "\n".join([steps, *(_latex_table(e, d.notation) for e in d.exhibits if e.laid_out)])


def _latex_table(e: Exhibit, notation: Notation) -> str:
    """A table that stands in the place of the steps, as an array, which notebooks show as well."""

    def cell(c: object) -> str:
        found = cell_maths("latex", c, notation)
        return rf"\text{{{_tex_sentence(str(c), notation)}}}" if found is None else found

    lines = [[rf"\text{{{tex_text(c)}}}" for c in e.columns], *([cell(c) for c in row] for row in e.rows)]
    sides = "".join("r" if right else "l" for right in to_the_right(e))
    body = " \\\\\n".join(" & ".join(line) for line in lines)
    return f"\\[\n\\begin{{array}}{{{sides}}}\n{body}\n\\end{{array}}\n\\]"


def _as_markdown(d: Derived, values: Mapping[str, Fraction] | None) -> str:
    out = [f"**{markdown_sentence(d.title, d.notation)}**", ""]
    if d.conventions:
        for c in d.conventions:
            out.append(f"- *{markdown_text(f'{c.field}: {c.name}.')}* {markdown_text(c.statement)}")
        out.append("")
    out += ["| | | reason |", "|---:|:---|:---|"]
    for left, relation, right, reason in _equations(d, "latex", values):
        lhs = markdown_maths(left) if left else ""
        out.append(f"| {lhs} | {markdown_maths(relation + ' ' + right)} | {markdown_sentence(reason, d.notation)} |")
    for e in d.exhibits:
        out += ["", *markdown_table(e, d.notation)]
    out += [""] + [markdown_sentence(n, d.notation) for n in d.notes] if d.notes else []
    return "\n".join(out)


def markdown_table(e: Exhibit, notation: Notation) -> list[str]:
    """An exhibit as the lines of a Markdown pipe table under its title."""
    e = in_one_unit(e)

    def maths(cell: object) -> str:
        found = cell_maths("latex", cell, notation)
        return markdown_sentence(str(cell), notation) if found is None else markdown_maths(found)

    out = [f"*{markdown_sentence(e.title, notation)}*", ""] if e.title else []
    out += [
        "| " + " | ".join(markdown_text(c) for c in e.columns) + " |",
        "|" + "".join(" ---: |" if right else " --- |" for right in to_the_right(e)),
    ]
    return out + ["| " + " | ".join(maths(c) for c in row) + " |" for row in e.rows]


def _as_html(d: Derived, values: Mapping[str, Fraction] | None) -> str:
    rows: list[str] = []
    mathml_rows = _equations(d, "mathml", values)
    plain_rows = _equations(d, "text", values)
    for (left, relation, right, reason), said_row in zip(mathml_rows, plain_rows, strict=True):
        said_name, said_relation, said_form, _ = said_row
        name = math_element(left, said_name) if left else ""
        formula = math_element(relation + right, f"{said_relation} {said_form}")
        rows.append(
            f'<tr><td style="text-align:right">{name}</td><td style="text-align:left">{formula}</td>'
            f'<td style="text-align:left">{html_sentence(reason, d.notation)}</td></tr>'
        )
    conventions = "".join(
        f"<li><em>{html_text(c.field)}: {html_text(c.name)}.</em> {html_text(c.statement)}</li>" for c in d.conventions
    )
    places = {place: "".join(html_table(e, d.notation) for e in d.exhibits if e.place == place)
              for place in ("before", "after", "full")}  # fmt: skip
    notes = "".join(f"<p>{html_sentence(n, d.notation)}</p>" for n in d.notes)
    steps = '<table class="symcomm-steps"><thead><tr><th></th><th>step</th><th>reason</th></tr></thead>'
    return (
        f'<div class="symcomm"><p><strong>{html_sentence(d.title, d.notation)}</strong></p>{_html_answer(d, values)}'
        f"{places['before']}<details><summary>steps</summary>{conventions and f'<ul>{conventions}</ul>'}"
        f"{steps}<tbody>{''.join(rows)}</tbody></table>{places['full']}</details>{places['after']}{notes}</div>"
    )


def _html_answer(d: Derived, values: Mapping[str, Fraction] | None) -> str:
    """The formula with its value beside it, and one sentence of why."""
    last = chosen(d)[-1]
    form = [form for relation, form in last.forms if relation != "≈"][-1]
    signs = RELATIONS["mathml"]
    said = name_in("mathml", last.name, d.notation) + signs["="] + PRINTERS["mathml"](form, None, d.notation)
    alt = f"{last.name} = {plain(form)}"
    found = result(d, values)
    if found and forms.names(form):
        said += signs[found[1].relation] + quantity_in("mathml", found[1])
        alt += f" {found[1].relation} {quantity_in('text', found[1])}"
    why = " ".join(d.lead or (last.reason,))
    return f"<p>{math_element(said, alt)}</p><p>{html_sentence(why, d.notation)}</p>"


def html_table(e: Exhibit, notation: Notation) -> str:
    """An exhibit as an HTML table with a caption and column headers."""
    e = in_one_unit(e)

    def cell(c: object) -> str:
        found = cell_maths("mathml", c, notation)
        return html_sentence(str(c), notation) if found is None else math_element(found, cell_maths("text", c) or "")

    styles = [' style="text-align:right"' if right else "" for right in to_the_right(e)]
    head = "".join(f'<th scope="col"{s}>{html_text(c)}</th>' for s, c in zip(styles, e.columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{s}>{cell(c)}</td>" for s, c in zip(styles, row, strict=True)) + "</tr>" for row in e.rows
    )
    return (
        f'<table class="exhibit"><caption>{html_sentence(e.title, notation)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
