"""One bad night, told in real processes: killed, repeated, delayed, stalled, resumed, and completed all the same.

Five workers, each a process with its own credentials: A begins the night and is killed, B gets the triggers that
must change nothing, C takes over and freezes, D completes, and the watchdog looks. Whether the facts keep the
promises is judged in tools.promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reconciler.clock import SystemClock
from reconciler.invocation import Invocation
from reconciler.settings import Settings
from tools import verify
from tools.director import Director, Show, last_attempt, outcome
from tools.promises import Facts
from tools.scene import Scene, scene, scheduled_event
from tools.seed import Seeded, plan
from tools.timeline import Timeline, collect

LEASE_S = 5.0
SKEW_S = 0.2
TICK = timedelta(minutes=60)
HALF_TICK = timedelta(minutes=30)
"""The next night is this far ahead: within a tick, so that it may be triggered, and not due before it is."""

NOTHING_DONE = dict.fromkeys(("accounts", "ranges", "granted", "changed", "revoked", "rejected"), 0) | dict.fromkeys(
    ("state", "checksum", "completed_at", "first_started_at"), ""
)
"""What a run record shows before it is completed."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a listener may change; `changed` is the share of accounts out of line, 0 to 1."""

    accounts: int = 2000
    range_size: int = 60
    page_size: int = 100
    kill_after_range: int = 17
    seed: int = 0
    changed: float = 0.2


@dataclass(frozen=True, slots=True)
class Told:
    """A story that came to its end."""

    facts: Facts
    timeline: Timeline


def tell(options: Options, show: Show) -> Told:
    """Play the story once. Raises StoryError when it comes to a halt, and whatever its tools raise."""
    rows = plan(accounts=options.accounts, seed=options.seed, changed=options.changed)
    next_night = datetime.now(UTC).replace(second=0, microsecond=0) + HALF_TICK
    show.step(f"{options.accounts:,} accounts are seeded on both sides, and workers start")
    with scene(settings(options, rows, next_night)) as stage:
        return play(options, rows, (next_night - timedelta(days=1), next_night), stage, show)


def settings(options: Options, rows: Seeded, next_night: datetime) -> Mapping[str, object]:
    """The story's schedule, and a short lease with the short timeouts that it needs; all else as in the template."""
    return {
        "SCHEDULE_HOUR": next_night.hour,
        "SCHEDULE_MINUTE": next_night.minute,
        "TICK_MINUTES": round(TICK.total_seconds() / 60),
        "RANGE_SIZE": options.range_size,
        "PAGE_SIZE": options.page_size,
        "MAX_REVOCATIONS": max(500, rows.revoked),
        "LEASE_SECONDS": LEASE_S,
        "CLOCK_SKEW_SECONDS": SKEW_S,
        "CONNECT_TIMEOUT_SECONDS": 0.3,
        "READ_TIMEOUT_SECONDS": 0.9,
        "SDK_MAX_ATTEMPTS": 1,
    }


def play(options: Options, rows: Seeded, nights: tuple[datetime, datetime], stage: Scene, show: Show) -> Told:
    """The steps, in their order."""
    first, second = nights
    kill_after, page_size = options.kill_after_range, options.page_size
    director = Director(stage, show, first, TICK)
    a, b, c, d, watchdog = director.cast(rows, "worker-a", "worker-b", "worker-c", "worker-d", "watchdog")
    seeded_view = stage.rows("EntitlementsTable")
    source_pages = len(stage.pages("AccountsTable", page_size))
    view_pages = len(stage.pages("EntitlementsTable", page_size))

    show.step("The nightly trigger: worker A takes the lease and commits range after range")
    rest_of_a = director.hold(lambda call: call.caller == a.name and stage.commits(a.name) >= kill_after)
    a.send(scheduled_event("nightly", first))
    director.until(lambda: stage.commits(a.name) >= (kill_after + 1) // 2, "worker A commits ranges", a)
    generations = [stage.lease()["generation"]]

    show.step("A second trigger (worker B) meets the living holder")
    beside_the_living = b.call(director.tick())

    show.step(f"Worker A is killed (SIGKILL) after range {kill_after}")
    director.until(lambda: rest_of_a.held, f"worker A goes on after range {kill_after}", a)
    director.note("killed", a)
    a.kill()
    rest_of_a.drop()
    killed = stage.progress(first)

    show.step("The same event comes again, and another trigger while the dead holder's lease stands")
    repeated = b.call(scheduled_event("nightly", first))
    director.note(outcome(repeated), b, "same event")
    beside_the_dead = b.call(director.tick())
    reads_of_refused = stage.source_reads(b.name)

    show.step("The watchdog looks while nobody works")
    late_before = director.seconds_late(watchdog)

    show.step("The lease expires, and the next trigger takes over (worker C)")
    director.expiry()
    late_commit = director.hold(
        lambda call: call.caller == c.name and call.operation == "TransactWriteItems" and stage.commits(c.name) == 1
    )
    c.send(director.tick())
    director.until(lambda: late_commit.held, "worker C sends its second commit", c)

    show.step("Worker C freezes, its commit still on the way; the lease expires, and worker D takes over")
    director.note("frozen", c)
    c.stop()
    director.expiry()
    finishing = last_attempt(d.call(director.tick()))

    show.step("The late commit arrives, and worker C wakes up")
    view_before = stage.rows("EntitlementsTable")
    late_commit.release()
    director.until(lambda: stage.refusals(c.name), "the table answers worker C's late commit")
    director.note("refused", c, "late commit")
    c.go_on()
    woken = last_attempt(c.reply())
    view = stage.rows("EntitlementsTable")
    growth = verify.growth(seeded_view, view)
    on_the_wire = stage.view_writes()
    source_reads = stage.source_reads()

    show.step("The next night's trigger, now that the first night is done")
    following = last_attempt(b.call(scheduled_event("nightly", second)))

    show.step("The watchdog looks again")
    late_after = director.seconds_late(watchdog)

    record, next_record = NOTHING_DONE | stage.run_record(first), NOTHING_DONE | stage.run_record(second)
    timeline = on_record(stage, first, second).noted(f"{first:%Y-%m-%d}", director.notes)
    facts = Facts(
        state=record["state"],
        killed_after_range=stage.commits(a.name),
        resumed_after_range=killed["ranges"] if woken["resumed_after"] == killed["checkpoint"] else None,
        generations=[*generations, *(one["generation"] for one in (woken, finishing, following))],
        accounts=record["accounts"],
        source_pages=source_pages,
        view_pages=view_pages,
        ranges=record["ranges"],
        granted=record["granted"],
        changed=record["changed"],
        revoked=record["revoked"],
        rejected=record["rejected"],
        seeded={name: getattr(rows, name) for name in ("granted", "changed", "revoked", "rejected")},
        out_of_line=len(verify.out_of_line(stage.rows("AccountsTable"), view)),
        max_changes_per_account=max(growth.values()),
        writes_agree=all(on_the_wire[account_id] == versions for account_id, versions in growth.items()),
        source_reads=source_reads,
        source_reads_minimum=source_pages,
        reads_of_refused_triggers=reads_of_refused,
        checksum=record["checksum"],
        view_checksum=verify.view_checksum(view),
        duplicate_delivery=outcome(repeated),
        delayed_trigger=outcome(beside_the_living),
        delayed_by_the_dead=outcome(beside_the_dead),
        stale_commit=stage.refusals(c.name)[0],
        view_changed_by_stale_commit=view != view_before,
        woken_holder=woken["outcome"],
        second_interval_state=next_record["state"],
        second_interval_changes=stage.view_writes().total() - on_the_wire.total(),
        second_interval_waited=next_record["first_started_at"] >= record["completed_at"] > "",
        late_before=late_before,
        late_after=late_after,
    )
    return Told(facts, timeline)


def on_record(stage: Scene, *nights: datetime) -> Timeline:
    """Who held which lease when, as the ControlTable tells it."""
    invocation = Invocation(
        settings=Settings.from_env(stage.environment),
        client=stage.client,
        clock=SystemClock(),
        remaining_ms=lambda: 900_000,
        owner="demo",
    )
    return collect([f"{night:%Y-%m-%d}" for night in nights], invocation=invocation)
