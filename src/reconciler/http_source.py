"""A source behind somebody's REST interface, read page by page at a pace.

    GET <SourceUrl>/accounts?after=<id>&limit=<n>[&segment=<sss>&segments=<n>]

The accounts with an id above `after`, by UTF-8 bytes, at most `limit` of them; where there are several segments, those
for which `keys.segment_of` says so. `provider_answers` tells how an answer is read. A page costs at most
SDK_MAX_ATTEMPTS requests. Each is paced, has a deadline inside the call budget, and is sent only while the reader has
patience left: a worker that was frozen, and whose lease may be another's, sends the request that it was about to send
at most. When a person releases the lease of a holder that lives, two workers may ask until the old one's next commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from reconciler import http_wire
from reconciler.errors import OutOfTime, SourceInvalid, SourceWait, TransientFailure
from reconciler.invocation import Invocation
from reconciler.merge import Page
from reconciler.observability import count, logger
from reconciler.pacing import Limiter, per_segment
from reconciler.provider_answers import Again, asked_after, check_segment, read_answer
from reconciler.reader import Reader
from reconciler.source import SourceRecord
from reconciler.source_token import bearer_token, forget
from reconciler.timing import looking_patience_s

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 2.0
"""Before asking again where the provider names no time of its own; doubled each time."""

NAP_S = 1.0
"""Waiting is looked up from so often, whether there is still somebody who waits."""

LONGEST_PAGE = 10_000
"""Where a page repeats what was read already, more accounts are asked for, up to so many."""


@dataclass(slots=True)
class Told:
    """What one read cost."""

    requests: int = 0
    throttled: int = 0
    waited_s: float = 0.0


class HttpSource:
    """A provider's accounts; a merge.Side, and one that knows its reader: without one, a person only looks."""

    def __init__(self, invocation: Invocation, reader: Reader | None = None) -> None:
        settings = invocation.settings
        self._invocation = invocation
        self._reader = reader or Reader(
            settings.job_name, 1, backlog=True, patience_s=lambda: looking_patience_s(invocation)
        )
        backfill = self._reader.backlog
        rate = settings.backfill_requests_per_second if backfill else settings.source_requests_per_second
        self._limiter = Limiter(per_segment(rate, settings.segment_count), invocation.clock)

    def read_by(self, reader: Reader) -> HttpSource:
        """See reader.KnowsItsReader."""
        return HttpSource(self._invocation, reader)

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        """See merge.Side.

        Raises TransientFailure for no answer, SourceWait when the provider asks for a longer pause than the reader has
        patience, OutOfTime when too little is left, SourceInvalid and SourceOrderError for a wrong answer.
        """
        asked, size = asked_after(after), limit
        page = self._page(segment, asked, size)
        while asked != after and page.more_after is not None and page.more_after <= (after or ""):
            if size >= LONGEST_PAGE:
                raise SourceInvalid(f"a page of {size} accounts is not enough to get beyond lone surrogates in ids")
            size = min(10 * size, LONGEST_PAGE)
            page = self._page(segment, asked, size)
        return _within(page, after, upto, limit)

    def _page(self, segment: str, after: str | None, limit: int) -> Page[SourceRecord]:
        query: dict[str, str | int] = {} if after is None else {"after": after}
        query["limit"] = limit
        segments = self._invocation.settings.segment_count
        if segments > 1:
            query |= {"segment": segment, "segments": segments}
        url = f"{self._invocation.settings.source_url.rstrip('/')}/accounts?{urlencode(query, quote_via=quote)}"
        with self._counted() as told:
            page = self._ask(url, told).checked(after or None, None)  # a provider may take an empty `after` for none
        if len(page.rows) > limit:
            raise SourceInvalid(f"the provider answered {len(page.rows)} accounts, where {limit} were asked for")
        check_segment(page, segment, segments)
        return page

    @contextmanager
    def _counted(self) -> Iterator[Told]:
        told = Told()
        try:
            yield told
        finally:
            for name, value in (
                ("SourceRequests", told.requests),
                ("SourceThrottled", told.throttled),
                ("SourceWaitSeconds", told.waited_s),
            ):
                if value:
                    count(name, value)

    def _ask(self, url: str, told: Told) -> Page[SourceRecord]:
        """One page, asked for until it is answered or the attempts are used up."""
        clock, settings = self._invocation.clock, self._invocation.settings
        token_refused = False
        again: Again | None = None
        pause_s, until = FIRST_PAUSE_S, clock.monotonic()
        for _ in range(settings.sdk_max_attempts):
            self._patience_s()
            token = bearer_token(settings)
            self._wait(until, again, told)
            told.requests += 1
            read = self._send(url, token)
            if isinstance(read, Page):
                return read
            if read.token_refused:
                forget()
                if token_refused or token is None:
                    raise read.error
            again, token_refused = read, token_refused or read.token_refused
            if again.throttled:
                told.throttled += 1
                logger.info("the provider throttles", wait_s=again.wait_s)
            until = clock.monotonic() + (pause_s if again.wait_s is None else again.wait_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        assert again is not None
        if again.wait_s is not None and again.wait_s >= settings.backoff_seconds / 2:  # jittered down to that
            raise SourceWait(again.wait_s, f"{settings.sdk_max_attempts} requests were throttled")
        raise again.error

    def _patience_s(self) -> float:
        patience_s = self._reader.patience_s()
        if patience_s <= 0:
            raise OutOfTime("no time is left in which the source could answer")
        return patience_s

    def _wait(self, until: float, again: Again | None, told: Told) -> None:
        """Until a monotonic moment and the pace allow a request; `again` is why there is one more."""
        clock = self._invocation.clock
        while True:
            patience_s = self._patience_s()
            wait_s = max(until - clock.monotonic(), self._limiter.wait_s)
            if wait_s <= 0:
                return
            if wait_s > patience_s:
                if again is None:
                    raise OutOfTime(f"the pace allows a request in {wait_s:.1f} s, and {patience_s:.1f} s are left")
                if again.wait_s is None:
                    raise again.error
                raise SourceWait(wait_s, "the provider asked for it")
            nap_s = min(wait_s, NAP_S)
            clock.sleep(nap_s)
            told.waited_s += nap_s

    def _send(self, url: str, token: str | None) -> Page[SourceRecord] | Again:
        settings = self._invocation.settings
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "User-Agent": "reconciler",
            "X-Run-Id": quote(self._reader.run_id),
            "X-Attempt": str(self._reader.attempt),
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with self._limiter.request():
            try:
                answer = http_wire.get(
                    url, headers, connect_s=settings.connect_timeout_seconds, read_s=settings.read_timeout_seconds
                )
            except http_wire.NotTrusted as untrusted:
                raise SourceInvalid(f"the provider's certificate is not trusted: {untrusted}") from None
        if isinstance(answer, str):
            return Again(TransientFailure(f"no complete answer from {settings.source_url}: {answer}"))
        return read_answer(answer, self._invocation.clock.now_ms())


def _within(page: Page[SourceRecord], after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
    """The page within what was asked for; what lies beyond is read again later: it must not be older than the view."""
    rows = tuple(
        row
        for row in page.rows
        if (after is None or row.account_id > after) and (upto is None or row.account_id <= upto)
    )
    if len(rows) > limit:
        return Page(rows[:limit], rows[limit - 1].account_id)
    on = page.more_after
    last = page.rows[-1].account_id if page.rows else None
    ends = upto is not None and any(read_to is not None and read_to >= upto for read_to in (last, on))
    return Page(rows, None if ends else on)
