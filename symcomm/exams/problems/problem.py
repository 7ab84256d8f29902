"""Problem documents: a Markdown file with layer tables and questions, read and checked.

``read_problem`` reads a file and checks every key of its front matter and of its fenced ``symcomm`` blocks. A slip is
refused with the line and column of the key, before anything is derived.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
import textwrap
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symcomm.core.accounting import CONVENTIONS
from symcomm.core.blocks import Listing, Scalar, Section, Value, read
from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.files import PROBLEM, one_line_end, read_text
from symcomm.core.keys import (
    COUNT,
    PAIRS,
    QUANTITY,
    RAW,
    TEXT,
    TEXTS,
    WORD,
    YES,
    Sort,
    block,
    keyed,
    keys_of,
    one_of,
    read_keys,
)
from symcomm.core.notation import Notation
from symcomm.core.quantities.declared import Option
from symcomm.core.readers.entries import is_config
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.text.finder import read_tables
from symcomm.core.text.formula_table import formula_table
from symcomm.core.text.table import Table
from symcomm.core.units import Quantity
from symcomm.documents.editions import DETAILS, ONLY, Detail
from symcomm.documents.render.document import Heading, LayerTable, Only, Prose
from symcomm.exams.problems import pieces
from symcomm.exams.problems.answer_keys import ANSWER, AnswerKeys, SaidMistake
from symcomm.exams.problems.drawing_values import DRAWN, RULES, Draws, read_draws
from symcomm.exams.problems.exam_keys import Bounds, ExamKeys, ExamSettings, Follow, read_bounds
from symcomm.exams.problems.figures import FIGURE_LIMIT, Figure, read_figure
from symcomm.exams.problems.keys import (
    CONVENTIONS_MADE,
    GIVEN,
    NAMES,
    SIZES,
    SYMBOL,
    SYMBOLS,
    Known,
    Renamed,
    given_options,
    merge,
    model_of,
    read_option,
    read_symbols,
    read_values,
    symbol_name,
)
from symcomm.exams.problems.references import (
    Lookup,
    NamedValue,
    Reference,
    filled,
    of_values,
    references,
    referred,
)

if TYPE_CHECKING:
    from symcomm.core.quantities.declared import DeclaredQuantity


def _is_table(section: Section, name: str) -> bool:
    """Whether a table stands below a key, and not a number."""
    value = section.get(name)
    return isinstance(value, Scalar) and value.style == "|"


_PRINTED = replace(QUANTITY, read=lambda at, name: None if _is_table(at, name) else at.quantity(name))


def _language(section: Section, name: str) -> str:
    said = section.text(name)
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", said):
        raise section.error(name, f"'{said[:40]}' is no language", "write en or de-CH")
    return said


_LANGUAGE = Sort(_language, WORD.schema, "en")
_TABLE, _FORMULA, _CONFIG = RAW.like(**TEXT.schema), RAW.like(type="string"), RAW.like(type=["object", "string"])
_CHANGED, _RUN = RAW.like(type="object"), TEXT.like(type=["boolean", "string"])
_MISTAKE = block(SaidMistake, "this mistake")


@dataclass(frozen=True)
class ModelBlock:
    """A ``model:`` block: a name, the table it stands for, and how that table is to be read.

    ``shown`` says that the table stands in the block itself, and so has to be shown in its place. ``parts`` are the
    models that a whole model is made of, or the one it is a step ``of``; the table is then that of the first. With a
    ``phase`` it is a step of generating text: ``new`` positions behind ``past`` ones. ``module`` is a printed PyTorch
    module or the JSON of a configuration, which stands instead of a table.
    """

    section: Section
    name: str = keyed("the name; questions refer to it", TEXT, name="model", needed=True)
    table: Table = keyed("which layer table: a number, or the table itself; the nearest one unless told", _TABLE)
    formula: Value | None = keyed("one formula instead of a table, with the shapes of its operands", _FORMULA)
    config: Value | None = keyed("a configuration (a config.json of transformers) instead of a table", _CONFIG)
    loss: bool | None = keyed("whether the cross-entropy of a configuration's head counts", YES, default=None)
    module: str = keyed("a printed PyTorch module instead of a table", WORD)
    repeat: str = keyed("the symbol that says how often the table is stacked, such as `N_layer`", SYMBOL)
    batch: str = keyed("a batch axis that the table leaves out", SYMBOL)
    dtype: str = keyed("the number format of the model, or of its tensors: `bf16, Y=fp32`; `fp16` unless told", WORD)
    values: tuple[Known, ...] = keyed("given sizes, positive whole numbers: `{N_layer: 32, D: 4096}`", SIZES)
    notation: Notation = keyed("what the symbols mean, for this model", SYMBOLS, name="symbols")
    inputs: tuple[str, ...] = keyed("tensors that are inputs, where the table alone would mislead", TEXTS)
    weights: tuple[str, ...] = keyed("tensors that are weights", TEXTS)
    axes: tuple[tuple[str, str], ...] = keyed("what axes are, by their symbols: batch, sequence, ...", PAIRS)
    layers_before: str = keyed("in a table around the layers: the tensor that stands for their result", WORD)
    parts: tuple[ModelBlock, ...] = keyed("models that this one is made of", RAW.like(**TEXTS.schema), default=())
    of: str = keyed("the model before this one of which this is a step", WORD)
    phase: str = keyed("a step of generating text: prefill or decode", one_of(("prefill", "decode")), default="")
    new: str = keyed("its new positions: 1 in a decode step, all of a prefill unless told", WORD)
    past: str = keyed("the positions before them: `c` in a decode step, 0 in a prefill unless told", WORD)
    shown: bool = False


# What else a model has that is no table: of parts, of a printed module, of a configuration, a step of another one.
STEP = ("phase", "new", "past")
OTHER_MODELS = {"parts": ("model", "parts", *STEP, "values", "symbols"),
                "module": ("model", "module", *STEP, "dtype", "values", "symbols"),
                "config": ("model", "config", "loss", *STEP, "dtype", "values", "symbols"),
                "of": ("model", "of", *STEP, "values", "symbols")}  # fmt: skip
TABLE_KEYS = tuple(name for name in keys_of(ModelBlock) if name not in (*OTHER_MODELS, "loss"))


@dataclass(frozen=True)
class DrawBlock:
    """The values that each paper draws for itself."""

    draw: Value | None = keyed("values that each paper draws for itself", RAW.like(**DRAWN))
    require: Value | None = keyed("what drawn values have to satisfy", RAW.like(**RULES))


@dataclass(frozen=True)
class MistakeBlock:
    """A mistake of the author's."""

    mistake: SaidMistake = keyed("a mistake that answers are held against", _MISTAKE, needed=True)


@dataclass(frozen=True)
class Ask:
    """One question: a pass, its options, and the numbers given with it.

    ``conventions`` are choices of accounting by field, laid over those of the document. ``printed`` is what a source
    says the answer is, to be set beside it; ``beside`` is the table it prints instead. ``sheet`` is the
    quantity that the author's own worksheet says, or one whose symbols have other names.
    """

    section: Section
    options: tuple[tuple[str, Any], ...]
    quantity: str = keyed("the quantity", TEXT, name="ask", needed=True)
    worksheet: str = keyed("the file of a worksheet of one's own, beside this one; `ask` is a name in it", WORD)
    label: str = keyed("tells the answers of one question apart; `$k = 8$` and names in backquotes are maths", TEXT)
    model: str = keyed("the model it is about; the last one defined unless told", TEXT)
    points: int | None = keyed("the points of this answer; those of the heading unless told", COUNT)
    conventions: tuple[tuple[str, str], ...] = keyed(
        "a convention, a list, or one for each field", CONVENTIONS_MADE, name="accounting"
    )
    given: tuple[Known, ...] = keyed("further numbers, with units: `{k: 8}`", GIVEN)
    names: tuple[Renamed, ...] = keyed("other names for symbols of the quantity: `{b: W}` calls its `b` `W`", NAMES)
    printed: Quantity | None = keyed("what a source prints as the answer, to be set beside it: `38.31 GB`", _PRINTED)
    answer: AnswerKeys = keyed("how students may answer, and which mistakes are recognised", ANSWER)
    verify: str = keyed("a run in PyTorch beside it: `true`, or the strategy that is run: `data(2)`", _RUN)
    divided_by: Ask | None = keyed("keys that differ in the question by whose answer this one's is divided", _CHANGED)
    sheet: DeclaredQuantity | None = None
    exam: ExamKeys = field(default_factory=ExamKeys)
    beside: Table | None = None

    @property
    def span(self) -> Span:
        """Where the question is."""
        key = self.section.key("ask")
        return key.span if key else self.section.span


@dataclass(frozen=True)
class Question:
    """The asks below one heading, with its points."""

    heading: Heading | None
    asks: tuple[Ask, ...]

    @property
    def points(self) -> int | None:
        """The points of the asks where each has its own; else those of the heading."""
        own = [ask.points for ask in self.asks if ask.points is not None]
        if own and len(own) == len(self.asks):
            return sum(own)
        return self.heading.points if self.heading else None


Entries = tuple[tuple[Scalar, Value], ...]
Item = Prose | LayerTable | Heading | ModelBlock | Ask | Figure | Only


@dataclass(frozen=True)
class Problem:
    """A problem file that was read and checked; nothing is derived yet.

    ``items`` are its pieces in order; ``values`` are the numbers that hold for all its models. ``required`` are answers
    that nobody is asked for, and whose bounds a paper has to keep.
    """

    file: str
    items: tuple[Item, ...] = field(repr=False)
    values: tuple[Known, ...] = ()
    title: str = keyed("the title; else a first heading of level 1, or the name of the file", TEXT)
    subtitle: str = keyed("the line below the title", TEXT)
    course: str = keyed("the line above the title", TEXT)
    authors: tuple[str, ...] = keyed("one name, or a list", TEXTS)
    date: str = keyed("the date, as it shall be printed; nothing is taken from the clock", TEXT)
    language: str = keyed("a language tag such as `en` or `de-CH`", _LANGUAGE)
    detail: Detail = keyed("how much of each derivation is shown", one_of(DETAILS), default="normal")
    notation: Notation = keyed("what the symbols mean", SYMBOLS, name="symbols")
    conventions: tuple[tuple[str, str], ...] = keyed(
        "conventions for all questions", CONVENTIONS_MADE, name="accounting"
    )
    names: tuple[Renamed, ...] = keyed("other names for symbols of all quantities that have them: `{b: W}`", NAMES)
    dtype: str = keyed("the number format of models that name none", WORD)
    tells: tuple[str, ...] = keyed("numbers that a paper may tell, though an answer has them: `155.9 TFLOP/s`", TEXTS)
    exam: ExamSettings = keyed("how papers are made", block(ExamSettings, "exam"))
    extra: tuple[tuple[str, str], ...] = ()
    required: tuple[Ask, ...] = ()
    mistakes: tuple[SaidMistake, ...] = ()  # those the author describes
    told: frozenset[str] = frozenset()  # the symbols whose values the prose tells

    @cached_property
    def models(self) -> dict[str, ModelBlock]:
        """The models by name, in order."""
        return {item.name: item for item in self.items if isinstance(item, ModelBlock)}

    @cached_property
    def without_numbers(self) -> dict[Span, Ask]:
        """The questions by their places, without their numbers: they stand where a paper does not ask them."""
        return {ask.span: replace(ask, given=()) for ask in self.asks}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The layer tables that stand in the text, in order."""
        return tuple(item.table for item in self.items if isinstance(item, LayerTable))

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All questions, in order."""
        return tuple(item for item in self.items if isinstance(item, Ask))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The name of each ask, in order: its ``id``, else the number of its heading, with a letter where there are
        several, else the words of the heading.

        >>> parse_problem("## 2.1 Peak (3 points)\\n```symcomm\\nask: peak_rate\\n```\\n").ids
        ('2.1',)
        """
        found: list[str] = []
        for number, question in enumerate(self.questions, start=1):
            words = question.heading.markdown if question.heading else ""
            told = re.match(r"\W*(?:(?:Question|Problem|Exercise|Task)\s+)?(\d+(?:\.\d+)*)", words, re.IGNORECASE)
            name = told[1] if told else re.sub(r"\W+", "-", words.lower()).strip("-")[:40] or str(number)
            several = len(question.asks) > 1
            joint = "" if told else "-"
            found += [ask.exam.id or name + (joint + letters(at)) * several for at, ask in enumerate(question.asks)]
        return tuple(name if name not in found[:n] else f"{name}.{n + 1}" for n, name in enumerate(found))

    def mistakes_in(self, ask: Ask) -> tuple[SaidMistake, ...]:
        """The author's mistakes that belong to a question: those below one of its headings, of all, and named."""
        if not self.mistakes:
            return ()
        above, named = {None, *self._headings_above.get(ask.span, ())}, ask.answer.mistakes or ()
        return tuple(one for one in self.mistakes if one.everywhere or one.below in above or one.name in named)

    @cached_property
    def _headings_above(self) -> dict[Span | None, tuple[Span, ...]]:
        """The places of the headings that each question stands below."""
        open_ones: list[Heading] = []
        found: dict[Span | None, tuple[Span, ...]] = {}
        for item in self.items:
            if isinstance(item, Heading):
                open_ones = [*(one for one in open_ones if one.level < item.level), item]
            elif isinstance(item, Ask):
                found[item.span] = tuple(one.span for one in open_ones)
        return found

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The asks gathered under the heading they stand below."""
        groups = grouped(self.items, lambda heading, several: True)
        asked = ((heading, tuple(item for item in below if isinstance(item, Ask))) for heading, below in groups)
        return tuple(Question(heading, asks) for heading, asks in asked if asks)


def grouped(items: Iterable[Item], begins: Callable[[Heading, bool], bool]) -> list[tuple[Heading | None, list[Item]]]:
    """The headings that begin a group, each with the items below it; first, without one, the items before them.

    ``begins`` gets a heading, and whether there is a group already.
    """
    found: list[tuple[Heading | None, list[Item]]] = [(None, [])]
    for item in items:
        if isinstance(item, Heading) and begins(item, len(found) > 1):
            found.append((item, []))
        else:
            found[-1][1].append(item)
    return found


def letters(number: int) -> str:
    """The letters that count parts: a, b, ..., z, aa.

    >>> letters(1), letters(26)
    ('b', 'aa')
    """
    return letters(number // 26 - 1) + "abcdefghijklmnopqrstuvwxyz"[number % 26] if number >= 0 else ""


# -- reading ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _said(known: Known) -> NamedValue:
    return NamedValue.of(known.quantity, known.span.word if "{{" not in known.span.word else "")


def read_problem(path: str | Path) -> Problem:
    """The problem in a file. Raises ``DocumentError`` and ``TableError``, pointing at the line."""
    return read_template(path).problem()


def parse_problem(text: str, file: str = "<text>") -> Problem:
    """The problem in a text; ``file`` names it in errors.

    >>> parse_problem("---\\ntitle: Homework 2\\n---\\nWords.").title
    'Homework 2'
    """
    return parse_template(text, file).problem()


@dataclass(frozen=True)
class Template:
    """A problem file whose references to drawn values are still open: its front matter, and its pieces in order.

    A fenced block stands for the values in it. ``digest`` is the SHA-256 of the text.
    """

    file: str
    head: Section
    parts: tuple[pieces.Piece | Value, ...] = field(repr=False)
    digest: str = ""

    @cached_property
    def draws(self) -> Draws:
        """The values that each paper draws for itself."""
        found = [value for part in self.parts if not isinstance(part, PIECES) for value in _sections(part)]
        return read_draws([self.head, *(section for section in found if _is_draw(section))])

    @cached_property
    def _draws_tell_all(self) -> bool:
        """Whether prose refers to drawn values alone: then it tells nothing of questions beside it."""
        prose = (part for part in self.parts if isinstance(part, (Prose, Heading)))
        every = (one for part in prose for one in references(part.markdown, part.span))
        return all(not one.topic and one.name in self.draws.names for one in every)

    @cached_property
    def _kept(self) -> Kept:
        return {}

    @cached_property
    def _head(self) -> Section:
        """The front matter without what each paper draws."""
        entries = tuple(e for e in self.head.entries if e[0].text != "draw")
        return replace(self.head, entries=entries) if self.draws else self.head

    @cached_property
    def example(self) -> Problem:
        """The problem with the values of an example."""
        return self.problem()

    def problem(self, drawn: Mapping[str, NamedValue] | None = None, beside: Container[int] = frozenset()) -> Problem:
        """The problem with drawn values; ``{{ D }}`` stands for ``drawn["D"]`` wherever it is written.

        Without ``drawn`` it has the values of an example. Parts ``beside`` the paper belong to questions that it does
        not ask: the question of the example stands there where a draw makes one unreadable, or nothing hangs on it.

        >>> made = parse_template("A model of {{ D }} columns.").problem({"D": NamedValue("4096")})
        >>> made.items[0].markdown
        'A model of 4096 columns.'
        """
        if drawn is None:
            drawn = self.draws.draw("", "example")
        reader = _Reader(self.file, self._head, drawn, self._kept)
        for number, part in enumerate(self.parts):
            reader.example = self.example if number in beside else None
            reader.spared = self.example.without_numbers if number in beside and self._draws_tell_all else {}
            reader.take(part)
        return reader.problem()


def read_template(path: str | Path) -> Template:
    """The template in a file. Raises ``DocumentError`` and ``TableError``, pointing at the line."""
    return parse_template(read_text(path, PROBLEM), str(path))


def parse_template(text: str, file: str = "<text>") -> Template:
    """The template in a text; ``file`` names it in errors."""
    text = one_line_end(text)
    front = pieces.front_matter(text, file)
    head = read(front[0], front[1], "the front matter") if front and front[0].strip() else None
    if head is None:
        head = Section((), Span(file, 1, "", 0, 0), "the front matter")
    if not isinstance(head, Section):
        raise DocumentError("the front matter must be a mapping of keys to values", head.span)
    head = replace(head, what="the front matter")
    _check_keys(head)
    parts = tuple(_read_block(piece) for piece in pieces.pieces(text, file))
    return Template(file, head, parts, hashlib.sha256(text.encode()).hexdigest())


_ITEMS_KEPT = 20_000  # of a class and its draws that are not taken
PIECES = (Prose, Heading, pieces.TablePiece, pieces.BlockPiece, Only)


def _sections(value: Value) -> list[Section]:
    inside = value.items if isinstance(value, Listing) else (value,)
    return [item for item in inside if isinstance(item, Section)]


def _is_draw(section: Section) -> bool:
    return not {"ask", "model", "figure"} & {*section.keys} and bool(keys_of(DrawBlock).keys() & {*section.keys})


def _check_keys(head: Section) -> None:
    """Raises ``DocumentError`` for a slip of a known key of the front matter, and for a key that belongs elsewhere."""
    for key, value in head.entries:
        near = nearest(key.text, [*FRONT]) if key.text not in FRONT else ""
        if near and key.text in keys_of(ModelBlock):
            what = f"'{key.text}' says something of a model, not of the document"
            raise DocumentError(what, key.span, "put it below model:, or call a key of your own otherwise")
        if near and isinstance(value, Scalar):
            said = f"{key.text}: {value.text}"
            if any(f"{row.field}: {row.name}" == said for row in CONVENTIONS):
                raise DocumentError(f"'{said}' is a convention", key.span, f"accounting: {{{said}}}")
        if near.startswith("did you mean") or (near and not re.fullmatch(r"[a-z][a-z_]{0,39}", key.text)):
            raise DocumentError(f"unknown key '{key.text[:60]}' in {head.what}", key.span, near)
        if near and not isinstance(value, Scalar):
            raise value.wrong_type(key.text, "text, since it is a key of your own")


def _read_block(piece: pieces.Piece) -> pieces.Piece | Value:
    if not isinstance(piece, pieces.BlockPiece):
        return piece
    if not piece.yaml.strip():
        raise DocumentError("this block is empty", piece.span, "it starts with model:, ask: or figure:")
    return read(piece.yaml, piece.source, "this block")


FRONT = {**keys_of(Problem), **keys_of(DrawBlock)}  # the keys of the front matter
ASKED = {**keys_of(Ask), **keys_of(ExamKeys)}  # of a question, besides the options of its quantity


Kept = dict[Hashable, tuple[tuple[Item, ...], tuple[Table, ...]]]


@lru_cache(maxsize=4096)
def _names(value: ByIdentity[Value]) -> frozenset[str]:
    return referred(value.it)


@lru_cache(maxsize=4096)
def _depends_on(held: ByIdentity[Section]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The drawn values that a question or a model depends on, and those that are more than numbers of its symbols."""
    section, every = held.it, tuple(sorted(referred(held.it)))
    entries = {key.text: value for key, value in section.entries}
    given, asked = entries.get("given" if "ask" in entries else "values"), entries.get("ask")
    options = _options_of(asked.text) if isinstance(asked, Scalar) else {}
    if not isinstance(given, Section) or options is None or {"worksheet", "symbols"} & {*entries}:
        return every, every
    left = tuple((key, value if key.text in options else key) for key, value in given.entries)
    rest = replace(given, entries=left)
    others = tuple((key, rest if value is given else value) for key, value in section.entries)
    return every, tuple(sorted(referred(replace(section, entries=others))))


@lru_cache(maxsize=4096)
def _may_be_kept(held: ByIdentity[Section]) -> bool:
    """Whether all that a question or a model depends on is known: its own values, the tables and names above it."""
    keys = {*held.it.keys}
    return bool({"ask", "model"} & keys) and not {"figure", "mistake", "parts", "of"} & keys


@lru_cache(maxsize=1024)
def _options_of(quantity: str) -> dict[str, Option] | None:
    """The options of a quantity by their names; None where it is not known."""
    from symcomm.core.quantities import QUANTITIES

    return {option.name: option for option in QUANTITIES[quantity].options} if quantity in QUANTITIES else None


@lru_cache(maxsize=256)  # papers of one document seldom have drawn values in it
def _front(
    head: ByIdentity[Section], drawn: tuple[tuple[str, NamedValue], ...]
) -> tuple[Section, Notation, tuple[Known, ...]]:
    """The front matter with drawn values, and what it says of symbols."""
    said = filled(head.it, of_values(dict(drawn), final=True))
    return said, *read_symbols(said, Notation())


class _Reader:
    """Reads the pieces of one file in order; a block may refer to the tables and models before it."""

    def __init__(self, file: str, head: Section, drawn: Mapping[str, NamedValue], kept: Kept) -> None:
        self.file, self.drawn, self.kept = file, drawn, kept  # what was read, by what it depends on
        names = _names(ByIdentity(head))
        self.above = tuple((name, drawn[name]) for name in sorted(names if names <= drawn.keys() else drawn))
        self.head, self.notation, self.values = _front(ByIdentity(head), self.above)
        self.items: list[Item] = []
        self.inside: Only | None = None
        self.in_words: set[str] = set()  # what the prose refers to
        self.tables: list[Table] = []
        self.models: dict[str, ModelBlock] = {}
        self.required: tuple[Ask, ...] = ()
        self.mistakes: tuple[SaidMistake, ...] = ()
        self.dtype = self.head.text("dtype")
        self.example: Problem | None = None  # while a question is read that the paper does not ask
        self.spared: dict[Span, Ask] = {}  # what stands instead of such questions where they need not be read
        self.lost: dict[str, SymcommError] = {}  # models of such questions that these draws make unreadable
        self.names = NAMES.read(self.head, "names") if "names" in self.head else ()

    def take(self, piece: pieces.Piece | Value) -> None:
        """Adds one piece, in which the values known so far stand for its references."""
        if isinstance(piece, (Scalar, Listing, Section)):
            before = len(self.items)
            try:
                self.entry(piece)
            except SymcommError as error:
                del self.items[before:]
                self.stand_in(piece, error)
            return
        if self.spared and isinstance(piece, Prose):
            return
        final = isinstance(piece, pieces.TablePiece)
        match pieces.filled(piece, self.known(final)):
            case (Prose() | Heading()) as item:
                self.items.append(item)
            case Only() as only:
                self.only(only)
            case pieces.TablePiece(table):
                self.tables.append(table)
                self.items.append(LayerTable(table))

    def stand_in(self, value: Value, error: SymcommError) -> None:
        """Puts the questions of the example in the place of a block that these draws make unreadable.

        Raises the error where the paper asks them, and for a block that holds more than questions and their models.
        """
        sections, example = _sections(value), self.example
        if example is None or any(not {"ask", "model", "figure"} & {*section.keys} for section in sections):
            raise error
        for section in sections:
            if key := section.key("ask"):
                self.items.append(example.without_numbers[key.span])
            elif "model" in section and section.text("model") in example.models:
                self.models[section.text("model")] = example.models[section.text("model")]
                self.lost[section.text("model")] = error
            elif "model" in section:
                raise error

    def only(self, line: Only) -> None:
        """Begins or ends what is for some editions only."""
        name, span = line.name, line.span
        if name and name not in ONLY:
            raise DocumentError(f"':::{name[:40]}' is no edition", span, nearest(name, [*ONLY]))
        if bool(name) == bool(self.inside):
            problem = f"':::{name}' within ':::{self.inside.name}'" if self.inside else "this ends what never began"
            raise DocumentError(problem, span, "write :::solution above it, and ::: below")
        self.inside = line if name else None
        self.items.append(line)

    def known(self, final: bool = True) -> Lookup:
        """The values of references: drawn ones, and those given so far."""

        def lookup(reference: Reference) -> NamedValue | None:
            if not reference.topic and reference.name in self.drawn:
                return self.drawn[reference.name]
            said = {item.name: _said(item) for item in self.values}
            read = (model for name, model in self.models.items() if name not in self.lost)
            said |= {item.name: _said(item) for model in read for item in model.values}
            return of_values({**said, **self.drawn}, final=final)(reference)

        return lookup

    def in_prose(self) -> list[Item]:
        """The items, with all values that are given in the document in their prose.

        Raises ``DocumentError`` for a value that is told in prose and not the same everywhere.
        """
        if not any(isinstance(item, (Prose, Heading)) and "{{" in item.markdown for item in self.items):
            return [*self.items]
        said: dict[str, NamedValue] = {}
        models = [item.values for item in self.items if isinstance(item, ModelBlock)]
        asks = [item.given for item in self.items if isinstance(item, Ask)]
        several: dict[str, tuple[Known, Known]] = {}
        first: dict[str, Known] = {}
        for known in (one for group in (self.values, *models, *asks) for one in group):
            if first.setdefault(known.name, known).quantity != known.quantity:
                several.setdefault(known.name, (first[known.name], known))
            said[known.name] = _said(known)
        lookup = of_values({**said, **self.drawn}, final=True)

        def once(reference: Reference) -> NamedValue | None:
            self.in_words.add(reference.name)
            if not reference.topic and reference.name in several and reference.name not in self.drawn:
                one, other = several[reference.name]
                told = " and ".join(f"{known.span.word} in line {known.span.line}" for known in (one, other))
                raise DocumentError(f"{reference.name} is {told}", reference.span, "write the number itself")
            return lookup(reference)

        return [pieces.filled(item, once) if isinstance(item, (Prose, Heading)) else item for item in self.items]

    def entry(self, value: Value) -> None:
        """Adds what a block says; one that was read with the same drawn values is not read again."""
        if self.spared and isinstance(value, Section) and (asks := value.key("ask")):
            self.items.append(self.spared[asks.span])
            return
        names = _names(ByIdentity(value))
        if not names <= self.drawn.keys():  # it hangs on values that stand before it
            self.block(filled(value, self.known()))
        elif isinstance(value, Listing) and not any(isinstance(item, Listing) for item in value.items):
            for item in value.items:
                self.entry(item)
        elif not isinstance(value, Section) or self.inside is not None or not _may_be_kept(ByIdentity(value)):
            self.block(filled(value, self.known()) if names else value)
        else:
            self.compiled(value)

    def compiled(self, section: Section) -> None:
        """Adds a question or a model, which is read once for all draws that differ in nothing but its numbers."""
        above = id(section), (*self.models,), self.above  # sections live as long as their template
        about, like = (
            (above, tuple([self.drawn[name].text for name in some]), some) for some in _depends_on(ByIdentity(section))
        )
        tables: tuple[Table, ...] = () if "ask" in section else tuple(self.tables)
        made, below = self.kept.get(about) or self.kept.get(like) or ((), ())
        if made and len(tables) == len(below) and all(map(operator.is_, tables, below)):
            if about in self.kept:
                self.again(made)
                return
            made = tuple(self.renumbered(item, section) for item in made)
            self.again(made)
        else:
            before = len(self.items)
            self.block(filled(section, self.known()))
            made = tuple(self.items[before:])
        if not any(isinstance(item, Ask) and item.divided_by for item in made):
            if len(self.kept) >= _ITEMS_KEPT:
                self.kept.clear()
            self.kept[about] = made, tables
            self.kept.setdefault(like, (made, tables))

    def renumbered(self, item: Item, template: Section) -> Item:
        """A question or a model with the numbers of this paper; nothing else in it depends on them."""
        if not isinstance(item, (Ask, ModelBlock)):
            return item
        lookup, gives = self.known(), "given" if isinstance(item, Ask) else "values"
        pairs = zip(template.entries, item.section.entries, strict=True)
        entries = ((k, filled(value, lookup) if k.text == gives else before[1]) for (k, value), before in pairs)
        section = replace(item.section, entries=tuple(entries))
        if isinstance(item, ModelBlock):
            return replace(item, section=section, values=merge(self.values, read_values(section, gives, Scalar.whole)))
        options = _options_of(item.quantity) or {}
        given = read_values(_follows(given_options(section, options), options)[1], gives, Scalar.quantity)
        return replace(item, section=section, given=given)

    def again(self, made: Iterable[Item]) -> None:
        """Adds what was read before."""
        for item in made:
            if isinstance(item, Ask):
                self.given(item.model, item.given)
            elif isinstance(item, ModelBlock):
                self.models[item.name] = item
            self.items.append(item)

    def given(self, model: str, given: tuple[Known, ...]) -> None:
        """Raises ``ValuesError`` where numbers that a question gives contradict those of its model.

        Of a model that could not be read, raises what was wrong with it.
        """
        if model in self.lost:
            raise self.lost[model]
        merge(self.models[model].values if model else self.values, given)

    def block(self, value: Value) -> None:
        if isinstance(value, Listing):
            for item in value.items:
                if isinstance(item, Listing):
                    raise DocumentError("a list within a list: each item is a model or a question", item.span)
                self.block(item)
        elif not isinstance(value, Section):
            raise DocumentError("a block holds keys and values", value.span, "it starts with model:, ask: or figure:")
        elif self.inside is not None and "figure" not in value:
            problem = f"a question or model within ':::{self.inside.name}': its answer would be missing elsewhere"
            raise value.error("", problem, "put it below the line :::")
        elif _is_draw(value):
            read_keys(DrawBlock, replace(value, what="this draw"))
            self.required += self.derived_requirements(value)
        elif "figure" in value:
            if sum(isinstance(item, Figure) for item in self.items) >= FIGURE_LIMIT:
                raise value.error("figure", f"more than {FIGURE_LIMIT} figures in one document")
            figure = read_figure(replace(value, what="this figure"), self.models)
            self.given(figure.model, ())
            self.items.append(figure)
        elif "mistake" in value:
            made = read_keys(MistakeBlock, value).mistake
            heading = next((item for item in reversed(self.items) if isinstance(item, Heading)), None)
            below = None if heading is None or self.is_title(heading) else heading.span
            self.mistakes += (replace(made, below=below),)
        elif "ask" in value:
            self.items.append(self.ask(replace(value, what="this question")))
        elif "model" in value:
            self.model(replace(value, what="this model"))
        else:
            word = value.keys[0] if value.keys else ""
            key = value.entries[0][0].span if value.entries else value.span
            close = nearest(word, ["ask", "model", "figure", "mistake"])
            hint = close if close.startswith("did") else "it starts with model:, ask: or figure:"
            raise DocumentError("this block is neither a model nor a question", key, hint)

    def derived_requirements(self, section: Section) -> tuple[Ask, ...]:
        """The bounds that ``require`` sets to answers: questions of nobody."""
        found = []
        for rule in section.items("require"):
            if isinstance(rule, Section):
                bound = keys_of(Bounds)
                bounds = replace(rule, entries=tuple(e for e in rule.entries if e[0].text in bound))
                asked = replace(rule, entries=tuple(e for e in rule.entries if e[0].text not in bound))
                rule.need("ask")
                made = self.ask(replace(asked, what="this requirement"))
                found.append(replace(made, exam=replace(made.exam, bounds=read_bounds(bounds))))
        return tuple(found)

    # -- models --------------------------------------------------------------------------------

    def model(self, section: Section) -> None:
        kind = next((name for name in OTHER_MODELS if name in section), "")
        section.only(OTHER_MODELS.get(kind, [*TABLE_KEYS, *OTHER_MODELS]))
        name = section.text("model")
        if name in self.models:
            before = self.models[name].section.span_of("model")
            raise section.error("model", f"a second model called '{name}'", f"the first is in line {before.line}")
        if "phase" not in section and (stray := next((key for key in ("of", "new", "past") if key in section), "")):
            raise section.error(stray, f"'{stray}' belongs to a step of generating text", "phase: decode, or prefill")
        if kind in ("parts", "of"):
            self.whole(name, section)
            return
        at = section.span
        table, shown = (Table(at.file, at.line, (), (), at.text), False) if kind else self.table(section)
        notation, described = read_symbols(section, self.notation)
        made = read_keys(
            ModelBlock, section, section=section, table=table, shown=shown, notation=notation,
            values=merge(self.values, described, read_values(section, "values", Scalar.whole)),
            dtype=section.text("dtype", self.dtype or "fp16"),
            module=_configuration(section) if kind == "config" else _printed_module(section) if kind else "",
        )  # fmt: skip
        if made.module:
            self.items.append(Prose(f"```text\n{made.module.strip()}\n```", section.span_of(kind)))
        self.models[name] = made
        if shown:
            self.items.append(LayerTable(table))
        self.items.append(made)

    def whole(self, name: str, section: Section) -> None:
        """A model whose parts are models before it, or a step of one."""
        parts: list[ModelBlock] = []
        alone = "of" in section
        for said in section.texts("of" if alone else "parts"):
            part = self.models.get(said)
            if part is None or (part.parts and not alone) or part.phase:
                problem = (
                    f"no model before this one is called '{said[:60]}'" if part is None
                    else f"'{said[:60]}' is a step itself" if part.phase else f"'{said[:60]}' has parts itself"
                )  # fmt: skip
                where = section.blamed(problem) or section.span_of("of" if alone else "parts")
                raise DocumentError(problem, where, nearest(said, [m for m, b in self.models.items() if not b.parts]))
            self.given(said, ())
            parts.append(part)
        if (not alone and len(parts) < 2) or len({part.name for part in parts}) < len(parts):
            raise section.error("parts", "a model of parts has two or more different ones", "parts: [ends, layer]")
        notation, described = read_symbols(section, self.notation)
        values = merge(*(part.values for part in parts), described, read_values(section, "values", Scalar.whole))
        step = read_keys(ModelBlock, section, section=section, table=parts[0].table)
        made = replace(parts[0], name=name, values=values, notation=notation, shown=False, section=section,
                       parts=tuple(parts), layers_before="", phase=step.phase, new=step.new,
                       past=step.past)  # fmt: skip
        self.models[name] = made
        self.items.append(made)

    def table(self, section: Section) -> tuple[Table, bool]:
        """The table a model block means, and whether it is in the block itself."""
        if "table" in section and "formula" in section:
            key = section.key("formula")
            raise DocumentError("a model has a table or a formula, not both", key.span if key else section.span)
        if (formula := section.scalar("formula")) is not None:
            return formula_table(formula), False
        value = section.scalar("table", "a number or a table")
        if value is None:
            if not self.tables:
                hint = "put the table above the block, or into it as table: | or formula:"
                raise DocumentError("there is no layer table before this model", section.span, hint)
            return self.tables[-1], False
        if re.fullmatch(r"\d{1,6}", value.text.strip()):
            number = int(value.text)
            if not 1 <= number <= len(self.tables):
                count = f"layer tables before this model: {len(self.tables)}"
                raise section.error("table", f"there is no table {number}", count)
            return self.tables[number - 1], False
        if value.style != "|":
            problem = "'table' must be the number of a table, or a table of its own"
            raise section.error("table", problem, "write the table below table: |")
        found = pieces.tables_in(value.text, self.file, value.span.line + 1)
        if len(found) != 1:
            many = f"one layer table is needed here, but there are {len(found)}"
            problem = many if found else "this is no layer table"
            raise section.error("table", problem, "its columns are Computation, Input and Output")
        return found[0], True

    # -- questions -----------------------------------------------------------------------------

    def ask(self, section: Section) -> Ask:
        from symcomm.core.quantities import QUANTITIES

        name, sheet = section.text("ask"), self.worksheet(section)
        if name not in QUANTITIES and sheet is None:
            raise section.error("ask", f"unknown quantity '{name[:60]}'", QUANTITIES.hint(name))
        wanted = sheet or QUANTITIES[name]
        known = {option.name: option for option in wanted.options}
        section.only([*ASKED, *known])
        whole, section = section, given_options(section, known)
        follows, section = _follows(section, known)
        model = model_of(section, self.models, wanted.needs_model)
        options = tuple((key, read_option(section, known[key])) for key in section.keys if key in known)
        later = {target.name: "1" for target, _, _ in follows if isinstance(target, Option)}
        with section.span_of("ask").meant():
            wanted.check(dict(options) | later)
        given = read_values(section, "given", Scalar.quantity)
        self.given(model, given)
        exam = read_keys(ExamKeys, section, section.keys, follows=follows)
        own = NAMES.read(section, "names") if "names" in section else ()
        names = (*own, *(one for one in self.names if one[0] not in {old for old, *_ in own}))
        sheet = replace(wanted, names=tuple((old, new) for old, new, _ in names)) if names else sheet
        return read_keys(
            Ask, section, section.keys, section=whole, options=options, model=model, given=given, exam=exam,
            names=names, sheet=sheet, beside=self.printed_table(section), divided_by=self.divisor(section),
        )  # fmt: skip

    def divisor(self, section: Section) -> Ask | None:
        """The question by whose answer another one's is divided: the same one with some keys changed."""
        changed = section.get("divided_by")
        if changed is None:
            return None
        if not isinstance(changed, Section):
            hint = "divided_by: {accounting: payload}"
            raise section.error("divided_by", "divided_by holds the keys that differ", hint)
        kept = tuple(e for e in section.entries if e[0].text not in {*changed.keys, "divided_by", *keys_of(ExamKeys)})
        return self.ask(replace(section, entries=(*kept, *changed.entries)))

    def printed_table(self, section: Section) -> Table | None:
        """The table that a source prints, where it is one and not a number."""
        value = section.scalar("printed", "a number with a unit")
        if value is None or not _is_table(section, "printed"):
            return None
        tables = read_tables(value.text, self.file, value.span.line + 1)
        if len(tables) != 1:
            problem = f"one printed table is wanted here, but there are {len(tables) or 'none'}"
            raise DocumentError(problem, value.span, "write it as it is printed, with its header")
        return tables[0]

    def worksheet(self, section: Section) -> DeclaredQuantity | None:
        """The quantity of the author's worksheet that a question asks for, in a file beside this one."""
        if "worksheet" not in section:
            return None
        from symcomm.core.quantities import QUANTITIES
        from symcomm.core.worksheets import read_worksheet

        with section.span_of("worksheet").meant():
            sheet = read_worksheet(section.text("worksheet"), inside=Path(self.file).parent)
        with section.span_of("ask").meant():
            return QUANTITIES.of_worksheet(sheet.ask(section.text("ask")))

    def is_title(self, heading: Heading) -> bool:
        """Whether a heading is the title of the document: the first one, of level 1 and without points."""
        first = next(item for item in self.items if isinstance(item, Heading))
        bare = heading.level == 1 and heading.points is None
        return bare and first.span == heading.span and self.head.text("title") in ("", heading.markdown)

    def problem(self) -> Problem:
        """The problem, once all pieces were taken."""
        head = self.head
        if self.inside is not None:
            raise DocumentError(f"':::{self.inside.name}' never ends", self.inside.span, "write ::: below it")
        title = head.text("title")
        items = self.in_prose()
        first = next((n for n, item in enumerate(items) if isinstance(item, Heading)), None)
        heading = items[first] if first is not None else None
        if first is not None and isinstance(heading, Heading) and self.is_title(heading):
            title = heading.markdown
            del items[first]
        found = read_keys(
            Problem, head, head.keys, file=self.file, items=tuple(items), values=self.values, notation=self.notation,
            title=title or Path(self.file).stem, required=(*self.derived_requirements(head), *self.required),
            extra=tuple((key, head.text(key)) for key in head.keys if key not in FRONT), mistakes=self.mistakes,
            told=frozenset(self.in_words),
        )  # fmt: skip
        check_points(found)
        return found


def check_points(problem: Problem) -> None:
    """Raises ``DocumentError`` where the points of parts do not add up to those of what they are parts of."""

    def check(parts: str, together: Fraction | int | None, whole: str, heading: Heading, span: Span) -> None:
        if together != heading.points:
            said = f"the {parts} have {together} points together, but {whole} {heading.points}"
            raise DocumentError(said, span, "let them add up")

    for question in problem.questions:
        heading = question.heading
        if heading is None or heading.points is None:
            continue
        check("answers", question.points, "the question", heading, heading.span)
        if len(question.asks) == 1 and (rubric := question.asks[0].exam.rubric):
            worth, section = sum((line.points for line in rubric), Fraction(0)), question.asks[0].section
            check("steps", worth, "the question", heading, section.span_of("rubric"))
    headings = [item for item in problem.items if isinstance(item, Heading)]
    for number, heading in enumerate(headings):
        behind = headings[number + 1 :]
        below = behind[: next((n for n, part in enumerate(behind) if part.level <= heading.level), None)]
        last = [n + 1 == len(below) or below[n + 1].level <= part.level for n, part in enumerate(below)]
        parts = [part.points for part, leaf in zip(below, last, strict=True) if leaf]
        if heading.points is not None and parts and None not in parts:
            check("parts", sum(p or 0 for p in parts), f"'{heading.markdown[:60]}'", heading, heading.span)


def _printed_module(section: Section) -> str:
    value = section.get("module")
    if not isinstance(value, Scalar) or not _is_table(section, "module"):
        raise section.error("module", "'module' must be a printed module", "write it below module: |")
    return value.text


def _configuration(section: Section) -> str:
    """The JSON of a configuration: a mapping of YAML, in filled lines, or the text of a ``config.json``."""
    value = section.get("config")
    if isinstance(value, Section):
        text = json.dumps(_plain_data(value)).replace('": ', '":\xa0')  # a key and its value stay in one line
        return textwrap.fill(text, 84, break_long_words=False, break_on_hyphens=False).replace('":\xa0', '": ')
    if not isinstance(value, Scalar) or not is_config(value.text):
        hint = "write its keys below config:, model_type among them"
        raise section.error("config", "'config' must be a configuration", hint)
    return value.text


def _plain_data(value: Value) -> Any:
    """A tree of YAML as JSON has it: numbers, true, false and null are what they are without quotes."""
    if isinstance(value, Section):
        return {key.text: _plain_data(one) for key, one in value.entries}
    if isinstance(value, Listing):
        return [_plain_data(one) for one in value.items]
    if not value.style:
        with suppress(ValueError):
            return json.loads(re.sub(r"(?<=\d) (?=\d{3}\b)", "", value.text))  # digits in groups, as drawn
    return value.text


def _follows(section: Section, options: Mapping[str, Option]) -> tuple[tuple[Follow, ...], Section]:
    """What a question takes from earlier answers (given symbols and options), and its section without that."""
    follows: list[Follow] = []

    def kept(entries: Entries, target: Callable[[Scalar], str | Option | None]) -> Entries:
        made = []
        for key, value in entries:
            found = [*references(value.text, value.span)] if isinstance(value, Scalar) and "{{" in value.text else []
            whole = bool(found) and isinstance(value, Scalar) and len(found) == 1 and value.text.strip()[-2:] == "}}"
            name = target(key) if whole and found[0].topic == "answer" else None
            if name is None:
                made.append((key, value))
            else:
                follows.append((name, found[0].name, value.span))
        return tuple(made)

    entries = kept(section.entries, lambda key: options.get(key.text))
    given = section.get("given")
    if isinstance(given, Section):
        rest = replace(given, entries=kept(given.entries, symbol_name))
        entries = tuple((key, rest if value is given else value) for key, value in entries)
    return tuple(follows), replace(section, entries=entries)
