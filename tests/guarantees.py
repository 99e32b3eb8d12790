"""The figures that the product publishes about itself: each command writes its own into docs/guarantees.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

GUARANTEES = Path(__file__).parents[1] / "docs" / "guarantees.json"


def record(figures: Mapping[str, int], path: Path = GUARANTEES) -> None:
    """Write these figures; those that others measured stay."""
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, **figures}, indent=2, sort_keys=True) + "\n", "utf-8")
    print(f"written to {path.name}: {', '.join(figures)}")
