"""Where a story is played: an emulator, the recording proxy in front of it, the template's tables, and workers.

Workers reach DynamoDB only through the proxy; the scene itself looks at the tables behind the proxy's back, so that
what it reads is not counted as theirs.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from boto3.dynamodb.types import TypeDeserializer
from botocore.config import Config

from tools import verify
from tools.emulator import emulator
from tools.ledger import OK
from tools.proxy import Proxy, proxy
from tools.seed import Seeded, seed
from tools.tables import create_tables, environment
from tools.worker import Worker

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

REGION = "eu-west-1"
JOB = "nightly-entitlements"
SEGMENT = "000"


def local_client(url: str, caller: str) -> DynamoDBClient:
    """Return a client for an emulator or a proxy; `caller` is the access key id it signs with."""
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=caller,
        aws_secret_access_key="local",
        config=Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}),
    )


def scheduled_event(trigger: str, time: datetime) -> dict[str, Any]:
    """Return the event of a schedule as the functions receive it."""
    stamp = f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {"source": "aws.scheduler", "detail-type": "Scheduled Event", "time": stamp, "detail": {"trigger": trigger}}


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a story needs; `client` goes past the proxy."""

    proxy: Proxy
    client: DynamoDBClient
    tables: Mapping[str, str]
    environment: Mapping[str, str]
    directory: Path
    _stack: ExitStack

    def worker(self, name: str) -> Worker:
        """Start a worker that ends with the scene."""
        made = Worker(name, self.environment, endpoint=self.proxy.url, directory=self.directory, region=REGION)
        return self._stack.enter_context(made)

    def lease(self) -> dict[str, Any]:
        """Return the LEASE row as plain values; {} when there is none."""
        return self._control_row(f"LEASE#{SEGMENT}")

    def run_record(self, night: datetime) -> dict[str, Any]:
        """Return the INTERVAL row of a night."""
        return self._control_row(f"INTERVAL#{night:%Y-%m-%d}")

    def progress(self, night: datetime) -> dict[str, Any]:
        """Return the PROGRESS row of a night's first pass."""
        return self._control_row(f"PROGRESS#{night:%Y-%m-%d}#1#{SEGMENT}")

    def _control_row(self, sort_key: str) -> dict[str, Any]:
        key = {"pk": {"S": JOB}, "sk": {"S": sort_key}}
        answer = self.client.get_item(TableName=self.tables["ControlTable"], Key=key, ConsistentRead=True)
        row = {name: TypeDeserializer().deserialize(value) for name, value in answer.get("Item", {}).items()}
        return {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}

    def pages(self, table: str, page_size: int = 1000) -> list[list[verify.Row]]:
        """Read AccountsTable or EntitlementsTable from end to end; return its pages, in DynamoDB's notation."""
        return verify.pages(self.client, self.tables[table], SEGMENT, page_size)

    def rows(self, table: str) -> list[verify.Row]:
        """Return every row of AccountsTable or EntitlementsTable, in DynamoDB's notation."""
        return [row for page in self.pages(table) for row in page]

    def source_reads(self, *callers: str) -> int:
        """Return how often these workers (or all) read the source."""
        counted = [self.proxy.ledger.reads(self.tables["AccountsTable"], caller) for caller in callers or (None,)]
        return sum(counted)

    def seed(self, rows: Seeded) -> None:
        """Fill both sides."""
        source, view = self.tables["AccountsTable"], self.tables["EntitlementsTable"]
        seed(self.client, rows, accounts_table=source, entitlements_table=view)

    def view_writes(self) -> Counter[str]:
        """Return account id → successful writes to its view row, as the proxy saw them."""
        changes = self.proxy.ledger.changes(self.tables["EntitlementsTable"])
        return Counter({account_id: number for (_, account_id), number in changes.items()})

    def commits(self, caller: str) -> int:
        """Return how many ranges a worker has committed: LEASE and PROGRESS first, and no event but rejections."""
        entries = [entry for entry in self.proxy.ledger.entries() if entry.caller == caller]
        return sum(self._commits_range([effect.key[-1] for effect in entry.effects]) for entry in entries)

    @staticmethod
    def _commits_range(keys: list[str]) -> bool:
        events = [key for key in keys if key.startswith("AUDIT#") and "#REJECTED#" not in key]
        return [key.partition("#")[0] for key in keys[:2]] == ["LEASE", "PROGRESS"] and not events

    def refusals(self, caller: str) -> list[str]:
        """Return what became of a worker's transactions that failed: `refused` by the lease, or the error."""
        return [
            "refused" if entry.reasons[:1] == ("ConditionalCheckFailed",) else entry.outcome
            for entry in self.proxy.ledger.entries()
            if entry.caller == caller and entry.operation == "TransactWriteItems" and entry.outcome != OK
        ]


@contextmanager
def scene(overrides: Mapping[str, Any]) -> Iterator[Scene]:
    """Set up a scene whose functions have the template's environment with `overrides`; everything ends with it."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-")))
        upstream = stack.enter_context(emulator())
        running = stack.enter_context(proxy(upstream))
        client = local_client(upstream, "scene")
        stack.callback(client.close)
        tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
        variables = environment(tables, job=JOB, overrides=dict(overrides))
        yield Scene(running, client, tables, variables, directory, stack)
