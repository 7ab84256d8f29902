r"""The template environment: how templates are found, and how every value is escaped at the border.

Templates write ``<% %>`` for statements and ``<< >>`` for values, so that LaTeX, Typst and Jinja do not collide. A
value is escaped for the format unless it is ``Markup``, which only the printers and pandoc make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, wraps
from pathlib import Path
from sys import getsizeof
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from symcomm.core.errors import RenderError, nearest
from symcomm.core.printing import html_text, markdown_text, tex_text, typst_string
from symcomm.core.records import ByIdentity
from symcomm.core.units import endless

if TYPE_CHECKING:
    from jinja2 import Environment


def typst_text(text: str) -> str:
    """Plain text for Typst's markup: a string in code, in which nothing is markup.

    >>> typst_text("#read(1)")
    '#"#read(1)";'
    """
    return f"#{typst_string(text)};" if text else ""


def markdown_line(text: str) -> str:
    r"""Plain text for Markdown, also at the start of a line.

    >>> markdown_line("1. a_b")
    '1\\. a\\_b'
    """
    return re.sub(r"^(\s*)([-+=]|\d+(?=[.)]))", _defused, markdown_text(text))


def _defused(match: re.Match[str]) -> str:
    return match[1] + (match[2] + "\\" if match[2].isdigit() else "\\" + match[2])


def program_text(text: str) -> str:
    """Plain text in a comment, a docstring or a plain string of a program: nothing in it ends one of them.

    >>> program_text('a\\n"b"')
    'a  b '
    """
    return re.sub(r"[^\w .,:;()+*/=<>^~-]", " ", text)


ESCAPES: dict[str, Callable[[str], str]] = {
    "py": program_text,
    "sh": program_text,
    "md": markdown_line,
    "tex": tex_text,
    "html": html_text,
    "typ": typst_text,
}


def _templates() -> Path:
    """The folder of our templates: beside the package in a clone, inside it where a wheel was installed."""
    package = Path(__file__).parents[2]
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


TEMPLATES = _templates()


# What a string makes longer by as much as it is told.
_WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "join", "replace"})
_REMOVED = ("center", "format", "indent", "pprint", "slice", "tojson", "urlize", "wordwrap")  # filters of that kind
_MOST = 20_000_000  # bytes that a template may make while a page is filled
_STEP = 50  # what a turn of a loop, a call or an operation counts at least
_LISTS = (list, tuple, dict, range, set)
_KEPT = 1024  # things that many pages have and that are kept as a macro wrote them


def _bytes(value: object) -> int:
    """How many bytes a value takes, the members of a list not counted."""
    if isinstance(value, (str, int)):
        return getsizeof(value)
    return 8 * len(value) if isinstance(value, _LISTS) else _STEP


def _members(given: Sequence[object]) -> int:
    """How many members a filter is given, at most: what filters make one by one comes from a range."""
    from jinja2.sandbox import MAX_RANGE

    return next((len(x) for x in given if isinstance(x, _LISTS)), MAX_RANGE)


def _bytes_of(operator: str, left: object, right: object) -> int:
    """How many bytes the result of an operation takes, told from its operands before it is there."""
    numbers: list[int] = [x for x in (left, right) if isinstance(x, int)]
    if operator == "%" and isinstance(left, str):
        put = [*right.values()] if isinstance(right, dict) else [*right] if isinstance(right, tuple) else [right]
        widest = max((len(digits) for digits in re.findall(r"\d+", left)), default=0)
        stars = sum(abs(x) for x in put if isinstance(x, int)) if "*" in left else 0
        return _bytes(left) + left.count("%") * (max(map(_bytes, put), default=0) + int(10 ** min(9, widest))) + stars
    if operator == "**" and len(numbers) == 2:
        return int(abs(numbers[0]).bit_length() * max(0, numbers[1])) // 8
    if operator == "*" and len(numbers) == 1:
        return _bytes(right if numbers[0] is left else left) * max(0, *numbers)
    return _bytes(left) + _bytes(right)


class TemplateBudget:
    """The work that a template may still do while a page is made; raises ``OverflowError`` where it does more."""

    def __init__(self) -> None:
        self.left = _MOST

    def spend(self, much: int) -> None:
        """Takes away what is done next."""
        self.left -= much
        if self.left < 0:
            raise OverflowError("this takes too long, or makes too much: fewer turns of loops, or shorter texts")

    def weigh(self, value: object) -> None:
        """Takes away what a value takes when it is written, its members with it."""
        self.spend(_bytes(value))
        if isinstance(value, (list, tuple, dict, set)):
            for member in value.items() if isinstance(value, dict) else value:
                self.weigh(member)

    def counted(self, items: Iterable[object], text: int) -> Iterator[object]:
        """The items of a loop, each turn counted with the text that it writes."""
        for item in items:
            self.spend(_STEP + text)
            yield item

    def joined(self, parts: Sequence[object]) -> str:
        """Texts one behind the other, as ``~`` writes them."""
        from jinja2.runtime import markup_join

        self.weigh(parts)
        return markup_join(parts)

    def filtered(self, name: str, does: Callable[..., object]) -> Callable[..., object]:
        """A filter that counts what it is given, and what ``replace`` and ``join`` make of it."""

        @wraps(does)  # with the marks by which Jinja passes its environment
        def counted(*given: Any, **named: Any) -> object:
            every = [x for x in (*given, *named.values()) if isinstance(x, (str, int, *_LISTS))]  # not the environment
            self.weigh(every)
            self.spend(sum(64 * abs(x) for x in every[1:] if isinstance(x, int)))
            if name == "replace" and len(every) > 1:
                self.spend(str(every[0]).count(str(every[1])) * _bytes(every[-1]))
            if name == "join":
                self.spend(sum(len(text) for text in every[-1:] if isinstance(text, str)) * _members(given))
            return does(*given, **named)

        return counted


class _Counted(NodeTransformer):
    """Has the loops and the joined texts of a template counted."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (the name of a node)
        self.generic_visit(node)
        if not node.recursive:
            text = nodes.Const(sum(len(data.data) for data in node.find_all(nodes.TemplateData)))
            node.iter = nodes.Filter(node.iter, "counted", [text], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  (the name of a node)
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "joined", [], [], None, None, lineno=node.lineno)


@lru_cache(maxsize=16)  # a template is compiled once; one that changed is read again
def environment(form: str, templates: Path | None) -> Environment:
    """The environment of one format; ``templates`` is a folder whose files come before ours of the same name."""
    from jinja2 import ChoiceLoader, FileSystemLoader, PrefixLoader, StrictUndefined
    from jinja2.runtime import Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from markupsafe import Markup

    if templates is not None and not templates.is_dir():
        raise RenderError(f"there is no folder of templates {templates}")
    escape = ESCAPES[form]

    def finalize(value: object) -> object:
        made.work.weigh(value)
        if isinstance(value, Markup):
            return value
        if isinstance(value, int) and endless(Fraction(value)):
            raise OverflowError("a number has more than 4,300 digits")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Markup(str(value))  # noqa: S704  (digits mean the same everywhere)
        return value if hasattr(value, "__html__") else Markup(escape(str(value)))  # noqa: S704  (escaped here)

    written: dict[tuple[object, ...], object] = {}

    def kept(macro: object, thing: object, *more: object) -> object:
        """The text that a macro writes of a thing on many pages, such as a table; it must not use anything else."""
        if not isinstance(macro, Macro):  # other functions are called by the sandbox alone
            raise TypeError("kept takes a macro and what it writes")
        about = macro._func.__code__, ByIdentity(thing), more
        if about not in written:
            if len(written) >= _KEPT:
                written.clear()
            written[about] = macro(thing, *more)
        return written[about]

    ours = FileSystemLoader(TEMPLATES)
    named = PrefixLoader({"symcomm": ours})  # a template of one's own extends symcomm/solution.typ.jinja

    class Sandbox(ImmutableSandboxedEnvironment):
        """The same, which asks once of each kind of value whether an attribute is safe: pages have thousands."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.known: dict[tuple[type, str], bool] = {}
            self.work = TemplateBudget()

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            about = type(obj), attr
            if about not in self.known:
                self.known[about] = super().is_safe_attribute(obj, attr, value)
            return self.known[about] and not (isinstance(obj, str) and attr in _WIDENING)

        intercepted_binops = frozenset(["*", "**", "+", "%"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            self.work.spend(_STEP + _bytes_of(operator, left, right))
            if operator == "%":
                self.work.weigh(right)
            return super().call_binop(context, operator, left, right)

        def wrap_str_format(self, value: Any) -> None:
            """No format is safe that makes texts as wide as it is told."""

        def call(__self, __context: Any, __obj: Any, *given: Any, **named: Any) -> Any:  # noqa: N805  (as Jinja has it)
            __self.work.spend(_STEP + _bytes(getattr(__obj, "__self__", None)))
            made = super().call(__context, __obj, *given, **named)
            __self.work.spend(_bytes(made))
            return made

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            return cast("nodes.Template", _Counted().visit(super()._parse(source, name, filename)))

    made = Sandbox(
        loader=ChoiceLoader([FileSystemLoader(templates), ours, named] if templates else [ours, named]),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["cell"] = _cell
    for name in _REMOVED:
        del made.filters[name]
    for name, does in [*made.filters.items()]:
        made.filters[name] = made.work.filtered(name, does)
    made.filters["counted"] = made.work.counted
    made.filters["joined"] = made.work.joined
    for name in ("cycler", "joiner", "lipsum"):
        del made.globals[name]
    made.globals["kept"] = kept
    # For the few places where Typst takes a string instead of content.
    made.filters["typst_string"] = lambda text: Markup(typst_string(str(text)))  # noqa: S704
    return made


def _cell(text: object) -> object:
    """A cell of a Markdown table: on one line, its bars escaped where the author did not."""
    from markupsafe import Markup

    if not hasattr(text, "__html__"):
        return text
    return Markup(re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(text).split())))  # noqa: S704


def fill(form: str, name: str, templates: Path | None, context: dict[str, object]) -> str:
    """The text of a template filled with the context.

    Raises ``RenderError`` with the template's name and line where it cannot be filled.
    """
    from jinja2 import TemplateError, TemplateNotFound, TemplateSyntaxError

    try:
        made = environment(form, templates)
        if templates is not None and (templates / name).is_file():
            _check_blocks(made, (templates / name).read_text(encoding="utf-8"), name)
        made.work.left = _MOST  # type: ignore[attr-defined]  # it is a sandbox of ours
        return made.get_template(name).render(context)
    except TemplateSyntaxError as error:
        raise RenderError(f"template {error.name or name}, line {error.lineno}: {error.message}") from error
    except TemplateNotFound as error:
        raise RenderError(f"there is no template {error.name}") from error
    except RecursionError:
        raise RenderError(f"template {name}: macros, loops or included files nest too deep") from None
    except (TemplateError, TypeError, ValueError, OverflowError) as error:
        where = _template_line(error, name)
        raise RenderError(f"template {name}{where}: {error}") from error


def _check_blocks(made: Environment, text: str, name: str) -> None:
    """Raises ``RenderError`` for a block of a template that replaces nothing in the one it extends."""
    tree = made.parse(text)
    parent = next((n.template.value for n in tree.find_all(nodes.Extends) if isinstance(n.template, nodes.Const)), "")
    if not parent or made.loader is None:
        return
    base = made.loader.get_source(made, parent)[0]
    known = [block.name for block in made.parse(base).find_all(nodes.Block)]
    for block in tree.find_all(nodes.Block):
        if block.name not in known:
            message = f"template {name}, line {block.lineno}: {parent} has no block '{block.name[:40]}'"
            raise RenderError(message, hint=nearest(block.name, known))


def _template_line(error: BaseException, name: str) -> str:
    trace, line = error.__traceback__, 0
    while trace:
        if trace.tb_frame.f_code.co_filename.endswith(name):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f", line {line}" if line else ""
