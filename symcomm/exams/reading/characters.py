r"""The characters of an answer: what is refused, what is another way to write a sign, what only looks like one.

Full-width and mathematical letters are their letters, other signs of multiplication are ``*``, LaTeX's groups for names
are taken away. Nothing here knows the question.
"""

from __future__ import annotations

import re
import unicodedata

from symcomm.core.notation import GREEK_LETTERS
from symcomm.exams.reading import UnreadError
from symcomm.exams.reading.measures import CHINESE

LENGTH_LIMIT = 2_500
_IS_CODE = "this is code or a command, not a formula"
DEPTH_LIMIT = 60

_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ud800-\udfff\ue000-\uf8ff"
    "\U000e0000-\U0010ffff]"
)
_CODE = re.compile(
    r"[\"`]|(?<!\\);\s*[A-Za-z_]{2}|__|<%|%>|\$[({]|#\{|==|<<|>>|\w+(?:\s*\.\s*[A-Za-z_]\w*)+\s*[(\[.]"
    r"|'(?!(?:t|s|m|d|re|ve|ll)\b)[^\d]|\b[A-Za-z]\w*\s*\(\s*'"
    r"|\b(?:import|lambda|exec|eval|getattr|setattr|compile|globals|locals|vars|dir|input|raise|assert|while|__\w+)\b"
    r"|\\(?:input|include\w*|write\d*|immediate|csname|catcode|def|let|newcommand|renewcommand|expandafter|special|url"
    r"|href|loop|verb|unicode|textcolor|rlap|llap|phantom|openout|read)(?![A-Za-z])"
)
_SPACES = "\t\n\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000" + (
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u2061\u2063\u2064"
)
_SIGNS = {
    **dict.fromkeys("×·∗⋅•∙⨯✕∘\u2062", "*"),
    **dict.fromkeys("−–—‒―﹣", "-"),
    **dict.fromkeys("÷∕⁄", "/"),
    **dict.fromkeys("≈≃≅∼", "≈"),
    **dict.fromkeys("’ʼ‘′", "'"),
    **dict.fromkeys("，‚", ","),
    "≡": "=", "ˆ": "^", "˄": "^", "∶": ":", "﹢": "+", "µ": "μ", "ℓ": "l", "…": "...", "∛": "\\cbrt ",
}  # fmt: skip
_TABLE = str.maketrans({**dict.fromkeys(_SPACES, " "), **_SIGNS})
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ⁽⁾ᵏ", "0123456789+-n()k", strict=True))
_RAISED_RUN = re.compile(f"[{''.join(_RAISED)}]+")
_LOWERED = {c: str(n) for n, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_GREEK = GREEK_LETTERS | {"ϵ": "epsilon", "ϕ": "phi"}

_TEXT = r"\\(?:text|textrm|textit|textbf|textsf|mathrm|mathit|mathbf|mathsf|mathtt|operatorname|mbox|bm)\*?"
_TEXT_GROUP = re.compile(_TEXT + r"\s*\{([^{}\\]*)\}")
_MICRO = re.compile(rf"\\mu\s*({_TEXT}\s*\{{)")
_TEXT_ONE = re.compile(_TEXT + r"\s+([A-Za-z])")
_SUBSCRIPT = re.compile(r"\s*_\s*\{\s*([A-Za-z0-9]+)\s*\}")
_LATEX_SPACE = re.compile(
    r"\\(?:[,;:!> ]|q?quad\b|enspace\b|(?:neg)?(?:thin|med|thick)space\b|(?:display|text)style\b|left\b|right\b|"
    r"[bB]igg?[lrm]?\b)|~"
)
_QUOTED = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|[“”„]([^“”]*)[“”]|«([^»]*)»|\*\*([^*]+)\*\*)\s*\.?\s*""")
_MATHS = re.compile(r"\$\$?([^$]*)\$\$?")
_LETTER = re.compile(r"[A-Za-z](?:_[A-Za-z0-9]{1,3})?")  # as a name of a symbol may be that the question lacks
_WORD = re.compile("|".join(sorted(CHINESE, key=len, reverse=True)))
_DELIMITERS = re.compile(r"\$+|\\[()\[\]]")
_LINES = re.compile(r"\\\\(?![A-Za-z])")


def unquoted(text: str) -> str:
    """The text between its quotation marks, or the stars of bold type; empty where there are none.

    Raises ``UnreadError`` for a power in quotes that only programs write so.

    >>> unquoted('"24 N D^2"'), unquoted("24 N D^2")
    ('24 N D^2', '')
    """
    found = _QUOTED.fullmatch(text) if len(text) <= LENGTH_LIMIT else None
    inner = "" if found is None else "".join(filter(None, found.groups()))
    if "**" in inner:
        raise UnreadError(_IS_CODE, refused=True)
    return inner


def _is_harmless(found: str, names: frozenset[str]) -> bool:
    """Whether what looks like code is a product with dots of names of the question, or of letters: N.D.F."""
    pieces = [piece for piece in re.split(r"[\s.(\[\\]+", found) if piece and not piece.isdigit()]
    return bool(pieces) and all(
        piece in names or names.issuperset(piece) or _LETTER.fullmatch(piece) for piece in pieces
    )


def clean(text: str, names: frozenset[str] = frozenset()) -> str:
    r"""The text in plain characters; raises ``UnreadError`` for what is refused or only looks like a letter.

    ``names`` are those that the question declares.

    >>> clean(r"$２４\,N_{\text{layer}}\cdot D²$").split()
    ['24', 'N_layer', '\\cdot', 'D^{2}']
    """
    if len(text) > LENGTH_LIMIT:
        raise UnreadError(
            f"an answer has at most {LENGTH_LIMIT:,} characters, and this one has {len(text):,}", refused=True
        )
    if (bad := _FORBIDDEN.search(text)) is not None:
        raise UnreadError(
            f"a character that cannot be shown (U+{ord(bad[0]):04X}): type the answer again", refused=True
        )
    if _deep(text):
        raise UnreadError(f"brackets are nested more than {DEPTH_LIMIT} deep", refused=True)
    text = _MATHS.sub(r" \1 ", text) if text.count("$") % 2 == 0 else text
    if any(not _is_harmless(found[0], names) for found in _CODE.finditer(text)):
        raise UnreadError(_IS_CODE, refused=True)
    text = text.replace("\n", " ").replace("\r", " ") if text.isascii() else _plain(text, names)
    text = text.rstrip(" ;").lstrip()
    if _LINES.search(text) is not None:
        raise UnreadError("one line, please")
    if "\\begin" in text:
        raise UnreadError("one formula without an environment: leave out \\begin and \\end")
    if "\\" in text or "$" in text or "{" in text or "~" in text:
        text = _latex(text)
    return text


def _deep(text: str) -> bool:
    depth = 0
    for c in text:
        if c in "([{⌈⌊":
            depth += 1
            if depth > DEPTH_LIMIT:
                return True
        elif c in ")]}⌉⌋":
            depth -= 1
    return False


def _plain(text: str, names: frozenset[str]) -> str:
    text = _WORD.sub(lambda word: f" {CHINESE[word[0]]} ", text.translate(_TABLE))
    if "√" in text:
        text = text.replace("√", "\\surd ")
    text = _RAISED_RUN.sub(lambda run: "^{" + "".join(_RAISED[c] for c in run[0]) + "}", text)
    if text.isascii():
        return text
    made: list[str] = []
    for c in text:
        if c.isascii() or c in "≈⌈⌉⌊⌋μ%±":
            made.append(c)
        elif "\uff01" <= c <= "\uff5e" or "\U0001d400" <= c <= "\U0001d7ff":
            inner = unicodedata.normalize("NFKC", c)
            made.append(f" {_GREEK[inner]} " if inner in _GREEK else inner if inner.isascii() else c)
        elif c in _LOWERED:
            made.append("_" + _LOWERED[c] if not made or not made[-1].startswith("_") else _LOWERED[c])
        elif _GREEK.get(c) in names:
            made.append(f" {_GREEK[c]} ")
        elif unicodedata.category(c) == "No" and "/" in (parts := unicodedata.normalize("NFKC", c).replace("⁄", "/")):
            if made and made[-1][-1:].isdigit():
                raise UnreadError(f"a number directly before {c}: write a sum or a product")
            made.append(f"({parts})")
        elif c.isalpha() or unicodedata.category(c) in ("Nl", "Nd"):
            said = unicodedata.name(c, "unknown").lower()
            raise UnreadError(f"'{c}' is no letter of the question (it is {said}): type it on your keyboard")
        elif c == "μ":
            made.append(c)
        else:
            raise UnreadError(f"'{c}' means nothing in a formula")
    return "".join(made)


def _latex(text: str) -> str:
    text = _MICRO.sub(r"\1μ", text.strip())
    for _ in range(3):
        if "\\" not in text or "{" not in text:
            break
        before = text
        text = _TEXT_GROUP.sub(_text_group, text)
        if text == before:
            break
    text = _TEXT_ONE.sub(r"{\1}", text)
    text = _LATEX_SPACE.sub(" ", text)
    text = _DELIMITERS.sub(" ", text)
    text = _SUBSCRIPT.sub(r"_\1 ", text)
    return text.strip()


def _text_group(match: re.Match[str]) -> str:
    """What a group of upright text says: a subscript in braces, or a word of its own."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :]
    if before.endswith("_"):
        return "{" + match[1].strip() + "}"
    return f" {match[1].strip()}" + ("" if after.startswith(("_", "^")) else " ")
