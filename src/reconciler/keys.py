"""Every key the product builds. ControlTable rows of a job share `pk`; `sk` says what a row is."""

from __future__ import annotations

import zlib
from hashlib import sha256

PARTITION_KEY = "pk"
SORT_KEY = "sk"
SEGMENT = "segment"
ACCOUNT_ID = "account_id"
CONTROL_TTL = "expires_at"
IDEMPOTENCY_KEY = "id"
IDEMPOTENCY_TTL = "expiration"

MAX_ACCOUNT_ID_BYTES = 1024
"""Longest sort key DynamoDB stores."""

MAX_SEGMENTS = 64
"""So that one transaction reaches every lease row."""

CONTROL = "CONTROL"


def lease(segment: str) -> str:
    return f"LEASE#{segment}"


def interval(interval_id: str) -> str:
    return f"INTERVAL#{interval_id}"


def progress(interval_id: str, pass_no: int, segment: str) -> str:
    return f"PROGRESS#{interval_id}#{pass_no}#{segment}"


def progress_prefix(interval_id: str, pass_no: int) -> str:
    return f"PROGRESS#{interval_id}#{pass_no}#"


def progress_after(interval_id: str) -> tuple[str, str]:
    """The bounds of the PROGRESS rows of all later intervals."""
    return f"PROGRESS#{interval_id}#~", "PROGRESS#~"


def audit(interval_id: str, at: str, unique: str) -> str:
    """Key of one event; `at` is fixed-width text, so an interval's events sort by time."""
    return f"AUDIT#{interval_id}#{at}#{unique}"


def rejected(interval_id: str, pass_no: int, account_id: str) -> str:
    """One row per rejected account and pass, whatever characters or length the id has."""
    digest = sha256(account_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"AUDIT#{interval_id}#REJECTED#{pass_no}#{digest}"


def operator(subject: str, digest: str) -> str:
    """One row per command; `subject` is an interval or the job, `digest` the SHA-256 of the event's id."""
    return f"AUDIT#{subject}#OPERATOR#{digest}"


def run_id(job: str, interval_id: str, pass_no: int) -> str:
    """The name of a run, the same across retries, resumes and takeovers."""
    return f"{job}/{interval_id}/{pass_no}"


def unfit(account_id: str) -> str | None:
    """Why no row can have this id; None when one can."""
    if not account_id:
        return "is empty"
    if len(account_id.encode("utf-8", "surrogatepass")) > MAX_ACCOUNT_ID_BYTES:
        return f"is longer than {MAX_ACCOUNT_ID_BYTES} bytes"
    return None


def floor(account_id: str) -> str:
    """The greatest sort key DynamoDB can store that is not above the id; "" when there is none.

    A checkpoint may stand on an id that no table can hold; the same rows lie above the id and above its floor.
    """
    whole = account_id.encode("utf-8", "surrogatepass")
    if len(whole) <= MAX_ACCOUNT_ID_BYTES:
        return account_id
    kept = whole[:MAX_ACCOUNT_ID_BYTES].decode("utf-8", "ignore")
    cut_off = MAX_ACCOUNT_ID_BYTES - len(kept.encode("utf-8"))
    return kept + ("", "\x7f", "\u07ff", "\uffff")[cut_off]  # the greatest character of so many bytes


def segment_name(index: int) -> str:
    return f"{index:03d}"


def segments(count: int) -> tuple[str, ...]:
    """All segment names of a job with that many segments. Raises ValueError unless that is 1 to 64."""
    if not 1 <= count <= MAX_SEGMENTS:
        raise ValueError(f"must be between 1 and {MAX_SEGMENTS}")
    return tuple(segment_name(index) for index in range(count))


def segment_of(account_id: str, count: int) -> str:
    """The segment an account lives in; writers of the source and of the view use the same rule."""
    return segment_name(zlib.crc32(account_id.encode("utf-8")) % count)
