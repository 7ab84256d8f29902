"""The stub that tells type checkers and editors the methods of a model, written from the declared quantities.

The build hook writes it for a wheel and for an editable installation, ``python typed_methods.py`` by hand; git does not
know it. Without it every method takes any arguments.
"""

from __future__ import annotations

import json
from pathlib import Path

import symcomm  # noqa: F401  (declares every quantity)
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import Option

STUB = Path(__file__).parent / "symcomm" / "core" / "quantities" / "methods.pyi"
_TYPES = {
    "recipe": "str | Mapping[str, object]", "strategy": "Strategy | str", "size": "int | str", "count": "int | str",
    "quantity": "object",
}  # fmt: skip


def _type(option: Option) -> str:
    if option.kind == "choice" and isinstance(option.among.names, tuple):  # a Literal; a registry may grow
        return f"Literal[{', '.join(map(json.dumps, option.choices))}]"
    return _TYPES.get(option.kind, "object" if option.kind == "text" else "str")


def _parameter(option: Option) -> str:
    kind = _type(option)
    if option.required:
        return f"{option.name}: {kind}"
    optional = f"{kind} | None" if option.default is None and kind != "object" else kind
    return f"{option.name}: {optional} = {json.dumps(option.default) if option.default is not None else None}"


def stub() -> str:
    """The types of the methods of a model, one for each quantity."""
    lines = [
        "# Written by typed_methods.py from the declarations of the quantities.",
        "from collections.abc import Mapping, Sequence", "from typing import Literal", "",
        "from symcomm.core.accounting import Accounting", "from symcomm.core.derivation import Derivation",
        "from symcomm.core.parallel.strategy import Strategy", "",
        "_Accounting = str | Accounting | Mapping[str, str] | Sequence[str | Mapping[str, str]] | None", "",
        "class DerivedQuantities:",
    ]  # fmt: skip
    for declared in QUANTITIES.values():
        placed = [_parameter(o) for o in declared.options if o.positional]
        named = [_parameter(o) for o in declared.options if not o.positional]
        every = ["self", *placed, "*", *named, "accounting: _Accounting = None"]
        lines += [f"    def {declared.name}(", *(f"        {one}," for one in every), "    ) -> Derivation:",
                  f'        """{declared.summary}."""', ""]  # fmt: skip
    return "\n".join(lines[:-1]) + "\n"


def write() -> None:
    """Writes the stub."""
    STUB.write_text(stub(), encoding="utf-8")


if __name__ == "__main__":
    write()
