r"""The author's prose, Markdown with LaTeX maths, converted to Typst, LaTeX or HTML by pandoc.

Pieces are read together in one pandoc process and written in one more for each format. Between the two the syntax
tree is checked, so that nothing of the author's but text, structure and understood maths reaches a document: raw
HTML, raw TeX, images and definitions of macros are errors that point at the piece.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from xml.etree.ElementTree import Element, fromstring

from symcomm.core.errors import RenderError, Span
from symcomm.core.files import temporary_folder
from symcomm.core.printing import typst_string
from symcomm.core.records import dataclass

Target = Literal["typst", "latex", "html"]

_READER = "commonmark+tex_math_dollars+pipe_tables+strikeout+smart+footnotes+autolink_bare_uris+task_lists"
_TIMEOUT = 60  # seconds; a usual document takes a tenth of one

# A number that Markdown and TeX take as it stands, unlike those of \\frac12, x^12, [^1] and &#12;
_NUMBER = re.compile(r"(?<![\w^~'#@\\])[0-9]+(?:\.[0-9]+)?")
_STANDS = "73101"  # begins what stands for a number, which is longer than those that are written
_STANDING = re.compile(f"{_STANDS}([0-9]{{3}})")

# texmath reads these, but they define, refer or colour, or need packages our LaTeX preamble does not load.
_UNSUPPORTED_MATHS = re.compile(
    r"\\(newcommand|renewcommand|providecommand|DeclareMathOperator|def|let|gdef|edef|label|tag|ref|eqref|nonumber|notag"
    r"|color|textcolor|qty|SI|si|unit|num|ang|input|include|write|read|openin|openout|catcode|csname|special|href|url"
    r"|usepackage|directlua|loop|expandafter|cancel|bangle|brace|brack|choose)(?![A-Za-z])"
)
_RAW_TEX = re.compile(
    r"\\(begin|end)\{[^}\s]*\}?|\\[A-Za-z]+(?=[{\[])|\\(?:newcommand|input|include|def|vspace|newpage)\b"
)
_SAFE_LINK = re.compile(r"(https?://|mailto:)[^\s\"<>\\]+", re.IGNORECASE)


@dataclass(frozen=True)
class InlinePiece:
    """A piece of Markdown: a run of blocks, or one inline run (a heading, a table cell).

    The same text at another place is the same piece.
    """

    markdown: str
    span: Span = field(compare=False)
    inline: bool = False


Key = tuple[str, str, bool]
_written: dict[Key, str] = {}  # conversions of this process; the variants of an exam share most of their prose
_kinds: dict[Key, str | None] = {}  # those of texts that differ in numbers only; None where the numbers matter
_once: dict[Key, tuple[InlinePiece, list[str]]] = {}  # texts of which none was met yet that differs in numbers only
_KEPT = 8192
_AT_ONCE = 400  # pieces that pandoc converts at a time


def convert(pieces: Sequence[InlinePiece], target: Target) -> dict[InlinePiece, str]:
    """Each piece in the target's language.

    Raises ``RenderError`` naming the construct and its place where a piece holds what no format can show.
    """
    wanted: dict[Key, InlinePiece] = {(target, p.markdown, p.inline): p for p in reversed(pieces)}
    for kept in (_written, _kinds, _once):
        if len(kept) > _KEPT:
            kept.clear()
    alike: dict[Key, dict[Key, list[str]]] = {}
    for key, piece in wanted.items():
        if key not in _written:
            text, numbers = _without_numbers(piece)
            alike.setdefault((target, text, piece.inline), {})[key] = numbers
    for kind in [kind for kind in alike if kind not in _kinds and kind in _once]:
        piece, numbers = _once.pop(kind)
        key = (target, piece.markdown, piece.inline)
        wanted[key], alike[kind] = piece, {key: numbers} | alike[kind]
    examples = [key for kind, some in alike.items() if kind not in _kinds for key in [*some][:2]]
    _convert_new([wanted[key] for key in examples if key not in _written], target)
    _learn({kind: some for kind, some in alike.items() if kind not in _kinds and len(some) > 1}, wanted, target)
    for kind, some in alike.items():
        known = _kinds.get(kind)
        if known is not None:
            _written.update((key, with_numbers(known, numbers)) for key, numbers in some.items())
        elif kind not in _kinds:
            _once[kind] = next((wanted[key], numbers) for key, numbers in some.items())
    _convert_new([wanted[key] for some in alike.values() for key in some if key not in _written], target)
    return {p: _written[(target, p.markdown, p.inline)] for p in pieces}


def _convert_new(pieces: Sequence[InlinePiece], target: Target) -> None:
    for n in range(0, len(pieces), _AT_ONCE):
        some = pieces[n : n + _AT_ONCE]
        keys = [(target, piece.markdown, piece.inline) for piece in some]
        _written.update(zip(keys, _convert(some, target), strict=True))


def _without_numbers(piece: InlinePiece) -> tuple[str, list[str]]:
    """The text with something in the place of each number, and the numbers.

    A number stays where it may say more: at the beginning of a line, and in a table.
    """
    text = piece.markdown
    if piece.inline:
        return without_numbers(text)
    if "|" in text:
        return text, []
    return without_numbers(text, lambda found: not any(map(str.isalpha, found.string[: found.start()].split("\n")[-1])))


def without_numbers(text: str, stays: Callable[[re.Match[str]], bool] = lambda found: False) -> tuple[str, list[str]]:
    """A text of Markdown or HTML with something in the place of each number, and the numbers.

    >>> with_numbers(*without_numbers("5 of 12 layers"))
    '5 of 12 layers'
    """
    numbers: list[str] = []

    def stand(found: re.Match[str]) -> str:
        if len(numbers) > 999 or stays(found):
            return found[0]
        numbers.append(found[0])
        return f"{_STANDS}{len(numbers) - 1:03}"

    return (text if _STANDS in text else _NUMBER.sub(stand, text)), numbers


def with_numbers(text: str, numbers: Sequence[str]) -> str:
    """A text with the numbers in the places that ``without_numbers`` left, however often these stand there."""
    return _STANDING.sub(lambda found: numbers[int(found[1])], text) if numbers else text


def apart_from_numbers(text: str, make: Callable[[str], str]) -> str:
    """The result of ``make`` for a text, where that changes no number: it gets something in the place of each.

    >>> apart_from_numbers("5 of 12 layers", str.upper)
    '5 OF 12 LAYERS'
    """
    kind, numbers = without_numbers(text)
    return with_numbers(make(kind), numbers)


def _learn(alike: Mapping[Key, Mapping[Key, list[str]]], wanted: Mapping[Key, InlinePiece], target: Target) -> None:
    """Converts what texts have in common that differ in their numbers only, and tries it on two of them."""
    pieces = [replace(wanted[next(iter(some))], markdown=kind[1]) for kind, some in alike.items()]
    try:
        _convert_new(pieces, target)
    except RenderError:  # it is told of the text itself
        _kinds.update(dict.fromkeys(alike))
        return
    for kind, some in alike.items():
        made = _written[kind]
        same = all(with_numbers(made, numbers) == _written[key] for key, numbers in [*some.items()][:2])
        _kinds[kind] = made if same else None


def _convert(pieces: Sequence[InlinePiece], target: Target) -> list[str]:
    with temporary_folder() as folder:
        trees, version = _read(pieces, folder)
        for piece, blocks in zip(pieces, trees, strict=True):
            blocks[:] = _checked(blocks, piece)
        maths = [(node["c"][1], piece) for piece, blocks in zip(pieces, trees, strict=True) for node in _maths(blocks)]
        told = _spoken(trees, version, folder) if target == "typst" else {}
        if target == "latex":  # the LaTeX writer passes maths on as it stands: another writer has to read it first
            _write(trees, version, "html", folder, maths)
        return _write(trees, version, target, folder, maths, told)


def _read(pieces: Sequence[InlinePiece], folder: Path) -> tuple[list[list[Any]], list[int]]:
    """The syntax tree of each piece, and its version; every piece is a file of its own: none reaches into the next."""
    mark = "piece" + hashlib.sha256("\0".join(p.markdown for p in pieces).encode()).hexdigest()[:24]
    paths: list[str] = []
    for i, piece in enumerate(pieces):
        # The letter keeps a cell such as "1. x" or "# x" from being read as a list or heading.
        text = "x " + " ".join(piece.markdown.split()) if piece.inline else piece.markdown
        path = folder / f"{i}.md"
        path.write_text(f"{mark}\n\n{text}\n", encoding="utf-8")
        paths.append(str(path))
    out = pandoc(["--file-scope", "-f", _READER, "-t", "json", *paths])
    read = json.loads(out)
    trees: list[list[Any]] = []
    for block in read["blocks"]:
        if block == {"t": "Para", "c": [{"t": "Str", "c": mark}]}:
            trees.append([])
        else:
            trees[-1].append(block)
    for piece, blocks in zip(pieces, trees, strict=True):
        if piece.inline:
            inlines = blocks[0]["c"] if blocks and blocks[0]["t"] in ("Para", "Plain") else []
            blocks[:] = [{"t": "Plain", "c": inlines[2:]}]
    return trees, read["pandoc-api-version"]


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            if "t" in here:
                yield here
            stack.extend(reversed(list(here.values())))
        elif isinstance(here, list):
            stack.extend(reversed(here))


def _maths(blocks: list[Any]) -> list[dict[str, Any]]:
    return [node for node in _walk(blocks) if node["t"] == "Math"]


def _refuse(piece: InlinePiece, construct: str, why: str, hint: str) -> RenderError:
    start = piece.span.text.find(construct)
    span = piece.span.within(start, start + len(construct)) if start >= 0 else piece.span
    shown = construct if len(construct) <= 80 else construct[:77] + "..."
    return RenderError(f"{shown} {why}", span, hint)


# The subscripts of einsum("ij,jk->ik", A, B); no quotation marks are known in maths.
_QUOTATION = re.compile(r"""(?<!\{)["“”]([^"“”\\{}$]*)["“”]""")


def _rewritten(tree: list[Any], instead: Callable[[dict[str, Any]], list[Any] | None]) -> list[Any]:
    """The tree with what stands ``instead`` of each node; where that is None, of each node below it."""

    def go(node: Any) -> list[Any]:
        if isinstance(node, list):
            return [[new for one in node for new in go(one)]]
        if not isinstance(node, dict):
            return [node]
        found = instead(node) if "t" in node else None
        return [{key: go(inner)[0] for key, inner in node.items()}] if found is None else found

    made: list[Any] = go(tree)[0]
    return made


def _checked(blocks: list[Any], piece: InlinePiece) -> list[Any]:
    """The tree without comments, headings and attributes; an error for what cannot be shown."""

    def one(node: dict[str, Any]) -> list[Any] | None:
        match node["t"]:
            case "RawInline" | "RawBlock":
                raw = node["c"][1].strip()
                if raw.startswith("<!--"):
                    return []
                kind = "HTML" if node["c"][0] == "html" else "TeX"
                why = f"is raw {kind}, which is not passed on"
                raise _refuse(piece, raw, why, "write it in Markdown, or as code in `...`")
            case "Image":
                why = "is an image, which no output format holds yet"
                raise _refuse(piece, node["c"][2][0], why, "describe it in words")
            case "Str" if found := _RAW_TEX.search(node["c"]):
                why = "is raw TeX outside of maths"
                raise _refuse(piece, found[0], why, "put maths between $...$ and write text in Markdown")
            case "Math":
                if found := _UNSUPPORTED_MATHS.search(node["c"][1]):
                    raise _refuse(piece, found[0], "is not understood in maths here", "write the formula without it")
                return _breakable(node["c"][0], _QUOTATION.sub(r"\\text{“\1”}", node["c"][1].strip()), piece.inline)
            case "Link":
                _, text, (url, _) = node["c"]
                if not _SAFE_LINK.fullmatch(url):
                    return [{"t": "Span", "c": [["", [], []], _rewritten(text, one)]}]  # it leads nowhere from a PDF
                return [{"t": "Link", "c": [["", [], []], _rewritten(text, one), [url, ""]]}]
            case "Header":
                return [{"t": "Para", "c": [{"t": "Strong", "c": _rewritten(node["c"][2], one)}]}]
            case "CodeBlock" | "Code":
                return [{"t": node["t"], "c": [["", [], []], node["c"][1]]}]
        return None

    return _rewritten(blocks, one)


def _breakable(kind: Any, tex: str, inline: bool) -> list[Any]:
    """Maths in a cell, split at its outer commas, so that a narrow column can break the line there."""
    parts = _outer_commas(tex) if inline else [tex]
    nodes: list[Any] = []
    for part in parts:
        if nodes:
            nodes += [{"t": "Str", "c": ","}, {"t": "Space"}]
        nodes.append({"t": "Math", "c": [kind, part]})
    return nodes


def _outer_commas(tex: str) -> list[str]:
    if r"\begin" in tex or r"\left" in tex:
        return [tex]
    parts, depth, last = [""], 0, ""
    for c in tex:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0 and last != "\\":
            parts.append("")
        else:
            parts[-1] += c
        last = c
    stripped = [p.strip() for p in parts]
    return stripped if all(stripped) and depth == 0 else [tex]


def _shared(block: Any) -> Any:
    """A table that is wider than a line, with its columns sharing the line: LaTeX breaks no cell by itself."""
    if block["t"] != "Table":
        return block
    attributes, caption, columns, head, bodies, foot = block["c"]
    rows = [*head[1], *(row for body in bodies for row in (*body[2], *body[3])), *foot[1]]
    longest = [max((_length(row[1][n][4]) for row in rows), default=0) for n in range(len(columns))]
    if sum(longest) <= _LINE:
        return block
    weights = [max(8, min(60, n)) for n in longest]
    wide = [
        [align, {"t": "ColWidth", "c": round(w / sum(weights), 3)}]
        for (align, _), w in zip(columns, weights, strict=True)
    ]
    return {"t": "Table", "c": [attributes, caption, wide, head, bodies, foot]}


def _length(tree: Any) -> int:
    """The characters of what a part of a tree says."""
    if isinstance(tree, list):
        return sum(map(_length, tree))
    if not isinstance(tree, dict):
        return 0
    said: Any = tree.get("c")
    if tree.get("t") in ("Str", "Math", "Code"):
        return len(said if isinstance(said, str) else said[1])
    return 1 if tree.get("t") in ("Space", "SoftBreak") else _length(said)


_LINE = 88  # characters of a line of a page
_COMMENT = {"typst": ("typst", "// {}"), "latex": ("latex", "% {}"), "html": ("html", "<!-- {} -->")}


def _write(
    trees: Sequence[list[Any]], version: list[int], target: Target, folder: Path,
    maths: Sequence[tuple[str, InlinePiece]], told: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:  # fmt: skip
    language, comment = _COMMENT[target]
    mark = "piece" + hashlib.sha256(json.dumps(list(trees)).encode()).hexdigest()[:24]
    blocks: list[Any] = []
    for tree in trees:
        blocks.append({"t": "RawBlock", "c": [language, comment.format(mark)]})
        cell = len(tree) == 1 and tree[0]["t"] == "Plain"
        # LaTeX breaks maths in a paragraph by itself; in the narrow column of a table it often cannot.
        framed = target == "typst" or (target == "latex" and cell)
        shown = [_shared(block) for block in tree] if target == "latex" else tree
        blocks.extend(_framed(shown, target, told) if framed else _noted(shown) if target == "html" else shown)
    tree_file, log = folder / "tree.json", folder / "log.json"
    tree_file.write_text(json.dumps({"pandoc-api-version": version, "meta": {}, "blocks": blocks}))
    writer = "html5" if target == "html" else target
    out = pandoc(["-f", "json", "-t", writer, "--mathml", "--wrap=preserve", f"--log={log}", str(tree_file)])
    for entry in json.loads(log.read_text(encoding="utf-8") or "[]"):
        if entry.get("type") == "CouldNotConvertTeXMath":
            tex = entry["contents"].strip()
            piece = next((p for text, p in maths if text.strip() == tex), None)
            reason = str(entry.get("message", "")).strip().splitlines()
            why = next((line for line in reason if line.startswith("unexpected")), "")
            found = re.search(r"control sequence (\\\w+)", why)
            cause = f"unknown command {found[1]}" if found else why
            error = f"the maths {tex[:80]} cannot be converted: {cause}"
            if piece is None:
                raise RenderError(error)
            refused = _refuse(piece, found[1] if found else tex, "", "")
            raise RenderError(error, refused.span, "write it with standard LaTeX maths commands")
    if target == "typst":
        out = _FORMULA.sub(lambda found: found[1] + _renamed(found[2]) + found[3], out)
        out = re.sub(r"^( *)- ☐ ", r"\1/ ☐: ", out, flags=re.MULTILINE)  # a box to tick has no bullet before it
    return [text.strip("\n") for text in out.split(comment.format(mark))[1:]]


# Pandoc writes names of symbols that Typst has since changed; these are the names of today.
_RENAMED = (
    (re.compile(r"\bsect\b"), "inter"),
    (re.compile(r"(?<!nothing)(?<!errorbar)\.circle\b"), ".o"),
    (re.compile(r"\b((?:paren|bracket|brace)\.[lr])\.double\b"), r"\1.stroked"),
)
_FORMULA = re.compile(r"(\[\$)(.*?)(\$\])", re.DOTALL)
_TYPST_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")')


def _renamed(formula: str) -> str:
    """A formula of pandoc's with the names that symbols have now; what is quoted text stays as it is."""
    parts = _TYPST_TEXT.split(formula)
    for old, new in _RENAMED:
        parts[::2] = [old.sub(new, part) for part in parts[::2]]
    return "".join(parts)


# What goes around every formula: a description for screen readers, or a box that shrinks what a cell cannot hold.
_FRAMES = {"typst": ("#eq({})[", "]"), "latex": (r"\fit{{", "}")}


_RATE = re.compile(r"^\W?\w+/(?:s|B|clock)\b")  # GB/s, FLOP/B, FMA/clock/SM


def _spoken(trees: Sequence[list[Any]], version: list[int], folder: Path) -> dict[str, str]:
    """Each formula that pandoc understands, in words for a screen reader."""
    every = [*{node["c"][1]: None for blocks in trees for node in _maths(blocks)}]
    if not every:
        return {}
    blocks = [{"t": "Plain", "c": [{"t": "Math", "c": [{"t": "InlineMath"}, tex]}]} for tex in every]
    path = folder / "maths.json"
    path.write_text(json.dumps({"pandoc-api-version": version, "meta": {}, "blocks": blocks}))
    out = pandoc(["-f", "json", "-t", "html5", "--mathml", "--wrap=preserve", str(path)])
    found = re.findall(r"<math .*?</math>", out, re.DOTALL)
    return dict(zip(every, map(spoken, found), strict=True)) if len(found) == len(every) else {}


_SCRIPTED = {"msub": "_{}", "msup": "^{}", "msubsup": "_{}^{}", "munder": "_{}", "mover": "^{}", "munderover": "_{}^{}"}


def spoken(mathml: str) -> str:
    """A formula of MathML as a line of text.

    >>> spoken("<math><msup><mi>D</mi><mn>2</mn></msup><mo>=</mo><mfrac><mi>a</mi><mi>b</mi></mfrac></math>")
    'D^2 = a/b'
    """

    def say(node: Element, whole: bool = False) -> str:
        tag, parts = node.tag.split("}")[-1], list(node)
        if tag in ("annotation", "mspace"):
            return ""
        if not parts:
            return (node.text or "").strip().replace("\u2062", "").replace("\u2061", "")
        if tag == "mfrac":
            return f"{say(parts[0], True)}/{say(parts[1], True)}"
        if tag == "msqrt":
            return "√" + (say(parts[0], True) if len(parts) == 1 else f"({row(parts)})")
        if tag in _SCRIPTED and len(parts) == _SCRIPTED[tag].count("{}") + 1:
            return say(parts[0], True) + _SCRIPTED[tag].format(*(say(part, True) for part in parts[1:]))
        upright = all(part.get("mathvariant") == "normal" for part in parts)  # the letters of one word
        text = "".join(map(say, parts)) if upright else row(parts)
        return f"({text})" if whole and " " in text and not text.startswith("(") else text

    def row(parts: list[Element]) -> str:
        text = " ".join(filter(None, map(say, parts)))
        return re.sub(r" ([,;:)\]!])", r"\1", re.sub(r"([(\[]) ", r"\1", text))

    return say(fromstring(mathml)).replace("^′", "′")  # noqa: S314 (pandoc wrote it)


def _framed(tree: list[Any], target: str, told: Mapping[str, str]) -> list[Any]:
    before, after = _FRAMES[target]

    def within(start: str, node: Any, end: str) -> list[Any]:
        return [{"t": "RawInline", "c": [target, start]}, node, {"t": "RawInline", "c": [target, end]}]

    def one(node: dict[str, Any]) -> list[Any] | None:
        if node["t"] == "Math" and (node["c"][0]["t"] == "InlineMath" or target == "typst"):
            alt = typst_string(told.get(node["c"][1]) or " ".join(node["c"][1].split()))
            return within(before.format(alt), node, after)
        if node["t"] == "Str" and target == "typst" and _RATE.search(node["c"]):
            return within("#box[", node, "]")  # lines break behind a slash
        return None

    return _rewritten(tree, one)


def _noted(tree: list[Any]) -> list[Any]:
    """The tree with its notes below it: pandoc would write those of all pieces behind the last one."""
    notes: list[Any] = []

    def one(node: dict[str, Any]) -> list[Any] | None:
        if node["t"] != "Note":
            return None
        notes.append(node["c"])
        return [{"t": "Superscript", "c": [{"t": "Str", "c": str(len(notes))}]}]

    body = _rewritten(tree, one)
    below = {"t": "OrderedList", "c": [[1, {"t": "Decimal"}, {"t": "Period"}], notes]}
    return [*body, below] if notes else body


def pandoc(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The output of pandoc, which is confined to the files it is given.

    Raises ``RenderError`` where pandoc is missing or fails.
    """
    try:
        path = _path()
    except (ImportError, OSError) as error:
        told = RenderError.lacking("pdf", "pandoc is missing: the author's prose cannot be converted")
        told.hint += "; or write --to md, which needs no pandoc"
        raise told from error
    try:
        run = subprocess.run(  # noqa: S603  (the path is pypandoc's, the arguments are ours)
            [path, "--sandbox", *arguments], capture_output=True, timeout=_TIMEOUT, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise RenderError(f"pandoc took more than {_TIMEOUT} seconds over the prose") from error
    if run.returncode:
        raise RenderError(f"pandoc failed: {run.stderr.decode(errors='replace').strip()[:400]}")
    return run.stdout.decode("utf-8")


@cache
def _path() -> str:
    """Where pandoc is: beside pypandoc, which takes longer to import than pandoc to convert, or where that finds it."""
    found = None if os.environ.get("PYPANDOC_PANDOC") else find_spec("pypandoc")
    beside = Path(found.origin).with_name("files") / "pandoc" if found and found.origin else None
    if beside and os.access(beside, os.X_OK):
        return str(beside)
    import pypandoc

    return str(pypandoc.get_pandoc_path())
