"""What the next tick would do, found by the job's own plan and rows, unless others are quicker. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from reconciler import clock, keys
from reconciler.control import Control
from reconciler.due import SKIPS_A_TICK
from reconciler.intervals import catch_up
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Lease
from reconciler.records import NEEDS_REPAIR, Progress, RunRecord
from reconciler.settings import Settings
from tools.ctl.errors import CtlError
from tools.ctl.format import paused_by
from tools.ctl.rows import before_rerun, control_or_new, interval_rows, last_completed, lease_rows, progress_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that the tick does, or why it does not.

    `does` is observe, skip, later, start, resume, take_over, give_up, wait, source_waits, paused, lease_lost or person.
    `source_reads` is how many reads of the source it takes at the least, None where that is unknown or none are made.
    """

    interval: str
    does: str
    why: str
    segment: str | None = None
    until: str | None = None
    source_reads: int | None = None


WORKS = ("start", "resume", "take_over")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The next tick's steps in their order; `source_reads` is the least for all of them, None when unknown."""

    target: str
    job: str
    at: str
    paused: bool
    steps: tuple[Step, ...]
    source_reads: int | None
    estimated_from: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def collect(name: str, *, invocation: Invocation) -> Forecast:
    """Raises as reads of the ControlTable do."""
    now_ms = invocation.clock.now_ms()
    control, ran = control_or_new(invocation)
    rows = interval_rows(control.open_from, invocation)
    before = last_completed(rows) or before_rerun(rows, invocation)
    records = {one: RunRecord.of(row) for one, row in rows.items() if one >= control.open_from}
    if control.segment_count != invocation.settings.segment_count:
        raise CtlError(
            f"every tick stops: SEGMENT_COUNT is {invocation.settings.segment_count}, but the tables hold "
            f"{control.segment_count} segments"
        )
    plan = catch_up(now_ms, invocation.settings, records.values(), control)
    leases = lease_rows(invocation) if ran else None
    steps: list[Step] = []
    for skip in plan.skip[:SKIPS_A_TICK]:
        newer = f" ({skip.superseded_by})" if skip.superseded_by else ""
        steps.append(Step(interval=skip.interval_id, does="skip", why=skip.reason + newer))
    later = "skipped by one of the ticks after the next"
    steps += [Step(interval=skip.interval_id, does="later", why=later) for skip in plan.skip[SKIPS_A_TICK:]]
    taken: set[str] = set()
    for interval_id in plan.run:
        if interval_id in plan.unrecorded:
            steps.append(Step(interval=interval_id, does="observe", why="due by the calendar, not on record yet"))
        record = records.get(interval_id)
        if source := next((step for step in steps if step.does == "source_waits"), None):
            steps.append(Step(interval=interval_id, does="wait", why=f"behind {source.interval}", until=source.until))
            continue
        steps += _work(interval_id, record, control, leases, before, taken, now_ms, invocation)
        taken |= {step.segment for step in steps if step.segment is not None and step.does in WORKS}
    for interval_id in plan.waiting:
        state = records[interval_id].state
        verbs = "rerun or acknowledge it" if state == NEEDS_REPAIR else "acknowledge it, or rerun it"
        steps.append(Step(interval=interval_id, does="person", why=f"{state}, waits for a person: {verbs}"))
    reads = [step.source_reads for step in steps if step.does in WORKS]
    return Forecast(
        target=name,
        job=invocation.settings.job_name,
        at=clock.text(now_ms),
        paused=control.paused,
        steps=tuple(sorted(steps, key=lambda step: step.interval)),
        source_reads=None if None in reads else sum(read for read in reads if read is not None),
        estimated_from=before[0] if before and reads else None,
    )


def _work(
    interval_id: str,
    record: RunRecord | None,
    control: Control,
    leases: Mapping[str, Row] | None,
    before: tuple[str, Row] | None,
    taken: Set[str],
    now_ms: int,
    invocation: Invocation,
) -> list[Step]:
    """What becomes of an interval that may run, segment by segment.

    The leases of the segments in `taken` are free again by then: the tick itself has worked on an older interval.
    """
    if control.paused:
        pause = control.pause or {}
        return [Step(interval=interval_id, does="paused", why=f"{paused_by(pause)}: {pause.get('why')}")]
    rows = progress_rows(interval_id, record.pass_no, invocation) if record and leases is not None else {}
    segments = record.unfinished if record else keys.segments(control.segment_count)
    steps: list[Step] = []
    for segment in segments:
        row, free = rows.get(segment), segment in taken
        step = _segment(interval_id, segment, record, row, leases, before, free, now_ms, invocation.settings)
        steps.append(step)
        if step.does in ("give_up", "source_waits"):
            break
    return steps


def _segment(
    interval_id: str,
    segment: str,
    record: RunRecord | None,
    row: Row | None,
    leases: Mapping[str, Row] | None,
    before: tuple[str, Row] | None,
    taken: bool,
    now_ms: int,
    settings: Settings,
) -> Step:
    """As `acquire` would decide; pure."""
    progress = Progress() if row is None else Progress.of(row)
    rerun = record.rerun if record else 0
    lease = None
    if leases is not None:
        if segment not in leases:
            why = f"the lease row is lost: reconcilectl release-lease {segment} restores it"
            return Step(interval=interval_id, segment=segment, does="lease_lost", why=why)
        lease = Lease.of(leases[segment])
        lease = replace(lease, owner=None) if taken else lease
    if lease is not None and lease.paused is not None:
        return Step(interval=interval_id, segment=segment, does="paused", why=f"its lease is, by pause {lease.paused}")
    if lease is not None and lease.held(now_ms, settings.skew_ms):
        until = clock.text(lease.expires_at_ms or 0)
        return Step(interval=interval_id, segment=segment, does="wait", why=f"held by {lease.owner}", until=until)
    attempts = progress.attempts_in(rerun)
    waits = progress.next_attempt_at_ms if progress.rerun == rerun else None
    if attempts >= settings.max_attempts:
        why = f"{attempts} attempts without progress: NEEDS_REPAIR"
        return Step(interval=interval_id, segment=segment, does="give_up", why=why)
    if waits is not None and waits > now_ms and progress.waits_for_source:
        why = "the source asked for a pause: until it is over no other segment or night starts"
        return Step(interval=interval_id, segment=segment, does="source_waits", why=why, until=clock.text(waits))
    if waits is not None and waits > now_ms:
        why = f"backoff after {attempts} attempts without progress"
        return Step(interval=interval_id, segment=segment, does="wait", why=why, until=clock.text(waits))
    does = "take_over" if lease is not None and lease.owner else "resume" if progress.exists else "start"
    why = "from the start"
    if progress.checkpoint is not None:
        why = f"after {progress.totals.accounts:,} accounts, checkpoint {progress.checkpoint!r}"
    if does == "take_over" and lease is not None:
        why += f"; taken from {lease.owner}, whose lease has expired"
    reads = _reads(segment, progress, before, settings)
    return Step(interval=interval_id, segment=segment, does=does, why=why, source_reads=reads)


def _reads(segment: str, progress: Progress, before: tuple[str, Row] | None, settings: Settings) -> int | None:
    """Pages of what the last completed night read, less what is committed; one at the least: the end is read too."""
    totals = (before[1].get("segments") or {}).get(segment) if before else None
    if not isinstance(totals, dict) or "source_rows" not in totals:
        return None
    left = max(0, int(totals["source_rows"]) - progress.totals.source_rows)
    return max(1, -(-left // settings.page_size))
