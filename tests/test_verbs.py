"""An operator's command is done once, whatever happens to its event, and is refused without a trace or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.commands import VERBS, parse_command
from reconciler.deeds import DOES
from reconciler.errors import OutOfTime, TransientFailure, VerbRefused
from reconciler.source import AccountsTable
from reconciler.verbs import obey
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import LOST, NEVER_SENT, REPEATED, Fault, Wire, answered, cancelled, meanwhile
from tests.kit import (
    command,
    delivered,
    emitted,
    everything,
    give_up,
    grants,
    logged,
    numbered,
    ordered,
    overtaken,
    refusal,
    ticked,
    watched,
)
from tests.world import JOB, NIGHT, World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

ASKED: dict[str, dict[str, Any]] = {
    "Rerun": {"interval": NIGHT, "force": True, "revocation_bound": 7},
    "Skip": {"interval": NIGHT},
    "Acknowledge": {"interval": NIGHT},
    "Pause": {},
    "Resume": {},
    "ReleaseLease": {"segment": "000"},
    "Verify": {"interval": NIGHT},
    "Preview": {},
}
"""A command of each verb, possible once `ready` for it."""

EVENTS = {
    "Rerun": "RERUN",
    "Skip": "SKIPPED",
    "Acknowledge": "ACKNOWLEDGED",
    "Pause": "PAUSED",
    "Resume": "RESUMED",
    "ReleaseLease": "RELEASED",
    "Verify": "VERIFIED",
    "Preview": "PREVIEWED",
}


def ready(world: World, verb: str) -> None:
    """A stack of three accounts in which the verb can be done."""
    grants(world, *numbered(3))
    if verb == "Skip":
        ticked(world, remaining_s=60)
    elif verb == "Acknowledge":
        give_up(world, ranges=0)
    elif verb == "Resume":
        ordered(world, "Pause", "pause-1")
    else:
        delivered(world, event("nightly"))


@pytest.fixture
def stack(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with live.deployed(monkeypatch):
        yield live


def sent(verb: str, id: str = "command-1", **detail: Any) -> dict[str, Any]:
    return command(verb, id, **ASKED[verb], **detail)


def commands(world: World) -> list[dict[str, Any]]:
    """What the audit holds of operators' commands."""
    return [row for sort_key, row in world.control().items() if "#OPERATOR#" in sort_key]


def lasting(world: World) -> dict[str, Any]:
    """Every row without the times, tokens and names that differ from one try to the next."""

    def kept(row: Mapping[str, Any]) -> dict[str, Any]:
        moving = {"token", "owner", "worker", "audit", "when", "at", "first_started_at", "checkpoint_at", "expires_at"}
        return {
            name: kept(value) if isinstance(value, dict) else value
            for name, value in row.items()
            if name not in moving and not name.endswith(("_at", "_ms"))
        }

    return {sort_key: kept(row) for sort_key, row in world.control().items() if "T0" not in sort_key} | world.versions()


def forget_slots(world: World) -> None:
    """Powertools remembers for two days."""
    for row in world.scan("IdempotencyTable"):
        key: Any = {"id": {"S": row["id"]}}
        world.client.delete_item(TableName=world.tables["IdempotencyTable"], Key=key)


@contextmanager
def no_idempotency(client: DynamoDBClient) -> Iterator[None]:
    def before(name: str) -> None:
        if name.endswith("IdempotencyTable"):
            raise refusal("AccessDeniedException")

    with watched(client, before):
        yield


def test_every_verb_that_is_understood_is_done() -> None:
    assert set(DOES) == set(VERBS) == set(ASKED)


# ------------------------------------------------------------------------------------------------------- done once


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_command_twice_is_done_once(stack: World, verb: str) -> None:
    """At once, within two days, and after Powertools forgot it."""
    ready(stack, verb)
    first = delivered(stack, sent(verb))
    assert (first["outcome"], first["verb"], first["slot"]) == ("done", verb, "operator#command-1")
    before = everything(stack)
    with emitted() as numbers:
        second = delivered(stack, sent(verb))
    slot = {"trigger": "operator", "slot": "operator#command-1"}
    assert second == slot | {"outcome": "duplicate", "first": first}
    assert numbers == {"DuplicateDeliveries": [1]}
    assert everything(stack) == before
    forget_slots(stack)
    third = delivered(stack, sent(verb))
    assert (third["outcome"], third["verb"]) == ("repeated", verb)
    assert everything(stack) | {"IdempotencyTable": []} == before | {"IdempotencyTable": []}
    (noted,) = [row for row in commands(stack) if row["event_id"] == "command-1"]
    assert (noted["event"], noted["actor"], noted["reason"]) == (EVENTS[verb], "ada", "a bad import")
    assert third["result"].items() <= noted.items()
    told = {name: value for name, value in first["result"].items() if name not in ("first", "next")}
    assert {name: value for name, value in told.items() if value is not None}.items() <= third["result"].items()


def test_a_delivery_beside_the_first_one_at_work_is_a_duplicate_without_an_answer_yet(stack: World) -> None:
    ready(stack, "Rerun")
    beside: list[dict[str, Any]] = []
    Wire(stack.client).next("verb", meanwhile(lambda: beside.append(delivered(stack, sent("Rerun")))))
    first = delivered(stack, sent("Rerun"))
    assert [(answer["outcome"], answer["first"]) for answer in beside] == [("duplicate", None)]
    assert (first["outcome"], stack.interval()["rerun"]) == ("done", 1)


FAULTS = {
    "its answer is lost": [LOST],
    "its answer is lost for good": [Fault(lost=LOST.lost)] * 40,
    "the service sees it twice": [REPEATED],
    "it is sent anew": [NEVER_SENT, answered("ThrottlingException"), cancelled({"AUDIT": "TransactionConflict"})],
}


UNDISTURBED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}


def undisturbed(verb: str, client: DynamoDBClient) -> tuple[dict[str, Any], dict[str, Any]]:
    """What lasts before and after a command to which nothing happened."""
    if verb not in UNDISTURBED:
        world = World(client)
        with pytest.MonkeyPatch.context() as patch, world.deployed(patch):
            ready(world, verb)
            before = lasting(world)
            delivered(world, sent(verb))
        UNDISTURBED[verb] = (before, lasting(world))
    return UNDISTURBED[verb]


@pytest.mark.parametrize(
    ("verb", "fault"),
    [(verb, "its answer is lost") for verb in VERBS]
    + [(verb, fault) for verb in ("Rerun", "Acknowledge", "Pause") for fault in list(FAULTS)[1:]],
)
def test_a_command_whose_transaction_meets_a_fault_is_done_once(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, fault: str
) -> None:
    """On moto, which forgets request tokens as DynamoDB does after ten minutes."""
    before, after = undisturbed(verb, world.client)
    with world.deployed(monkeypatch):
        ready(world, verb)
        assert lasting(world) == before != after
        Wire(world.client).next("verb", *FAULTS[fault])
        assert delivered(world, sent(verb))["outcome"] in ("done", "repeated")
    assert lasting(world) == after
    assert len([row for row in commands(world) if row["event_id"] == "command-1"]) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_that_never_arrived_is_an_error_and_may_be_sent_again(stack: World, verb: str) -> None:
    ready(stack, verb)
    before = everything(stack)
    wire = Wire(stack.client)
    wire.next("verb", then=NEVER_SENT)
    with pytest.raises(TransientFailure):
        delivered(stack, sent(verb))
    assert everything(stack) == before, "nor is its slot taken"
    wire.next("verb")
    assert delivered(stack, sent(verb))["outcome"] == "done"


@pytest.mark.parametrize("verb", VERBS)
def test_the_idempotency_table_is_not_needed(stack: World, verb: str) -> None:
    ready(stack, verb)
    with no_idempotency(stack.client), emitted() as numbers:
        assert delivered(stack, sent(verb))["outcome"] == "done"
    before = everything(stack)
    with no_idempotency(stack.client):
        assert delivered(stack, sent(verb))["outcome"] == "repeated"
    assert numbers["IdempotencyUnavailable"] == [1]
    assert everything(stack) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_delivered_twice_at_the_same_moment_is_done_once(stack: World, emulator_url: str, verb: str) -> None:
    """Both have read that it was not done, and then both write."""
    ready(stack, verb)
    barrier = Barrier(2, timeout=20)
    stack.clock.step_ms = 0
    asked = parse_command(sent(verb), now_ms=stack.clock.wall_ms, settings=stack.settings)

    def deliver(worker: str) -> str:
        client = live_client(emulator_url)
        Wire(client).next("verb", meanwhile(barrier.wait))
        invocation = stack.invocation(worker, client=client)
        job = Job(AccountsTable(invocation), EntitlementsTable(invocation))
        return obey(asked, DOES[verb], job, invocation=invocation)[0]

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(deliver, ["worker-1", "worker-2"]))
    assert sorted(outcomes) == ["done", "repeated"]
    assert len([row for row in commands(stack) if row["event_id"] == "command-1"]) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_that_is_done_while_its_second_delivery_reads_is_repeated_and_not_refused(
    stack: World, verb: str
) -> None:
    """The second delivery has read that it was not done, and then finds the world as the first one left it."""
    ready(stack, verb)
    outcomes: list[str] = []
    asked = parse_command(sent(verb), now_ms=stack.clock.wall_ms, settings=stack.settings)

    def second_reads(wanted: Any, job: Job, invocation: Any) -> Any:
        if not outcomes:
            outcomes.append(delivered(stack, sent(verb))["outcome"])
        return DOES[verb](wanted, job, invocation)

    invocation = stack.invocation()
    job = Job(AccountsTable(invocation), EntitlementsTable(invocation))
    outcome, _ = obey(asked, second_reads, job, invocation=invocation)
    assert (outcomes, outcome) == (["done"], "repeated")


# -------------------------------------------------------------------------------------------- one id for one command


@pytest.mark.parametrize("when", ["within two days", "later"])
@pytest.mark.parametrize(
    ("verb", "other"),
    [
        ("Pause", command("Resume", "command-1")),
        ("Rerun", command("Rerun", "command-1", interval=NIGHT, force=True)),
        ("Verify", command("Rerun", "command-1", interval=NIGHT, force=True)),
        ("ReleaseLease", command("Pause", "command-1")),
    ],
    ids=lambda value: value if isinstance(value, str) else value["detail-type"],
)
def test_an_id_that_was_used_for_another_command_is_refused(
    stack: World, verb: str, other: dict[str, Any], when: str
) -> None:
    ready(stack, verb)
    delivered(stack, sent(verb))
    if when == "later":
        forget_slots(stack)
    before = everything(stack)
    with pytest.raises(VerbRefused, match=rf"the id 'command-1' was used before, for {verb} .*: take another one"):
        delivered(stack, other)
    assert everything(stack) == before


# ------------------------------------------------------------------------------------------------------------ refused


def test_a_refused_command_may_be_sent_again_once_it_is_possible(stack: World) -> None:
    ready(stack, "Verify")
    with pytest.raises(VerbRefused, match="not paused"):
        delivered(stack, sent("Resume"))
    ordered(stack, "Pause")
    assert delivered(stack, sent("Resume"))["outcome"] == "done"


@pytest.mark.parametrize("verb", ["Rerun", "Skip", "Acknowledge", "Verify"])
def test_on_a_new_stack_a_command_finds_no_interval_but_those_that_are_due(stack: World, verb: str) -> None:
    detail = ASKED[verb] | {"interval": "2026-11-20"}
    assert "2026-11-20 is not on record" in overtaken(stack, verb, **detail)
    assert commands(stack) == []


def test_a_refused_command_does_not_keep_due_intervals_from_being_recorded(stack: World) -> None:
    overtaken(stack, "Skip", interval="2026-11-28")
    assert stack.interval()["state"] == "EXPECTED"


def test_rows_that_never_hold_still_are_a_refusal_and_not_a_loop(stack: World) -> None:
    ready(stack, "Pause")
    numbers = iter(range(1, 99))
    wire = Wire(stack.client)
    wire.next("verb", then=meanwhile(lambda: stack.put_control("CONTROL", pause_no=next(numbers))))
    assert "the rows changed 5 times while this was decided: try again" in overtaken(stack, "Pause")
    assert len(wire.requests("verb")) == 5
    assert "pause" not in stack.row("CONTROL")


@pytest.mark.parametrize("verb", VERBS)
def test_without_time_nothing_is_begun(stack: World, verb: str) -> None:
    ready(stack, verb)
    before = everything(stack)
    with pytest.raises(OutOfTime):
        delivered(stack, sent(verb), remaining_s=29)
    assert everything(stack) == before


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_service_calls_wrong_is_a_defect_and_is_raised(stack: World, verb: str) -> None:
    ready(stack, verb)
    before = everything(stack)
    Wire(stack.client).next("verb", then=answered("ValidationException"))
    with pytest.raises(ClientError, match="ValidationException"):
        delivered(stack, sent(verb))
    assert everything(stack) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_row_that_cannot_be_stored_is_a_defect_and_is_not_tried_again(stack: World, verb: str) -> None:
    """The row refuses for a reason that reading anew does not change."""
    ready(stack, verb)
    before = everything(stack)
    wire = Wire(stack.client)
    wire.next("verb", then=cancelled({"AUDIT": "ValidationError"}))
    with pytest.raises(ClientError, match="TransactionCanceledException"):
        delivered(stack, sent(verb))
    assert len(wire.requests("verb")) == 1
    assert everything(stack) == before


# -------------------------------------------------------------------------------------------------------- what is told


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_works_on_nothing_and_says_so_in_the_log(stack: World, verb: str) -> None:
    ready(stack, verb)
    stack.account("new", plan="gold")
    with logged() as lines, emitted() as numbers:
        delivered(stack, sent(verb))
    assert [(line["message"], line["verb"], line["outcome"]) for line in lines] == [("command ended", verb, "done")]
    assert numbers == {}
    assert "new" not in stack.view()


@pytest.mark.parametrize("verb", VERBS)
def test_the_row_of_a_command_is_an_audit_row_like_any_other(stack: World, verb: str) -> None:
    ready(stack, verb)
    delivered(stack, sent(verb))
    (row,) = [row for row in commands(stack) if row["event_id"] == "command-1"]
    subject = NIGHT if "interval" in ASKED[verb] else JOB
    assert row["sk"].startswith(f"AUDIT#{subject}#OPERATOR#")
    assert {"event", "at", "actor", "reason", "worker", "schema", "verb", "asked"} <= set(row)
    assert row["asked"] == ASKED[verb]
    assert row[keys.CONTROL_TTL] == pytest.approx(stack.clock.wall_ms // 1000 + 400 * 86_400, abs=5)
    assert ("run_id" in row) is (subject == NIGHT)
