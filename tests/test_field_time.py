"""Endpoints that never answer, time zones, and the hours that local clocks repeat or leave out."""

from __future__ import annotations

import ast
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from reconciler import app, aws, clock
from reconciler.errors import OutOfTime, TransientFailure
from reconciler.intervals import Calendar
from reconciler.settings import Settings
from reconciler.triggers import parse_trigger
from reconciler.watchdog import look
from tests.kit import delivered, environ, everything, grants, lambda_context, numbered, watched
from tests.world import NIGHT, World, event

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = Settings.from_env(environ())


@contextmanager
def silence() -> Iterator[str]:
    """The URL of a server that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.field("B43")
@pytest.mark.parametrize("answers", ["nothing", "nobody"])
def test_a_dead_endpoint_ends_the_run_in_time_and_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, answers: str
) -> None:
    world.set(connect_timeout_seconds=0.3, read_timeout_seconds=0.3, sdk_max_attempts=2)
    budget, remaining_s = world.settings.call_budget_s, 20 / 15 * world.settings.call_budget_s
    with silence() as url, world.deployed(monkeypatch):
        if answers == "nobody":
            url = closed_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        client = aws.dynamodb(world.settings)
        monkeypatch.setattr(app, "_client", lambda settings: client)
        monkeypatch.setattr(app, "CLOCK", clock.SystemClock())
        began = time.monotonic()
        with pytest.raises(TransientFailure, match=url):
            app.reconcile(event(time=clock.text(time.time_ns() // 1_000_000)), lambda_context(world, remaining_s))
        assert time.monotonic() - began < budget
        client.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.field("B43")
def test_the_longest_call_fits_into_the_margin_that_every_range_keeps(world: World) -> None:
    """As the client really is configured, with the template's defaults."""
    config: Any = aws.dynamodb(world.settings).meta.config
    attempts = config.retries["total_max_attempts"]
    backoff = sum(2**n for n in range(attempts - 1))  # standard mode: at most 1, 2, 4 ... seconds
    longest = attempts * (config.connect_timeout + config.read_timeout) + backoff
    assert longest <= world.settings.call_budget_s == 15
    assert 3 * world.settings.call_budget_s + world.settings.slack_s < world.settings.lease_seconds
    assert config.retries["mode"] == "standard"
    assert config.tcp_keepalive


@pytest.mark.field("B43")
@pytest.mark.parametrize("answers", [False, True], ids=["no answers", "late answers"])
def test_a_service_that_turns_slow_at_any_call_never_makes_a_run_outlast_its_invocation(
    world: World, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """On a virtual clock: from some call on, each takes all the time it may, with its answer or without."""
    for first_slow in range(1, 20, 2):
        night = World(world.client)
        night.set(range_size=1)
        grants(night, *numbered(2))
        began = 0

        def slow(_: str, night: World = night, first_slow: int = first_slow) -> None:
            nonlocal began
            began += 1
            if began >= first_slow:
                night.clock.advance(night.settings.call_budget_s - 0.1)
                if not answers:
                    raise ReadTimeoutError(endpoint_url="http://nobody")

        context = lambda_context(night, 100)
        with night.deployed(monkeypatch), watched(night.client, slow), suppress(TransientFailure, OutOfTime):
            app.reconcile(event("nightly"), context)
        assert context.get_remaining_time_in_millis() >= 0, first_slow


ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")


@contextmanager
def time_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """The process lives in another time zone."""
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", name)
            time.tzset()
            yield
    finally:
        time.tzset()


@pytest.mark.field("B47")
def test_what_is_stored_does_not_depend_on_the_time_zone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night that yields, is delayed, rejects, and completes late, told by the rows and by the watchdog."""

    def stored() -> dict[str, Any]:
        night = World(world.client)
        grants(night, *numbered(3))
        night.put("AccountsTable", "bad", status="active", entitlements="no map")
        created = clock.parse_ms(f"{NIGHT}T00:00:00Z") / 1000
        night.created_at = datetime.fromtimestamp(created).astimezone().isoformat()  # as botocore tells it
        monkeypatch.setattr("random.uniform", lambda low, high: high)
        night.run("nightly", remaining_s=60)
        night.run("nightly", remaining_s=900)
        night.clock.set("2026-11-30T09:00:00Z")
        late = look(invocation=night.invocation())
        night.run()
        rows = everything(night)
        return {"late": late} | {name: without_chance(rows[name]) for name in ("ControlTable", "EntitlementsTable")}

    def without_chance(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [{name: value for name, value in row.items() if name != "token"} for row in rows]
        for row in kept:
            if row.get("sk", "").startswith("AUDIT#") and "#REJECTED#" not in row["sk"]:
                row["sk"] = row["sk"].rpartition("#")[0]
        return sorted(kept, key=repr)

    answers = []
    for zone in ZONES:
        with time_zone(monkeypatch, zone):
            answers.append(stored())
    assert answers[0]["late"]["SecondsPastDeadline"] == 3 * 3600 + 0.001
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]


@pytest.mark.field("B47")
@pytest.mark.parametrize("zone", ZONES)
def test_an_answer_is_remembered_for_48_hours_in_every_time_zone(
    world: World, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    with time_zone(monkeypatch, zone), world.deployed(monkeypatch):
        delivered(world, event("nightly"))
        assert delivered(world, event("nightly"))["outcome"] == "duplicate"
        (row,) = world.scan("IdempotencyTable")
    assert abs(row["expiration"] - time.time() - 48 * 3600) < 60


@pytest.mark.field("B47")
def test_no_time_is_naive() -> None:
    """Every moment is made with a zone; `date` alone has none to lose."""
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]:
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            said = ast.unparse(call)
            assert not name.endswith((".utcnow", ".utcfromtimestamp", ".today", ".strptime")), (path, said)
            if name.endswith(("datetime.now", "datetime.fromtimestamp")) or name == "datetime":
                assert "UTC" in said or "tz" in said, (path, said)


@pytest.mark.field("B45")
@pytest.mark.parametrize(
    "change",
    ["2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"],
    ids=["New York, spring", "London, spring", "London, autumn", "New York, autumn"],
)
@pytest.mark.parametrize("late_minutes", [0, 60])
@pytest.mark.parametrize("offset_hours", [0, 1, -4, -5])
def test_there_is_one_interval_for_each_utc_date_whatever_local_clocks_do(
    change: str, late_minutes: int, offset_hours: int
) -> None:
    """For a schedule at any hour, with the time told in UTC or with an offset."""
    for hour in range(24):
        settings = replace(SETTINGS, schedule_hour=hour, schedule_minute=30)
        calendar = Calendar.of(settings)
        due_ms = calendar.scheduled_ms(change)
        now_ms = due_ms + late_minutes * 60_000
        told = datetime.fromtimestamp(due_ms / 1000, timezone(timedelta(hours=offset_hours))).isoformat()
        trigger = parse_trigger(event("nightly", told), now_ms=now_ms, settings=settings)
        assert (trigger.interval_id, trigger.slot) == (change, f"nightly#{change}T{hour:02d}:30:00.000Z")
        assert calendar.due(change, now_ms) == [change]


CHANGES = {
    "New York, spring": ("America/New_York", "2026-03-08T07:00:00Z", -5, -4),
    "London, spring": ("Europe/London", "2026-03-29T01:00:00Z", 0, 1),
    "London, autumn": ("Europe/London", "2026-10-25T01:00:00Z", 1, 0),
    "New York, autumn": ("America/New_York", "2026-11-01T06:00:00Z", -4, -5),
}
"""Change → zone, the moment at which its clocks change, their hours from UTC before and after."""


def told(moment: datetime, change: str, how: str) -> str:
    """A moment as text: in UTC, with the offset that local clocks have then, or with a fixed one."""
    _, changed, before, after = CHANGES[change]
    local = before if moment < datetime.fromisoformat(changed) else after
    hours = {"in UTC": 0, "in local time": local, "with +01:00": 1}[how]
    text = moment.astimezone(timezone(timedelta(hours=hours))).isoformat()
    return text.replace("+00:00", "Z") if how == "in UTC" else text


TELLINGS = ("in UTC", "in local time", "with +01:00")


@pytest.mark.field("B45")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("from_change_minutes", [-30, 30, None], ids=["before it", "after it", "at the date's end"])
@pytest.mark.parametrize("late_minutes", [0, 60])
def test_a_night_runs_once_per_utc_date_around_a_change_of_clocks(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str, from_change_minutes: int | None, late_minutes: int
) -> None:
    """On the day of the change, the day before and the day after, in a process that lives in that zone.

    Each night is told in one way and then in the others, an hour late or not, and again an hour later, as a schedule in
    local time does when the hour is repeated.
    """
    zone, changed, *_ = CHANGES[change]
    moment = datetime.fromisoformat(changed)
    if from_change_minutes is None:
        moment = moment.replace(hour=23, minute=30)
    else:
        moment += timedelta(minutes=from_change_minutes)
    nights = [moment + timedelta(days=days) for days in (-1, 0, 1)]
    world.set(schedule_hour=moment.hour, schedule_minute=moment.minute)
    world.created_at = f"{nights[0]:%Y-%m-%d}T00:00:00Z"
    world.account("acct", plan="gold")
    with time_zone(monkeypatch, zone), world.deployed(monkeypatch):
        for how, night in zip(TELLINGS, nights, strict=True):
            world.clock.set((night + timedelta(minutes=late_minutes, seconds=5)).isoformat())
            first = delivered(world, event("nightly", told(night, change, how)))
            assert (first["slot"], first["outcome"]) == (f"nightly#{night:%Y-%m-%dT%H:%M}:00.000Z", "completed")
            for other in TELLINGS:
                again = delivered(world, event("nightly", told(night, change, other)))
                assert (again["slot"], again["outcome"]) == (first["slot"], "duplicate"), other
            repeated = night + timedelta(hours=1)
            world.clock.set((repeated + timedelta(minutes=late_minutes, seconds=5)).isoformat())
            assert delivered(world, event("nightly", told(repeated, change, how)))["outcome"] == "idle"
    records = [row for sort_key, row in sorted(world.control().items()) if sort_key.startswith("INTERVAL#")]
    assert [row["scheduled_at"] for row in records] == [f"{night:%Y-%m-%dT%H:%M}:00.000Z" for night in nights]
    assert [row["sk"] for row in records] == [f"INTERVAL#{night:%Y-%m-%d}" for night in nights]
    assert {(row["state"], row["pass"], row["rerun"]) for row in records} == {("COMPLETED", 1, 0)}
    assert world.lease()["generation"] == len(nights), "each was worked on once"
    assert world.versions() == {"acct": 1}
