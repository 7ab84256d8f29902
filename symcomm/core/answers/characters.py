r"""The characters of an answer: what is refused, what is another way to write a sign, what only looks like one.

Full-width and mathematical letters are their letters, other signs of multiplication are ``*``, LaTeX's groups for names
are taken away. Nothing here knows the question.
"""

from __future__ import annotations

import re
import unicodedata

from symcomm.core.answers import UnreadError
from symcomm.core.answers.measures import CHINESE
from symcomm.core.answers.openings import opened
from symcomm.core.notation import GREEK_LETTERS
from symcomm.core.text.vocabulary import CHARACTERS, FONTS, LOWERED, RAISED, SPACES, TEXT_FONTS, VARIANTS

LENGTH_LIMIT = 2_500
_IS_CODE = "this is code or a command, not a formula"

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
_SIGNS = {
    **dict.fromkeys(SPACES, " "),
    **dict.fromkeys("≈≃≅∼", "≈"),
    **dict.fromkeys("’ʼ‘′", "'"),
    **dict.fromkeys("，‚", ","),
    "≡": "=", "ˆ": "^", "˄": "^", "∶": ":", "µ": "μ", "ℓ": "l", "…": "...", "∛": "\\cbrt ",
}  # fmt: skip
_TABLE = VARIANTS | str.maketrans(_SIGNS)
_GREEK = GREEK_LETTERS | {"ϵ": "epsilon", "ϕ": "phi"}

_TEXT = rf"\\(?:{'|'.join(map(re.escape, sorted([*TEXT_FONTS, *FONTS], reverse=True)))}|boxed|fbox)(?![A-Za-z])"
_TEXT_GROUP = re.compile(_TEXT + r"\s*\{([^{}\\]*)\}")
_MICRO = re.compile(rf"\\mu\s*({_TEXT}\s*\{{)")
_TEXT_ONE = re.compile(_TEXT + r"\s+([A-Za-z])")
_TEXT_LEFT = re.compile(_TEXT)  # before what has commands in it
# The package siunitx: \qty{6.44}{\giga\byte}, \num{3.2e9}, \unit{\byte\per\second}.
_QUANTITY = re.compile(r"\\(?:SI|qty)\s*(?:\[[^\]]*\]\s*)?\{([^{}]*)\}")
_NUMBER = re.compile(r"\\num\s*(?:\[[^\]]*\]\s*)?\{([^{}]*)\}")
_UNIT = re.compile(r"\\(?:si|unit)\s*(?:\[[^\]]*\]\s*)?\{([^{}]*)\}")
_PER = re.compile(r"\\per(?![a-z])")
_LATEX_SPACE = re.compile(r"\\[,;:!> ()\[\]]|\$")
_QUOTED = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|[“”„]([^“”]*)[“”]|«([^»]*)»)\s*\.?\s*""")
_BOLD = re.compile(r"(?<![^\s:=≈])\*\*(?=\S)([^*]+(?:\*[^*]+)*)(?<=\S)\*\*(?![^\s.,:;])")
_ARROW = re.compile(r"[-=]{1,2}>|[→⇒⟹⟶←≔]|:=|\\(?:(?:Long|long)?[Rr]ightarrow|implies|to)(?![A-Za-z])")
_CUT_OFF = re.compile(r"(?<=\.\d)(\d*)(?:\.{3}|…)(?=\s*(?:[%=≈]|$))")  # 0.2727...
_NEARLY = re.compile(r"(?<=\s)~(?=\s*[\d\\])")
_MATHS = re.compile(r"\$\$?([^$]*)\$\$?")
_LETTER = re.compile(r"[A-Za-z](?:_[A-Za-z0-9]{1,3})?")  # as a name of a symbol may be that the question lacks
_WORD = re.compile("|".join(sorted(CHINESE, key=len, reverse=True)))
_LINES = re.compile(r"\\\\(?![A-Za-z])")


def unquoted(text: str) -> str:
    """The text between its quotation marks; empty where there are none.

    Raises ``UnreadError`` for a power in quotes that only programs write so.

    >>> unquoted('"24 N D^2"'), unquoted("24 N D^2")
    ('24 N D^2', '')
    """
    found = _QUOTED.fullmatch(text) if len(text) <= LENGTH_LIMIT else None
    inner = "" if found is None else "".join(filter(None, found.groups()))
    if "**" in inner and "`" not in text:
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

    >>> clean(r"$２４\,N_{\text{layer}}\cdot D²$")
    '24 N_{ layer }\\cdot D²'
    """
    if len(text) > LENGTH_LIMIT:
        raise UnreadError(
            f"an answer has at most {LENGTH_LIMIT:,} characters, and this one has {len(text):,}", refused=True
        )
    if (bad := _FORBIDDEN.search(text)) is not None:
        raise UnreadError(
            f"a character that cannot be shown (U+{ord(bad[0]):04X}): type the answer again", refused=True
        )
    text = _CUT_OFF.sub(r"\1", _NEARLY.sub("≈", _ARROW.sub(" = ", _BOLD.sub(r"\1", text))))
    text = _MATHS.sub(r" \1 ", text) if text.count("$") % 2 == 0 else text
    if any(not _is_harmless(found[0], names) for found in _CODE.finditer(text)):
        raise UnreadError(_IS_CODE, refused=True)
    text = opened(text, names)
    text = " ".join((text if text.isascii() else _plain(text, names)).split())
    if _LINES.search(text) is not None:
        raise UnreadError("one line, please")
    if "\\begin" in text:
        raise UnreadError("one formula without an environment: leave out \\begin and \\end")
    return (_latex(text) if "\\" in text or "$" in text else text).rstrip(" ;")


def _plain(text: str, names: frozenset[str]) -> str:
    text = _WORD.sub(lambda word: f" {CHINESE[word[0]]} ", text.translate(_TABLE))
    if text.isascii():
        return text
    made: list[str] = []
    for c in text:
        if c.isascii() or c in CHARACTERS or c in RAISED or c in LOWERED:
            made.append(c)
        elif _GREEK.get(c) in names:
            made.append(f" {_GREEK[c]} ")
        elif unicodedata.category(c) == "No" and "/" in (parts := unicodedata.normalize("NFKC", c).replace("⁄", "/")):
            if made and made[-1][-1:].isdigit():
                raise UnreadError(f"a number directly before {c}: write a sum or a product")
            made.append(f"({parts})")
        elif c != "μ" and (c.isalpha() or unicodedata.category(c) in ("Nl", "Nd")):
            said = unicodedata.name(c, "unknown").lower()
            raise UnreadError(f"'{c}' is no letter of the question (it is {said}): type it on your keyboard")
        else:
            made.append(" u" if c == "μ" else c)
    return "".join(made)


def _latex(text: str) -> str:
    text = _NUMBER.sub(r" \1 ", _QUANTITY.sub(r" \1 \\unit", text))
    text = _UNIT.sub(lambda unit: f" {_PER.sub('/', unit[1])} ".replace("\\", ""), text)
    text = _MICRO.sub(r"\1u", text)
    for _ in range(3):
        text = _TEXT_GROUP.sub(_text_group, text)
    text = _TEXT_LEFT.sub(" ", _TEXT_ONE.sub(r"{\1}", text))
    return _LATEX_SPACE.sub(" ", text).strip()


def _text_group(match: re.Match[str]) -> str:
    """What a group of upright text says: a subscript in braces, or a word of its own."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :]
    if before.endswith("_"):
        return "{" + match[1].strip() + "}"
    return f" {match[1].strip()}" + ("" if after.startswith(("_", "^")) else " ")
