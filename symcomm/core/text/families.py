r"""Listed families: ``[Q_1, Q_2, \dots, Q_{n_h}]`` has the name ``Q`` and the last index ``n_h``."""

from __future__ import annotations

from typing import NamedTuple

from symcomm.core.errors import nearest
from symcomm.core.text.context import Context
from symcomm.core.text.scripts import only_name, scripts_of
from symcomm.core.text.spelling import Script, Stem, latex, spelling
from symcomm.core.text.syntax import Branch
from symcomm.core.text.tree import Identifier

_HINT = r"write [Q_1, Q_2, \dots, Q_n]"


class Listed(NamedTuple):
    """The name of a listed family, and the subscripts of its last member."""

    name: Identifier
    last: list[Script]


def listed_family(context: Context, items: list[Branch]) -> Listed:
    """The family that a list with dots is; its first members count up from 1."""
    dots = [number for number, item in enumerate(items) if item.data == "dots"]
    if dots != [len(items) - 2] or len(items) < 3:
        raise context.wrong("a family has its first members, dots, and its last member", items[dots[0]], _HINT)
    items = [item for item in items if item.data != "dots"]
    members = [_member(context, item) for item in items]
    stem, scripts = members[0]
    if not scripts or scripts[-1].kind != "_":
        raise context.wrong("the first member of a family has the subscript 1", items[0], _HINT)
    own = scripts[:-1]
    key = spelling(stem.word, own).key
    for number, (other, scripts) in enumerate(members[:-1], start=1):
        if not scripts or spelling(other.word, scripts[:-1]).key != key or scripts[-1].text != str(number):
            raise context.wrong(
                f"member {number} of this family should be {key}_{number}", items[number - 1], "members count up from 1"
            )
    other, scripts = members[-1]
    last = scripts[len(own) :]
    if spelling(other.word, scripts[: len(own)]).key != key or not last or any(one.kind != "_" for one in last):
        raise context.wrong(
            f"the last member of this family should be {key} with a subscript", items[-1], f"such as {key}_n"
        )
    span = context.span(stem.start, stem.stop(own))
    return Listed(context.counted(Identifier(span, key, latex(context.cell.text, stem, own))), last)


def check_known(context: Context, key: str, first: Branch) -> None:
    """Refuse a family that nothing declares, where families are declared."""
    scope = context.scope
    if scope.kind == "tensor" and scope.tensors and not scope.is_family(key):
        known = [one for one, indices in scope.tensors.items() if any(indices)]
        hint = nearest(key, known) or f"declare its members: ${key}_i \\in ..., i = 1, \\dots, n$"
        raise context.wrong(f"unknown family '{key}'", first, hint)


def plain_count(context: Context, scripts: list[Script]) -> Identifier:
    """The last index of a family whose subscript has subscripts, plainly written: ``n_h`` of ``Z_n_h``."""
    key = "_".join(script.text for script in scripts)
    start, stop = scripts[0].start + 1, scripts[-1].stop
    if context.scope.sizes is not None and key not in context.scope.sizes:
        raise context.error(f"unknown size '{key}'", start, stop, nearest(key, sorted(context.scope.sizes)))
    context.sizes_found.add(key)
    stem = Stem(scripts[0].text, scripts[0].text, start)
    return context.counted(Identifier(context.span(start, stop), key, latex(context.cell.text, stem, scripts[1:])))


def _member(context: Context, item: Branch) -> tuple[Stem, list[Script]]:
    """The stem and scripts of a name in a list."""
    found = only_name(context, item)
    if found is None:
        raise context.wrong("a family lists names", item, _HINT)
    factor, stem = found
    return stem, scripts_of(context, factor)
