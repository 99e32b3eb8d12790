"""The next page is read while the present range commits: by one helper thread, at most one page ahead.

Nothing is judged or written earlier for it. A page that was read ahead is older when it is committed, and safe for the
reason that every page is: the view was read before the source, and a row that changed since fails its condition. What
was read ahead is thrown away when the attempt ends, and its thread with it: at the latest when the call that is under
way has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Generic, Self, TypeVar

from reconciler.errors import OutOfTime
from reconciler.merge import Page, RowOut, Side

Item = TypeVar("Item")


class Helper:
    """One thread of an attempt, started when it is first needed; it ends with the block."""

    def __init__(self) -> None:
        self.stopped = False
        self._turn = Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped = True
        self._thread.shutdown(cancel_futures=True)

    def ahead(self, items: Iterator[Item]) -> Ahead[Item]:
        return Ahead(items, self._thread)

    def taking_turns(self, side: Side[RowOut]) -> TakingTurns[RowOut]:
        return TakingTurns(side, self, self._turn)


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
        return next(self._items, None) if begun is None else begun.result()


@dataclass(frozen=True, slots=True)
class TakingTurns(Generic[RowOut]):
    """A side that is read by one thread at a time, and no more once the helper is to end; a merge.Side."""

    side: Side[RowOut]
    helper: Helper
    turn: Lock

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[RowOut]:
        """See merge.Side. Raises OutOfTime for the helper that is to end."""
        with self.turn:
            if self.helper.stopped:
                raise OutOfTime("the attempt has ended")
            return self.side.read(segment, after=after, upto=upto, limit=limit)
