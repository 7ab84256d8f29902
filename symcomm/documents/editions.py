"""The details and editions of a document: how much of a derivation it shows, and for whom it is."""

from __future__ import annotations

from typing import Literal

Detail = Literal["brief", "normal", "full"]
DETAILS: tuple[Detail, ...] = ("brief", "normal", "full")
Edition = Literal["paper", "solution", "key", "graders"]
EDITIONS: tuple[Edition, ...] = ("paper", "solution", "key", "graders")
# Which editions have what stands between ``:::name`` and ``:::``.
ONLY: dict[str, tuple[Edition, ...]] = {
    "paper": ("paper",),
    "solution": ("solution", "graders"),
    "staff": ("graders",),
}
