"""Contender 4: AWS's durable execution SDK for Python with its local test runner, one step per range.

The runner keeps the checkpoints in the same process: it spares the network calls that AWS's service would need, which
are counted all the same. A kill is an invocation that dies: the runner then invokes again, as the service would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from aws_durable_execution_sdk_python.context import DurableContext, StepContext
from aws_durable_execution_sdk_python.exceptions import InvocationError
from aws_durable_execution_sdk_python.execution import InvocationStatus, durable_execution
from aws_durable_execution_sdk_python_testing.client import InMemoryServiceClient
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner

from bench import loop
from bench.job import Job, client_of

others: Counter[str] = Counter()
"""Requests that AWS's own service would get."""


def prepare(job: Job) -> Callable[[], None]:
    client = client_of(job)
    _count_checkpoints()
    sent = 0

    def die(**_: object) -> None:
        nonlocal sent
        sent += 1
        if sent == job.die_at:
            raise InvocationError("killed")

    if job.die_at is not None:
        client.meta.events.register("after-call.dynamodb", die)

    @durable_execution  # type: ignore[untyped-decorator]  # its package is not installed where types are checked
    def handler(event: object, context: DurableContext) -> int:
        after: str | None = None
        reading: Iterator[tuple[str | None, list[loop.Account]]] | None = None

        def one_range(_: StepContext) -> str | None:
            nonlocal reading
            reading = reading or loop.accounts(client, job, after)
            upto, found = next(reading)
            loop.write(client, loop.effects(found, job.view))
            return upto

        ranges = 0
        while True:
            after = context.step(one_range, name=f"range {ranges}")
            ranges += 1
            if after is None:
                return ranges

    def run() -> None:
        with DurableFunctionTestRunner(handler=handler, poll_interval=0.01) as runner:
            result = runner.run(input="{}", execution_timeout=900)
        if result.status is not InvocationStatus.SUCCEEDED:
            raise RuntimeError(f"durable execution: {result.status}: {result.error}")

    return run


def _count_checkpoints() -> None:
    original: Any = InMemoryServiceClient.checkpoint

    def checkpoint(*args: Any, **named: Any) -> Any:
        others["CheckpointDurableExecution"] += 1
        return original(*args, **named)

    InMemoryServiceClient.checkpoint = checkpoint
