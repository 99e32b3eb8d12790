"""Two ordered streams, merged only as far as both have been read. Pure.

    view    a  b  c  e  f  g │ h …          read ahead; `reached` is g
    source  a  c  d  e     g │              read after the view, never beyond g while the view has more
                         horizon

The view is read before the source for the same ids, so a decision is never based on a view row that is newer than
its source row: a stale decision meets a changed version when it is committed. Beyond the horizon nothing is known to
be absent, so nothing beyond it is judged.

Order is by UTF-8 bytes of the account id. UTF-8 keeps the order of code points, so comparing `str` is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from reconciler.errors import SourceOrderError
from reconciler.items import storable


class HasAccountId(Protocol):
    @property
    def account_id(self) -> str: ...


Row = TypeVar("Row", bound=HasAccountId)
RowOut = TypeVar("RowOut", bound=HasAccountId)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Consecutive rows of one side. `more_after` is where to go on; None means the asked bounds hold no more."""

    rows: tuple[Row, ...]
    more_after: str | None

    def checked(self, after: str | None, upto: str | None) -> Page[Row]:
        """The page itself.

        Raises SourceOrderError unless its ids are texts, storable as UTF-8, that rise strictly within (after, upto].
        """
        last = after
        for row in self.rows:
            if not isinstance(row.account_id, str):
                raise SourceOrderError(f"account id {row.account_id!r:.60} is not text")
            if not storable(row.account_id):
                raise SourceOrderError(f"account id {row.account_id!r:.60} holds a lone surrogate, which has no UTF-8")
            if last is not None and row.account_id <= last:
                raise SourceOrderError(f"{row.account_id!r:.60} came after {last!r:.60}")
            if upto is not None and row.account_id > upto:
                raise SourceOrderError(f"{row.account_id!r:.60} lies beyond {upto!r:.60}")
            last = row.account_id
        on = self.more_after
        if on is not None and (on == after or (last is not None and on < last) or (upto is not None and on > upto)):
            raise SourceOrderError(f"a page of ({after!r:.60}, {upto!r:.60}] says to go on after {on!r:.60}")
        return self


class Side(Protocol[RowOut]):
    """Accounts in order: the contract of the source and of the view. `tests/contract.py` holds an implementation to it.

    The order is that of the UTF-8 bytes of `account_id`: no collation, no number sense, no normalisation. Ids that
    differ in one byte are two accounts. A segment's accounts are those for which `keys.segment_of` says so.
    """

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[RowOut]:
        """At most `limit` rows, the first ones of a segment with after < account_id <= upto; None means unbounded.

        Nothing is remembered between calls: any bounds may be asked for at any time, any number of times; by one thread
        at a time, which is not always the same one. Neither bound need be the id of an account: it may be gone, empty,
        or longer than an id can be.

        The end is `Page.more_after` None: the bounds held no more when this was read. Nothing else is: a page may be
        short, or empty, and go on, and what it goes on to may turn out to hold nothing. Otherwise `more_after` lies
        above `after`, not below the last row and not beyond `upto`, and no account between them was left out.

        Rows are as they stand when they are asked for, or later, never kept from an earlier call: a source row must
        not be older than the view rows it is judged against.

        Raises TransientFailure when there is no answer now, and SourceWait instead of waiting longer than its reader
        has patience: both give the attempt back. OutOfTime ends it cleanly. Anything else is a failed attempt, and
        `max_attempts` of them without progress need repair. Errors are logged with their message: no payload in it.
        """


@dataclass(frozen=True, slots=True)
class Buffer(Generic[Row]):
    """View rows read ahead. `reached` is the last id read up to; `ended` means the view holds no more."""

    rows: tuple[Row, ...] = ()
    reached: str | None = None
    ended: bool = False

    def extended(self, page: Page[Row]) -> Buffer[Row]:
        reached = self.reached if page.more_after is None else page.more_after
        return Buffer(self.rows + page.rows, reached, page.more_after is None)

    @property
    def horizon(self) -> str | None:
        """The last id a source read may reach; None when the view has ended, so that there is no bound."""
        return None if self.ended else self.reached

    def split(self, upto: str | None) -> tuple[tuple[Row, ...], Buffer[Row]]:
        """The rows up to and including an id (None: all of them), and the buffer without them."""
        if upto is None:
            return self.rows, replace(self, rows=())
        index = len(self.rows)
        while index and self.rows[index - 1].account_id > upto:
            index -= 1
        return self.rows[:index], replace(self, rows=self.rows[index:])


Record = TypeVar("Record", bound=HasAccountId)


@dataclass(frozen=True, slots=True)
class Pair(Generic[Record, Row]):
    """One account on both sides; None where a side does not have it."""

    account_id: str
    record: Record | None
    row: Row | None


def merge(records: Sequence[Record], rows: Sequence[Row]) -> list[Pair[Record, Row]]:
    """Every account of either side once, in order."""
    by_record = {record.account_id: record for record in records}
    by_row = {row.account_id: row for row in rows}
    ids = sorted(by_record.keys() | by_row.keys())
    return [Pair(account_id, by_record.get(account_id), by_row.get(account_id)) for account_id in ids]
