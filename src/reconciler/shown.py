"""The first rows of a report: enough for a person to look at, and never more than an answer can carry."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from reconciler.items import Row

MOST = 100
MOST_BYTES = 200_000
"""An answer is remembered in one DynamoDB item, of 400 KB at most."""

LONGEST = 1_000
"""Characters of one text."""


@dataclass(slots=True)
class Shown:
    """The first MOST rows, fewer when they are large; one that does not fit ends the list."""

    rows: list[Row] = field(default_factory=list)
    bytes_left: int = MOST_BYTES

    def add(self, row: Row) -> None:
        if len(self.rows) < MOST and self.bytes_left > 0:
            shortened = {name: shorten(value) if isinstance(value, str) else value for name, value in row.items()}
            self.bytes_left -= len(json.dumps(shortened))
            if self.bytes_left > 0:
                self.rows.append(shortened)


def shorten(text: str) -> str:
    """The text, or its beginning and how long it is."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
