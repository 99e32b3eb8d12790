"""Settings: one environment variable per field, checked before anything is touched. Empty may be what nothing uses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from reconciler.errors import SettingsError


def _text() -> Any:
    return field(metadata={"kind": str})


def _optional() -> Any:
    return field(default="", metadata={"kind": str, "optional": True})


def _choice(*values: str) -> Any:
    return field(metadata={"kind": str, "choices": values})


def _flag() -> Any:
    return field(metadata={"kind": bool})


def _whole(low: int, high: int) -> Any:
    return field(metadata={"kind": int, "low": low, "high": high})


def _seconds(low: float, high: float) -> Any:
    return field(metadata={"kind": float, "low": low, "high": high})


DYNAMODB, HTTP, OWN = "dynamodb", "http", "own"
"""The source: the AccountsTable, a provider's REST interface at `source_url`, or what source.py finds by itself."""

EACH, LATEST = "each", "latest"
"""Catch-up policies: run every missed interval, or only the newest one."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_LABEL = "[a-z0-9]+(-+[a-z0-9]+)*"
HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?|[0-9a-f:.]*:[0-9a-f:.]*")
"""A name, or an IPv6 address, which urlsplit has looked at."""

POWERTOOLS = ("POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")
"""Read by Powertools itself, which would emit under another name that no alarm looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a deployment decides; the variable of a field is its name in capitals.

    `from_env` raises SettingsError naming the variable that is missing, malformed or out of bounds.
    Units are in the names; `*_seconds` may be fractions.
    """

    job_name: str = _text()
    control_table: str = _text()
    accounts_table: str = _optional()
    entitlements_table: str = _text()
    idempotency_table: str = _text()
    schedule_hour: int = _whole(0, 23)
    schedule_minute: int = _whole(0, 59)
    tick_minutes: int = _whole(1, 60)
    deadline_minutes: int = _whole(1, 10_080)
    lease_seconds: float = _seconds(0.5, 900)
    clock_skew_seconds: float = _seconds(0, 60)
    range_size: int = _whole(1, 100_000)
    page_size: int = _whole(1, 100_000)
    read_ahead: bool = _flag()
    segment_count: int = _whole(1, 64)
    catch_up_days: int = _whole(1, 365)
    catch_up_policy: str = _choice(EACH, LATEST)
    max_revocations: int = _whole(0, 1_000_000_000)
    max_attempts: int = _whole(1, 100)
    backoff_seconds: float = _seconds(0, 3_600)
    backoff_max_seconds: float = _seconds(0, 86_400)
    connect_timeout_seconds: float = _seconds(0.05, 60)
    read_timeout_seconds: float = _seconds(0.05, 60)
    sdk_max_attempts: int = _whole(1, 10)
    source: str = _choice(DYNAMODB, HTTP, OWN)
    source_url: str = _optional()
    source_token_secret: str = _optional()
    source_requests_per_second: float = _seconds(0.001, 10_000)
    backfill_requests_per_second: float = _seconds(0.001, 10_000)

    def __post_init__(self) -> None:
        if self.source == HTTP:
            self._check_http()
        elif self.source == DYNAMODB and not self.accounts_table:
            raise SettingsError("ACCOUNTS_TABLE is not set, but SOURCE is dynamodb")
        elif _same_table(self.accounts_table, self.entitlements_table):
            raise SettingsError(
                f"ACCOUNTS_TABLE and ENTITLEMENTS_TABLE are both {self.entitlements_table!r}: a view that is its own "
                "source would be judged by itself (a table of the same name elsewhere: give both as ARNs)"
            )
        if self.lease_seconds <= 3 * self.call_budget_s + self.slack_s:
            raise SettingsError(
                f"LEASE_SECONDS is {self.lease_seconds:g}, but three call budgets of {self.call_budget_s:g} s and "
                f"{self.slack_s:g} s of slack must fit into a lease: raise it, or lower CONNECT_TIMEOUT_SECONDS, "
                "READ_TIMEOUT_SECONDS or SDK_MAX_ATTEMPTS"
            )

    def _check_http(self) -> None:
        if not self.source_url:
            raise SettingsError("SOURCE_URL is not set, but SOURCE is http")
        if set(self.source_url) & set("@?#"):  # not shown: it may hold a password
            raise SettingsError(
                "SOURCE_URL must have no user, query or fragment: a token belongs into SOURCE_TOKEN_SECRET"
            )
        if not _is_address(self.source_url):
            raise SettingsError(
                f"SOURCE_URL is {self.source_url!r}, but must be https://<host>… (http for loopback only)"
            )
        slowest = min(self.source_requests_per_second, self.backfill_requests_per_second)
        if slowest < self.segment_count > 1:
            raise SettingsError(
                f"{slowest:g} requests a second are less than one for each of {self.segment_count} segments, which do "
                "not wait for each other: raise SOURCE_REQUESTS_PER_SECOND or BACKFILL_REQUESTS_PER_SECOND"
            )
        wait_s = max(1.0, 1 / slowest)
        if wait_s > self.lease_seconds / 4:
            raise SettingsError(
                f"a request may have to wait for {wait_s:g} s, which is more than a quarter of the lease: raise "
                "SOURCE_REQUESTS_PER_SECOND, BACKFILL_REQUESTS_PER_SECOND or LEASE_SECONDS"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read every field from `environ` (default: the process environment)."""
        source = os.environ if environ is None else environ
        for name in POWERTOOLS:
            _read(source, name, {"kind": str})
        return cls(**{f.name: _read(source, f.name.upper(), f.metadata) for f in fields(cls)})

    @property
    def call_budget_s(self) -> float:
        """The longest one SDK call takes, retries and their backoff included, unless an answer keeps trickling in."""
        backoff = 3.0 if self.sdk_max_attempts > 1 else 0.0
        return self.sdk_max_attempts * (self.connect_timeout_seconds + self.read_timeout_seconds) + backoff

    @property
    def slack_s(self) -> float:
        """What the process may need between calls."""
        return self.lease_seconds * 0.05

    @property
    def lease_ms(self) -> int:
        return round(self.lease_seconds * 1000)

    @property
    def skew_ms(self) -> int:
        return round(self.clock_skew_seconds * 1000)

    @property
    def tick_ms(self) -> int:
        return self.tick_minutes * 60_000

    @property
    def catch_up_ms(self) -> int:
        return self.catch_up_days * 86_400_000


def _same_table(one: str, other: str) -> bool:
    """Whether they are, or may be: a name may be of the other's account."""
    if one.startswith("arn:") and other.startswith("arn:"):
        return one == other
    return one.rpartition("/")[2] == other.rpartition("/")[2]


def _is_address(text: str) -> bool:
    """Whether it is one, and whoever connects to it reads the same host in it."""
    try:
        url = urlsplit(text)
        host = url.hostname or ""
        allowed = url.scheme == "https" or (url.scheme == "http" and host in LOOPBACK)
        agreed = bool(HOST.fullmatch(host)) and (parse_url(text).host or "").strip("[]") == host
        return allowed and agreed and url.port != 0 and text.isprintable() and " " not in text
    except (ValueError, HTTPError):  # no number of a port, or no address between the brackets
        return False


def _read(source: Mapping[str, str], name: str, rule: Mapping[str, Any]) -> Any:
    raw = source.get(name, "").strip()
    if not raw:
        if rule.get("optional"):
            return ""
        raise SettingsError(f"{name} is not set")
    kind = rule["kind"]
    if kind is str:
        if raw not in rule.get("choices", (raw,)):
            raise SettingsError(f"{name} is {raw!r}, but must be one of {', '.join(rule['choices'])}")
        return raw
    if kind is bool:
        if raw.lower() not in ("true", "false"):
            raise SettingsError(f"{name} is {raw!r}, but must be true or false")
        return raw.lower() == "true"
    try:
        value = kind(raw)
    except ValueError:
        raise SettingsError(f"{name} is {raw!r}, not {'a whole number' if kind is int else 'a number'}") from None
    if not rule["low"] <= value <= rule["high"]:
        raise SettingsError(f"{name} is {raw}, but must be between {rule['low']} and {rule['high']}")
    return value
