"""Preview: what a run would grant, change, revoke and reject now. It writes nothing but its audit row.

Both sides are read as a run reads them, and judged by the same `judged`. What does not fit into one invocation is told
for as far as it was read, with where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler import control, keys
from reconciler.checksum import canonical
from reconciler.commands import Command
from reconciler.decisions import Decision, totals
from reconciler.errors import OutOfTime, SourceWait, VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.merge import Page, Side
from reconciler.ranges import EMPTY_SOURCE, too_many
from reconciler.reader import Reader, read_by
from reconciler.scan import Sides, judged
from reconciler.shown import Shown
from reconciler.source import SourceRecord
from reconciler.timing import check_invocation, looking_patience_s
from reconciler.totals import Totals
from reconciler.verbs import Deed

if TYPE_CHECKING:
    from reconciler.work import Job

COUNTED = ("accounts", "granted", "changed", "revoked", "rejected", "view_rows", "source_rows")


@dataclass(slots=True)
class Report:
    """What was seen so far; `segment` and `after` are where to go on, `of_segment` what this segment showed."""

    segment: str
    after: str | None
    pages: int = 0
    slowest_s: float = 0.0
    seen: Totals = field(default_factory=Totals)
    of_segment: Totals = field(default_factory=Totals)
    source_judged: bool = False
    source_empty: bool = False
    first: Shown = field(default_factory=Shown)


def preview(command: Command, job: Job, invocation: Invocation) -> Deed:
    """From `segment` and `after` on, if they were given.

    Raises OutOfTime, or VerbRefused for a source that asks for a pause, only when not even one page was read.
    """
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
    except SourceWait as wait:
        if not report.pages:
            raise VerbRefused(f"Preview: {wait}: try again then") from wait
    stored = report.seen.stored()
    counts: Row = {name: stored[name] for name in COUNTED}
    counts |= {"guard": _guard(report, invocation), "complete": complete}
    counts["next"] = None if complete else {"segment": report.segment, "after": report.after}
    return Deed("PREVIEWED", counts | {"first": report.first.rows}, noted=counts)


def _read_on(report: Report, segments: tuple[str, ...], job: Job, invocation: Invocation) -> None:
    run_id = f"{invocation.settings.job_name}/preview"
    reader = Reader(run_id, attempt=1, backlog=True, patience_s=lambda: looking_patience_s(invocation))
    source = InTime(read_by(reader, job.source), report, invocation)
    for segment in segments[segments.index(report.segment) :]:
        if segment != report.segment:
            report.segment, report.after, report.of_segment, report.source_judged = segment, None, Totals(), False
        sides = Sides(source, job.view, segment, invocation.settings.page_size)
        for pairs in sides.pages(report.after):
            decisions = list(map(judged, pairs))
            page = totals(decisions)
            so_far = report.of_segment + page
            if so_far.revoked and not report.source_judged:
                report.source_empty |= not so_far.source_rows and sides.source_is_empty()
                report.source_judged = True
            _add(report, decisions, page)


@dataclass(frozen=True, slots=True)
class InTime:
    """The source, read only while one more read like the slowest so far fits into the invocation; a merge.Side."""

    source: Side[SourceRecord]
    report: Report
    invocation: Invocation

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        """See merge.Side. Raises OutOfTime."""
        clock = self.invocation.clock
        if self.report.pages:
            check_invocation(self.invocation, self.report.slowest_s)
        began = clock.monotonic()
        page = self.source.read(segment, after=after, upto=upto, limit=limit)
        self.report.slowest_s = max(self.report.slowest_s, clock.monotonic() - began)
        return page


def _add(report: Report, decisions: list[Decision], page: Totals) -> None:
    report.pages += 1
    report.seen += page
    report.of_segment += page
    if decisions:
        report.after = decisions[-1].account_id
    for decision in decisions:
        if decision.writes:
            report.first.add(_row(decision))


def _row(decision: Decision) -> Row:
    effect, row = decision.effect, decision.pair.row
    return {
        "account_id": decision.account_id,
        "what": effect.kind if effect else "rejected",
        "before": None if row is None else canonical(row.content),
        "after": None if effect is None else canonical(effect.content),
        "reason": decision.rejection,
    }


def _guard(report: Report, invocation: Invocation) -> str | None:
    """Why the revocation guard would stop the run, as far as it was read."""
    bound = invocation.settings.max_revocations
    return EMPTY_SOURCE if report.source_empty and bound else too_many(report.seen.revoked, bound)
