"""What a child is told to do, as one line of JSON, and the client that every contender uses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

SEGMENT = "000"
PAGE_SIZE = 5000
"""Rows asked for in a Query, as the template has it by default."""

CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"mode": "standard", "total_max_attempts": 3},
    tcp_keepalive=True,
)
"""As `reconciler.aws.config` makes it from the template's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one contender.

    `name` is new for every run, so that no run finds the locks, records or checkpoints of another, except a resumed
    one. `due_ms` is the night that the reconciler runs. `die_at` ends the run at that request that
    touches accounts (durable only: all others are killed from outside). `accounts` are to be made up (synthetic only).
    """

    contender: str
    name: str
    tables: Mapping[str, str]
    due_ms: int
    resumed: bool = False
    die_at: int | None = None
    source_latency_s: float = 0.0
    page_size: int = PAGE_SIZE
    accounts: int = 0

    @property
    def source(self) -> str:
        return self.tables["AccountsTable"]

    @property
    def view(self) -> str:
        return self.tables["EntitlementsTable"]

    def line(self) -> dict[str, Any]:
        return asdict(self)


def client_of(job: Job) -> DynamoDBClient:
    """A client with its connection open, so that no run pays for it."""
    client = boto3.client("dynamodb", config=CONFIG)
    client.get_item(TableName=job.view, Key={"segment": {"S": SEGMENT}, "account_id": {"S": "-"}})
    return delayed(client, job)


def delayed(client: DynamoDBClient, job: Job) -> DynamoDBClient:
    """The same client, whose source is as far away as the job says."""
    if job.source_latency_s:

        def wait(params: Mapping[str, Any], **_: object) -> None:
            if params["TableName"] == job.source:
                time.sleep(job.source_latency_s)

        client.meta.events.register("provide-client-params.dynamodb.Query", wait)
    return client
