"""One transaction: written out as named steps, sent until its answer is known, read by position.

    Answer.outcome   applied    every step landed
                     refused    none landed; `refusal` is the first step, by position, that a person must understand
                     invalid    none landed; DynamoDB refused the request as a whole
                     unknown    it may have landed, now or later: read once, or stop

Conflicts and throttling mean that nothing was applied now: the *same* request is sent again, jittered, within one
call budget. The request token is derived from the request, so a repeat of an applied one is an applied one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder
from botocore.exceptions import BotoCoreError, ClientError

from reconciler import aws
from reconciler.errors import OutOfTime, TransientFailure
from reconciler.invocation import Invocation
from reconciler.items import Row, control_row, from_item, to_item
from reconciler.keys import PARTITION_KEY

CONDITION_FAILED = "ConditionalCheckFailed"
UNSTORABLE = "ValidationError"


class Outcome(Enum):
    APPLIED = "applied"
    REFUSED = "refused"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a transaction; `name` is what its refusal is read by, `account_id` whose effect it is."""

    name: str
    action: dict[str, Any]
    account_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step refused: the cancellation code, and the row as it stands (None when there is none)."""

    step: Step
    code: str
    row: Row | None


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    refusal: Refusal | None = None
    error: Exception | None = None

    @property
    def applied(self) -> bool:
        return self.outcome is Outcome.APPLIED

    def refused(self, name: str) -> Refusal | None:
        """The refusal when the condition of that step failed, else None."""
        found = self.refusal
        return found if found and found.step.name == name and found.code == CONDITION_FAILED else None

    def unread(self) -> Exception:
        """The error to raise when the writer has no other reading of this answer."""
        if self.outcome is Outcome.UNKNOWN:
            failure = TransientFailure(f"transact_write_items: no answer: {self.error}")
            failure.__cause__ = self.error
            return failure
        return self.error or RuntimeError(f"unread answer: {self.outcome}")


def send(steps: Sequence[Step], *, invocation: Invocation) -> Answer:
    """Raises OutOfTime when nothing was sent, TransientFailure when AWS would not take it now."""
    clock = invocation.clock
    request = {"TransactItems": [step.action for step in steps]}
    body = json.dumps(request, sort_keys=True, default=repr)
    token = sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    give_up = clock.monotonic() + invocation.settings.call_budget_s
    unknown: Exception | None = None
    pause = 0.05
    while True:
        try:
            invocation.call("transact_write_items", ClientRequestToken=token, **request)
            return Answer(Outcome.APPLIED)
        except OutOfTime:
            if unknown is None:
                raise
            return Answer(Outcome.UNKNOWN, error=unknown)
        except (ClientError, BotoCoreError) as error:
            answer = _read(error, steps)
            if answer is not None:
                return answer
            if aws.verdict(error) is aws.Verdict.UNKNOWN:
                unknown = error
            if clock.monotonic() + pause > give_up:
                if unknown is not None:
                    return Answer(Outcome.UNKNOWN, error=unknown)
                raise TransientFailure(f"transact_write_items failed: {error}") from error
        clock.sleep(random.uniform(pause / 2, pause))
        pause = min(1.0, pause * 2)


def _read(error: Exception, steps: Sequence[Step]) -> Answer | None:
    """What the error says; None when the same request is to be sent again."""
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
    if code == "ValidationException":
        return Answer(Outcome.INVALID, error=error)
    if code == "TransactionCanceledException" and isinstance(error, ClientError):
        reasons: Any = error.response.get("CancellationReasons")
        return _by_position(error, reasons, steps) if reasons else Answer(Outcome.UNKNOWN, error=error)
    if aws.verdict(error) is aws.Verdict.DEFECT:
        raise error
    return None


def _by_position(error: ClientError, reasons: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> Answer | None:
    codes = [reason.get("Code") or "None" for reason in reasons]
    for step, reason, code in zip(steps, reasons, codes, strict=True):
        if code in (CONDITION_FAILED, UNSTORABLE):
            read = control_row if step.account_id is None else from_item
            row = read(reason["Item"]) if reason.get("Item") else None
            return Answer(Outcome.REFUSED, Refusal(step, code, row), error)
    if all(code == "None" or code in aws.NOT_NOW for code in codes):
        return None
    raise error


def update(
    name: str,
    table: str,
    key: Mapping[str, object],
    *,
    when: ConditionBase,
    set: Mapping[str, object] | None = None,
    remove: Sequence[str] = (),
    account_id: str | None = None,
) -> Step:
    """An Update whose every name is a placeholder, so that no reserved word can break it.

    A dot in a name of `set` leads into a map that exists.
    """
    condition = ConditionExpressionBuilder().build_expression(when)
    names = dict(condition.attribute_name_placeholders)
    values: dict[str, object] = dict(condition.attribute_value_placeholders)

    def placed(path: str) -> str:
        placeholders = []
        for part in path.split("."):
            placeholders.append(f"#u{len(names)}")
            names[placeholders[-1]] = part
        return ".".join(placeholders)

    assignments = []
    for path, value in (set or {}).items():
        values[f":u{len(values)}"] = value
        assignments.append(f"{placed(path)} = :u{len(values) - 1}")
    clauses = ["SET " + ", ".join(assignments)] if assignments else []
    clauses += ["REMOVE " + ", ".join(map(placed, remove))] if remove else []
    return Step(
        name,
        {
            "Update": {
                "TableName": table,
                "Key": to_item(key),
                "UpdateExpression": " ".join(clauses),
                "ConditionExpression": condition.condition_expression,
                "ExpressionAttributeNames": names,
                **({"ExpressionAttributeValues": to_item(values)} if values else {}),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        },
        account_id,
    )


def create(name: str, table: str, row: Mapping[str, object]) -> Step:
    """A Put of a row that must not exist yet."""
    return Step(name, {"Put": _conditioned(table, Attr(PARTITION_KEY).not_exists(), Item=to_item(row))})


def check(name: str, table: str, key: Mapping[str, object], *, when: ConditionBase) -> Step:
    """A ConditionCheck: the transaction lands only while this holds for a row that it does not write."""
    return Step(name, {"ConditionCheck": _conditioned(table, when, Key=to_item(key))})


def _conditioned(table: str, when: ConditionBase, **body: object) -> dict[str, Any]:
    condition = ConditionExpressionBuilder().build_expression(when)
    values = condition.attribute_value_placeholders
    return {
        "TableName": table,
        **body,
        "ConditionExpression": condition.condition_expression,
        "ExpressionAttributeNames": condition.attribute_name_placeholders,
        **({"ExpressionAttributeValues": to_item(values)} if values else {}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def as_read(name: str, value: object) -> ConditionBase:
    """The attribute still is what was read; None means it was absent."""
    condition: ConditionBase = Attr(name).not_exists() if value is None else Attr(name).eq(value)
    return condition
