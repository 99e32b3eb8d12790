"""What a provider's answer says: a page of accounts, a reason to ask again, or why nothing can be done with it. Pure.

    200  {"accounts": [{"account_id": text, "status": text, "entitlements": {…}}, …], "next": text | null}

    answer                                      what follows
    200, as above                               the page; an account that is wrong in itself is one to reject
    200, but no JSON, no `next`, no such type   asked again; then the attempt fails
    429, 503                                    asked again after Retry-After; then the source is left alone for a while
    5xx                                         asked again; then the attempt is given back
    401                                         asked again with a token fetched anew; then the attempt fails
    anything else, a redirect too               the attempt fails

Numbers are exact. NaN and Infinity become numbers that nothing can store, so that they reject their account.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from reconciler import keys
from reconciler.errors import ReconcilerError, SourceInvalid, TransientFailure
from reconciler.items import exact
from reconciler.merge import Page
from reconciler.source import SourceRecord

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The longest answer that is read."""

MAX_ID_BYTES = 4_096
"""Of an id that can be asked from; no address is read that is much longer. Tables take shorter ones."""

MAX_WAIT_S = 3_600.0
"""The longest pause that a provider is believed to want."""

THROTTLED = (429, 503)

MARK = "\ud7ff\U0010ffff"
"""Stands for a lone surrogate in an id, with its four hex digits behind; sorts where the surrogate does."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; `body` is at most one byte longer than MAX_BODY_BYTES."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Again:
    """Worth another request; `error` is raised when there is none left. `wait_s` is what the provider asked for."""

    error: ReconcilerError
    wait_s: float | None = None
    throttled: bool = False
    token_refused: bool = False


def read_answer(answer: Answer, now_ms: int) -> Page[SourceRecord] | Again:
    """Raises SourceInvalid where another request would not help; no message holds anything of the payload."""
    status, headers = answer.status, answer.headers
    if status in THROTTLED:
        wait_s = retry_after_s(headers.get("Retry-After"), now_ms)
        return Again(TransientFailure(f"the provider answered {status}"), wait_s, throttled=True)
    if status >= 500 or status == 408:
        return Again(TransientFailure(f"the provider answered {status}"))
    if status == 401:
        return Again(SourceInvalid("the provider refused the token: 401"), token_refused=True)
    if 300 <= status < 400:
        raise SourceInvalid(f"the provider answered {status}, to {_host(headers)}: redirects are not followed")
    if status != 200:
        raise SourceInvalid(f"the provider answered {status}")
    if len(answer.body) > MAX_BODY_BYTES:
        raise SourceInvalid(f"the provider's answer is longer than {MAX_BODY_BYTES} bytes: lower PAGE_SIZE")
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return Again(SourceInvalid("the provider's answer is not of the type application/json"))
    try:
        return _page(answer.body)
    except _Malformed as malformed:
        return Again(SourceInvalid(f"the provider's answer {malformed}"))


def record_of(account_id: str, said: Mapping[str, object], unreadable: str | None) -> SourceRecord:
    """What a provider says of one account, not yet checked. Yours to replace when accounts look different."""
    return SourceRecord(
        account_id=account_id,
        status=said.get("status"),
        entitlements=said.get("entitlements"),
        unreadable=unreadable,
    )


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """The seconds of a Retry-After header, 0 to MAX_WAIT_S; None unless it holds seconds or an HTTP date."""
    text = (value or "").strip()
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", text):
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
            seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now_ms / 1000
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return min(MAX_WAIT_S, max(0.0, seconds))


def check_segment(page: Page[SourceRecord], segment: str, segments: int) -> None:
    """Raises SourceInvalid for an account of another segment: it would be written there, too."""
    for record in page.rows:
        if record.unreadable is None and keys.segment_of(record.account_id, segments) != segment:
            raise SourceInvalid(f"account {record.account_id!r:.60} does not belong to segment {segment} of {segments}")


def storable_id(account_id: str) -> str:
    """The id with each lone surrogate, which has no UTF-8, written out: another id, in the same place of the order."""
    return re.sub("[\ud800-\udfff]", lambda found: f"{MARK}{ord(found[0]):04x}", account_id)


def asked_after(after: str | None) -> str | None:
    """What to ask a provider to go on after: the id, or one just below it where a lone surrogate was written out.

    What the provider then repeats is to be left out; a page has to be longer than that.
    """
    if after and MARK in after:
        return after.partition(MARK)[0] + MARK[0]
    return after


class _Malformed(Exception):
    """The answer is not what the protocol says; the message goes on from "the provider's answer"."""


class _Repeated(dict[str, object]):
    """A JSON object in which names stand more than once: which value is meant cannot be known."""

    names: tuple[str, ...] = ()


def _page(body: bytes) -> Page[SourceRecord]:
    try:
        said = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=_number,
            parse_int=_number,
            parse_constant=Decimal,
        )
    except (ValueError, RecursionError):
        raise _Malformed("is not valid JSON") from None
    if not isinstance(said, dict) or isinstance(said, _Repeated):
        raise _Malformed("is not one JSON object with names of its own")
    entries, on = said.get("accounts"), said.get("next", 0)
    if not isinstance(entries, list):
        raise _Malformed("has no list of accounts")
    if not (on is None or isinstance(on, str)):
        raise _Malformed("does not say what is next")
    records = tuple(_record(number, entry) for number, entry in enumerate(entries, 1))
    return Page(records, None if on is None else _id(on))


def _id(text: str) -> str:
    held = storable_id(text)
    if len(held.encode()) > MAX_ID_BYTES:
        raise SourceInvalid(f"an id is longer than {MAX_ID_BYTES} bytes: {text[:60]!r}")
    return held


def _record(number: int, entry: object) -> SourceRecord:
    """An account whose id is not known could be any, so that none of its page may be taken as absent."""
    if not isinstance(entry, dict) or "account_id" not in entry:
        raise SourceInvalid(f"account {number} of a page has no account_id: whose absence it hides cannot be known")
    account_id = entry["account_id"]
    if not isinstance(account_id, str):
        shown = str(account_id)[:60] if isinstance(account_id, int | Decimal | None) else "of another type"
        raise SourceInvalid(f"account {number} of a page has an account_id that is not text: {shown}")
    if isinstance(entry, _Repeated) and "account_id" in entry.names:
        raise SourceInvalid(f"account {number} of a page has two account_ids, one of them {account_id[:60]!r}")
    unreadable = None
    if (twice := _twice(entry)) is not None:
        unreadable = f"name {twice[:60]!r} stands twice in one object"
    if (held := _id(account_id)) != account_id:
        unreadable = f"account_id {account_id[:60]!r} holds a lone surrogate"
    return record_of(held, entry, unreadable)


def _twice(value: object) -> str | None:
    """A name that stands twice in one object, at whatever depth."""
    looked_at = [value]
    for part in looked_at:
        if isinstance(part, _Repeated):
            return part.names[0]
        looked_at += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    repeated = _Repeated(made)
    repeated.names = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return repeated


def _number(text: str) -> int | Decimal:
    """Exact; what is too long even for a Decimal becomes a number that nothing can store."""
    try:
        return exact(text)
    except InvalidOperation:
        return Decimal("NaN")


def _host(headers: Mapping[str, str]) -> str:
    try:
        host = urlsplit(headers.get("Location", "")).hostname
    except ValueError:
        host = None
    return repr(host[:100]) if host else "the same host"
