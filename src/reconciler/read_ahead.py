"""The next page of the source is read while the present range commits: by one helper thread, at most one page ahead.

    holder   view ─ judge ─ commit ─ view ─ judge ─ commit ─ view …
    helper          source ──────────────   source ───────────── …

The view for those accounts was read before, by the holder. Nothing is judged or written earlier for it: a page that was
read ahead is older when it is committed, and safe for the reason that every page is, since a row that changed after it
was read fails its condition. What was read ahead is thrown away when the attempt ends, and the thread ends with it: at
the latest when the call that is under way has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

from reconciler.attempt import Attempt
from reconciler.errors import OutOfTime, SourceWait
from reconciler.invocation import Invocation
from reconciler.merge import Page, Side
from reconciler.source import SourceRecord
from reconciler.timing import may_read_ahead

SourcePage = Page[SourceRecord]
Ask = Callable[[Callable[[], SourcePage]], "Asked | None"]
"""Has a page read before it is needed; None where that is not to be."""


class Asked:
    """A page that the helper was asked for."""

    def __init__(self, page: Future[SourcePage]) -> None:
        self._page: Future[SourcePage] | None = page

    def page(self) -> SourcePage:
        """Once it is there; what went wrong is raised here. To be called once."""
        page, self._page = self._page, None
        assert page is not None
        try:
            return page.result()
        finally:
            del page  # an error that it holds, and this frame, would hold each other, and the pages with them


class Helper:
    """One thread of an attempt, started when it is first needed; it ends with the block."""

    def __init__(self, attempt: Attempt, invocation: Invocation) -> None:
        self.stopped = False
        self.turn = Lock()
        self._attempt, self._invocation = attempt, invocation
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped = True
        self._thread.shutdown(cancel_futures=True)

    def ask(self, read: Callable[[], SourcePage]) -> Asked | None:
        """See Ask: None when no time is left to wait for the end of a call."""
        if not may_read_ahead(self._attempt, invocation=self._invocation):
            return None
        page = self._thread.submit(read)
        self._invocation.clock.sleep(0)  # the request goes out before the holder computes on
        return Asked(page)


@dataclass(frozen=True, slots=True)
class TakingTurns:
    """A source that the holder and its helper read one at a time; a merge.Side.

    A pause that it asked either of them for holds for both.
    """

    source: Side[SourceRecord]
    helper: Helper
    attempt: Attempt
    invocation: Invocation

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> SourcePage:
        """See merge.Side. Raises OutOfTime for the helper that is to end."""
        with self.helper.turn:
            if self.helper.stopped:
                raise OutOfTime("the attempt has ended")
            if wait_s := self.attempt.source_wait_s(self.invocation):
                raise SourceWait(wait_s, "it asked for that before")
            try:
                return self.source.read(segment, after=after, upto=upto, limit=limit)
            except SourceWait as wait:
                self.attempt.leave_source_alone(wait.seconds, self.invocation)
                raise
