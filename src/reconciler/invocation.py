"""What one invocation brings along: settings, client, clock, and the time it has left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from reconciler import aws
from reconciler.clock import Clock
from reconciler.errors import OutOfTime, TransientFailure
from reconciler.items import Row, control_row, to_item
from reconciler.keys import PARTITION_KEY, SORT_KEY
from reconciler.observability import logger
from reconciler.settings import Settings

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One invocation of the function.

    `remaining_ms` tells the milliseconds until the platform ends it; `owner` names it for people.
    """

    settings: Settings
    client: DynamoDBClient
    clock: Clock
    remaining_ms: Callable[[], int]
    owner: str

    @property
    def remaining_s(self) -> float:
        return self.remaining_ms() / 1000

    @property
    def table(self) -> str:
        """The ControlTable's name."""
        return self.settings.control_table

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """One SDK call, started only when the longest it can take still fits.

        Raises OutOfTime before sending, else whatever the SDK raises.
        """
        budget = self.settings.call_budget_s
        if self.remaining_s < budget:
            raise OutOfTime(f"{operation} may take {budget:g} s, but only {self.remaining_s:.1f} s are left")
        answer: dict[str, Any] = getattr(self.client, operation)(**request)
        return answer

    def read(self, operation: str, **request: Any) -> dict[str, Any]:
        """A call that changes nothing. Raises TransientFailure when AWS throttled or did not answer."""
        try:
            return self.call(operation, **request)
        except (ClientError, BotoCoreError) as error:
            if aws.verdict(error) is aws.Verdict.DEFECT:
                logger.error("refused by AWS", operation=operation, table=request.get("TableName"), error=str(error))
                raise
            raise TransientFailure(f"{operation} failed: {error}") from error

    def row_key(self, sort_key: str) -> Row:
        """The key of one of the job's ControlTable rows."""
        return {PARTITION_KEY: self.settings.job_name, SORT_KEY: sort_key}

    def control_row(self, sort_key: str) -> Row | None:
        """One ControlTable row, read consistently; None when absent."""
        answer = self.read("get_item", TableName=self.table, Key=to_item(self.row_key(sort_key)), ConsistentRead=True)
        return control_row(answer["Item"]) if "Item" in answer else None

    def control_rows(self, condition: str, values: dict[str, str]) -> list[Row]:
        """Every ControlTable row of the job whose `#sk` meets the key condition, in order, read consistently."""
        return list(self.each_control_row(condition, values))

    def each_control_row(self, condition: str, values: dict[str, str]) -> Iterator[Row]:
        """As `control_rows`, a page at a time."""
        start: dict[str, Any] = {}
        while True:
            answer = self.read(
                "query",
                TableName=self.table,
                KeyConditionExpression=f"#pk = :pk AND {condition}",
                ExpressionAttributeNames={"#pk": PARTITION_KEY, "#sk": SORT_KEY},
                ExpressionAttributeValues=to_item({":pk": self.settings.job_name, **values}),
                ConsistentRead=True,
                **start,
            )
            yield from map(control_row, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
