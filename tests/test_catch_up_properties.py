"""The catch-up plan over random clocks, outages, policies and histories: on values, over a life, through real runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from reconciler import clock, keys
from reconciler.control import Control
from reconciler.intervals import EXPIRED, SUPERSEDED, Calendar, Plan, catch_up, next_id, shifted
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, STATES, RunRecord
from reconciler.settings import EACH, LATEST, Settings
from reconciler.work import Job
from tests.histories import DAY_MS, MOVES, Life, controlled, recorded
from tests.kit import Killed, doing, environ, kill
from tests.world import NIGHT, Slow, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

SETTINGS = Settings.from_env(environ())

starts = st.sampled_from([NIGHT, "2026-12-28", "2027-02-26", "2028-02-26", "2028-02-29", "2100-02-26"]) | st.dates(
    date(1971, 1, 1), date(2190, 1, 1)
).map(date.isoformat)
schedules = st.tuples(st.integers(0, 23), st.integers(0, 59))
windows = st.integers(1, 10) | st.sampled_from([30, 364, 365])
policies = st.sampled_from([EACH, LATEST])
ages_ms = st.integers(-DAY_MS, 20 * DAY_MS) | st.integers(399 * DAY_MS, 401 * DAY_MS)


@st.composite
def deployments(draw: Any) -> Settings:
    hour, minute = draw(schedules)
    policy, days = draw(policies), draw(windows)
    return replace(SETTINGS, schedule_hour=hour, schedule_minute=minute, catch_up_policy=policy, catch_up_days=days)


@st.composite
def histories(draw: Any) -> tuple[int, Settings, list[RunRecord], Control]:
    """What `catch_up` may be asked for: some records are pinned to another schedule, one may lie in the future."""
    deployed = draw(deployments())
    first = draw(starts)
    open_from = shifted(first, draw(st.integers(0, 5)))
    age_ms = draw(ages_ms)
    days = st.integers(0, max(0, age_ms // DAY_MS + 1))
    found = {}
    for day in draw(st.lists(days, max_size=12)):
        hour, minute = draw(schedules)
        pinned = Calendar(hour, minute, 240) if draw(st.booleans()) else Calendar.of(deployed)
        interval_id, state = shifted(open_from, day), draw(st.sampled_from(STATES))
        found[interval_id] = recorded(interval_id, state, pinned, acknowledged=draw(st.booleans()))
    now_ms = Calendar.of(deployed).scheduled_ms(open_from) + age_ms
    return now_ms, deployed, list(found.values()), controlled(first, open_from)


def places(plan: Plan) -> dict[str, str]:
    """Interval → the one place it is in; fails when it is in two."""
    listed = {
        "run": plan.run,
        "skip": tuple(skip.interval_id for skip in plan.skip),
        "waiting": plan.waiting,
        "closed": plan.closed,
    }
    for name, intervals in listed.items():
        assert list(intervals) == sorted(set(intervals)), f"{name} is not oldest first, each once"
    found = {interval_id: name for name, intervals in listed.items() for interval_id in intervals}
    assert len(found) == sum(map(len, listed.values())), "in two places"
    return found


def keeps_its_promises(
    plan: Plan, now_ms: int, deployed: Settings, records: Iterable[RunRecord], control: Control
) -> None:
    """Every statement about a plan that does not depend on how it was made."""
    known = {record.interval_id: record for record in records}
    calendar = Calendar.of(deployed)
    place = places(plan)

    expected = set(known)
    interval_id = max(control.first_interval, control.open_from)
    while calendar.scheduled_ms(interval_id) <= now_ms:
        expected.add(interval_id)
        interval_id = next_id(interval_id)
    assert set(place) == expected, "something was lost or invented"
    assert plan.unrecorded == expected - set(known)

    def never_started(interval_id: str) -> bool:
        return interval_id not in known or known[interval_id].state == EXPECTED

    def expired(interval_id: str) -> bool:
        record = known.get(interval_id)
        at_ms = clock.parse_ms(record.scheduled_at) if record else calendar.scheduled_ms(interval_id)
        return at_ms + deployed.catch_up_days * DAY_MS < now_ms

    in_force = [one for one in expected if one not in known or known[one].state != SKIPPED]
    for interval_id, where in place.items():
        state = known[interval_id].state if interval_id in known else EXPECTED
        acknowledged = interval_id in known and known[interval_id].acknowledged
        if state == RUNNING:
            assert where == "run", "a started interval never expires"
        elif state == EXPECTED:
            superseded = deployed.catch_up_policy == LATEST and interval_id < max(in_force)
            assert where == ("skip" if expired(interval_id) or superseded else "run")
        elif state == COMPLETED or acknowledged:
            assert where == "closed"
        else:
            assert where == "waiting"
    for skip in plan.skip:
        assert never_started(skip.interval_id)
        if expired(skip.interval_id):
            assert (skip.reason, skip.superseded_by) == (EXPIRED, None)
        else:
            assert (skip.reason, skip.superseded_by) == (SUPERSEDED, max(in_force))
            assert place[max(in_force)] != "skip", "superseded by what is skipped itself"
    if deployed.catch_up_policy == LATEST:
        assert sum(map(never_started, plan.run)) <= 1
    if in_force and never_started(max(in_force)) and not expired(max(in_force)):
        assert max(in_force) in plan.run, "the newest is never given up"


MISSED_400 = controlled("2027-01-25"), clock.parse_ms("2028-02-29T02:00:00Z")
"""400 nights, the newest of them a leap day."""


@given(histories())
@example((MISSED_400[1], SETTINGS, [], MISSED_400[0]))
@example((MISSED_400[1], replace(SETTINGS, catch_up_policy=LATEST), [], MISSED_400[0]))
@settings(max_examples=300)
def test_every_due_interval_has_exactly_one_place_and_the_right_one(
    history: tuple[int, Settings, list[RunRecord], Control],
) -> None:
    keeps_its_promises(catch_up(*history), *history)


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_and_the_repetition_of_records_never_change_the_plan(
    history: tuple[int, Settings, list[RunRecord], Control], chance: random.Random
) -> None:
    now_ms, deployed, records, control = history
    shuffled = [*records, *chance.sample(records, len(records) // 2)]
    chance.shuffle(shuffled)
    assert catch_up(now_ms, deployed, iter(shuffled), control) == catch_up(*history)


@given(histories())
def test_a_plan_that_was_followed_changes_nothing_when_it_is_made_again(
    history: tuple[int, Settings, list[RunRecord], Control],
) -> None:
    now_ms, deployed, records, control = history
    first = catch_up(*history)
    rows = {record.interval_id: record for record in records}
    for skip in first.skip:
        pinned = recorded(skip.interval_id, SKIPPED, Calendar.of(deployed))
        rows[skip.interval_id] = replace(rows.get(skip.interval_id, pinned), state=SKIPPED, acknowledged=False)
    for interval_id in first.run:
        rows.setdefault(interval_id, recorded(interval_id, EXPECTED, Calendar.of(deployed)))
    again = catch_up(now_ms, deployed, rows.values(), control)
    assert (again.run, again.closed) == (first.run, first.closed)
    assert set(again.waiting) == {*first.waiting, *(skip.interval_id for skip in first.skip)}
    assert (again.skip, again.unrecorded) == ((), frozenset())


@given(histories())
def test_with_each_an_interval_is_judged_by_nothing_but_itself(
    history: tuple[int, Settings, list[RunRecord], Control],
) -> None:
    """So nothing that waits for a person, or for its next attempt, is in the way of a younger one."""
    now_ms, deployed, records, control = history
    deployed = replace(deployed, catch_up_policy=EACH)
    together = places(catch_up(now_ms, deployed, records, control))
    alone = places(catch_up(now_ms, deployed, [], control))
    for record in records:
        alone |= {record.interval_id: places(catch_up(now_ms, deployed, [record], control))[record.interval_id]}
    assert together == alone


@given(histories(), st.integers(1, 30))
def test_a_longer_window_gives_up_no_more(
    history: tuple[int, Settings, list[RunRecord], Control], more_days: int
) -> None:
    now_ms, deployed, records, control = history
    longer = replace(deployed, catch_up_days=deployed.catch_up_days + more_days)
    kept, given_up = places(catch_up(now_ms, longer, records, control)), places(catch_up(*history))
    assert {one for one in kept if kept[one] == "skip"} <= {one for one in given_up if given_up[one] == "skip"}


# --------------------------------------------------------------------------------------------------- a stack's life

waits = st.integers(1, 3 * DAY_MS).map(lambda ms: ("wait", ms))
outages = st.sampled_from([4, 9, 40, 150, 400]).map(lambda days: ("wait", days * DAY_MS))
steps_back = st.sampled_from([1_000, 59_000, 3_600_000, 5 * 3_600_000, DAY_MS, 3 * DAY_MS, 30 * DAY_MS]).map(
    lambda ms: ("back", ms)
)
changes = st.one_of(
    policies.map(lambda policy: ("set", {"catch_up_policy": policy})),
    windows.map(lambda days: ("set", {"catch_up_days": days})),
    schedules.map(lambda at: ("set", {"schedule_hour": at[0], "schedule_minute": at[1]})),
)
ticks = st.just(("tick", None))
attempts = st.tuples(st.integers(0, 5), st.sampled_from([RUNNING, COMPLETED, NEEDS_REPAIR])).map(
    lambda attempt: ("work", attempt)
)
deeds = st.tuples(st.sampled_from(["skip", "acknowledge", "rerun", "lower"]), st.integers(0, 5))
lives = st.lists(st.one_of(waits, outages, steps_back, ticks, ticks, attempts, attempts, changes, deeds), max_size=25)


def lives_on(life: Life, kind: str, about: Any) -> None:
    """One thing that happens to a stack; what cannot happen as things stand does not."""
    match kind:
        case "wait":
            life.now_ms += about
        case "back":
            life.now_ms -= about
        case "set":
            life.settings = replace(life.settings, **about)
        case "tick":
            follows_the_plan(life)
            life.close_books()
        case "work":
            runnable = follows_the_plan(life).run
            if runnable:
                life.work(runnable[about[0] % len(runnable)], about[1])
            life.close_books()
        case "lower":
            life.lower(shifted(life.control.first_interval, -about))
        case _:
            wanted = {"skip": (EXPECTED,), "acknowledge": (SKIPPED, NEEDS_REPAIR), "rerun": STATES}[kind]
            if found := [one for one, row in sorted(life.rows.items()) if row.state in wanted]:
                chosen = found[about % len(found)]
                if kind == "skip":
                    life.move(chosen, SKIPPED)
                elif kind == "acknowledge":
                    life.acknowledge(chosen)
                else:
                    life.rerun(chosen)


def follows_the_plan(life: Life) -> Plan:
    """A tick, whose plan keeps its promises; a second one at the same moment changes nothing."""
    records = life.found()
    while True:
        plan = life.tick()
        keeps_its_promises(plan, life.now_ms, life.settings, records, life.control)
        again = life.plan()
        assert again.run == plan.run
        if not again.skip:
            assert not again.unrecorded
            return plan
        assert len(again.skip) < len(plan.skip)
        records = life.found()


@given(deployments(), starts, lives)
@example(SETTINGS, "2027-01-25", [("wait", 400 * DAY_MS), ("tick", None), ("back", DAY_MS), ("tick", None)])
@settings(max_examples=150)
def test_over_a_whole_life_nothing_is_lost_invented_or_opened_again(
    deployed: Settings, first: str, happens: list[tuple[str, Any]]
) -> None:
    life = Life(deployed, Calendar.of(deployed).scheduled_ms(first), controlled(first))
    for kind, about in [*happens, ("tick", None)]:
        before = life.states
        lives_on(life, kind, about)
        assert before.keys() <= life.states.keys()
        due_ms = max(life.sight_ms, life.now_ms)
        assert all(interval_id <= clock.text(due_ms)[:10] for interval_id in life.states)
    life.now_ms = max(life.sight_ms, life.now_ms)
    follows_the_plan(life)
    assert {move[1:] for move in life.moves} <= MOVES
    recorded_first = [interval_id for interval_id, before, _ in life.moves if before is None]
    assert sorted(recorded_first) == sorted(life.rows), "recorded twice"
    if life.rows:
        nights = [shifted(life.control.first_interval, day) for day in range(len(life.rows))]
        assert sorted(life.rows) == nights, "a night between the first and the last one was lost"


# -------------------------------------------------------------------------------------------------- through real runs


class Broken(Exception):
    """Stands for a job that cannot succeed."""


def spoiled(world: World, fails: Callable[[str | None], None]) -> Job:
    return Job(Slow(None, world.clock, fails=fails), Slow(None, world.clock, fails=fails))


def breaks(_: str | None) -> None:
    raise Broken


def freed(world: World) -> None:
    """Nothing that the killed worker left keeps the next one waiting, or counts against it."""
    world.put_control("LEASE#000", owner=..., expires_at_ms=...)
    for sort_key in world.control():
        if sort_key.startswith("PROGRESS#"):
            world.put_control(sort_key, attempts=0, next_attempt_at_ms=...)


def really(world: World, life: Life, kind: str, about: Any) -> None:
    """The same thing happens to a stack and to its model."""
    if kind in ("wait", "back", "set"):
        lives_on(life, kind, about)
        world.clock.wall_ms = life.now_ms
        if kind == "set":
            world.set(**about)
    elif kind == "skip":
        if found := [one for one, state in life.states.items() if state == EXPECTED]:
            life.move(found[about % len(found)], SKIPPED)
            world.put_control(keys.interval(found[about % len(found)]), state=SKIPPED)
    elif kind == "acknowledge":
        if found := [one for one, state in life.states.items() if state in (SKIPPED, NEEDS_REPAIR)]:
            life.acknowledge(found[about % len(found)])
            world.put_control(keys.interval(found[about % len(found)]), acknowledged_at=clock.text(life.now_ms))
    elif kind == "no time":
        if not follows_the_plan(life).run:
            life.close_books()
        world.run(remaining_s=60)
    elif kind == "completes":
        for interval_id in follows_the_plan(life).run:
            life.work(interval_id, COMPLETED)
        life.close_books()
        world.run()
    elif kind == "breaks":
        runnable = follows_the_plan(life).run
        for interval_id in runnable:
            life.work(interval_id, NEEDS_REPAIR)
        life.close_books()
        try:
            world.run(job=doing(spoiled(world, breaks)))
        except Broken:
            assert runnable
    elif runnable := follows_the_plan(life).run:
        life.work(runnable[0], RUNNING)
        with pytest.raises(Killed):
            world.run(job=doing(spoiled(world, lambda _: kill())))
        freed(world)


real_lives = st.lists(
    st.one_of(
        waits,
        st.sampled_from([4, 9]).map(lambda days: ("wait", days * DAY_MS)),
        steps_back,
        st.sampled_from(["no time", "completes", "completes", "breaks", "killed"]).map(lambda kind: (kind, None)),
        changes,
        st.tuples(st.sampled_from(["skip", "acknowledge"]), st.integers(0, 5)),
    ),
    max_size=12,
)


@given(st.sampled_from([NIGHT, "2028-02-26", "2026-12-29"]), policies, st.integers(1, 4), real_lives)
@settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],  # to shrink real runs takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_tables_show_what_the_model_says(
    client: DynamoDBClient, first: str, policy: str, days: int, happens: list[tuple[str, Any]]
) -> None:
    world = World(client)
    world.created_at = f"{first}T00:00:00Z"
    world.clock.step_ms = 0
    world.clock.set(f"{first}T02:00:05Z")
    world.set(catch_up_policy=policy, catch_up_days=days, max_attempts=1)
    world.run()
    life = Life(world.settings, world.clock.wall_ms, controlled(first))
    really(world, life, "completes", None)
    for kind, about in [*happens, ("no time", None), ("completes", None)]:
        really(world, life, kind, about)
        rows = world.control()
        assert {
            sort_key.removeprefix("INTERVAL#"): row["state"]
            for sort_key, row in sorted(rows.items())
            if sort_key.startswith("INTERVAL#")
        } == life.states
        assert rows["CONTROL"]["open_from"] == life.control.open_from
    audit = [row for sort_key, row in world.control().items() if sort_key.startswith("AUDIT#")]
    events = Counter((row["run_id"].split("/")[1], row["event"]) for row in audit)
    for interval_id, state in life.states.items():
        assert events[interval_id, "OBSERVED"] <= 1
        assert events[interval_id, "STARTED"] <= 1
        assert events[interval_id, "COMPLETED"] == (state == COMPLETED)
