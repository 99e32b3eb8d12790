"""How a timeline says things, on a terminal and in a picture alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler import clock
from tools.timeline.attempts import LOST, RUNNING, SILENT, Attempt
from tools.timeline.axis import date, duration
from tools.timeline.history import History, Mark

ENDED = {LOST: "killed or frozen", SILENT: "no sign of life", RUNNING: "running now"}
"""Ends that no row tells; the others are called as in the audit."""

SHORT_OWNER = 12


def short_names(owners: Iterable[str]) -> Mapping[str, str]:
    """Owner → a name that tells it from the others.

    They are called `function/request`. A stack's owners all have the function's name, which is long, so the request
    stands for them; a short name of one's own is kept.
    """
    names = {owner: owner.partition("/") for owner in owners}
    short: dict[str, str] = {}
    for owner, (function, slash, request) in names.items():
        shared = sum(function == other for other, *_ in names.values()) > 1
        if not slash:
            short[owner] = owner
        else:
            short[owner] = request[:8] if shared or len(function) > SHORT_OWNER else function
    return short


def person_or_worker(who: str, names: Mapping[str, str]) -> str:
    """The actor of an event, called as the holder of that name."""
    return names.get(who) or short_names([who])[who]


def headline(history: History, now_ms: int) -> str:
    """State, lateness and counts in a line."""
    said = [history.state]
    if history.late_by_s:
        said[0] += f" {duration(history.late_by_s * 1000)} late"
    elif history.completed_ms is None and history.state != "SKIPPED" and now_ms > history.deadline_ms:
        said[0] += f", {duration(now_ms - history.deadline_ms)} past its deadline"
    counts = history.counts
    if counts["ranges"]:
        said.append(f"{counts['accounts']:,} accounts in {_many(counts['ranges'], 'range')}")
    if counts["rejected"]:
        said.append(f"{counts['rejected']:,} rejected")
    if history.pass_no > 1:
        said.append(f"pass {history.pass_no}")
    return " · ".join(said)


def work(attempt: Attempt) -> str:
    """What an attempt committed and how it ended."""
    ended = ENDED.get(attempt.ended, attempt.ended)
    if attempt.ranges is None:
        return ended
    return f"{_many(attempt.ranges, 'range') if attempt.ranges else 'no range'}, {ended}"


def say(mark: Mark, names: Mapping[str, str]) -> tuple[str, str, str]:
    """Event, who, and what; a person's words are left as they are."""
    return mark.event, person_or_worker(mark.who, names) if mark.who else "", mark.what


def shortened(words: str, most: int) -> str:
    """The words on one line, cut off where they are longer than `most` characters."""
    words = "".join(character if character.isprintable() else " " for character in words)
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def summary(histories: Iterable[History], now_ms: int) -> str:
    """A picture in words, for who cannot see it."""
    said = []
    for history in histories:
        names = short_names(attempt.owner for attempt in history.attempts)
        holders = [
            f"{shortened(names[one.owner], 40)} generation {one.generation}: {work(one)}" for one in history.attempts
        ]
        said.append(". ".join([f"{history.interval_id} {headline(history, now_ms)}", *holders]))
    return "\n".join(said)


def moment(ms: int, day: str) -> str:
    """A UTC time of day; with its date when that is not `day`."""
    at = clock.text(ms)
    return at[11:19] if at[:10] == day else f"{date(at)} {at[11:19]}"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
