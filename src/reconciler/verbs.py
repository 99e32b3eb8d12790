"""An operator's command, done once: whatever it changes is written together with a row that names person and reason.

Each verb reads, decides, and returns a Deed; here it is written on the condition that everything still is as read. The
OPERATOR row is put only if absent, so that a command that comes again, for as long as audit rows are kept, finds that
it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from reconciler import clock, keys
from reconciler.audit import KEPT_DAYS
from reconciler.commands import Command
from reconciler.control import Control
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, Row
from reconciler.transactions import CONDITION_FAILED, Outcome, Step, create, send

if TYPE_CHECKING:
    from reconciler.work import Job

TRIES = 5


@dataclass(frozen=True, slots=True)
class Deed:
    """What a command comes to: the steps that change something, the audit event, what to answer.

    `noted` is what the audit row holds besides; `run_id` the run that it is about.
    """

    event: str
    result: Row
    steps: Sequence[Step] = ()
    noted: Row = field(default_factory=dict)
    run_id: str | None = None


Verb = Callable[[Command, "Job", Invocation], Deed]


def obey(command: Command, verb: Verb, job: Job, *, invocation: Invocation) -> tuple[str, Row]:
    """Do what an operator asks: ("done", result), or ("repeated", what was noted) when this id was done before.

    Raises VerbRefused when it cannot be done, and nothing was written then; TransientFailure and OutOfTime as every
    write, and then the same command, with the same id, may be sent again.
    """
    for _ in range(TRIES):
        if done := _done(command, invocation):
            return "repeated", done
        try:
            deed = verb(command, job, invocation)
        except VerbRefused:
            if done := _done(command, invocation):
                return "repeated", done
            raise
        steps = [*deed.steps, create("OPERATOR", invocation.table, _operator_row(command, deed, invocation))]
        answer = send(steps, invocation=invocation)
        if answer.applied:
            return "done", deed.result
        if answer.outcome is Outcome.UNKNOWN and invocation.control_row(operator_key(command, invocation)):
            return "done", deed.result
        if answer.refusal is None or answer.refusal.code != CONDITION_FAILED:
            raise answer.unread()
    raise VerbRefused(f"{command.verb}: the rows changed {TRIES} times while this was decided: try again")


def same_command(command: Command, verb: str, asked: object) -> None:
    """Raises VerbRefused when the id was used before, for something else: that was not done now."""
    if (verb, asked) != (command.verb, command.asked):
        raise VerbRefused(
            f"{command.verb}: the id {command.id!r} was used before, for {verb} {asked}: take another one"
        )


def recorded(command: Command, control: Control | None, invocation: Invocation) -> Row:
    """The row of the interval that a command names. Raises VerbRefused when it is not on record."""
    found = invocation.control_row(keys.interval(command.interval))
    if found is not None:
        return found
    why = "no trigger has come yet"
    if control is not None:
        days = invocation.settings.catch_up_days
        why = f"the first one is {control.first_interval}, and a Rerun adds an earlier one within {days} days only"
        if command.interval >= control.first_interval:
            why = "it is not due yet"
    raise VerbRefused(f"{command.verb}: {command.interval} is not on record: {why}")


def operator_key(command: Command, invocation: Invocation) -> str:
    """The sort key of the command's audit row."""
    digest = sha256(command.id.encode()).hexdigest()
    return keys.operator(command.interval or invocation.settings.job_name, digest)


def _operator_row(command: Command, deed: Deed, invocation: Invocation) -> Row:
    now_ms = invocation.clock.now_ms()
    noted = {name: value for name, value in (deed.noted | {"run_id": deed.run_id}).items() if value is not None}
    return noted | {
        **invocation.row_key(operator_key(command, invocation)),
        "schema": SCHEMA,
        "event": deed.event,
        "event_id": command.id,
        "verb": command.verb,
        "asked": command.asked,
        "at": clock.text(now_ms),
        "actor": command.requested_by,
        "reason": command.reason,
        "worker": invocation.owner,
        keys.CONTROL_TTL: now_ms // 1000 + KEPT_DAYS * 86_400,
    }


def _done(command: Command, invocation: Invocation) -> Row | None:
    """What the audit row of the command tells; None when it was not done yet."""
    row = invocation.control_row(operator_key(command, invocation))
    if row is None:
        return None
    same_command(command, str(row.get("verb")), row.get("asked"))
    return {name: value for name, value in row.items() if name not in ("pk", "sk", "schema", keys.CONTROL_TTL)}
