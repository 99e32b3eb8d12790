"""EventBridge Scheduler's expressions, by the grammar that AWS publishes (Scheduler User Guide, "Schedule types").

rate(1 minute) rate(5 minutes)       a whole number and minute, hour or day, in the plural unless it is one
cron(0 2 * * ? *)                    minutes hours day-of-month month day-of-week year; one of the days is `?`
at(2026-11-29T02:00:00)              one moment
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a cron expression; `names` stand for the numbers from `low` on, `special` are further items."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    special: str = r"(?!)"
    steps: bool = True

    def takes(self, item: str) -> bool:
        """Whether the field takes one item of a list: a value, a range, a step, or a special sign."""
        if re.fullmatch(self.special, item):
            return True
        base, slash, step = item.partition("/")
        if slash and not (self.steps and step.isdecimal() and int(step) > 0):
            return False
        if base == "*":
            return True
        numbers = [self.number(part) for part in base.split("-")]
        known = [number for number in numbers if number is not None and self.low <= number <= self.high]
        return len(known) == len(numbers) <= 2 and known == sorted(known)

    def number(self, text: str) -> int | None:
        if text.upper() in self.names:
            return self.low + self.names.index(text.upper())
        return int(text) if text.isascii() and text.isdecimal() else None


DAY_OF_MONTH = Field("day-of-month", 1, 31, special=r"\?|L(-\d+)?|LW|([1-9]|[12]\d|3[01])W")
DAY_OF_WEEK = Field("day-of-week", 1, 7, DAYS, special=r"\?|L|[1-7]L|[1-7]#[1-5]", steps=False)
FIELDS = (
    Field("minutes", 0, 59),
    Field("hours", 0, 23),
    DAY_OF_MONTH,
    Field("month", 1, 12, MONTHS),
    DAY_OF_WEEK,
    Field("year", 1970, 2199),
)


def wrong_with(expression: str) -> str | None:
    """What EventBridge Scheduler would not take about an expression; None when there is nothing."""
    found = re.fullmatch(r"(rate|cron|at)\((.*)\)", expression, re.DOTALL)
    if not found:
        return "is none of rate(…), cron(…), at(…)"
    kind, inside = found.groups()
    return {"rate": _rate, "cron": _cron, "at": _at}[kind](inside)


def _rate(inside: str) -> str | None:
    found = re.fullmatch(r"([1-9][0-9]*) (minute|hour|day)(s?)", inside)
    if not found:
        return "rate takes a whole number from 1 and minutes, hours or days"
    number, unit, plural = found.groups()
    if (number == "1") == bool(plural):
        return f"rate takes {number} {unit}{'' if number == '1' else 's'}"
    return None


def _cron(inside: str) -> str | None:
    texts = inside.split(" ")
    if len(texts) != len(FIELDS):
        return f"cron takes {len(FIELDS)} fields, not {len(texts)}"
    for field, text in zip(FIELDS, texts, strict=True):
        items = text.split(",")
        if not all(map(field.takes, items)) or ("?" in items and len(items) > 1):
            return f"cron's {field.name} cannot be {text!r}"
    days = [texts[FIELDS.index(field)] for field in (DAY_OF_MONTH, DAY_OF_WEEK)]
    return None if days.count("?") == 1 else "one of cron's day-of-month and day-of-week must be ?, and only one"


def _at(inside: str) -> str | None:
    try:
        datetime.strptime(inside, "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007 - its zone stands beside the expression
    except ValueError:
        return "at takes a moment as in 2026-11-29T02:00:00"
    return None
