"""Reads both sides in the order that makes a stale decision fail: the view first, then the source, to the horizon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from reconciler.decisions import Decision
from reconciler.diff import decide
from reconciler.invocation import Invocation
from reconciler.merge import Buffer, Pair, Row, Side, merge
from reconciler.read_ahead import Ask, Asked
from reconciler.source import SourceRecord
from reconciler.timing import check_invocation
from reconciler.view import ViewRow

MOST_AHEAD = 8
"""Pages of the view, each of the rows asked for, that are held in memory at most, and one more."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of one segment; `limit` rows a read."""

    source: Side[SourceRecord]
    view: Side[ViewRow]
    segment: str
    limit: int

    def pages(self, after: str | None, ask: Ask | None = None) -> Iterator[list[Pair[SourceRecord, ViewRow]]]:
        """The accounts of one source page at a time, every one above `after`, to the end of both sides.

        The view is buffered about two pages ahead, so that a full source page rarely meets the horizon. How much a
        page is, the last one tells: DynamoDB ends it at 1 MB, however many rows were asked for. Where a source page
        meets the horizon all the same, having more rows or the view more that the source lacks, it is buffered further.

        With `ask` the next source page is asked for before one is handed out, if as many view rows are buffered as the
        last one took; that many are kept from then on.
        """
        buffer: Buffer[ViewRow] = Buffer(reached=after)
        ahead, further = 2 * self.limit, 0
        position = after
        asked: Asked | None = None
        while True:
            while not buffer.ended and len(buffer.rows) < ahead:
                page = self.view.read(self.segment, after=buffer.reached, upto=None, limit=self.limit)
                buffer = buffer.extended(page.checked(buffer.reached, None))
                ahead = max(further, 2 * (len(page.rows) or self.limit))
            if asked is None:
                horizon = buffer.horizon
                records = self.source.read(self.segment, after=position, upto=horizon, limit=self.limit)
            else:
                records = asked.page()
            records.checked(position, horizon)
            upto = horizon if records.more_after is None else records.more_after
            if horizon is not None and records.more_after is None:
                further = min(4 * ahead, MOST_AHEAD * self.limit)
            rows, buffer = buffer.split(upto)
            position, asked = upto, None
            if ask:
                further = max(further, min(2 * len(rows), MOST_AHEAD * self.limit))
                ahead = max(ahead, further)
            if ask and upto is not None and (buffer.ended or len(buffer.rows) >= max(1, len(rows))):
                horizon = buffer.horizon
                asked = ask(partial(self.source.read, self.segment, after=upto, upto=horizon, limit=self.limit))
            yield merge(records.rows, rows)
            if upto is None:
                return

    def between(self, after: str | None, upto: str) -> list[Decision]:
        """The decisions for all accounts with after < id <= upto, read anew."""
        rows = _all(self.view, self.segment, after, upto, self.limit)
        records = _all(self.source, self.segment, after, upto, self.limit)
        return [judged(pair) for pair in merge(records, rows)]

    def source_is_empty(self) -> bool:
        """Whether the source holds no account of this segment at all."""
        after = None
        while True:
            page = self.source.read(self.segment, after=after, upto=None, limit=1)
            if page.rows or page.more_after is None:
                return not page.rows
            after = page.more_after


def judged(pair: Pair[SourceRecord, ViewRow]) -> Decision:
    """What one account needs: as `decide` says, unless the source itself could not read the account."""
    if pair.record is not None and pair.record.unreadable is not None:
        return Decision(pair, rejection=f"source {pair.record.unreadable}")
    return decide(pair)


def every_row(side: Side[Row], segment: str, *, invocation: Invocation) -> Iterator[Row]:
    """Every row of one side of a segment, in order. Raises OutOfTime before a page that might not fit."""
    after = None
    while True:
        check_invocation(invocation)
        page = side.read(segment, after=after, upto=None, limit=invocation.settings.page_size).checked(after, None)
        yield from page.rows
        if page.more_after is None:
            return
        after = page.more_after


def _all(side: Side[Row], segment: str, after: str | None, upto: str, limit: int) -> list[Row]:
    rows: list[Row] = []
    while True:
        page = side.read(segment, after=after, upto=upto, limit=limit).checked(after, upto)
        rows += page.rows
        if page.more_after is None or page.more_after >= upto:
            return rows
        after = page.more_after
