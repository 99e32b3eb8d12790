"""The raw rows in a file, which an interrupted bench goes on from: what is measured replaces what it measures anew."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.cases import CONTENDERS, Case, Row


class Results:
    """`{"machine", "rows", "growth", "cold_start"}`, written whenever something is added, whole or not at all.

    Raises ValueError when the file holds what another machine or other versions measured; without `machine` the file is
    only read.
    """

    def __init__(self, path: Path, machine: dict[str, str] | None) -> None:
        self._path = path
        self.held: dict[str, Any] = {"machine": machine, "cold_start": {}, "growth": [], "rows": []}
        if path.exists():
            self.held = json.loads(path.read_text("utf-8"))
            if machine not in (None, self.held["machine"]):
                measured = f"{path} was measured on {self.held['machine']}, not on {machine}"
                raise ValueError(f"{measured}: --anew forgets it, --output leaves it alone")

    def add(self, rows: Iterable[Row]) -> None:
        """The rows of a case, of which those of the same contenders are replaced."""
        held = {_place(row): row for row in self.held["rows"]}
        held |= {_place(row): row for row in map(asdict, rows)}
        self._write(rows=[held[place] for place in sorted(held)])

    def add_growth(self, size: dict[str, float]) -> None:
        held = {each["accounts"]: each for each in [*self.held["growth"], size]}
        self._write(growth=[held[accounts] for accounts in sorted(held)])

    def add_cold_start(self, figures: dict[str, Any]) -> None:
        self._write(cold_start=figures)

    def has(self, case: Case, contenders: Iterable[str]) -> bool:
        """Whether all of them were measured in this case, and side by side."""
        runs = [row["run"] for row in self.held["rows"] if Row(**row).case == case and row["contender"] in contenders]
        return len(runs) == len(list(contenders)) and len(set(runs)) == 1

    def has_growth(self, accounts: int) -> bool:
        return any(each["accounts"] == accounts for each in self.held["growth"])

    def _write(self, **parts: Any) -> None:
        self.held |= parts
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps(self.held, indent=1) + "\n", "utf-8")
        os.replace(beside, self._path)


def _place(row: dict[str, Any]) -> tuple[float, ...]:
    order = CONTENDERS.index(row["contender"])
    return row["source_latency_s"], row["accounts"], row["changed_share"], order
