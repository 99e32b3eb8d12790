"""The deployed reconcile function: Powertools in front, answers, metrics and log lines as they leave it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from reconciler.errors import SegmentCountMismatch, TransientFailure
from tests.faults import NEVER_SENT, PASS, Fault, Wire, answered
from tests.kit import delivered, emitted, everything, grants, logged, numbered, refusal, watched
from tests.nights import a_troubled_night
from tests.world import NIGHT, World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

RUN_ID = f"entitlements/{NIGHT}/1"


def test_an_answer_tells_trigger_slot_outcome_and_every_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(world, *numbered(3))
    with world.deployed(monkeypatch), emitted() as numbers:
        answer = delivered(world, event("nightly"))
    assert answer == {
        "trigger": "nightly",
        "slot": "nightly#2026-11-29T02:00:00.000Z",
        "outcome": "completed",
        "attempts": [
            {
                "interval": NIGHT,
                "segment": "000",
                "run_id": RUN_ID,
                "outcome": "completed",
                "generation": 1,
                "ranges": 1,
                "accounts": 3,
                "resumed_after": None,
                "held_until": None,
            }
        ],
    }
    assert set(numbers) == {"RunDelay", "RangesCommitted", "AccountsScanned", "ChangesApplied", "ConsistencyLag"}
    assert (numbers["AccountsScanned"], numbers["ChangesApplied"], numbers["RangesCommitted"]) == ([3], [3], [1])
    assert 5 <= numbers["RunDelay"][0] < numbers["ConsistencyLag"][0] < 6


def test_with_nothing_due_the_answer_is_idle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.deployed(monkeypatch), emitted() as numbers:
        delivered(world, event("nightly"))
        answer = delivered(world, event("tick"))
    assert answer == {"trigger": "tick", "slot": "tick#2026-11-29T02:00:00.000Z", "outcome": "idle", "attempts": []}
    assert "DuplicateDeliveries" not in numbers


def test_every_segment_of_every_interval_has_its_attempt(
    client: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(client, SEGMENT_COUNT=2)
    world.clock.set("2026-11-30T02:00:05Z")
    with world.deployed(monkeypatch):
        answer = delivered(world, event("tick"))
    attempts = [(attempt["interval"], attempt["segment"], attempt["outcome"]) for attempt in answer["attempts"]]
    assert attempts == [(night, segment, "completed") for night in (NIGHT, "2026-11-30") for segment in ("000", "001")]


def test_a_slot_is_the_key_and_not_the_id_of_an_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler's retries, and a rule beside a schedule, bring other ids for the same slot."""
    rule = {"source": "aws.events", "detail-type": "Scheduled Event", "time": f"{NIGHT}T02:00:00Z", "detail": {}}
    with world.deployed(monkeypatch):
        outcomes = [
            delivered(world, sent)["outcome"]
            for sent in (event("tick") | {"id": "1"}, event("tick") | {"id": "2"}, rule, event("nightly"))
        ]
    assert outcomes == ["completed", "duplicate", "duplicate", "idle"]


# -------------------------------------------------------------------------------- the idempotency table is unavailable

UNAVAILABLE = [
    pytest.param(refusal("AccessDeniedException"), id="no permission"),
    pytest.param(refusal("ResourceNotFoundException"), id="no table"),
    pytest.param(refusal("ProvisionedThroughputExceededException"), id="throttled"),
    pytest.param(refusal("InternalServerError", 500), id="broken"),
    pytest.param(ReadTimeoutError(endpoint_url="http://dynamodb"), id="no answer"),
    pytest.param(EndpointConnectionError(endpoint_url="http://dynamodb"), id="no connection"),
]


def failing(operation: str, error: Exception) -> Callable[[str], None]:
    def before(sent: str) -> None:
        if sent == f"{operation} IdempotencyTable":
            raise error

    return before


@pytest.mark.parametrize("error", UNAVAILABLE)
@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"], ids=["before the job", "after the job"])
def test_the_job_runs_once_and_its_answer_stays_without_the_idempotency_table(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str, error: Exception
) -> None:
    grants(world, *numbered(3))
    unavailable = watched(world.client, failing(operation, error))
    with world.deployed(monkeypatch), emitted() as numbers, logged() as lines, unavailable:
        answer = delivered(world, event("nightly"))
    assert (answer["outcome"], answer["attempts"][0]["generation"]) == ("completed", 1)
    assert world.lease()["generation"] == 1
    assert numbers["IdempotencyUnavailable"] == [1]
    (line,) = (line for line in lines if line["message"] == "idempotency table unavailable")
    assert line["slot"] == answer["slot"]


@pytest.mark.parametrize("operation", ["PutItem", "DeleteItem"], ids=["before the job", "after the job"])
@pytest.mark.parametrize(
    ("fault", "raised"),
    [(answered("AccessDeniedException"), ClientError), (NEVER_SENT, TransientFailure)],
    ids=["a defect", "no connection"],
)
def test_the_error_of_the_job_stays_its_own_without_the_idempotency_table(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str, fault: Fault, raised: type[Exception]
) -> None:
    grants(world, *numbered(3))
    wire = Wire(world.client)
    wire.next("commit", then=fault)
    with (
        world.deployed(monkeypatch),
        emitted() as numbers,
        watched(world.client, failing(operation, refusal("AccessDeniedException"))),
        pytest.raises(raised) as error,
    ):
        delivered(world, event("nightly"))
    assert "dempotency" not in str(error.value)
    assert numbers["IdempotencyUnavailable"] == [1]
    assert world.lease()["generation"] == 1


def test_a_slot_left_in_progress_by_an_unavailable_table_keeps_only_itself_from_running(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants(world, *numbered(3))
    with world.deployed(monkeypatch):
        with watched(world.client, failing("UpdateItem", refusal("AccessDeniedException"))):
            delivered(world, event("nightly"))
        again = delivered(world, event("nightly"))
        other = delivered(world, event("tick"))
    assert (again["outcome"], again["first"], other["outcome"]) == ("duplicate", None, "idle")


# ---------------------------------------------------------------------------------------------- refusals after a start


def test_a_segment_count_that_is_not_the_tables_stops_the_run_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants(world, *numbered(3))
    world.run("nightly")
    before = everything(world)
    world.set(segment_count=2)
    world.clock.advance(86_400)
    with world.deployed(monkeypatch), pytest.raises(SegmentCountMismatch, match=r"SEGMENT_COUNT is 2.*hold 1 segments"):
        delivered(world, event("nightly"))
    assert everything(world) == before


def test_a_failed_run_still_emits_what_it_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set(range_size=1)
    grants(world, *numbered(3))
    Wire(world.client).next("commit", PASS, answered("AccessDeniedException"))
    with world.deployed(monkeypatch), emitted() as numbers, pytest.raises(ClientError):
        delivered(world, event("nightly"))
    assert (numbers["RangesCommitted"], numbers["AccountsScanned"]) == ([1], [1])
    assert len(numbers["RunDelay"]) == 1


# ----------------------------------------------------------------------------------------------------- one name a run


def test_every_row_of_a_run_carries_its_run_id(world: World) -> None:
    a_troubled_night(world)
    rows = list(world.control().values())
    events = {row["event"] for row in rows if "event" in row}
    assert events > {"OBSERVED", "STARTED", "DELAYED", "TAKEOVER", "FAILED", "YIELDED", "REJECTED", "NEEDS_REPAIR"}
    assert {row["run_id"] for row in rows} == {RUN_ID}
    written = [row for row in world.scan("EntitlementsTable") if "interval_id" in row]
    assert len(written) == 5
    assert {row["run_id"] for row in written} == {RUN_ID}
    fenced = [row for row in rows if re.match("LEASE|PROGRESS", row["sk"])] + written
    assert all(isinstance(row["generation"], int) for row in fenced)


BEFORE_AN_ATTEMPT = {"segment held by another", "no time to begin"}


def test_every_log_line_of_a_run_carries_its_run_id(world: World) -> None:
    with logged() as lines:
        a_troubled_night(world)
    said = {line["message"] for line in lines}
    assert said >= {
        *("attempt ended", "attempt failed", "account rejected", "segment held by another"),
        *("a live writer was here", "no time to begin", "revocation guard tripped"),
    }
    for line in lines:
        assert line.get("run_id") == RUN_ID, line
        assert line["interval"] == NIGHT
        assert line["segment"] == "000"
        if line["message"] not in BEFORE_AN_ATTEMPT:
            assert isinstance(line["generation"], int)
            assert isinstance(line["range"], int)


def test_no_run_id_stays_behind_for_the_next_invocation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(world, *numbered(3))
    with world.deployed(monkeypatch), logged() as lines:
        delivered(world, event("nightly"))
        delivered(world, event("tick"))
    assert [(line["message"], line.get("run_id"), line.get("slot")) for line in lines] == [
        ("attempt ended", RUN_ID, None),
        ("invocation ended", None, "nightly#2026-11-29T02:00:00.000Z"),
        ("invocation ended", None, "tick#2026-11-29T02:00:00.000Z"),
    ]
