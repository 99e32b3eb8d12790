"""Preview: what a run would do now, told without doing it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.checksum import canonical
from reconciler.errors import InvalidTrigger, OutOfTime
from reconciler.preview import COUNTED
from reconciler.source import AccountsTable
from tests.faults import Wire
from tests.kit import command, delivered, everything, grants, killed, numbered, ordered
from tests.world import JOB, NIGHT, Slow, World, event

if TYPE_CHECKING:
    from reconciler.invocation import Invocation

GOLD, SILVER = {"plan": "gold"}, {"plan": "silver"}


@pytest.fixture
def stack(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with live.deployed(monkeypatch):
        yield live


SOURCES: list[dict[str, Any] | None] = [
    None,
    {"status": "active", "entitlements": GOLD},
    {"status": "active", "entitlements": {"seats": 3}},
    {"status": "cancelled", "entitlements": GOLD},
    {"status": "active", "entitlements": {}},
    {"status": "unheard of", "entitlements": GOLD},
    {"status": "active", "entitlements": ["no map"]},
    {},
]
VIEWS: list[dict[str, Any] | None] = [
    None,
    {"entitlements": GOLD, "version": 3},
    {"entitlements": SILVER},
    {"entitlements": {}, "version": 1},
    {"entitlements": "no map", "version": 1},
    {"entitlements": GOLD, "version": "x"},
    {},
]


def anything(world: World, random: Random, count: int) -> None:
    """Accounts in every relation of the two sides, three in ten of them malformed."""
    for name in numbered(count):
        for table, rows in (("AccountsTable", SOURCES), ("EntitlementsTable", VIEWS)):
            usual = random.random() < 0.7
            if (row := random.choice(rows[:4] if usual else rows)) is not None:
                world.put(table, name, **row)


def held(world: World) -> dict[str, str]:
    """What the view holds for each account, as canonical JSON."""
    return {row["account_id"]: canonical(row.get("entitlements")) for row in world.scan("EntitlementsTable")}


@dataclass(frozen=True, slots=True)
class SlowPages(Slow):
    """Only a whole page takes its time: whether there is an account at all is known at once."""

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
        side = self.side if limit == 1 else Slow(self.side, self.clock, self.seconds)
        return side.read(segment, after=after, upto=upto, limit=limit)


def slow_source(monkeypatch: pytest.MonkeyPatch, world: World, seconds: float) -> None:
    def made(invocation: Invocation) -> Any:
        return SlowPages(AccountsTable(invocation), world.clock, seconds)

    monkeypatch.setattr("reconciler.source.AccountsTable", made)


def on_and_on(world: World, remaining_s: float = 900) -> list[dict[str, Any]]:
    """The results of as many previews as it takes."""
    told: list[dict[str, Any]] = []
    while not told or not told[-1]["complete"]:
        assert len(told) < 40
        on = told[-1]["next"] if told else {}
        answer = delivered(world, command("Preview", **on), remaining_s)
        told.append(answer["result"])
    return told


def summed(told: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(part[name] for part in told) for name in COUNTED}


# ------------------------------------------------------------------------------------------- as the run that follows


@pytest.mark.parametrize("seed", range(10))
def test_a_preview_tells_what_the_run_that_follows_does(
    live: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    world = World(
        live.client, {"SegmentCount": random.choice([1, 1, 3])}, RANGE_SIZE=7, PAGE_SIZE=random.choice([3, 10, 100])
    )
    anything(world, random, random.choice([0, 8, 40]))
    world.set(max_revocations=random.choice([0, 2, 500, 500]))
    with world.deployed(monkeypatch):
        told = ordered(world, "Preview")
        view = held(world)
        outcome = delivered(world, event("nightly"))["outcome"]
    assert (told["complete"], told["next"]) == (True, None)
    assert (outcome, told["guard"] is None) in {("completed", True), ("tripped", False), ("paused", False)}
    if told["guard"] is None:
        assert {name: told[name] for name in COUNTED} == {name: world.interval()[name] for name in COUNTED}
        after = held(world)
        for one in told["first"]:
            assert one["before"] == view.get(one["account_id"])
            assert one["after"] == (None if one["what"] == "rejected" else after[one["account_id"]])
        changed = {name for name in after if after[name] != view.get(name)}
        assert {one["account_id"] for one in told["first"] if one["what"] != "rejected"} == changed
        rejected = {row["account_id"]: row["reason"] for row in world.audit() if row["event"] == "REJECTED"}
        assert {one["account_id"]: one["reason"] for one in told["first"] if one["what"] == "rejected"} == rejected


def test_a_preview_of_each_kind_of_change_is_exact(stack: World) -> None:
    stack.account("a", plan="gold", seats=10)
    stack.account("b", plan="gold")
    stack.view_row("b", plan="silver")
    stack.account("c", status="cancelled")
    stack.view_row("c", plan="gold")
    stack.view_row("d", plan="gold", on=True)
    stack.put("AccountsTable", "e", status="unheard of", entitlements={})
    stack.view_row("e", plan="old")
    stack.account("f", plan="gold")
    stack.view_row("f", plan="gold")
    told = ordered(stack, "Preview")
    assert told.pop("first") == [
        {"account_id": "a", "what": "granted", "before": None, "after": '{"plan":"gold","seats":10}', "reason": None},
        {
            "account_id": "b",
            "what": "changed",
            "before": '{"plan":"silver"}',
            "after": '{"plan":"gold"}',
            "reason": None,
        },
        {"account_id": "c", "what": "revoked", "before": '{"plan":"gold"}', "after": "{}", "reason": None},
        {"account_id": "d", "what": "revoked", "before": '{"on":true,"plan":"gold"}', "after": "{}", "reason": None},
        {
            "account_id": "e",
            "what": "rejected",
            "before": '{"plan":"old"}',
            "after": None,
            "reason": "source status is neither 'active' nor 'cancelled'",
        },
    ]
    counts = {"accounts": 6, "granted": 1, "changed": 1, "revoked": 2, "rejected": 1, "view_rows": 6, "source_rows": 5}
    assert told == counts | {"guard": None, "complete": True, "next": None}


def test_on_empty_tables_there_is_nothing_to_tell(stack: World) -> None:
    told = ordered(stack, "Preview")
    assert summed([told]) == dict.fromkeys(COUNTED, 0)
    assert (told["first"], told["guard"], told["complete"]) == ([], None, True)


# -------------------------------------------------------------------------------------------------------- the guard


def test_the_guard_says_what_it_will_say_of_too_many_revocations(stack: World) -> None:
    stack.set(max_revocations=2)
    stack.account("z", plan="gold")
    for name in numbered(5):
        stack.view_row(name, plan="gold")
    told = ordered(stack, "Preview")
    assert told["guard"] == "5 revocations, but only 2 are allowed"
    delivered(stack, event("nightly"))
    assert stack.row("CONTROL")["pause"]["why"] == told["guard"]


@pytest.mark.parametrize("bound", [500, 0], ids=["usual bound", "no revocations allowed"])
def test_the_guard_says_what_it_will_say_of_an_empty_source(stack: World, bound: int) -> None:
    stack.set(max_revocations=bound)
    for name in numbered(5):
        stack.view_row(name, plan="gold")
    told = ordered(stack, "Preview")
    delivered(stack, event("nightly"))
    assert stack.row("CONTROL")["pause"]["why"] == told["guard"] is not None


@pytest.mark.parametrize("bare", ["000", "001"])
def test_one_segment_without_a_source_is_told(live: World, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    world = World(live.client, {"SegmentCount": 2})
    for segment in ("000", "001"):
        row = {"segment": segment, "account_id": f"a-{segment}"}
        world.put_row("EntitlementsTable", **row, entitlements=GOLD, version=1)
        if segment != bare:
            world.put_row("AccountsTable", **row, status="active", entitlements=GOLD)
    with world.deployed(monkeypatch):
        told = ordered(world, "Preview")
        assert told["guard"] == "the source is empty, but the view is not"
        delivered(world, event("nightly"))
    assert world.row("CONTROL")["pause"]["why"] == told["guard"]


@pytest.mark.parametrize("remaining_s", [150, 200])
def test_an_empty_source_is_told_however_many_invocations_it_takes(
    stack: World, monkeypatch: pytest.MonkeyPatch, remaining_s: float
) -> None:
    stack.set(page_size=2)
    for name in numbered(9):
        stack.view_row(name, plan="gold")
    slow_source(monkeypatch, stack, 50)
    told = on_and_on(stack, remaining_s)
    assert {part["guard"] for part in told} - {None} == {"the source is empty, but the view is not"}


def test_an_empty_source_is_told_though_only_the_first_page_has_something_to_lose(
    stack: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.set(page_size=2)
    for index, name in enumerate(numbered(9)):
        entitlements = {"plan": "gold"} if index < 2 else {}
        stack.put("EntitlementsTable", name, entitlements=entitlements, version=1)
    slow_source(monkeypatch, stack, 12)
    told = on_and_on(stack, 90)
    assert len(told) > 1
    assert {part["guard"] for part in told} - {None} == {"the source is empty, but the view is not"}


# ------------------------------------------------------------------------------------------- more than one invocation


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("seconds", "remaining_s"), [(50, 450), (200, 900), (825, 900)])
def test_a_preview_that_takes_several_invocations_adds_up_to_the_run(
    live: World, monkeypatch: pytest.MonkeyPatch, seconds: float, remaining_s: float, seed: int
) -> None:
    """A read of the source takes so long; at worst one page fits into an invocation."""
    world = World(live.client, {"SegmentCount": 2}, RANGE_SIZE=10, PAGE_SIZE=2)
    anything(world, Random(seed), 40)
    with world.deployed(monkeypatch), monkeypatch.context() as patch:
        slow_source(patch, world, seconds)
        told = on_and_on(world, remaining_s)
    assert len(told) > 1
    assert [part["next"] is None for part in told] == [False] * (len(told) - 1) + [True]
    with world.deployed(monkeypatch):
        assert delivered(world, event("nightly"))["outcome"] == "completed"
    assert summed(told) == {name: world.interval()[name] for name in COUNTED}
    named = Counter(one["account_id"] for part in told for one in part["first"])
    assert set(named.values()) <= {1}
    kinds = Counter(one["what"] for part in told for one in part["first"])
    assert kinds == +Counter({name: world.interval()[name] for name in ("granted", "changed", "revoked", "rejected")})


def test_a_page_is_all_it_takes_and_without_one_it_is_an_error(stack: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.set(page_size=2)
    grants(stack, *numbered(6))
    told = delivered(stack, command("Preview"), remaining_s=75)["result"]
    assert (told["accounts"], told["complete"], told["next"]) == (2, False, {"segment": "000", "after": "acct-0001"})
    before = everything(stack)
    with pytest.raises(OutOfTime):
        delivered(stack, command("Preview"), remaining_s=29)
    slow_source(monkeypatch, stack, 60)
    with pytest.raises(OutOfTime):
        delivered(stack, command("Preview"), remaining_s=75)
    assert everything(stack) == before


def test_a_preview_may_begin_anywhere(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(live.client, {"SegmentCount": 2})
    for segment in ("000", "001"):
        for name in "abc":
            row = {"segment": segment, "account_id": f"{name}-{segment}"}
            world.put_row("AccountsTable", **row, status="active", entitlements=GOLD)
    with world.deployed(monkeypatch):
        for asked, accounts in (
            ({}, 6),
            ({"segment": "001"}, 3),
            ({"segment": "000", "after": "b-000"}, 4),
            ({"after": "b"}, 5),
            ({"segment": "001", "after": "c-001"}, 0),
            ({"segment": "001", "after": "x" * 1024}, 0),
        ):
            told = ordered(world, "Preview", **asked)
            assert (told["accounts"], told["complete"]) == (accounts, True), asked


def test_a_preview_that_was_done_before_still_tells_where_to_go_on(stack: World) -> None:
    stack.set(page_size=2)
    grants(stack, *numbered(6))
    first = delivered(stack, command("Preview", "p-1"), remaining_s=75)
    for row in stack.scan("IdempotencyTable"):
        key: Any = {"id": {"S": row["id"]}}
        stack.client.delete_item(TableName=stack.tables["IdempotencyTable"], Key=key)
    again = delivered(stack, command("Preview", "p-1"))
    assert again["outcome"] == "repeated"
    assert again["result"]["complete"] is False
    assert again["result"]["next"] == first["result"]["next"]


# ------------------------------------------------------------------------------------------------ how much it answers


def test_the_first_hundred_changes_are_shown_and_all_are_counted(stack: World) -> None:
    grants(stack, *numbered(130))
    told = ordered(stack, "Preview")
    assert told["granted"] == 130
    assert [one["account_id"] for one in told["first"]] == numbered(100)


@pytest.mark.parametrize(
    ("text", "most"),
    [("x" * 20_000, 150_000), ("x" * 180_000, 150_000), ("é" * 9_000, 150_000), ('"\\' * 9_000, 250_000)],
    ids=["large", "huge", "not ascii", "quotes"],
)
def test_the_answer_stays_small_and_is_remembered_whatever_the_rows_hold(stack: World, text: str, most: int) -> None:
    """An answer larger than 400 kB could not be stored for the second delivery."""
    for name in numbered(20):
        stack.account(name, notes=text)
        stack.view_row(name, notes=text[:-1])
    answer = delivered(stack, command("Preview", "p-1"))
    assert answer["result"]["changed"] == 20
    assert len(json.dumps(answer)) < most
    assert delivered(stack, command("Preview", "p-1"))["first"] == answer


def test_an_account_id_beyond_all_measure_is_refused_in_few_words(stack: World) -> None:
    with pytest.raises(InvalidTrigger, match=r"detail.after: must be an account id of at most 1024 bytes") as error:
        delivered(stack, command("Preview", after="x" * 500_000))
    assert len(str(error.value)) < 2_000


# ------------------------------------------------------------------------------------------------------ and does not do


def test_a_preview_writes_nothing_but_its_audit_row(stack: World) -> None:
    grants(stack, *numbered(3))
    stack.view_row("gone", plan="gold")
    delivered(stack, command("Preview", "p-1", requested_by="bea", reason="before a rerun"))
    (row,) = stack.scan("ControlTable")
    assert row["sk"].startswith(f"AUDIT#{JOB}#OPERATOR#")
    assert (row["event"], row["actor"], row["reason"]) == ("PREVIEWED", "bea", "before a rerun")
    assert (row["granted"], row["revoked"], row["complete"], "first" in row) == (3, 1, True, False)
    assert stack.view() == {"gone": GOLD}


@pytest.mark.parametrize("beside", ["a holder at work", "a pause"])
def test_a_preview_disturbs_nobody(stack: World, beside: str) -> None:
    stack.set(range_size=2, page_size=2)
    grants(stack, *numbered(6))
    if beside == "a pause":
        ordered(stack, "Pause")
    else:
        killed(stack, Wire(stack.client), "commit", 2)
    before = stack.control()
    told = ordered(stack, "Preview")
    assert told["granted"] == (6 if beside == "a pause" else 4)
    after = stack.control()
    assert {name: row for name, row in after.items() if name in before} == before
    assert [row["event"] for name, row in after.items() if name not in before] == ["PREVIEWED"]
    assert NIGHT in "".join(before) or beside == "a pause"
