"""What the function's answer to a command says, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tools.ctl.format import counted, counts, number

Json = dict[str, Any]

SHOWN = 20
"""How many accounts of a preview are shown."""


PAUSED = "The job is paused: nothing runs before reconcilectl resume."


def lines(answer: Json) -> Iterator[str]:
    """What an answer says, one paragraph each: first whether it was done, then what came of it."""
    verb, result = answer["verb"], answer["result"]
    if answer["outcome"] in ("duplicate", "repeated"):
        yield f"This command had been done before; nothing was done again (id {answer['id']})."
    yield from TOLD[verb](result)
    if answer.get("not_touched"):
        left = [f"{interval} {state}" for interval, state in answer["not_touched"].items()]
        yield f"Not touched: {', '.join(left)}."


def so_far(part: Json) -> str:
    """What a preview has found up to now."""
    return f"Preview: {counts(part)} so far"


def readable(text: str) -> str:
    r"""JSON text with its \u escapes as the characters they stand for, as far as these can be printed."""

    def decoded(found: re.Match[str]) -> str:
        if found[0] == "\\\\":
            return found[0]
        meant: str = json.loads(f'"{found[0]}"')
        return meant if meant.isprintable() else found[0]

    return re.sub(r"\\\\|(?:\\u[0-9a-fA-F]{4})+", decoded, text)


def _rerun(result: Json) -> Iterator[str]:
    yield (
        f"Rerun {result.get('rerun')} of {result.get('interval')}, which was {result.get('state_before')}, from the "
        f"{result.get('from')} ({result.get('why')}), as {result.get('run_id')}. The next tick works on it."
    )
    if result.get("revocation_bound") is not None:
        yield f"It may revoke {counted(result['revocation_bound'], 'account')} in all."
    if result.get("paused"):
        yield PAUSED


def _skip(result: Json) -> Iterator[str]:
    yield f"{result.get('interval')} is SKIPPED. It stays alarmed until it is acknowledged."


def _acknowledge(result: Json) -> Iterator[str]:
    nights = list(result.get("intervals") or [result.get("interval")])
    if len(nights) == 1:
        yield f"Acknowledged: {nights[0]}. Its alarm ends with the watchdog's next look."
    else:
        span = f"{nights[0]} to {nights[-1]} ({len(nights)} nights)"
        yield f"Acknowledged: {span}. Their alarms end with the watchdog's next look."
    if result.get("paused"):
        yield PAUSED


def _pause(result: Json) -> Iterator[str]:
    yield "Paused. A running worker stops at its next range; nights still turn late."


def _resume(result: Json) -> Iterator[str]:
    yield "Resumed. The next tick goes on."


def _released(result: Json) -> Iterator[str]:
    if result.get("restored"):
        yield f"The lost lease of segment {result.get('segment')} is restored at generation {result.get('generation')}."
    elif result.get("loser"):
        yield (
            f"Segment {result.get('segment')} is free at generation {result.get('generation')}: {result['loser']} "
            f"(generation {result.get('loser_generation')}) can change nothing any more."
        )
    else:
        yield f"Segment {result.get('segment')} is at generation {result.get('generation')}; nobody held it."


def _verify(result: Json) -> Iterator[str]:
    same = "matches" if result.get("matches") else "does NOT match"
    then, now = result.get("view_rows", 0), result.get("view_rows_now", 0)
    yield f"The view {same} what {result.get('run_id')} left ({counted(then, 'row')} then, {number(now)} now)."
    yield f"recorded {result.get('checksum')}"
    yield f"view     {result.get('view_checksum')}"
    touched = result.get("first") or []
    if result.get("touched"):
        were = f"{counted(result['touched'], 'row')} {'was' if result['touched'] == 1 else 'were'} written by others"
        first = f", the first {len(touched)}" if result["touched"] > len(touched) else ""
        yield f"{were} since{first}; the time is the row's own `updated_at`:"
    elif not result.get("matches"):
        left = f" ({number(now)} of {number(then)} are left)" if now < then else ""
        yield (
            f"No row tells who: the writer left no trace, or a row was deleted{left}. preview shows what differs; "
            f"rerun {result.get('interval')} --force corrects it."
        )
    for row in touched:
        yield f"  {row.get('account_id')}  by {row.get('by')}  {row.get('updated_at') or ''}".rstrip()


def _preview(result: Json) -> Iterator[str]:
    view, source = (result.get(name, 0) for name in ("view_rows", "source_rows"))
    yield (
        f"A run now: {counts(result)}; {counted(view, 'view row')}, {counted(source, 'source row')}. "
        "Nothing was changed."
    )
    named = list(result.get("first") or [])
    for row in named[:SHOWN]:
        yield f"  {row.get('what', ''):<8}  {row.get('account_id')}  {_change(row)}".rstrip()
    differ = sum(result.get(name, 0) for name in ("granted", "changed", "revoked", "rejected"))
    left = max(differ, len(named)) - len(named[:SHOWN])
    if left > 0:
        yield f"… and {number(left)} more" + (f" (--json has the first {len(named)})" if len(named) > SHOWN else "")
    if result.get("guard"):
        yield f"The revocation guard would stop it: {result['guard']}"


def _change(row: Json) -> str:
    """What an account has now, and what it would have."""
    before, after = (readable(str(row[name])) if row.get(name) is not None else "" for name in ("before", "after"))
    if row.get("what") == "rejected":
        return f"{row.get('reason', '')}" + (f"; keeps {before}" if before else "")
    why = f" ({row['reason']})" if row.get("reason") else ""
    return " → ".join(value for value in (before, after) if value) + why


TOLD: Mapping[str, Callable[[Json], Iterator[str]]] = {
    "Rerun": _rerun,
    "Skip": _skip,
    "Acknowledge": _acknowledge,
    "Pause": _pause,
    "Resume": _resume,
    "ReleaseLease": _released,
    "Verify": _verify,
    "Preview": _preview,
}
