"""What people order while everything else goes on: any verb, at any time, sensible or not."""

from __future__ import annotations

from random import Random
from typing import Any

from reconciler.intervals import shifted
from tests.kit import command

ORDERS = (
    *("Rerun", "Rerun", "Pause", "Resume", "Resume", "ReleaseLease", "ReleaseLease", "Skip", "Acknowledge"),
    *("Verify", "Preview"),
)


def order(rng: Random, today: str, segment_count: int, number: int) -> dict[str, Any]:
    """The event of a command."""
    verb = rng.choice(ORDERS)
    detail: dict[str, Any] = {}
    if verb == "ReleaseLease":
        detail["segment"] = f"{rng.randrange(segment_count):03d}"
    if verb in ("Rerun", "Skip", "Acknowledge", "Verify"):
        detail["interval"] = shifted(today, -rng.choice((0, 0, 0, 1)))
    if verb == "Rerun":
        detail["force"] = rng.random() < 0.6
        if rng.random() < 0.4:
            detail["from"] = rng.choice(("start", "checkpoint"))
        if rng.random() < 0.3:
            detail["revocation_bound"] = rng.choice((1, 1000))
    return command(verb, f"order-{number}", **detail)
