"""What the log says, and what it never holds."""

from __future__ import annotations

import io
import json
import logging
import traceback
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler import app
from reconciler.errors import ReconcilerError
from reconciler.observability import logger, metrics
from tests.faults import Fault, Wire, answered, cancelled, meanwhile
from tests.kit import command, delivered, grants, killed, lambda_context, logged, numbered, wait
from tests.nights import a_lost_night, an_adopting_night
from tests.world import NIGHT, World, event

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "s3cr3t-9f41"
NUMBER = 86_753_090_117
BYTES = SECRET.encode()
TRACES = (SECRET, str(NUMBER), BYTES.hex())
"""What a log line would hold if a seeded value had got into it."""

MALFORMED: dict[str, Any] = {
    "entitlements that are a text": {"status": "active", "entitlements": SECRET},
    "a list": {"status": "active", "entitlements": {"plan": [SECRET, NUMBER]}},
    "a map": {"status": "active", "entitlements": {"plan": {SECRET: NUMBER}}},
    "nothing": {"status": "active", "entitlements": {"plan": None, "token": SECRET}},
    "bytes": {"status": "active", "entitlements": {"plan": BYTES}},
    "a set": {"status": "active", "entitlements": {"plan": {SECRET, "x"}}},
    "no entitlements": {"status": "active", "password": SECRET},
    "a status": {"status": SECRET, "entitlements": {"plan": SECRET}},
    "a status that is a number": {"status": NUMBER, "entitlements": {"plan": SECRET}},
}
"""Source rows that are rejected, each with a secret where it is wrong."""


@contextmanager
def at_debug_level() -> Iterator[None]:
    written = logging.getLogger(logger.service)
    level = written.level
    written.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        written.setLevel(level)


def seed(world: World) -> None:
    """Accounts to grant, change, revoke and leave, and malformed ones of every kind, all of them holding secrets."""
    for number, name in enumerate(numbered(6)):
        if number % 2:
            world.view_row(name, version=None if number == 1 else 1, plan=f"{SECRET}-before", seats=NUMBER + 1)
    world.view_row("acct-7777", plan=SECRET, seats=NUMBER)
    change(world, 0)
    for number, (what, row) in enumerate(MALFORMED.items()):
        world.put("AccountsTable", f"bad-{number} {what}", **row)
    world.put("EntitlementsTable", "bad-view", entitlements=[SECRET, NUMBER], version=1)
    world.put("EntitlementsTable", "bad-version", entitlements={"plan": SECRET}, version=SECRET)


def change(world: World, turn: int) -> None:
    """Every account is due for a change again."""
    for name in numbered(6):
        world.account(name, plan=f"{SECRET}-{turn}", seats=NUMBER, rate=Decimal(f"{NUMBER}.5"))


def troubles(world: World) -> list[tuple[str, Fault]]:
    """What happens to the first commit of night after night: refusals with rows, of requests with values."""
    row = {"segment": "000", "account_id": "acct-0000", "entitlements": {"plan": SECRET}, "version": NUMBER}

    def live_writer() -> None:
        world.view_row("acct-0000", version=99, plan=SECRET, seats=NUMBER)

    return [
        ("a live writer", meanwhile(live_writer)),
        ("a condition that shows the row", cancelled({"acct-0000": "ConditionalCheckFailed"}, {"acct-0000": row})),
        ("an effect that cannot be stored", cancelled({"acct-0000": "ValidationError"})),
        ("a request that cannot be stored", answered("ValidationException")),
        ("a reason that nobody knows", cancelled({"acct-0000": "SomethingNew"}, {"acct-0000": row})),
        ("a refusal", answered("AccessDeniedException")),
        ("a defect of the service", answered("InternalDefect", 500)),
    ]


def everything_said(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[dict[str, Any]]]:
    """What nights with troubles and verbs write: metrics and errors, as the runtime would log them, and log lines."""
    wire = Wire(world.client)
    errors: list[str] = []
    output = io.StringIO()
    asked: Any = {"from": "start", "force": True, "revocation_bound": 100}

    def deliver(sent: object) -> None:
        try:
            delivered(world, sent)
        except (ReconcilerError, ClientError):
            errors.append(traceback.format_exc())
        wait(world)

    with at_debug_level(), world.deployed(monkeypatch), redirect_stdout(output), logged() as lines:
        for number, (_, fault) in enumerate(troubles(world)):
            wire.next("commit", fault)
            deliver(event("tick", f"{NIGHT}T02:{number:02d}:00Z"))
            assert wire.unused() == []
            change(world, number + 1)
            deliver(command("Rerun", interval=NIGHT, **asked))
        killed(world, wire, "commit", 2)
        wait(world)
        deliver(command("Pause"))
        deliver(command("Resume"))
        deliver(command("ReleaseLease", segment="000"))
        deliver(command("Preview"))
        deliver(command("Rerun", interval=NIGHT, **asked))
        deliver(event("tick", f"{NIGHT}T03:00:00Z"))
        for verb in ("Verify", "Acknowledge", "Skip"):
            deliver(command(verb, interval=NIGHT))
        deliver(event("nightly") | {"detail": {"trigger": "nightly", "entitlements": SECRET}})
        app.watchdog({}, lambda_context(world))
    assert world.interval()["state"] == "COMPLETED"
    assert len(errors) >= 3
    return "\n".join([output.getvalue(), *errors]), lines


def test_no_entitlement_gets_into_any_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines at the lowest level, metrics, and the tracebacks of errors that the Lambda runtime logs."""
    world.set(range_size=3, page_size=4)
    seed(world)
    said, lines = everything_said(world, monkeypatch)
    messages = {line["message"] for line in lines}
    assert messages >= {
        *("attempt ended", "attempt failed", "account rejected", "a live writer was here", "range committed"),
        *("command ended", "invocation ended"),
    }
    rejected = {line["account_id"] for line in lines if line["message"] == "account rejected"}
    assert len(rejected) >= len(MALFORMED) + 2
    text = said + json.dumps(lines)
    assert [trace for trace in TRACES if trace in text] == []


def test_the_search_for_secrets_would_find_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.account("a", plan=SECRET)
    debug = logger.debug
    monkeypatch.setattr(logger, "debug", lambda message, **about: debug(message, **about, row=world.view()))
    with at_debug_level(), world.deployed(monkeypatch), logged() as lines:
        delivered(world, event("nightly"))
    assert SECRET in json.dumps(lines)


def test_every_committed_range_has_its_line_at_debug_level_and_none_above_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set(range_size=2)
    grants(world, *numbered(5))
    with at_debug_level(), logged() as lines:
        world.run("nightly")
    committed = [line for line in lines if line["message"] == "range committed"]
    assert [(line["range"], line["accounts"], line["checkpoint"]) for line in committed] == [
        (1, 2, "acct-0001"),
        (2, 2, "acct-0003"),
        (3, 1, "acct-0004"),
    ]
    metrics.clear_metrics()
    world.clock.advance(86_400)
    with logged() as lines:
        world.run("nightly")
    assert [line["message"] for line in lines] == ["attempt ended"], "a night of a million accounts logs as much"


def test_a_range_keeps_its_number_across_attempts(world: World) -> None:
    """A killed attempt committed ranges 1 and 2; whoever resumes goes on with 3."""
    world.set(range_size=1)
    grants(world, *numbered(4))
    killed(world, Wire(world.client), "commit", 3)
    wait(world)
    with at_debug_level(), logged() as lines:
        world.run()
    committed = [(line["generation"], line["range"]) for line in lines if line["message"] == "range committed"]
    assert committed == [(2, 3), (2, 4)]


def test_a_loss_names_the_range_that_was_refused(world: World) -> None:
    with logged() as lines:
        a_lost_night(world)
    (lost,) = (line for line in lines if line["message"] == "lease lost")
    assert (lost["generation"], lost["range"], lost["interval"], lost["segment"]) == (1, 2, NIGHT, "000")


def test_what_is_adopted_counts_as_committed(world: World) -> None:
    with logged() as lines:
        an_adopting_night(world)
    (adopted,) = (line for line in lines if line["message"] == "an earlier commit had landed")
    assert (adopted["checkpoint"], adopted["range"]) == ("acct-0003", 3)


def test_no_key_of_an_attempt_stays_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(world, *numbered(3))
    with world.deployed(monkeypatch), logged() as lines:
        delivered(world, event("nightly"))
    (last,) = (line for line in lines if line["message"] == "invocation ended")
    assert not {"run_id", "interval", "segment", "generation", "range"} & set(last)


def test_every_line_says_which_invocation_wrote_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(world, "a")
    with world.deployed(monkeypatch):
        for kind in ("nightly", "tick"):
            context = lambda_context(world)
            with logged() as lines:
                app.reconcile(event(kind), context)
            assert lines
            assert {line["function_request_id"] for line in lines} == {context.aws_request_id}
