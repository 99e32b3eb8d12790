"""Pages that end on the last row, checkpoints whose row is gone, and rows beside a page boundary."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from reconciler.merge import Page
from reconciler.scan import MOST_AHEAD, Sides
from reconciler.source import AccountsTable, SourceRecord
from reconciler.view import EntitlementsTable, ViewRow
from reconciler.watchdog import look
from reconciler.work import Job
from tests.faults import PASS, Wire, meanwhile
from tests.kit import Killed, Rows, grants, kill, killed, later, numbered, wait
from tests.world import World


@pytest.mark.field("B27")
def test_a_continue_key_after_the_last_row_is_not_one_more_interval(world: World) -> None:
    """DynamoDB may return a key when the limit falls on the last row; moto never does."""
    world.set(page_size=2)
    grants(world, "a", "b")
    world.view_row("a", plan="silver")

    def with_a_key(parsed: dict[str, Any], **_: Any) -> None:
        if parsed["Items"] and "account_id" in parsed["Items"][-1] and "LastEvaluatedKey" not in parsed:
            last = parsed["Items"][-1]
            parsed["LastEvaluatedKey"] = {name: last[name] for name in ("segment", "account_id")}

    world.client.meta.events.register("after-call.dynamodb.Query", with_a_key)
    (result,) = world.run("nightly")
    assert (result.outcome, result.accounts) == ("completed", 2)
    assert world.events().count("COMPLETED") == 1
    assert world.run() == []
    assert look(invocation=world.invocation())["UnfinishedIntervals"] == 0


@pytest.mark.field("B27")
def test_an_empty_page_that_says_go_on_is_not_the_end(world: World) -> None:
    names = numbered(5)

    class Sparse(Rows[SourceRecord]):
        """Every other page is empty and goes on, as after a filter."""

        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
            page = super().read(segment, after=after, upto=upto, limit=1)
            skipped = f"{after or ''}!"  # sorts right behind `after`
            if page.rows and (after is None or not after.endswith("!")):
                return Page((), skipped)
            return page

    source = Sparse([SourceRecord(name, "active", {"plan": "gold"}) for name in names])
    (result,) = world.run("nightly", job=lambda invocation: Job(source, EntitlementsTable(invocation)))
    assert (result.outcome, result.accounts) == ("completed", 5)
    assert world.versions() == dict.fromkeys(names, 1)


@pytest.mark.field("B29")
@pytest.mark.parametrize("table", ["AccountsTable", "EntitlementsTable"])
def test_a_run_resumes_behind_a_checkpoint_whose_row_is_gone(world: World, table: str) -> None:
    world.set(range_size=3, page_size=3)
    grants(world, *numbered(9))
    killed(world, Wire(world.client), "commit", 2)
    assert world.progress()["checkpoint"] == "acct-0002"
    world.delete(table, "acct-0002")
    (result,) = later(world)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", "acct-0002", 6)
    assert set(world.versions()) >= set(numbered(9)) - {"acct-0002"}
    assert set(world.versions().values()) == {1}


@pytest.mark.field("B29")
def test_a_source_that_forgot_its_cursor_is_asked_again_from_the_last_committed_account(world: World) -> None:
    """A cursor of the source's own never survives an attempt: the checkpoint is an account id."""

    class Gone(Exception):
        """410"""

    class Forgetful(AccountsTable):
        asked = 0

        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
            Forgetful.asked += 1
            if Forgetful.asked == 3:
                raise Gone
            return super().read(segment, after=after, upto=upto, limit=limit)

    def job(invocation: Any) -> Job:
        return Job(Forgetful(invocation), EntitlementsTable(invocation))

    world.set(range_size=3, page_size=3)
    grants(world, *numbered(9))
    with pytest.raises(Gone):
        world.run("nightly", job=job)
    assert world.interval()["state"] == "RUNNING"
    assert world.interval()["last_error"]["error"] == "Gone"
    (result,) = later(world, job=job)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", "acct-0005", 3)
    assert world.versions() == dict.fromkeys(numbered(9), 1)


LETTERS = "ABCDEFGHIJK"


@pytest.mark.field("B31")
@pytest.mark.parametrize(("range_size", "page_size"), [(1, 3), (2, 3), (5, 3)])
@pytest.mark.parametrize("stop", ["killed", "yielded"])
def test_wherever_a_run_stops_no_account_is_lost_or_done_twice(
    world: World, stop: str, range_size: int, page_size: int
) -> None:
    """Eleven accounts, on one side or on both, and a stop after every single range."""
    world.set(range_size=range_size, page_size=page_size, max_attempts=100)
    for index, name in enumerate(LETTERS):
        if index % 3 != 0:
            world.account(name, plan="gold")
        if index % 3 != 1:
            world.view_row(name, version=0, plan="silver")
    wire = Wire(world.client)
    for _ in f"{LETTERS}.":
        if stop == "killed":
            wire.next("commit", PASS, meanwhile(kill))
        else:  # so slow a range that there is no time for another
            wire.next("commit", then=meanwhile(lambda: world.clock.advance(40)))
        with suppress(Killed):
            world.run("nightly", remaining_s=100)
        wait(world)
    assert world.versions() == dict.fromkeys(LETTERS, 1)
    assert (world.interval()["state"], world.interval()["accounts"]) == ("COMPLETED", len(LETTERS))
    assert world.interval()["checksum"] == world.view_checksum()


@pytest.mark.parametrize(
    ("accounts", "rows", "view_page"),
    [(200, 200, 10), (2_000, 2_000, 10), (20, 400, 50), (200, 4_000, 50), (200, 0, 50)],
    ids=["short pages of the view", "many of them", "a view of orphans", "mostly orphans", "no view"],
)
def test_a_source_page_that_meets_the_horizon_costs_few_reads_more(accounts: int, rows: int, view_page: int) -> None:
    """As with a provider, whose pages are as long as asked for, however little DynamoDB answers at a time."""
    limit = 50
    every = max(1, rows // accounts)
    source = Rows([SourceRecord(name, "active", {}) for name in numbered(max(accounts, rows))[::every][:accounts]])
    view = Rows([ViewRow(name, {}, 1) for name in numbered(rows)], cut=lambda limit: view_page)
    sides = Sides(source, view, "000", limit)
    seen = [pair.account_id for page in sides.pages(None) for pair in page]
    assert seen == numbered(max(accounts, rows))
    orphans = max(0, rows - accounts)
    assert len(source.reads) <= -(-accounts // limit) + 3 + orphans // (MOST_AHEAD * limit)
