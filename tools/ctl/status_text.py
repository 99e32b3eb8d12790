"""The status as text: a table of the intervals, what there is to say about the open ones, the leases. 80 columns do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.ctl.format import between, cause, day_time, full, number, paused_by, span
from tools.ctl.segments import Segment
from tools.ctl.status import Interval, Status

COLOURS = {"COMPLETED": "green", "RUNNING": "cyan", "NEEDS_REPAIR": "bold red", "SKIPPED": "yellow"}
SPAN = 3
"""From so many consecutive intervals on that share everything but their date, they are shown as one."""


def text(status: Status) -> RenderableType:
    """Everything, in order of what an operator asks first."""
    parts: list[RenderableType] = [Text(f"{status.job} · {status.target}"), Text(f"{full(status.at)} UTC")]
    if not status.ran:
        parts.append(Text(f"Nothing has triggered it yet. Its first interval is {status.first_interval}."))
    if status.pause is not None:
        parts.append(_pause(status))
    groups = [list(group) for group in _spans(status.intervals)]
    if groups:
        parts += [Text(), _table(groups, status)]
    for group in groups:
        lines = list(_about(group[0], status.at))
        if lines and not group[0].closed:
            parts += [Text(), _details(_name(group) + _which(group[0], status), lines)]
    if status.segments:
        parts += [Text(), _leases(status)]
    return Group(*parts)


def _pause(status: Status) -> Text:
    pause = status.pause or {}
    since = pause.get("when")
    ago = f" since {full(since)} ({span(between(since, status.at) or 0)})" if since else ""
    return Text(f"PAUSED{ago} {paused_by(pause)}: {pause.get('why', '')}", style="bold red")


def _spans(intervals: tuple[Interval, ...]) -> Iterator[list[Interval]]:
    """Long rows of nights that nothing tells apart as one group each, all others alone."""
    for key, group in groupby(intervals, key=_alike):
        members = list(group)
        if key is not None and len(members) >= SPAN:
            yield members
        else:
            yield from ([member] for member in members)


def _alike(interval: Interval) -> str | None:
    if not interval.recorded:
        return "unrecorded"
    return str(interval.skip) if interval.skip is not None and interval.acknowledged_at is None else None


def _name(group: list[Interval]) -> str:
    return group[0].interval if len(group) == 1 else f"{group[0].interval} to {group[-1].interval}"


def _which(interval: Interval, status: Status) -> str:
    again = f", rerun {interval.rerun}, pass {interval.pass_no}" if interval.rerun else ""
    waits = status.waits(interval)
    return f" {interval.state}{again}" + (f", {waits}" if waits else "")


def _table(groups: list[list[Interval]], status: Status) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("Interval", min_width=10, max_width=10)
    table.add_column("State", max_width=12)
    table.add_column("Due", no_wrap=True)
    for name in ("Started\n(after due)", "Checkpoint", "Completed\n(after due)"):
        table.add_column(name, min_width=12, no_wrap=True)
    table.add_column("Late", no_wrap=True)
    for group in groups:
        one, day = group[0], group[0].interval
        nights = "" if len(group) == 1 else f"\n{len(group)} nights"
        late = span(one.late_by_s) if one.late_by_s else "-"
        table.add_row(
            _name(group),
            Text(_state(one, status) + nights, style=COLOURS.get(one.state, "")),
            day_time(one.scheduled_at, day)[:5],
            _moment(one.started_at, day, one.due_to_started_s),
            _moment(one.last_checkpoint_at, day),
            _moment(one.completed_at, day, one.scheduled_to_completed_s),
            Text(late, style="red" if one.late_by_s and not one.closed else ""),
        )
    return table


def _state(one: Interval, status: Status) -> str:
    waits = status.waits(one)
    seen = "\nacknowledged" if one.acknowledged_at is not None else ""
    return one.state + (f",\n{waits}" if waits else "") + seen


def _moment(at: str | None, day: str, latency_s: float | None = None) -> str:
    """A moment, and below it how long after the scheduled time."""
    if at is None:
        return "-"
    return day_time(at, day) + (
        "" if latency_s is None else f"\n{latency_s:+.0f} s" if latency_s < 0 else f"\n+{span(latency_s)}"
    )


def _about(one: Interval, now: str) -> Iterator[tuple[str, str]]:
    """What there is to say about an interval besides its line in the table."""
    day = one.interval
    if not one.recorded:
        yield "record", "none yet: no trigger has come since it was due"
    if one.progress is not None and one.state != "COMPLETED":
        yield "progress", progress_text(one)
    if one.state in ("EXPECTED", "RUNNING", "NEEDS_REPAIR"):
        left = between(now, one.deadline_at) or 0
        passed = f"in {span(left)}" if left > 0 else f"passed {span(-left)} ago"
        yield "deadline", f"{day_time(one.deadline_at, day)}, {passed}"
    if one.pass_began_at is not None:
        yield "pass began", f"{full(one.pass_began_at)} (pass {one.pass_no})"
    for waiting in one.waiting:
        until = f"next one from {full(waiting.next_attempt_at)}" if waiting.next_attempt_at else "next one at any tick"
        if waiting.for_source and waiting.next_attempt_at and waiting.next_attempt_at > now:
            asked = f"the source asked for a pause until {full(waiting.next_attempt_at)}"
            yield "source", f"segment {waiting.segment}: {asked}"
        if waiting.attempts:
            yield "attempts", f"segment {waiting.segment}: {waiting.attempts} without progress, {until}"
    if one.delays:
        yield "delayed", ", ".join(f"{cause(why)} since {full(since)}" for why, since in sorted(one.delays.items()))
    if one.skip is not None:
        yield "skipped", _skip(one)
    if one.repair_owner is not None:
        yield "repair owner", one.repair_owner
    if one.last_error is not None:
        error = one.last_error
        yield "last error", f"{error.get('error')} (segment {error.get('segment')}, {full(str(error.get('at')))})"
    if one.revocation_bound is not None:
        yield "may revoke", f"{number(one.revocation_bound)} accounts in all"
    if one.acknowledged_at is not None:
        yield "acknowledged", f"{full(one.acknowledged_at)} by {one.acknowledged_by}"


def _skip(one: Interval) -> str:
    skip = one.skip or {}
    by = f", for {skip['superseded_by']}" if "superseded_by" in skip else ""
    policy = ", ".join(f"{name} {value}" for name, value in sorted(skip.get("policy", {}).items()))
    return f"{skip.get('reason', '')}{by}; {full(str(skip.get('at')))} by {skip.get('actor')}" + (
        f" ({policy})" if policy else ""
    )


def progress_text(one: Interval) -> str:
    """Accounts, share, rate and time to finish; what each is estimated from."""
    progress = one.progress
    if progress is None:
        return "not begun"
    said = f"{number(progress.accounts)} accounts in {number(progress.ranges)} ranges"
    if progress.segments > 1:
        said += f", {progress.segments_done} of {progress.segments} segments done"
    if progress.expected_accounts is not None:
        share = min(100, 100 * progress.accounts // max(1, progress.expected_accounts))
        said += f", {share} % of the {number(progress.expected_accounts)} of {progress.estimated_from}"
    elif one.state == "RUNNING":
        said += ", no completed interval to estimate the end from"
    if progress.rate_per_s is None:
        return said + ("; nobody makes progress now" if one.state == "RUNNING" else "")
    said += f"; {number(round(progress.rate_per_s))}/s"
    return said if progress.seconds_left is None else f"{said}, about {span(progress.seconds_left)} left"


def _details(title: str, lines: list[tuple[str, str]]) -> Table:
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    grid.add_column(min_width=12, style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(f"  {name}", Text(value))
    return grid


def _leases(status: Status) -> Group:
    """Every lease that is held, lost or paused, and how many are free."""
    told = [segment for segment in status.segments if segment.holder is not None or segment.lost or segment.paused]
    if len(status.segments) == 1:
        told = list(status.segments)
    lines = [line for one in told for line in _lease(one, status.at)]
    if len(status.segments) > 1:
        lines.append(Text(f"{len(status.segments) - len(told)} of {len(status.segments)} segments are free"))
    return Group(*lines)


def _lease(one: Segment, now: str) -> Iterator[Text]:
    if one.lost:
        yield Text(f"segment {one.segment}  LEASE ROW LOST: reconcilectl release-lease {one.segment}", style="bold red")
        return
    paused = ", paused" if one.paused else ""
    if one.holder is None:
        yield Text(f"segment {one.segment}  generation {one.generation}, free{paused}")
        return
    left = between(now, one.expires_at) or 0
    expiry = "no expiry" if one.expires_at is None else f"expires {one.expires_at[11:19]}, in {span(left)}"
    if one.expires_at is not None and (one.expired or left < 0):
        expiry = f"EXPIRED {one.expires_at[11:19]}, {span(-left)} ago"
    style = "red" if one.expired else ""
    yield Text(f"segment {one.segment}  generation {one.generation}, on {one.interval}{paused}, {expiry}", style=style)
    yield Text(f"  held by {one.holder}", overflow="fold")
