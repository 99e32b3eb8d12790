"""The next page is read while the present range commits: by one helper thread, at most one page ahead.

Nothing is judged or written earlier for it. A page that was read ahead is older when it is committed, and safe for the
reason that every page is: the view was read before the source, and a row that changed since fails its condition. What
was read ahead is thrown away when the attempt ends, and its thread with it: at the latest when the call that is under
way has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Generic, Self, TypeVar

from reconciler.attempt import Attempt
from reconciler.errors import OutOfTime, SourceWait
from reconciler.invocation import Invocation
from reconciler.merge import Page, RowOut, Side

Item = TypeVar("Item")


class Helper:
    """One thread of an attempt, started when it is first needed; it ends with the block."""

    def __init__(self, attempt: Attempt, invocation: Invocation) -> None:
        self.stopped = False
        self._attempt, self._invocation = attempt, invocation
        self._turn = Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped = True
        self._thread.shutdown(cancel_futures=True)

    def ahead(self, items: Iterator[Item]) -> Ahead[Item]:
        return Ahead(items, self._thread)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One read at a time. A pause that the source asked either thread for holds for both.

        Raises OutOfTime for the helper that is to end, and SourceWait through such a pause.
        """
        with self._turn:
            if self.stopped:
                raise OutOfTime("the attempt has ended")
            if wait_s := self._attempt.source_wait_s(self._invocation):
                raise SourceWait(wait_s, "it asked for that before")
            try:
                yield
            except SourceWait as wait:
                self._attempt.leave_source_alone(wait.seconds, self._invocation)
                raise


class Ahead(Generic[Item]):
    """An iterator whose next item can be asked for before it is needed."""

    def __init__(self, items: Iterator[Item], thread: ThreadPoolExecutor) -> None:
        self._items = items
        self._thread = thread
        self._begun: Future[Item | None] | None = None

    def begin(self) -> None:
        """Have the next item made, by the helper. What goes wrong is raised by `next`."""
        if self._begun is None:
            self._begun = self._thread.submit(next, self._items, None)

    def next(self) -> Item | None:
        """The next item; None after the last one."""
        begun, self._begun = self._begun, None
        try:
            return next(self._items, None) if begun is None else begun.result()
        finally:
            del begun  # an error that it holds, and this frame, would hold each other, and the pages with them


@dataclass(frozen=True, slots=True)
class TakingTurns(Generic[RowOut]):
    """A side that the holder and its helper read in turn; a merge.Side."""

    side: Side[RowOut]
    helper: Helper

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[RowOut]:
        """See merge.Side."""
        with self.helper.turn():
            return self.side.read(segment, after=after, upto=upto, limit=limit)
