"""What is checked in as the declared quantities say; ``python tests/declared/generated.py`` writes it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # pytest has this folder on its path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from api import (
    FRONT,
    QUANTITIES,
    TABLE_KEYS,
    AnswerKeys,
    Ask,
    BlockKey,
    DeclaredQuantity,
    ExamKeys,
    Figure,
    ModelBlock,
    Option,
    SaidChange,
    keys_of,
    problem_schema,
)

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "problem.schema.json"
PAGES = ROOT / "docs"


def _or(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0]


def _short(option: Option) -> str:
    said = f"`{option.name}`"
    if option.kind == "choice" and isinstance(option.among.names, tuple):  # those of a registry stand below
        said += ": " + _or(tuple(f"`{c}`" + (" (default)" if c == option.default else "") for c in option.choices))
    elif option.default not in (None, ""):
        said += f": default `{option.default}`"
    return said + (" (required)" if option.required else "")


def overview() -> str:
    """The table of all quantities with their options."""
    rows = ["| quantity | options |", "|---|---|"]
    for declared in QUANTITIES.values():
        told = "; ".join(_short(o) for o in declared.options if o.positional)
        shared = ", ".join(f"`{o.name}`" for o in declared.options if not o.positional)
        needs = "" if declared.needs_model else "no model is needed"
        told = "; ".join(piece for piece in (told, shared, needs) if piece)
        rows.append(f"| [`{declared.name}`](quantities.md#{declared.name}) | {told} |")
    return "\n".join(rows)


def _section(declared: DeclaredQuantity) -> str:
    text = re.split(r"\n+(?=>>> )", declared.text)[0].replace("``", "`")
    rows = ["| option | reads | meaning | default |", "|---|---|---|---|"]
    for o in declared.options:
        reads = ", ".join(f"`{c}`" for c in o.choices) if o.kind == "choice" else o.kind
        default = "required" if o.required else f"`{o.default}`" if o.default not in (None, "") else ""
        rows.append(f"| `{o.name}` | {reads} | {o.meaning} | {default} |")
    return f"### `{declared.name}`\n\n{text}\n" + ("\n" + "\n".join(rows) + "\n" if declared.options else "")


def reference() -> str:
    """Every quantity with what it means and its options, by group."""
    parts = []
    for group in dict.fromkeys(QUANTITIES.groups.values()):
        members = [one for one in QUANTITIES.values() if one.group == group]
        parts += [f"## {group.capitalize()}\n", *map(_section, members)]
    return "\n".join(parts).rstrip()


def keys(told: Mapping[str, BlockKey]) -> str:
    """The table of the keys of a block."""
    rows = [f"| `{name}` | {one.meaning} |" for name, one in told.items()]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


BLOCKS = {
    "front": FRONT, "model": {name: keys_of(ModelBlock)[name] for name in TABLE_KEYS}, "ask": keys_of(Ask),
    "figure": keys_of(Figure), "exam": keys_of(ExamKeys), "answer": keys_of(AnswerKeys), "change": keys_of(SaidChange),
}  # fmt: skip
TABLES = {"quantities: overview": overview, "quantities: reference": reference}
TABLES |= {f"keys: {name}": partial(keys, told) for name, told in BLOCKS.items()}


def written(page: str) -> str:
    """A page with each of its marked places written anew: from ``<!-- NAME -->`` to ``<!-- end -->``."""
    for name, table in TABLES.items():
        mark, text = f"<!-- {name} -->\n", table().replace("\\", r"\\")
        page = re.sub(f"{mark}.*?(?=<!-- end -->)", f"{mark}\n{text}\n\n", page, flags=re.DOTALL)
    return page


def expected() -> dict[Path, str]:
    """The text of each file as it should be."""
    files = {SCHEMA: json.dumps(problem_schema(), indent=1, ensure_ascii=False) + "\n"}
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md"))}
    return files | {page: written(text) for page, text in pages.items() if "<!-- end -->" in text}


if __name__ == "__main__":
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
