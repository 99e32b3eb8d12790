"""The one DynamoDB client, and what each of its errors says about the request."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from reconciler.settings import Settings

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

NOT_NOW = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
        "Throttling",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
"""Error and cancellation codes after which nothing was applied, and the same request may be sent again."""


class Verdict(Enum):
    """What an error says: refused for now, perhaps applied, or a defect of ours."""

    NOT_NOW = "not now"
    UNKNOWN = "unknown"
    DEFECT = "defect"


def dynamodb(settings: Settings) -> DynamoDBClient:
    """A client whose every call ends within `settings.call_budget_s`; botocore's defaults outlive a lease.

    Except for an answer that keeps trickling in: a read timeout is about silence. Then the platform's timeout is the
    end of the invocation, and the lease's expiry the way on.

    Requests are not held against botocore's model before they are sent, which would take as long as to make them:
    `items.to_item` lets nothing through that DynamoDB's JSON lacks, and DynamoDB refuses the rest.
    """
    return boto3.client("dynamodb", config=config(settings).merge(Config(parameter_validation=False)))


def config(settings: Settings) -> Config:
    """Of every client: the timeouts and attempts that `settings.call_budget_s` is computed from."""
    return Config(
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=settings.read_timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.sdk_max_attempts},
        tcp_keepalive=True,
    )


def verdict(error: Exception) -> Verdict:
    """Judged by type and code, never by message text.

    A failure to connect is unknown too: the SDK's own earlier attempt may have been applied.
    """
    if isinstance(error, ClientError):
        if error.response["Error"]["Code"] in NOT_NOW:
            return Verdict.NOT_NOW
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return Verdict.UNKNOWN if status >= 500 else Verdict.DEFECT
    return Verdict.UNKNOWN if isinstance(error, ConnectionError | HTTPClientError) else Verdict.DEFECT


def name_of(error: Exception) -> str:
    """The class of an error, and AWS's code where the class does not tell."""
    name = type(error).__name__
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else name
    return name if code == name else f"{name}: {code}"
