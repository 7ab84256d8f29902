"""Configurations of every family: published ones with the counts of ``transformers``, and small ones for runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Each with the number of elements in all parameters of the model that transformers makes of it.
_DATA = Path(__file__).parents[1] / "data" / "families.json"
FAMILIES: list[dict[str, Any]] = json.loads(_DATA.read_text())["models"]
# One small model of each family, by its class.
SMALL: dict[str, dict[str, Any]] = json.loads((_DATA.parent / "small_families.json").read_text())
