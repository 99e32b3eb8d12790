"""Conditional writes: which condition failed, repeats, reserved words, rows that are gone, and one hot key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import RowMissing, TransientFailure
from reconciler.source import SourceRecord
from reconciler.view import ViewRow
from reconciler.work import Job
from tests.faults import LOST, PASS, WRITERS, Fault, Wire, Writer, answered, cancelled, meanwhile
from tests.kit import Rows, doing, everything, grants, killed, later, measured, numbered
from tests.world import NIGHT, World


@pytest.mark.field("B17")
def test_only_the_first_condition_failed_means_fenced(world: World) -> None:
    grants(world, *numbered(2))
    wire = Wire(world.client)
    wire.next("commit", meanwhile(lambda: world.put_control(keys.lease("000"), generation=9, token="another")))
    (result,) = world.run("nightly")
    assert result.outcome == "lost"
    assert world.view() == {}


@pytest.mark.field("B17")
def test_only_the_second_condition_failed_means_already_done(world: World) -> None:
    grants(world, *numbered(2))
    wire = Wire(world.client)
    wire.next("commit", LOST)
    with measured() as numbers:
        (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.interval()["granted"] == 2
    assert world.versions() == dict.fromkeys(numbered(2), 1)
    assert "LeaseLost" not in numbers


@pytest.mark.field("B17")
@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_without_reasons_is_settled_by_reading_the_row(world: World, landed: bool) -> None:
    grants(world, *numbered(2))
    wire = Wire(world.client)
    without_reasons = answered("TransactionCanceledException")
    wire.next("commit", *([LOST] if landed else []), without_reasons)
    if landed:
        (result,) = world.run("nightly")
    else:
        with pytest.raises(TransientFailure):
            world.run("nightly")
        assert world.view() == {}
        (result,) = later(world)
    assert result.outcome == "completed"
    assert world.versions() == dict.fromkeys(numbered(2), 1)


@pytest.mark.field("B17")
def test_the_text_of_a_refusal_means_nothing(world: World) -> None:
    """The text blames the lease; the reasons say that a live writer was here."""

    def misleading(parsed: dict[str, Any], **_: Any) -> None:
        if "CancellationReasons" in parsed:
            parsed["Error"]["Message"] = "Transaction cancelled [ConditionalCheckFailed, None, None]: lease lost"
            for reason in parsed["CancellationReasons"]:
                reason["Message"] = "lease lost"

    world.account("a", plan="gold")
    world.view_row("a", plan="silver")
    wire = Wire(world.client)
    wire.next("commit", meanwhile(lambda: world.view_row("a", version=5, plan="bronze")))
    world.client.meta.events.register("after-call.dynamodb", misleading)
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert (world.view(), world.versions()) == ({"a": {"plan": "gold"}}, {"a": 6})


@pytest.mark.field("B19")
def test_a_token_used_for_another_request_is_a_defect_and_not_a_lost_lease(world: World) -> None:
    grants(world, *numbered(2))
    wire = Wire(world.client)
    wire.next("commit", answered("IdempotentParameterMismatchException"))
    with measured() as numbers, pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        world.run("nightly")
    assert "LeaseLost" not in numbers
    assert world.events()[-1] == "FAILED"
    assert world.interval()["last_error"]["error"] == "IdempotentParameterMismatchException"


@pytest.mark.field("B19")
def test_a_repeat_that_meets_its_first_in_progress_waits_and_asks_again(world: World) -> None:
    grants(world, *numbered(2))
    wire = Wire(world.client)
    wire.next("commit", answered("TransactionInProgressException"), answered("TransactionInProgressException"))
    (result,) = world.run("nightly")
    assert (result.outcome, result.ranges) == ("completed", 1)
    assert len({repr(request) for request in wire.requests("commit")}) == 1
    assert world.versions() == dict.fromkeys(numbered(2), 1)


@pytest.mark.field("B19")
def test_a_repeat_after_its_token_was_forgotten_is_stopped_by_its_conditions(world: World) -> None:
    """DynamoDB remembers tokens for ten minutes, moto not at all."""
    grants(world, *numbered(2))
    wire = Wire(world.client)
    world.run("nightly")
    before = everything(world)
    requests = [request for writer in ("acquire", "commit", "complete") for request in wire.requests(writer)]
    for request in requests:
        with pytest.raises(ClientError, match="TransactionCanceledException"):
            world.client.transact_write_items(**request)
    assert everything(world) == before


@pytest.mark.field("B19")
def test_a_repeat_while_its_token_is_remembered_has_one_effect(live: World) -> None:
    grants(live, *numbered(2))
    wire = Wire(live.client)
    live.run("nightly")
    before = everything(live)
    (request,) = wire.requests("commit")
    live.client.transact_write_items(**request)
    assert everything(live) == before
    request["TransactItems"] = request["TransactItems"][:2]
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        live.client.transact_write_items(**request)


@pytest.mark.field("B21")
def test_no_name_of_an_attribute_stands_in_an_expression(world: World) -> None:
    """`owner`, `state` and many others are reserved; a plain Put takes them, an expression does not."""
    words = {"SET", "REMOVE", "AND", "OR", "NOT", "IN", "BETWEEN"}
    functions = {"attribute_exists", "attribute_not_exists", "begins_with"}
    sent: list[str] = []
    world.client.meta.events.register(
        "provide-client-params.dynamodb", lambda params, **_: sent.extend(expressions(params))
    )
    whatever_a_job_does(world)
    assert sent
    for expression in sent:
        assert set(re.findall(r"(?<![#:\w])\w+", expression)) <= words | functions, expression


def whatever_a_job_does(world: World) -> None:
    """Acquire, renew, checkpoint, yield, delay, take over, fail, reject, trip the guard, finish, list what is left."""
    world.set(range_size=1, page_size=2, max_revocations=1)
    world.account("a", plan="gold")
    world.put("AccountsTable", "b", status="active", entitlements="no map")
    world.account("c", plan="gold")
    world.view_row("c", version=None, plan="silver")
    world.view_row("d", plan="gold")
    wire = Wire(world.client)
    wire.next("commit", meanwhile(lambda: world.clock.advance(40)))
    world.run("nightly", remaining_s=100)
    killed(world, wire, "commit", kind="tick")
    world.run()
    wire.next("commit", answered("InternalDefect"))
    with pytest.raises(ClientError):
        later(world)
    later(world)
    world.view_row("e", plan="gold")
    world.view_row("f", plan="gold")
    world.clock.set("2026-11-30T02:00:00Z")
    world.run()
    events = {*world.events(), *world.events("2026-11-30")}
    assert events >= {"STARTED", "TAKEOVER", "RESUMED", "DELAYED", "YIELDED", "FAILED", "REJECTED", "COMPLETED"}
    assert "NEEDS_REPAIR" in events


def expressions(value: Any) -> Iterator[str]:
    """Every text of a request under a name that ends in `Expression`."""
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from expressions(inner)
        elif str(name).endswith("Expression"):
            yield inner


@pytest.mark.field("B23")
def test_an_account_that_vanished_before_its_write_leaves_no_half_row(world: World) -> None:
    world.account("a", plan="gold")
    world.account("b", plan="gold")
    world.view_row("b", plan="silver")

    def vanish() -> None:
        world.delete("AccountsTable", "b")
        world.delete("EntitlementsTable", "b")

    Wire(world.client).next("commit", meanwhile(vanish))
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.view() == {"a": {"plan": "gold"}}
    assert world.interval()["view_rows"] == 1


@pytest.mark.field("B23")
@pytest.mark.parametrize("row", ["INTERVAL", "PROGRESS"])
@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
def test_a_row_that_vanished_is_named_and_not_made_again(world: World, writer: Writer, row: str) -> None:
    world.view_row("a", plan="gold")  # to revoke, which needs the INTERVAL row
    world.account("b", plan="gold")
    sort_key = keys.interval(NIGHT) if row == "INTERVAL" else keys.progress(NIGHT, 1, "000")
    wire = Wire(world.client)
    if writer == "acquire":
        killed(world, wire, "commit")
        world.clock.advance(200)
    wire.next(writer, meanwhile(lambda: world.delete_control(sort_key)))
    if (writer, row) == ("acquire", "PROGRESS"):  # nothing had been committed: the segment begins again
        (result,) = later(world)
        assert result.outcome == "completed"
        return
    with pytest.raises(RowMissing, match=re.escape(sort_key)):
        later(world) if writer == "acquire" else world.run("nightly")
    assert not world.has(sort_key)


@pytest.mark.field("B23")
def test_the_first_acquire_ever_gives_generation_one(world: World) -> None:
    assert everything(world)["ControlTable"] == []
    (result,) = world.run("nightly")
    assert (result.outcome, result.generation) == ("completed", 1)


@pytest.mark.field("B25")
def test_writes_to_the_lease_grow_with_pages_and_not_with_accounts(world: World) -> None:
    """Ten pages of 100, then ten pages of 1,000."""
    writes = []
    wire = Wire(world.client)
    for night, count in ((NIGHT, 1_000), ("2026-11-30", 10_000)):
        world.set(page_size=count // 10)
        world.clock.set(f"{night}T02:00:00Z")
        entitlements = {"plan": "gold"}
        names = [f"acct-{index:05d}" for index in range(count)]
        source = Rows([SourceRecord(name, "active", entitlements) for name in names])
        view = Rows([ViewRow(name, entitlements, 1) for name in names])
        wire.sent.clear()
        (result,) = world.run("nightly", job=doing(Job(source, view)))
        assert (result.outcome, result.accounts) == ("completed", count)
        writes.append([writer for writer, _ in wire.sent if writer in WRITERS])
    assert writes == [["acquire", *["commit"] * 10, "complete"]] * 2


@pytest.mark.field("B25")
@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
@pytest.mark.parametrize(
    "throttled",
    [
        answered("ThrottlingException"),
        cancelled({"LEASE": "ThrottlingError"}),
        cancelled({"PROGRESS": "TransactionConflict"}),
    ],
    ids=["the request", "the lease", "the progress row"],
)
def test_a_key_that_is_throttled_three_times_is_asked_again_in_time(
    world: World, writer: Writer, throttled: Fault
) -> None:
    grants(world, *numbered(2))
    Wire(world.client).next(writer, throttled, throttled, throttled)
    began = world.clock.monotonic()
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.clock.monotonic() - began < world.settings.call_budget_s
    assert world.versions() == dict.fromkeys(numbered(2), 1)


@pytest.mark.field("B25")
@pytest.mark.parametrize("saved", [0, 1])
def test_a_key_that_stays_throttled_ends_the_attempt_at_its_last_checkpoint(world: World, saved: int) -> None:
    """And the attempt does not count: it is AWS that is slow."""
    world.set(range_size=1)
    grants(world, *numbered(3))
    wire = Wire(world.client)
    wire.next("commit", *[PASS] * saved, then=answered("ThrottlingException"))
    began = world.clock.monotonic()
    with pytest.raises(TransientFailure, match="Throttling"):
        world.run("nightly")
    assert world.clock.monotonic() - began < 2 * world.settings.call_budget_s
    checkpoint = "acct-0000" if saved else None
    assert (world.progress().get("checkpoint"), world.progress()["attempts"]) == (checkpoint, 0)
    wire.next("commit")
    (result,) = later(world)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", checkpoint, 3 - saved)
    assert world.versions() == dict.fromkeys(numbered(3), 1)
