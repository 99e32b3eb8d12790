"""Where all seeds of a process play: one moto, one set of tables, emptied in between; the deployed function on it."""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from botocore import UNSIGNED
from botocore.config import Config
from moto import mock_aws
from moto.core.model_instances import reset_model_data

from reconciler import app, clock
from reconciler.observability import metrics
from tests.conftest import SESSION
from tests.simulator.clock import Time, WorkersClock
from tests.simulator.ledger import stored
from tests.world import JOB, NIGHT, TEMPLATE
from tools.tables import create_tables, environment

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class Stage:
    """Tables by logical id."""

    tables: Mapping[str, str]

    @contextmanager
    def playing(self, seed: int, time: Time, settings: Mapping[str, object]) -> Iterator[DynamoDBClient]:
        """Empty tables, and the function deployed with these settings; every source of chance begins with the seed.

        The client is new, since botocore's budget of retries would remember the seeds before.
        """
        reset_model_data()  # moto remembers every value it ever made
        for name in self.tables.values():
            table = stored(name)
            table.items.clear()
            table.created_at = datetime.fromtimestamp(clock.parse_ms(f"{NIGHT}T00:00:00Z") / 1000, UTC)
        client = new_client()
        overrides = {name.upper(): str(value) for name, value in settings.items()}
        environ = environment(dict(self.tables), job=JOB, overrides=overrides, template=TEMPLATE)
        chance = random.Random(seed)
        now = WorkersClock(time)
        with ExitStack() as patched:
            patched.enter_context(patch.dict(os.environ, environ))
            patched.enter_context(patch.object(app, "CLOCK", now))
            patched.enter_context(patch.object(app, "_client", lambda _: client))
            patched.enter_context(patch("botocore.endpoint.time", SimpleNamespace(sleep=now.sleep)))
            patched.enter_context(
                patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
            )
            patched.enter_context(redirect_stdout(patched.enter_context(open(os.devnull, "w"))))
            state = random.getstate()
            random.seed(seed)
            logging.disable()
            try:
                yield client
            finally:
                logging.disable(logging.NOTSET)
                random.setstate(state)
                metrics.clear_metrics()


def new_client() -> DynamoDBClient:
    config: Any = Config(
        retries={"mode": "standard", "total_max_attempts": 3}, signature_version=UNSIGNED, parameter_validation=False
    )
    client: DynamoDBClient = SESSION.client("dynamodb", config=config)
    return client


@contextmanager
def stage() -> Iterator[Stage]:
    with mock_aws():
        yield Stage(create_tables(new_client(), suffix="simulated", template=TEMPLATE))
