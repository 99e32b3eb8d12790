"""Entry points: settings, idempotency, outcome. The job's logic starts in `run`."""

from __future__ import annotations

import gc
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from reconciler import aws
from reconciler.clock import Clock, SystemClock
from reconciler.errors import InvalidTrigger
from reconciler.idempotency import once_per_slot
from reconciler.invocation import Invocation
from reconciler.merge import Side
from reconciler.observability import count, emitting, logger
from reconciler.run import run
from reconciler.settings import HTTP, Settings
from reconciler.triggers import parse_trigger
from reconciler.verbs import obey, same_command
from reconciler.view import EntitlementsTable
from reconciler.work import Job

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from types_boto3_dynamodb import DynamoDBClient

    from reconciler.source import SourceRecord

CLOCK: Clock = SystemClock()


@emitting()
def reconcile(event: object, context: LambdaContext) -> dict[str, Any]:
    """Handle a nightly, tick or operator event.

    Returns `{"trigger", "slot", "outcome", "attempts"}`: one attempt per segment of an interval, as `run.Result`,
    and as outcome the last one's or "idle". For an operator's command `{"trigger", "slot", "verb", "asked", "outcome",
    "result"}`, the outcome being "done", or "repeated" when this id was done before. For a duplicate delivery the
    outcome is "duplicate" and `first` the first delivery's answer, None while that still runs. Raises `errors.Refused`
    before any side effect, and whatever ended an attempt in failure.
    """
    invocation = _invocation(context, calls_after=1)
    settings = invocation.settings
    trigger = parse_trigger(event, now_ms=CLOCK.now_ms(), settings=settings)
    if trigger.kind == "watchdog":
        raise InvalidTrigger("detail.trigger", "'watchdog' belongs to the watchdog function")
    answer: dict[str, Any] = {"trigger": trigger.kind, "slot": trigger.slot}

    def body() -> dict[str, Any]:
        job = Job(_source(invocation), EntitlementsTable(invocation))
        if command := trigger.command:
            from reconciler.deeds import DOES

            outcome, result = obey(command, DOES[command.verb], job, invocation=invocation)
            logger.info("command ended", slot=trigger.slot, verb=command.verb, outcome=outcome)
            return answer | {"verb": command.verb, "asked": command.asked, "outcome": outcome, "result": result}
        results = run(trigger, job, invocation=invocation)
        outcome = results[-1].outcome if results else "idle"
        logger.info("invocation ended", slot=trigger.slot, outcome=outcome)
        return answer | {"outcome": outcome, "attempts": [asdict(result) for result in results]}

    given, duplicate = once_per_slot(
        trigger.slot,
        body,
        job=settings.job_name,
        table=settings.idempotency_table,
        client=invocation.client,
        context=context,
    )
    if given is None or duplicate:
        count("DuplicateDeliveries")
        logger.info("duplicate delivery", slot=trigger.slot)
        if given and trigger.command:
            same_command(trigger.command, given["verb"], given["asked"])
        return answer | {"outcome": "duplicate", "first": given}
    return given


@emitting()
def watchdog(event: object, context: LambdaContext) -> dict[str, float]:
    """Emit and return every watchdog metric. The event does not matter: what is due comes from clock and calendar."""
    from reconciler.watchdog import look

    measured = look(invocation=_invocation(context))
    for name, value in measured.items():
        count(name, value)
    return measured


def _invocation(context: LambdaContext, calls_after: int = 0) -> Invocation:
    """`calls_after` are the calls made once the job has ended: Powertools stores the slot's answer, or forgets it."""
    logger.append_keys(function_request_id=context.aws_request_id)
    settings = Settings.from_env()
    kept_ms = round(calls_after * settings.call_budget_s * 1000)
    return Invocation(
        settings=settings,
        client=_client(settings),
        clock=CLOCK,
        remaining_ms=lambda: context.get_remaining_time_in_millis() - kept_ms,
        owner=f"{context.function_name}/{context.aws_request_id}",
    )


def _source(invocation: Invocation) -> Side[SourceRecord]:
    """A provider, or else what source.py has; the one that the settings do not choose need not be there."""
    if invocation.settings.source == HTTP:
        from reconciler.http_source import HttpSource

        return HttpSource(invocation)
    from reconciler.source import AccountsTable

    return AccountsTable(invocation)


@lru_cache(maxsize=1)
def _client(settings: Settings) -> DynamoDBClient:
    return aws.dynamodb(settings)


gc.freeze()
"""What was imported stays: no collection looks at it again, and making the client alone would bring dozens."""
