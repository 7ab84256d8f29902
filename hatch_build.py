"""Makes once, with the wheel, what git does not know: the parsers of the grammars and the stub of a model's methods."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Generated(BuildHookInterface):  # type: ignore[misc, unused-ignore]
    """Keeps each parser beside its grammar, and the stub; an editable installation finds them in the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        import typed_methods
        from symcomm.core.text.grammars import FORMULA, KEPT, MODULE

        for grammar in (FORMULA, MODULE):
            grammar.keep(Path(self.root) / "symcomm" / "core")
        typed_methods.write()
        build_data["artifacts"] += [f"*{KEPT}", "symcomm/core/quantities/methods.pyi"]
