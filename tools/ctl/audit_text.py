"""An interval's story as text. 80 columns do, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from reconciler.intervals import checked_id
from reconciler.items import Row
from tools.ctl.audit import INTERNAL, Story, subject
from tools.ctl.format import cause, counted, counts, full, paused_by

REJECTIONS_SHOWN = 20


def text(story: Story) -> RenderableType:
    """One block per event, the newest last. Readable on 80 columns; nothing is cut off."""
    record = story.record or {}
    head = f"{story.interval}: {record.get('state', 'not on record')}, run {record.get('run_id', '-')}"
    parts: list[RenderableType] = [Text(head, style="bold")]
    rejected = 0
    for row in story.events:
        rejected += row["event"] == "REJECTED"
        if row["event"] == "REJECTED" and rejected > REJECTIONS_SHOWN:
            continue
        parts.append(Text())
        parts.append(Text.assemble(f"{full(str(row['at']))}  ", (row["event"], "bold"), f"  {_where(row, story)}"))
        parts += [Padding(Text(line, overflow="fold"), (0, 0, 0, 4), expand=False) for line in _lines(row)]
    left = rejected - REJECTIONS_SHOWN
    if left > 0:
        parts += [Text(), Text(f"and {left:,} more rejected accounts: --json has them all")]
    return Group(*parts)


def _where(row: Row, story: Story) -> str:
    """Pass, segment and generation; or what else than this interval the event is about."""
    about = []
    kept_under = subject(row)
    if kept_under != story.interval:
        about.append(f"with night {kept_under}" if _is_date(kept_under) else "the whole job")
    if "run_id" in row:
        about.append(f"pass {str(row['run_id']).rpartition('/')[2]}")
    about += [f"{name} {row[name]}" for name in ("segment", "generation") if name in row]
    return ", ".join(about)


def _is_date(text: str) -> bool:
    try:
        return bool(checked_id(text))
    except ValueError:
        return False


def _lines(row: Row) -> Iterator[str]:
    yield from _facts(row)
    worker = f" (worker {row['worker']})" if "worker" in row else ""
    yield f"by {row.get('actor', '?')}{worker}"
    if "reason" in row:
        yield f"because: {row['reason']}"


HEAD = ("event", "at", "run_id", "pass", "interval", "segment", "generation")
EMPTY: tuple[object, ...] = (None, "", [], {})
SAID = frozenset({*INTERNAL, *HEAD, "actor", "worker", "reason", "event_id", "verb", "asked", "pause_no"})


def _facts(row: Row) -> Iterator[str]:
    """What an event holds besides who, when and why: what is known in words, the rest by its names."""
    rest = {name: value for name, value in row.items() if name not in SAID and value not in EMPTY}
    if "cause" in rest:
        rest["cause"] = cause(str(rest["cause"]))
    if row["event"] == "RERUN":
        yield from _rerun(row, rest)
    yield from _of_job(rest)
    loser, seen = rest.pop("loser", None), rest.pop("loser_seen_at", None)
    generation = rest.pop("loser_generation", None)
    if loser is not None:
        last = f", last seen {full(str(seen))}" if seen else ""
        yield f"taken from {loser}, generation {generation}{last}"
    before, fenced = rest.pop("before", None), rest.pop("fenced", None)
    first = rest.pop("first", None)
    if isinstance(first, str):
        yield f"{rest.pop('nights', '?')} nights from {first} to {rest.pop('last', '?')}"
    elif first:
        yield f"{len(first)} accounts named (--json has them)"
    if "view_checksum" in rest:
        yield f"recorded {rest.pop('checksum', None)}"
        yield f"view     {rest.pop('view_checksum')}"
    totals, whole = rest.pop("totals", None), rest.pop("interval_totals", None)
    if rest.pop("interval_closed", False):
        yield "the last segment: the interval is COMPLETED"
    if totals is not None and totals != whole:
        yield f"segment: {counts(totals)}"
    if whole is not None:
        yield f"interval: {counts(whole)}"
        yield f"checksum {whole.get('checksum')}"
    if rest:
        yield ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in sorted(rest.items()))
    if fenced:
        yield "leases fenced: " + ", ".join(_fenced(one) for one in fenced)
    if before is not None:
        yield from _before(before)


def _rerun(row: Row, rest: Row) -> Iterator[str]:
    """What a rerun is, and from where; takes what it says out of the rest."""
    start, why, was = (rest.pop(name, None) for name in ("from", "why", "state_before"))
    forced = "forced, " if row.get("asked", {}).get("force") else ""
    before = f"; it was {was}" if was else ""
    yield f"{forced}from the {start}" + (f" ({why})" if why else "") + f"{before}; pass {row.get('pass')}"
    rest.pop("rerun", None)
    if (bound := rest.pop("revocation_bound", None)) is not None:
        yield f"may revoke {counted(bound, 'account')} in all"
    if rest.pop("paused", False):
        yield "the job was paused"
    if added := rest.pop("added", None):
        yield f"put on record with it: {_nights(added)}"


def _of_job(rest: Row) -> Iterator[str]:
    """A pause that ended, a lease row put back, the nights of an acknowledgement; taken out of the rest."""
    if pause := rest.pop("pause", None):
        yield f"ended the pause {paused_by(pause)} since {full(str(pause.get('when')))}: {pause.get('why')}"
    if rest.pop("restored", False):
        yield "the lost lease row is there again"
    if nights := rest.pop("intervals", None):
        yield f"acknowledged: {_nights(nights)}"


def _nights(nights: Sequence[str]) -> str:
    return ", ".join(nights) if len(nights) <= 3 else f"{nights[0]} to {nights[-1]} ({len(nights)} nights)"


def _fenced(one: Mapping[str, Any]) -> str:
    loser = f" (was {one['loser']})" if one.get("loser") else ""
    return f"{one.get('segment')} at generation {one.get('generation')}{loser}"


def _before(before: Mapping[str, Any]) -> Iterator[str]:
    """The run record as it was: what a rerun takes from the record itself."""
    said = f"before: {before.get('state')}, pass {before.get('pass')}"
    for name, words in (("first_started_at", "started"), ("completed_at", "completed")):
        if name in before:
            said += f", {words} {full(str(before[name]))}"
    yield said
    if "accounts" in before:
        yield f"before: {counts(before)}"
    if "checksum" in before:
        yield f"before: checksum {before['checksum']}"
    if "last_error" in before:
        yield f"before: last error {before['last_error'].get('error')}"
    if "skip" in before:
        yield f"before: skipped, {before['skip'].get('reason')}"
    if "acknowledged_at" in before:
        yield f"before: acknowledged {full(str(before['acknowledged_at']))} by {before.get('acknowledged_by')}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry}" for name, entry in sorted(value.items()))
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
