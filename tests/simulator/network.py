"""The network between the workers' SDK and moto, one message at a time.

moto is not atomic by itself: a transaction that fails puts back whole tables, and with them what others wrote
meanwhile. Here that cannot happen, because a message is applied from beginning to end while everybody else stands
still. What moto lacks is added: ClientRequestToken, and conflicts and throttling among the reasons of a cancellation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import botocore_stubber

from tests.faults import writer_of
from tests.simulator.baton import Actor
from tests.simulator.clock import Time

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

TOKEN_SECONDS = 600
"""How long DynamoDB remembers a ClientRequestToken."""

CONNECT_SECONDS, READ_SECONDS = 1.0, 3.0
"""How long the SDK waits, as the template sets it."""

REFUSALS = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
NOT_NOW = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


@dataclass(frozen=True, slots=True)
class Message:
    """One attempt of the SDK at one request."""

    request: AWSPreparedRequest
    operation: str
    body: dict[str, Any]

    @classmethod
    def of(cls, request: AWSPreparedRequest) -> Message:
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).partition(".")[2]
        raw: Any = request.body
        return cls(request, operation, json.loads(raw))

    @property
    def actions(self) -> list[dict[str, Any]]:
        """What a transaction is to do; nothing for other operations."""
        return list(self.body.get("TransactItems", ()))

    @property
    def consistent(self) -> bool:
        """Whether it sees every write that was answered before; only Powertools' own reads may be without."""
        reads = self.operation in ("GetItem", "Query", "Scan", "BatchGetItem")
        return not reads or self.body.get("ConsistentRead") is True or "Idempotency" in self.body["TableName"]

    @property
    def name(self) -> str:
        """For schedules: the operation and its table, or whose transaction it is."""
        if self.actions:
            return writer_of(self.actions)
        return f"{self.operation} {self.body['TableName'].partition('-')[0]}"


Apply = Callable[[Message, Callable[[], AWSResponse]], AWSResponse]


@dataclass(slots=True)
class Network:
    """Carries every message of one client. `watch` surrounds what is applied; `late` are copies still on their way."""

    client: DynamoDBClient
    time: Time
    rng: Random
    watch: Apply
    late: list[Message] = field(default_factory=list)
    _tokens: dict[str, tuple[float, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        events: Any = self.client.meta.events
        events.unregister("before-send", botocore_stubber)
        events.register("before-send.dynamodb", self._send)

    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """What the SDK sees of one attempt; it raises what urllib3 would have made of it."""
        message = Message.of(request)
        actor = Actor.current()
        if actor is None:
            return self.apply(message)
        order = actor.stop(f"sends {message.name}")
        if order == "unsent":
            self.time.advance(CONNECT_SECONDS)
            raise ConnectTimeoutError(endpoint_url=request.url)
        if order == "late":
            self._keep(message)
            self.time.advance(READ_SECONDS)
            raise ReadTimeoutError(endpoint_url=request.url)
        if order in ("throttled", "conflict"):
            return self._refusal(message, order)
        answer = self.apply(message)
        if order == "twice":
            self._keep(message)
        if order == "mixed":
            answer = self._mixed(message, answer)
        order = actor.stop(f"awaits {message.name} ({answer.status_code})")
        if order == "lost":
            self.time.advance(READ_SECONDS)
            raise ReadTimeoutError(endpoint_url=request.url)
        return error(message, "InternalServerError", 500) if order == "broken" else answer

    def apply(self, message: Message) -> AWSResponse:
        """Have moto do it, unless the same transaction was done within the memory of its token."""
        token = message.body.get("ClientRequestToken")
        said = json.dumps(message.actions, sort_keys=True)
        when, before = self._tokens.get(token or "", (-TOKEN_SECONDS, ""))
        if token and self.time.seconds - when < TOKEN_SECONDS:
            return answered(message, 200, {}) if said == before else error(message, "IdempotentParameterMismatch")
        answer = self.watch(message, lambda: self._moto(message))
        if token and answer.status_code == 200:
            self._tokens[token] = (self.time.seconds, said)
        return answer

    def _keep(self, message: Message) -> None:
        """A copy is still on its way; of what only reads, nobody would notice."""
        if message.actions:
            self.late.append(message)

    def arrive(self, message: Message) -> int:
        """A copy arrives, and nobody waits for its answer; the status of that."""
        self.late.remove(message)
        return self.apply(message).status_code

    def _moto(self, message: Message) -> AWSResponse:
        answer = botocore_stubber.process_request(message.request)
        assert answer is not None
        status, headers, body = answer
        return AWSResponse(message.request.url, status, headers, MockRawResponse(body))  # type: ignore[arg-type]

    def _refusal(self, message: Message, order: str) -> AWSResponse:
        """Nothing was applied: throttled as a whole, or cancelled for conflicts and throttling of some actions."""
        if order == "throttled" or not message.actions:
            in_progress = ("TransactionInProgressException",) if message.actions else ()
            return error(message, self.rng.choice(REFUSALS + in_progress))
        chosen = self.rng.randrange(len(message.actions))
        reasons: list[dict[str, Any]] = [
            {"Code": self.rng.choice(NOT_NOW) if at == chosen or self.rng.random() < 0.2 else "None"}
            for at in range(len(message.actions))
        ]
        return error(message, "TransactionCanceledException", CancellationReasons=reasons)

    def _mixed(self, message: Message, answer: AWSResponse) -> AWSResponse:
        """A cancellation in which some actions met a conflict before their condition was looked at."""
        reasons = json.loads(answer.content).get("CancellationReasons")
        if reasons is None:
            return answer
        reasons = [{"Code": self.rng.choice(NOT_NOW)} if self.rng.random() < 0.3 else reason for reason in reasons]
        return error(message, "TransactionCanceledException", CancellationReasons=reasons)


def answered(message: Message, status: int, body: Mapping[str, Any]) -> AWSResponse:
    headers: Any = {"Content-Type": "application/x-amz-json-1.0"}
    raw: Any = MockRawResponse(json.dumps(body))
    return AWSResponse(message.request.url, status, headers, raw)


def error(message: Message, code: str, status: int = 400, **details: Any) -> AWSResponse:
    """What DynamoDB answers when it refuses."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return answered(message, status, {"__type": kind, "message": "said by the simulator", **details})


def sleepless(sleep: Callable[[float], None]) -> SimpleNamespace:
    """In place of botocore's own `time`: between the SDK's attempts, true time passes and others run."""
    return SimpleNamespace(sleep=sleep)
