"""The caches of several sequences together: in pages, reserved to a length, behind a prefix that they share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Ratio, Total, num, product
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import up_to
from symcomm.core.quantities.memory.kv_cache import behind, counted, share_bytes, shares
from symcomm.core.quantities.options import Dtype, StageNumber, StrategyOption, Whole
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, ONE

MOST = 100  # different lengths
Lengths = Annotated[str | Sequence[int], Meaning("the tokens of each sequence behind the prefix, such as 100, 700, 33")]


def derive(
    setting: Setting,
    lengths: Lengths,
    of: Annotated[Literal["bytes", "used"], Meaning("the bytes, or the part of them that holds tokens")] = "bytes",
    page: Annotated[Whole | None, Meaning("the tokens of a page, in which caches are given out")] = None,
    reserved: Annotated[Whole | None, Meaning("the tokens that each sequence has room for")] = None,
    prefix: Annotated[Whole | None, Meaning("the tokens with which all sequences begin")] = None,
    prefix_is: Annotated[Literal["shared", "copied"], Meaning("kept once, or once a sequence")] = "shared",
    strategy: StrategyOption | None = None,
    stage: StageNumber | None = None,
    dtype: Dtype | None = None,
) -> Derivation:
    """The bytes of the caches of sequences of several lengths, or the part of these bytes that holds tokens.

    Each sequence takes its tokens, or all that is ``reserved``, rounded up to whole pages where a ``page`` is given. A
    shared prefix is kept once; with pages only its full pages are shared.

    Raises ``ValuesError`` for a length that is no whole number, for a sequence longer than the reserved room, and for
    ``prefix_is`` without a prefix.

    Source: Kwon et al., arXiv 2309.06180, sections 3 and 4.
    """
    first, every = _count(prefix or 0, "prefix", 0), _count(page or 1, "page")
    if not first and prefix_is == "copied":
        raise ValuesError("prefix_is changes nothing without a prefix", hint="prefix: 512")
    words = lengths.replace(",", " ").split() if isinstance(lengths, str) else [*lengths]
    held = [first + _count(word, "lengths") for word in words]
    if not held or len({*held}) > MOST:
        raise ValuesError(f"{len({*held})} different lengths: there are 1 to {MOST}", hint="lengths: 100, 700, 33")
    room = held if reserved is None else [_count(reserved, "reserved")] * len(held)
    if max(held) > max(room):
        raise ValuesError(f"a sequence of {max(held)} tokens, and {room[0]} are reserved",
                          hint=f"reserved: {max(held)}")  # fmt: skip
    taken = [-(-tokens // every) * every for tokens in room]
    setting = up_to(behind(setting)[0], num(max(held))).in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting = setting.divided(placed) if placed is not None else setting
    work = StepWriter(setting, *(placed.forms if placed is not None else ()))

    def added(mark: str, tokens: Sequence[int], once: int, text: str) -> Form:
        """The steps that add up sequences; gives the name of their bytes."""
        groups = {length: tokens.count(length) for length in dict.fromkeys(tokens)}
        if once and len(tokens) > 1:
            groups[once] = groups.get(once, 0) + 1 - len(tokens)
        parts: list[Form] = []
        for length, often in groups.items():
            mine = shares(setting, placed, num(length), stage, "sequence")
            each = work.define(f"C{mark}_{length}", Total(tuple(share_bytes(setting, placed, one) for one in mine)),
                               BYTE, "keep", f"A sequence keeps {length} tokens.",
                               witness=partial(counted, placed, mine))  # fmt: skip
            parts.append(product(num(often), each))
        return work.combine(f"C{mark}", Total(tuple(parts)), BYTE, "add the sequences", text)

    shared = prefix_is == "shared"
    told = f"All {len(held)} sequences" + (", with what they share once." if shared and first else ".")
    whole = added("", taken, first // every * every if shared else 0, told)
    if of == "used":
        tokens = added("^used", held, first if shared else 0, "The tokens themselves.")
        work.combine("u", Ratio(tokens, whole), ONE, "used part", "The rest of the bytes holds no token.")
    return setting.derivation("Caches of several sequences" if of == "bytes" else "Used part of the caches", work.steps)


def _count(said: object, name: str, least: int = 1) -> int:
    """A whole number of tokens; raises ``ValuesError`` for anything else."""
    text = str(said)
    if not (text.isascii() and text.isdecimal() and least <= int(text[:16]) <= 10**12 and len(text) < 16):
        raise ValuesError(f"{name}: '{text[:20]}' is no number of tokens", hint=f"{name}: 16")
    return int(text)
