"""A small world to run the job in: tables from the template, a clock that only moves when told, and rows to look at."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import app, clock, keys
from reconciler.checksum import digest, hex_text
from reconciler.invocation import Invocation
from reconciler.items import from_item, to_item
from reconciler.observability import metrics
from reconciler.run import run
from reconciler.settings import Settings
from reconciler.source import AccountsTable
from reconciler.triggers import parse_trigger
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tools.tables import create_tables, environment, load_template

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

    from reconciler.attempt import Result

NIGHT = "2026-11-29"
JOB = "entitlements"
TEMPLATE = load_template()


@dataclass(slots=True)
class ManualClock:
    """A clock that moves when told, when somebody sleeps on it, and by `step_ms` at every look at the wall."""

    step_ms: int = 1
    wall_ms: int = field(default_factory=lambda: clock.parse_ms(f"{NIGHT}T02:00:05Z"))
    seconds: float = 1000.0

    def now_ms(self) -> int:
        self.advance(self.step_ms / 1000)
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.seconds += seconds

    def set(self, moment: str) -> None:
        """Go to a moment given as UTC text; monotonic time follows forward only."""
        target = clock.parse_ms(moment)
        self.seconds += max(0, target - self.wall_ms) / 1000
        self.wall_ms = target


@dataclass(slots=True)
class Context:
    """A Lambda context whose time runs on the manual clock."""

    clock: ManualClock
    seconds: float = 900
    aws_request_id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    function_name: str = "reconcile"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:eu-west-1:123456789012:function:reconcile"
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def get_remaining_time_in_millis(self) -> int:
        return round((self.seconds - (self.clock.monotonic() - self.started)) * 1000)


def event(kind: str = "tick", time: str = f"{NIGHT}T02:00:00Z") -> dict[str, Any]:
    """What EventBridge Scheduler sends."""
    return {
        "source": "aws.scheduler",
        "detail-type": "Scheduled Event",
        "time": time,
        "detail": {"trigger": kind},
    }


@dataclass(frozen=True, slots=True)
class Slow:
    """A side whose every read takes `seconds` on the clock; `fails` may raise before the read of a page."""

    side: Any
    clock: ManualClock
    seconds: float = 0
    fails: Callable[[str | None], None] = lambda after: None

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
        self.fails(after)
        self.clock.advance(self.seconds)
        return self.side.read(segment, after=after, upto=upto, limit=limit)


class World:
    """The job, its tables and its clock. `settings` may be replaced between invocations.

    Nothing is read ahead unless a test asks for it: moto's writes are not atomic for another thread's reads.
    """

    def __init__(self, client: DynamoDBClient, parameters: Mapping[str, Any] | None = None, **overrides: Any) -> None:
        self.client = client
        self.tables = create_tables(client, suffix=uuid.uuid4().hex[:8], template=TEMPLATE)
        self.environ = environment(
            self.tables,
            job=JOB,
            parameters=dict(parameters or {}),
            overrides={"READ_AHEAD": False, **overrides},
            template=TEMPLATE,
        )
        self.settings = Settings.from_env(self.environ)
        self.clock = ManualClock()
        self.created_at = clock.text(clock.parse_ms(f"{NIGHT}T00:00:00Z"))
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.environment: pytest.MonkeyPatch | None = None
        metrics.clear_metrics()
        client.meta.events.register("provide-client-params.dynamodb", self._requested)
        client.meta.events.register("after-call.dynamodb.DescribeTable", self._created)

    def _requested(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))

    def _created(self, parsed: dict[str, Any], **_: Any) -> None:
        if "Table" in parsed:
            from datetime import datetime

            parsed["Table"]["CreationDateTime"] = datetime.fromisoformat(self.created_at)

    def set(self, **changes: Any) -> None:
        """Change settings, as a deployment would."""
        self.settings = replace(self.settings, **changes)
        changed = {name.upper(): str(value) for name, value in changes.items()}
        self.environ |= changed
        if self.environment:
            for name, value in changed.items():
                self.environment.setenv(name, value)

    # what happens

    def invocation(self, owner: str = "worker-1", remaining_s: float = 900, client: Any = None) -> Invocation:
        context = Context(self.clock, remaining_s)
        return Invocation(
            settings=self.settings,
            client=client or self.client,
            clock=self.clock,
            remaining_ms=context.get_remaining_time_in_millis,
            owner=owner,
        )

    def run(
        self,
        kind: str = "tick",
        *,
        time: str | None = None,
        invocation: Invocation | None = None,
        job: Callable[[Invocation], Job] | None = None,
        **about: Any,
    ) -> list[Result]:
        """One invocation without Powertools in front."""
        invocation = invocation or self.invocation(**about)
        moment = time or clock.text(self.clock.now_ms())
        trigger = parse_trigger(event(kind, moment), now_ms=self.clock.now_ms(), settings=self.settings)
        made = job(invocation) if job else Job(AccountsTable(invocation), EntitlementsTable(invocation))
        return run(trigger, made, invocation=invocation)

    @contextmanager
    def deployed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The handlers of `app` find this world's environment, client and clock."""
        with monkeypatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            patch.setattr(app, "CLOCK", self.clock)
            patch.setattr(app, "_client", lambda settings: self.client)
            outer, self.environment = self.environment, patch
            yield
        self.environment = outer

    def expire_lease(self, segment: str = "000") -> None:
        """Wait until the lease on a segment may be taken over."""
        expires_at_ms = self.row(keys.lease(segment))["expires_at_ms"]
        self.clock.advance((expires_at_ms + self.settings.skew_ms + 1 - self.clock.wall_ms) / 1000)

    # what is there

    def account(self, account_id: str, status: str = "active", **entitlements: Any) -> None:
        self.put("AccountsTable", account_id, status=status, entitlements=entitlements)

    def view_row(self, account_id: str, version: int | None = 1, **entitlements: Any) -> None:
        extra = {} if version is None else {"version": version}
        self.put("EntitlementsTable", account_id, entitlements=entitlements, **extra)

    def put(self, table: str, account_id: str, **attributes: Any) -> None:
        segment = keys.segment_of(account_id, self.settings.segment_count)
        self.put_row(table, segment=segment, account_id=account_id, **attributes)

    def put_row(self, table: str, **row: Any) -> None:
        self.client.put_item(TableName=self.tables[table], Item=to_item(row))

    def delete(self, table: str, account_id: str) -> None:
        segment = keys.segment_of(account_id, self.settings.segment_count)
        key = to_item({"segment": segment, "account_id": account_id})
        self.client.delete_item(TableName=self.tables[table], Key=key)

    def put_control(self, sort_key: str, **attributes: Any) -> None:
        """Overwrite some attributes of a control row, or make it."""
        row = (self.row(sort_key) if self.has(sort_key) else {"pk": JOB, "sk": sort_key}) | attributes
        row = {name: value for name, value in row.items() if value is not ...}
        self.put_row("ControlTable", **row)

    def delete_control(self, sort_key: str) -> None:
        self.client.delete_item(TableName=self.tables["ControlTable"], Key=to_item({"pk": JOB, "sk": sort_key}))

    def scan(self, table: str) -> list[dict[str, Any]]:
        pages = self.client.get_paginator("scan").paginate(TableName=self.tables[table], ConsistentRead=True)
        return [from_item(item) for page in pages for item in page["Items"]]

    def control(self) -> dict[str, dict[str, Any]]:
        """Every ControlTable row by sort key."""
        return {row["sk"]: row for row in self.scan("ControlTable")}

    def has(self, sort_key: str) -> bool:
        return sort_key in self.control()

    def row(self, sort_key: str) -> dict[str, Any]:
        return self.control()[sort_key]

    def lease(self, segment: str = "000") -> dict[str, Any]:
        return self.row(keys.lease(segment))

    def interval(self, interval_id: str = NIGHT) -> dict[str, Any]:
        return self.row(keys.interval(interval_id))

    def progress(self, segment: str = "000", interval_id: str = NIGHT, pass_no: int = 1) -> dict[str, Any]:
        return self.row(keys.progress(interval_id, pass_no, segment))

    def events(self, interval_id: str = NIGHT) -> list[str]:
        """The names of an interval's audit events, in order; rejections last."""
        rows = sorted(self.audit(interval_id), key=lambda row: (row["at"], row["sk"]))
        return [row["event"] for row in rows]

    def audit(self, interval_id: str = NIGHT) -> list[dict[str, Any]]:
        prefix = f"AUDIT#{interval_id}#"
        return [row for sort_key, row in sorted(self.control().items()) if sort_key.startswith(prefix)]

    def view(self) -> dict[str, dict[str, Any]]:
        """Entitlements by account."""
        return {row["account_id"]: row["entitlements"] for row in self.scan("EntitlementsTable")}

    def versions(self) -> dict[str, int | None]:
        return {row["account_id"]: row.get("version") for row in self.scan("EntitlementsTable")}

    def counted(self) -> dict[str, float]:
        """Metrics counted since this world began, as long as no handler emitted them."""
        return {name: sum(metric["Value"]) for name, metric in metrics.metric_set.items()}

    def view_checksum(self) -> str:
        rows = self.scan("EntitlementsTable")
        return hex_text(sum(digest(row["account_id"], row.get("entitlements")) for row in rows))
