"""What field tests share: workers that are killed, rows to compare, lines and metrics as emitted, sides in memory."""

from __future__ import annotations

import concurrent.futures
import io
import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

import pytest
from botocore.exceptions import ClientError

from reconciler import app, clock
from reconciler.acquire import acquire
from reconciler.errors import VerbRefused
from reconciler.leases import Holding
from reconciler.merge import Page, Row
from reconciler.observability import emitting, logger, metrics
from reconciler.records import read_interval
from tests.faults import PASS, Fault, Wire, Writer, meanwhile
from tests.world import JOB, NIGHT, Context, World, event
from tools.tables import environment

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from types_boto3_dynamodb import DynamoDBClient

    from reconciler.attempt import Result
    from reconciler.invocation import Invocation
    from reconciler.work import Job


TABLES = ("ControlTable", "AccountsTable", "EntitlementsTable", "IdempotencyTable")


def environ(**overrides: object) -> dict[str, str]:
    """The functions' environment by the template, without any table behind it."""
    return environment({name: name for name in TABLES}, job=JOB, overrides=dict(overrides))


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, not even its `except Exception`."""


def kill() -> None:
    raise Killed


def nth(number: int, fault: Fault) -> list[Fault]:
    """Faults for a `Wire`: this one happens to the nth transaction of a writer."""
    return [*[PASS] * (number - 1), fault]


def killed(world: World, wire: Wire, writer: Writer, number: int = 1, **about: Any) -> None:
    """Run a worker that is killed before its nth transaction of a kind is sent."""
    wire.next(writer, *nth(number, meanwhile(kill)))
    with pytest.raises(Killed):
        world.run(**{"kind": "nightly", "owner": "killed"} | about)


def wait(world: World) -> None:
    """Until every lease and backoff is over."""
    world.clock.advance(world.settings.lease_seconds + world.settings.backoff_max_seconds)


def later(world: World, **about: Any) -> list[Result]:
    """Run once every lease and backoff is over."""
    wait(world)
    return world.run(**about)


def give_up(world: World, interval_id: str = NIGHT, ranges: int = 1) -> None:
    """Let the oldest open interval commit so many ranges, and then need repair."""
    world.set(max_attempts=1)
    wire = Wire(world.client)
    if ranges:
        killed(world, wire, "commit", ranges + 1, kind="tick")
        wait(world)
    killed(world, wire, "commit", kind="tick")
    wait(world)
    world.run()
    assert world.interval(interval_id)["state"] == "NEEDS_REPAIR"


def begun(world: World) -> None:
    """The job has run before: CONTROL and the leases exist, and the night is not due yet."""
    now = clock.text(world.clock.wall_ms)
    world.clock.set(f"{NIGHT}T01:00:00Z")
    assert world.run("tick") == []
    world.clock.set(now)


def delivered(world: World, sent: object, remaining_s: float = 900) -> dict[str, Any]:
    """Hand an event to the deployed reconcile function."""
    return app.reconcile(sent, lambda_context(world, remaining_s))


def command(verb: str, id: str | None = None, **detail: Any) -> dict[str, Any]:
    """An operator's event, with an id of its own unless one is given."""
    said = {"requested_by": "ada", "reason": "a bad import", **detail}
    return {"source": "operator", "detail-type": verb, "id": id or uuid.uuid4().hex, "detail": said}


def ordered(world: World, verb: str, id: str | None = None, **detail: Any) -> dict[str, Any]:
    """Have the deployed function do an operator's command for the first time; its result."""
    answer = delivered(world, command(verb, id, **detail))
    assert answer["outcome"] == "done", answer
    result: dict[str, Any] = answer["result"]
    return result


def refused(world: World, verb: str, **detail: Any) -> str:
    """Have a command refused without changing a row; what it says."""
    before = everything(world)
    with pytest.raises(VerbRefused) as error:
        delivered(world, command(verb, **detail))
    assert everything(world) == before
    assert str(error.value).startswith(f"{verb}: ")
    return str(error.value)


def overtaken(world: World, verb: str, **detail: Any) -> str:
    """Have a command refused that was possible until it was to be written; what it says."""
    with pytest.raises(VerbRefused) as error:
        delivered(world, command(verb, **detail))
    return str(error.value)


def ticked(world: World, after_s: float = 300, remaining_s: float = 900) -> list[tuple[str, str]]:
    """What becomes of each interval at the next tick, as (interval, outcome) of every attempt."""
    world.clock.advance(after_s)
    answer = delivered(world, event("tick", clock.text(world.clock.wall_ms)), remaining_s)
    return [(attempt["interval"], attempt["outcome"]) for attempt in answer["attempts"]]


def lambda_context(world: World, remaining_s: float = 900) -> LambdaContext:
    return cast("LambdaContext", Context(world.clock, remaining_s))


def doing(job: Job) -> Callable[[Invocation], Job]:
    """For `World.run`: this job, whatever the invocation."""
    return lambda _: job


def grants(world: World, *names: str) -> None:
    """Accounts that the view lacks: a night gives each of them version 1, and a second change would give it 2."""
    for name in names:
        world.account(name, plan="gold")


def seed(world: World, count: int = 10, kinds: int = 5) -> None:
    """Accounts to grant, change, revoke (two ways) and leave alone; the sixth kind changes a row without a version."""
    for index in range(count):
        name = f"acct-{index:04d}"
        match index % kinds:
            case 0:
                world.account(name, plan="gold", seats=index)
            case 1:
                world.account(name, plan="gold")
                world.view_row(name, plan="silver")
            case 2:
                world.account(name, status="cancelled", plan="gold")
                world.view_row(name, version=7, plan="gold")
            case 3:
                world.view_row(name, plan="gold")
            case 4:
                world.account(name, plan="gold", active=True)
                world.view_row(name, plan="gold", active=True)
            case 5:
                world.account(name, plan="gold")
                world.view_row(name, version=None, plan="silver")


def desired(count: int = 10) -> dict[str, dict[str, object]]:
    """What the view holds after a night of that many seeded accounts, of the first five kinds."""
    wanted: dict[str, dict[str, object]] = {}
    for index in range(count):
        name = f"acct-{index:04d}"
        cases: list[dict[str, object]] = [
            {"plan": "gold", "seats": index},
            {"plan": "gold"},
            {},
            {},
            {"plan": "gold", "active": True},
        ]
        wanted[name] = cases[index % 5]
    return wanted


def numbered(count: int) -> list[str]:
    return [f"acct-{index:04d}" for index in range(count)]


def hold(world: World, owner: str = "worker-1", segment: str = "000") -> Holding:
    """Take a segment of the night without working on it."""
    invocation = world.invocation(owner)
    holding = acquire(read_interval(NIGHT, invocation=invocation), segment, invocation=invocation)
    assert isinstance(holding, Holding)
    return holding


def everything(world: World) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    return {table: sorted(world.scan(table), key=repr) for table in world.tables}


@contextmanager
def watched(client: DynamoDBClient, before: Callable[[str], None] | None = None) -> Iterator[list[str]]:
    """Yield what the client sends, as `Operation Table`; `before` may raise instead of sending."""
    sent: list[str] = []

    def sending(params: dict[str, Any], model: Any, **_: Any) -> None:
        table = json.loads(params["body"]).get("TableName", "").partition("-")[0]
        sent.append(f"{model.name} {table}".strip())
        if before:
            before(sent[-1])

    client.meta.events.register("before-call.dynamodb", sending)
    try:
        yield sent
    finally:
        client.meta.events.unregister("before-call.dynamodb", sending)


def refusal(code: str, status: int = 400) -> ClientError:
    """The service's refusal, raised where nothing was sent."""
    details: Any = {
        "Error": {"Code": code, "Message": "said by a test"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(details, "Operation")


@contextmanager
def emitted() -> Iterator[dict[str, list[float]]]:
    """Every value of every metric that functions emit in the block, by name; complete when the block has ended."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    metrics.clear_metrics()
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            yield values
    finally:
        for line in output.getvalue().splitlines():
            blob = json.loads(line)
            for metric in blob["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
                values[metric["Name"]] += blob[metric["Name"]]


@contextmanager
def measured() -> Iterator[dict[str, list[float]]]:
    """As `emitted`, for runs without the function around them."""
    with emitted() as values, emitting():
        yield values


@contextmanager
def logged() -> Iterator[list[dict[str, Any]]]:
    """Every line logged in the block; complete when the block has ended."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(logger.registered_formatter)
    lines: list[dict[str, Any]] = []
    written = logging.getLogger(logger.service)
    written.addHandler(handler)
    try:
        yield lines
    finally:
        written.removeHandler(handler)
        lines += map(json.loads, output.getvalue().splitlines())


class AtOnce(ThreadPoolExecutor):
    """Threads of which one runs at a time: whoever gives them something to do waits until it is done."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        concurrent.futures.wait([future])
        return future


@dataclass(slots=True)
class Rows(Generic[Row]):
    """A side in memory. `cut` may end a page early; `reads` is what was asked, as (after, upto)."""

    rows: Sequence[Row]
    cut: Callable[[int], int] = lambda limit: limit
    reads: list[tuple[str | None, str | None]] = field(default_factory=list)

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Row]:
        self.reads.append((after, upto))
        within = [
            row
            for row in self.rows
            if (after is None or row.account_id > after) and (upto is None or row.account_id <= upto)
        ]
        taken = tuple(within[: self.cut(limit)])
        return Page(taken, taken[-1].account_id if len(taken) < len(within) else None)


def keys_as_dynamodb_takes_them(params: dict[str, Any], **_: Any) -> None:
    """moto does not look at the keys of a Query; DynamoDB refuses those that no row can have."""
    start = params.get("ExclusiveStartKey", {}).values()
    for value in (*start, *params["ExpressionAttributeValues"].values()):
        if not 0 < len(value["S"].encode()) <= 1024:
            raise refusal("ValidationException")
