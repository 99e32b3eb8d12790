"""What nights and ticks ask for, request by request: a new one shows here. What was seen may have changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from reconciler import clock, keys
from tests.faults import Wire, meanwhile, writer_of
from tests.kit import begun, delivered, grants, hold, numbered
from tests.world import NIGHT, World, event

SECOND, THIRD = "2026-11-30", "2026-12-01"

BEGINNING = ["PutItem IdempotencyTable", "GetItem ControlTable"]
PAGES = ["Query EntitlementsTable", "Query AccountsTable"]
END = ["UpdateItem IdempotencyTable"]


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The job has done its first night."""
    grants(world, *numbered(3))
    with world.deployed(monkeypatch):
        assert delivered(world, event("nightly"))["outcome"] == "completed"
        yield world


def asked(world: World, kind: str, moment: str, outcome: str = "completed", remaining_s: float = 900) -> list[str]:
    """What a delivery asks for: operation and table, or whose transaction it is."""
    world.clock.set(moment)
    world.requests.clear()
    assert delivered(world, event(kind, moment), remaining_s)["outcome"] == outcome
    tables = {name: table for table, name in world.tables.items()}
    return [
        writer_of(request["TransactItems"])
        if operation == "TransactWriteItems"
        else f"{operation} {tables[request['TableName']]}"
        for operation, request in world.requests
    ]


def test_a_night_asks_for_eight_things_beside_its_pages_and_commits(stack: World) -> None:
    assert asked(stack, "nightly", f"{SECOND}T02:00:00Z") == [
        *BEGINNING,
        "Query ControlTable",
        *("observe", "acquire"),
        *PAGES,
        *("commit", "complete", "advance"),
        *END,
    ]


def test_by_default_a_full_page_and_the_accounts_that_only_the_view_has_are_one_commit(stack: World) -> None:
    """In small: each of the two parameters is divided by the same."""
    default = stack.settings
    stack.set(page_size=default.page_size // 1000, range_size=default.range_size // 1000)
    grants(stack, *numbered(stack.settings.page_size))
    for name in numbered(stack.settings.page_size - 1):
        stack.view_row(f"{name}-gone")
    writes = [each for each in asked(stack, "nightly", f"{SECOND}T02:00:00Z") if each == "commit"]
    assert len(writes) == 1
    assert stack.interval(SECOND)["accounts"] == 2 * stack.settings.page_size - 1


def test_an_idle_tick_asks_for_three_things(stack: World) -> None:
    assert asked(stack, "tick", f"{NIGHT}T02:05:00Z", "idle") == [*BEGINNING, *END]


def test_a_tick_for_which_an_interval_only_waits_for_a_person_asks_for_one_thing_more(stack: World) -> None:
    stack.put_control(keys.interval(NIGHT), state="NEEDS_REPAIR")
    stack.put_control(keys.CONTROL, open_from=NIGHT)
    assert asked(stack, "tick", f"{NIGHT}T02:05:00Z", "idle") == [*BEGINNING, "Query ControlTable", *END]


def test_the_first_night_of_all_asks_for_three_things_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.deployed(monkeypatch):
        assert asked(world, "nightly", f"{NIGHT}T02:00:05Z")[:6] == [
            *BEGINNING,
            *("DescribeTable ControlTable", "setup", "GetItem ControlTable"),
            "Query ControlTable",
        ]


def test_a_tick_that_goes_on_with_a_night_reads_only_how_far_it_came(stack: World) -> None:
    Wire(stack.client).next("commit", meanwhile(lambda: stack.clock.advance(840)))
    stack.set(page_size=2)
    asked(stack, "nightly", f"{SECOND}T02:00:00Z", "yielded")
    assert asked(stack, "tick", f"{SECOND}T02:15:00Z") == [
        *BEGINNING,
        *("Query ControlTable", "GetItem ControlTable"),
        "acquire",
        *PAGES,
        *("commit", "complete", "advance"),
        *END,
    ]


def test_of_two_nights_the_second_reads_its_lease_and_its_progress(stack: World) -> None:
    assert asked(stack, "tick", f"{THIRD}T02:00:05Z") == [
        *BEGINNING,
        "Query ControlTable",
        *("observe", "observe", "acquire"),
        *PAGES,
        *("commit", "complete"),
        *("GetItem ControlTable", "GetItem ControlTable", "acquire"),
        *PAGES,
        *("commit", "complete", "advance", "advance"),
        *END,
    ]


def taken(world: World) -> None:
    hold(world, "quicker")


def fenced_off(world: World) -> None:
    world.put_control("LEASE#000", generation=7, token="another")


def paused(world: World) -> None:
    world.put_control("LEASE#000", paused=1)


def begun_before(world: World) -> None:
    """As in a table restored by hand: the progress is there, and the run record knows nothing of it."""
    row = {"schema": 1, "attempts": 2, "rerun": 0, "done": False, "next_attempt_at_ms": 0}
    world.put_row("ControlTable", pk="entitlements", sk=f"PROGRESS#{NIGHT}#1#000", **row)


@pytest.mark.parametrize(
    ("since", "outcome", "generation", "begun"),
    [
        (taken, "delayed", 1, "STARTED"),
        (fenced_off, "completed", 8, "STARTED"),
        (paused, "paused", 0, None),
        (begun_before, "completed", 1, "RESUMED"),
    ],
)
def test_what_changed_since_it_was_seen_is_read_anew(
    world: World, since: Callable[[World], None], outcome: str, generation: int, begun: str | None
) -> None:
    wire = Wire(world.client)
    wire.next("acquire", meanwhile(lambda: since(world)))
    (result,) = world.run("nightly")
    assert result.outcome == outcome
    assert world.lease()["generation"] == generation
    assert ({*world.events()} & {"STARTED", "RESUMED"}) == ({begun} if begun else set())
    if outcome == "delayed":
        assert result.held_until == clock.text(world.lease()["expires_at_ms"])
        assert (world.lease()["owner"], set(world.interval()["delays"])) == ("quicker", {"lease_held"})


def test_a_night_that_another_observed_and_ended_meanwhile_is_not_begun(world: World) -> None:
    wire = Wire(world.client)
    wire.next("observe", meanwhile(lambda: world.run(owner="quicker")))
    assert world.run("nightly") == []
    assert world.events() == ["OBSERVED", "STARTED", "COMPLETED"]
    assert len(wire.requests("acquire")) == 1
    assert world.row("CONTROL")["open_from"] == SECOND


def test_a_lease_that_was_seen_as_held_is_read_again_before_anybody_is_told(world: World) -> None:
    world.run("nightly", remaining_s=60)
    hold(world, "quicker")
    world.requests.clear()
    (result,) = world.run()
    assert result.outcome == "delayed"
    assert [name for name, _ in world.requests][:3] == ["GetItem", "Query", "GetItem"]


def test_a_night_that_another_observed_meanwhile_is_begun_as_recorded(world: World) -> None:
    wire = Wire(world.client)
    wire.next("observe", meanwhile(lambda: world.run(owner="quicker", remaining_s=60)))
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.events() == ["OBSERVED", "STARTED", "COMPLETED"]


def test_a_night_that_is_observed_after_a_younger_one_runs_before_it(world: World) -> None:
    world.run("tick", remaining_s=60)
    results = world.run("nightly", time="2026-11-28T02:00:00Z")
    assert [(result.interval, result.outcome) for result in results] == [
        ("2026-11-28", "completed"),
        (NIGHT, "completed"),
    ]


def test_a_row_of_a_day_to_come_does_not_run(world: World) -> None:
    world.run("tick", remaining_s=60)
    world.put_row("ControlTable", **{**world.interval(), "sk": keys.interval(THIRD)})
    assert [result.interval for result in world.run()] == [NIGHT]


def test_segments_that_others_took_since_are_held_by_them_and_not_waiting(world: World) -> None:
    """Their progress tells of an attempt that was just counted; the lease, seen free, was read before."""
    world = World(world.client, {"SegmentCount": 3})
    begun(world)
    grants(world, *numbered(12))

    def others() -> None:
        for segment in ("001", "002"):
            hold(world, "worker-2", segment)

    Wire(world.client).next("commit", meanwhile(others))
    assert [result.outcome for result in world.run("nightly")] == ["completed", "delayed", "delayed"]
    assert world.counted()["LeaseContended"] == 2
