"""Builds the parsers of the grammars once, with the wheel."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Parsers(BuildHookInterface):  # type: ignore[misc, unused-ignore]
    """Keeps each parser beside its grammar; an editable installation finds it in the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from symcomm.core.text.grammars import FORMULA, KEPT, MODULE

        for grammar in (FORMULA, MODULE):
            grammar.keep(Path(self.root) / "symcomm" / "core")
        build_data["artifacts"].append(f"*{KEPT}")  # git does not know them
