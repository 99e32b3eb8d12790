"""Contender 2: python-dynamodb-lock, whose heartbeat keeps a lock, around the loop, and a checkpoint item per page.

Heartbeat and lease are the library's defaults. Its client is not closed: that waits for its threads to wake up.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import boto3
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

from bench import loop
from bench.job import CONFIG, Job, client_of
from reconciler.items import from_item, to_item

RESUMED_LEASE = {"lease_duration": timedelta(seconds=3), "heartbeat_period": timedelta(seconds=1)}
"""Where reads are counted after a kill, nobody has to wait half a minute for the dead holder's lease."""


def prepare(job: Job) -> Callable[[], None]:
    client = client_of(job)
    resource = boto3.resource("dynamodb", config=CONFIG)
    resource.Table(job.tables["LockTable"]).get_item(Key={"lock_key": "-", "sort_key": "-"})  # opens its connection
    control = job.tables["ControlTable"]
    key = {"pk": job.name, "sk": "CHECKPOINT"}
    lease = RESUMED_LEASE if job.resumed or job.die_at is not None else {}

    def run() -> None:
        locks = DynamoDBLockClient(resource, table_name=job.tables["LockTable"], **lease)
        lock = locks.acquire_lock(job.name)
        stored = client.get_item(TableName=control, Key=to_item(key), ConsistentRead=True).get("Item")
        after = from_item(stored)["after"] if stored else None
        for upto, found in loop.accounts(client, job, after):
            loop.write(client, loop.effects(found, job.view))
            if upto is not None:
                client.put_item(TableName=control, Item=to_item({**key, "after": upto}))
        client.put_item(TableName=control, Item=to_item({**key, "done": True}))
        locks.release_lock(lock)

    return run
