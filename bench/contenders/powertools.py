"""Contender 3: Powertools Idempotency around each account, over the loop: nothing is done twice, item by item."""

from __future__ import annotations

from collections.abc import Callable

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from bench import loop
from bench.job import Job, client_of
from reconciler.keys import IDEMPOTENCY_KEY, IDEMPOTENCY_TTL
from tools.runtime import Context


def prepare(job: Job) -> Callable[[], None]:
    client = client_of(job)
    store = DynamoDBPersistenceLayer(
        job.tables["IdempotencyTable"], key_attr=IDEMPOTENCY_KEY, expiry_attr=IDEMPOTENCY_TTL, boto3_client=client
    )
    config = IdempotencyConfig(event_key_jmespath="id", expires_after_seconds=48 * 3600)
    remaining_s = 900 if job.die_at is None else 1  # an account in progress at the kill is free after this time
    config.register_lambda_context(Context(remaining_s, job.name))  # type: ignore[arg-type]  # what it reads of a context is there
    waiting: dict[str, loop.Account] = {}

    def process(*, account: dict[str, str]) -> bool:
        update = loop.effect(waiting[account["id"]], job.view)
        if update is not None:
            client.update_item(**update)
        return update is not None

    once = idempotent_function(
        process, data_keyword_argument="account", persistence_store=store, config=config, key_prefix=job.name
    )

    def run() -> None:
        for _, found in loop.accounts(client, job):
            for account in found:
                waiting[account[0]] = account
                once(account={"id": account[0]})
                del waiting[account[0]]

    return run
