"""Preview: what a run would grant, change, revoke and reject now. It writes nothing but its audit row.

Both sides are read as a run reads them, and judged by the same `decide`. What does not fit into one invocation is told
for as far as it was read, with where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler import control, keys
from reconciler.checksum import canonical
from reconciler.commands import Command
from reconciler.diff import Decision, decide, totals
from reconciler.errors import OutOfTime
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.ranges import EMPTY_SOURCE, too_many
from reconciler.scan import Sides
from reconciler.timing import check_invocation
from reconciler.totals import Totals
from reconciler.verbs import Deed

if TYPE_CHECKING:
    from reconciler.work import Job

SHOWN = 100
SHOWN_BYTES = 100_000
"""So that an answer stays far below Lambda's 6 MB, and below what one row of the IdempotencyTable holds."""

COUNTED = ("accounts", "granted", "changed", "revoked", "rejected", "view_rows", "source_rows")


@dataclass(slots=True)
class Report:
    """What was seen so far; `segment` and `after` are where to go on."""

    segment: str
    after: str | None
    pages: int = 0
    seen: Totals = field(default_factory=Totals)
    first: list[Row] = field(default_factory=list)
    bytes_left: int = SHOWN_BYTES
    empty_source: bool = False


def preview(command: Command, job: Job, invocation: Invocation) -> Deed:
    """From `segment` and `after` on, if they were given. Raises OutOfTime only when not even one page was read."""
    if row := control.read(invocation=invocation):
        row.checked(invocation)
    segments = keys.segments(invocation.settings.segment_count)
    report = Report(command.asked.get("segment", segments[0]), command.asked.get("after"))
    complete = False
    try:
        _read_on(report, segments, job, invocation)
        complete = True
    except OutOfTime:
        if not report.pages:
            raise
    stored = report.seen.stored()
    counts: Row = {name: stored[name] for name in COUNTED}
    counts |= {"guard": _guard(report, invocation), "complete": complete}
    on = None if complete else {"segment": report.segment, "after": report.after}
    return Deed("PREVIEWED", counts | {"first": report.first, "next": on}, noted=counts)


def _read_on(report: Report, segments: tuple[str, ...], job: Job, invocation: Invocation) -> None:
    for segment in segments[segments.index(report.segment) :]:
        if segment != report.segment:
            report.segment, report.after = segment, None
        sides = Sides(job.source, job.view, segment, invocation.settings.page_size)
        before = report.seen
        for pairs in sides.pages(report.after):
            _add(report, list(map(decide, pairs)))
            check_invocation(invocation)
        of_segment = report.seen - before
        if of_segment.revoked and not of_segment.source_rows and sides.source_is_empty():
            report.empty_source = True


def _add(report: Report, decisions: list[Decision]) -> None:
    report.pages += 1
    report.seen += totals(decisions)
    if decisions:
        report.after = decisions[-1].account_id
    for decision in decisions:
        if decision.writes and len(report.first) < SHOWN and report.bytes_left > 0:
            shown = _shown(decision)
            report.bytes_left -= sum(len(str(value)) for value in shown.values())
            if report.bytes_left >= 0:
                report.first.append(shown)


def _shown(decision: Decision) -> Row:
    effect, row = decision.effect, decision.pair.row
    return {
        "account_id": decision.account_id,
        "what": effect.kind if effect else "rejected",
        "before": None if row is None else canonical(row.entitlements),
        "after": None if effect is None else canonical(effect.entitlements),
        "reason": decision.rejection,
    }


def _guard(report: Report, invocation: Invocation) -> str | None:
    """Why the revocation guard would stop the run, as far as it was read."""
    if report.empty_source:
        return EMPTY_SOURCE
    return too_many(report.seen.revoked, invocation.settings.max_revocations)
