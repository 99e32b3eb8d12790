"""Duplicate deliveries cost nothing: Powertools Idempotency on the slot, with nothing resting on it.

What is answered is remembered for the slot; what is raised is forgotten, so a retry may run. A killed invocation
leaves its slot in progress until its time limit has passed. If the idempotency table does not answer, the job runs
all the same: leases and fences keep it safe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyInconsistentStateError,
    IdempotencyPersistenceLayerError,
)

from reconciler import keys
from reconciler.errors import OutOfTime, TransientFailure
from reconciler.observability import count, logger

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from types_boto3_dynamodb import DynamoDBClient

REMEMBER_SECONDS = 48 * 3600
"""How long a slot's answer is remembered; after that the run record still says that there is nothing to do."""

Answer = dict[str, Any]


def once_per_slot(
    slot: str,
    body: Callable[[], Answer],
    *,
    job: str,
    table: str,
    client: DynamoDBClient,
    context: LambdaContext,
) -> tuple[Answer | None, bool]:
    """Run `body` unless this slot was answered or is being worked on.

    Returns the answer and whether it is a duplicate's; a duplicate has None while the first delivery still runs.
    Whatever `body` answered or raised wins over a failure of the idempotency table, be it before or after.
    """
    ended: list[Answer | Exception] = []

    def remembered(delivery: dict[str, str]) -> Answer:
        try:
            answer = body()
        except Exception as error:
            ended.append(error)
            raise
        ended.append(answer)
        return answer

    config = IdempotencyConfig(
        event_key_jmespath="slot", raise_on_no_idempotency_key=True, expires_after_seconds=REMEMBER_SECONDS
    )
    config.register_lambda_context(context)
    guarded = idempotent_function(
        remembered,
        data_keyword_argument="delivery",
        persistence_store=_store(table, client),
        config=config,
        key_prefix=job,
    )
    try:
        answer = guarded(delivery={"slot": slot})
        return answer, not ended
    except IdempotencyAlreadyInProgressError:
        return None, True
    except (IdempotencyPersistenceLayerError, IdempotencyInconsistentStateError) as unavailable:
        count("IdempotencyUnavailable")
        logger.warning("idempotency table unavailable", slot=slot, error=str(unavailable))
        return _in_spite_of(unavailable, ended, body), False


def _in_spite_of(unavailable: Exception, ended: list[Answer | Exception], body: Callable[[], Answer]) -> Answer:
    if not ended:
        try:
            return body()
        except OutOfTime as stop:
            raise TransientFailure(f"{unavailable}; then {stop}") from unavailable
    outcome = ended[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@lru_cache(maxsize=1)
def _store(table: str, client: DynamoDBClient) -> DynamoDBPersistenceLayer:
    return DynamoDBPersistenceLayer(
        table, key_attr=keys.IDEMPOTENCY_KEY, expiry_attr=keys.IDEMPOTENCY_TTL, boto3_client=client
    )
