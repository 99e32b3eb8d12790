"""The calls of one client, counted as they are made, and the one that is disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import ClientError, ReadTimeoutError

from reconciler.items import from_item
from tests.faults import WRITERS, step_name, writer_of
from tests.kit import Killed
from tests.sweep.disturbances import Disturbance

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

    from reconciler.provider_answers import Answer

REFUSED = ("TransactionCanceledException", "ConditionalCheckFailedException")

Leases = dict[str, tuple[int, str | None]]
"""Lease row → its generation and owner."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was asked for."""

    operation: str
    request: Mapping[str, Any]

    @property
    def name(self) -> str:
        """For people: the operation, and the table that is read or whose transaction it is."""
        actions = self.request.get("TransactItems")
        about = writer_of(actions) if actions else str(self.request["TableName"]).partition("-")[0]
        return f"{self.operation} {about}"

    @property
    def stale(self) -> bool:
        """Whether it may miss a write that was answered before; only Powertools' own reads may."""
        reads = self.operation in ("GetItem", "Query") and "Idempotency" not in self.request["TableName"]
        return reads and self.request.get("ConsistentRead") is not True

    @property
    def fenced(self) -> bool:
        """Whether it is a write of a holder, or of one that is about to be."""
        return "TransactItems" in self.request and writer_of(self.request["TransactItems"]) in WRITERS


@dataclass(slots=True)
class Late:
    """A request that is still under way: `applied` once it has landed, `leases` as they stood when it was sent."""

    call: Call
    applied: bool
    leases: Leases
    deliveries: int = 0


@dataclass(slots=True)
class Calls:
    """Counts what the client is asked for while it `listens`, disturbs one call of it, and notes what must not be."""

    client: DynamoDBClient
    live_write: Callable[[], None] = lambda: None
    made: list[Call] = field(default_factory=list)
    read: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    late: Late | None = None
    unheard: int = 0
    _target: tuple[int, Disturbance] | None = None
    _held_back: set[str] = field(default_factory=set)
    _silent: dict[str, Disturbance] = field(default_factory=dict)
    _listening: bool = False
    _dead: bool = False

    def __post_init__(self) -> None:
        events: Any = self.client.meta.events  # its stubs know no handler that answers
        events.register("before-parameter-build.dynamodb", self._asked)
        events.register("before-call.dynamodb", self._before)
        events.register("needs-retry.dynamodb", self._again)
        events.register("after-call.dynamodb", self._after)

    def forget(self) -> None:
        """Begin anew."""
        self.made, self.read, self.found, self.late, self.unheard = [], Counter(), [], None, 0

    @contextmanager
    def listening(self, number: int = -1, disturbance: Disturbance | None = None) -> Iterator[None]:
        """For one invocation, in which this happens to the call of that number, counted from 0."""
        self.made = []
        self._target = None if disturbance is None else (number, disturbance)
        self._held_back.clear()
        self._silent.clear()
        self._listening, self._dead = True, False
        try:
            yield
        finally:
            self._listening = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is sent here is none of the invocation's."""
        was, self._listening = self._listening, False
        try:
            yield
        finally:
            self._listening = was

    def asked_for(self, url: str, answer: Callable[[], Answer]) -> Answer | str:
        """A request to a provider, as `http_wire.get` answers it; `unheard` counts the answers that were lost."""
        if not self._listening:
            return answer()
        self._made(Call("GET", {"TableName": "provider"}))
        disturbance = self._disturbance
        if disturbance in (Disturbance.UNANSWERED, Disturbance.TIMEOUT):
            self._silent[url] = disturbance
        silent = self._silent.get(url)
        if disturbance is Disturbance.KILLED_BEFORE:
            self._die()
        if silent is Disturbance.TIMEOUT:
            return "no answer"
        with self.aside():
            if disturbance is Disturbance.OVERTAKEN:
                self.live_write()
            answered = answer()
        self.read["provider", url] += 1
        if disturbance is Disturbance.KILLED_AFTER:
            self._die()
        if silent or disturbance is Disturbance.LOST:
            self.unheard += 1
            return "the answer was lost"
        return answered

    def _made(self, call: Call) -> None:
        if self._dead:
            raise Killed
        self.made.append(call)

    def _die(self) -> NoReturn:
        """The invocation is gone, whichever of its threads was at this call."""
        self._dead = True
        raise Killed

    @property
    def _disturbance(self) -> Disturbance | None:
        """What happens to the call made last."""
        return self._target[1] if self._target and self._target[0] == len(self.made) - 1 else None

    def deliver_late(self) -> None:
        """The late request arrives now, with a request token that the service does not know (any more)."""
        if (late := self.late) is None:
            return
        call, late.deliveries = late.call, late.deliveries + 1
        token = {"ClientRequestToken": f"late-{late.deliveries}"} if "TransactItems" in call.request else {}
        with self.aside():
            moved = call.fenced and self._leases(call) != late.leases
            try:
                getattr(self.client, _method(call.operation))(**{**call.request, **token})
            except ClientError as error:
                if error.response["Error"]["Code"] not in REFUSED:
                    raise
                return
        if not token:
            return
        if late.applied:
            self.found.append(f"{call.name} was applied again, much later")
        elif moved:
            self.found.append(f"{call.name} was applied though its lease was released or taken since")
        late.applied = True

    def _leases(self, call: Call) -> Leases:
        leases: Leases = {}
        for action in call.request["TransactItems"]:
            if step_name(action) != "LEASE":
                continue
            (body,) = action.values()
            key = body["Key"]
            answer = self.client.get_item(TableName=body["TableName"], Key=key, ConsistentRead=True)
            row = from_item(answer["Item"]) if "Item" in answer else {}
            leases[key["sk"]["S"]] = (row.get("generation", -1), row.get("owner"))
        return leases

    def _asked(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        if self._listening:
            self._made(Call(model.name, dict(params)))
            if self.made[-1].stale:
                self.found.append(f"{self.made[-1].name} is read without consistency")
            context["sweep"] = (self.made[-1], self._disturbance)

    def _before(self, context: dict[str, Any], **_: Any) -> None:
        if "sweep" not in context:
            return
        call, disturbance = context["sweep"]
        token = call.request.get("ClientRequestToken")
        if disturbance is Disturbance.OVERTAKEN:
            with self.aside():
                self.live_write()
        if disturbance is not None and disturbance.comes_late:
            with self.aside():
                leases = self._leases(call) if call.fenced else {}
            self.late = Late(call, disturbance is Disturbance.REPEATED, leases)
        if disturbance is Disturbance.STRAY and token:
            self._held_back.add(token)
        if disturbance is Disturbance.KILLED_BEFORE:
            self._die()
        if disturbance in (Disturbance.TIMEOUT, Disturbance.STRAY) or token in self._held_back:
            raise ReadTimeoutError(endpoint_url="http://dynamodb")

    def _again(self, request_dict: dict[str, Any], attempts: int, **_: Any) -> int | None:
        """0 seconds until the SDK sends it again, or None."""
        _, disturbance = request_dict["context"].get("sweep", (None, None))
        return 0 if disturbance is Disturbance.LOST and attempts == 1 else None

    def _after(self, context: dict[str, Any], parsed: dict[str, Any], **_: Any) -> None:
        if "sweep" not in context:
            return
        call, disturbance = context["sweep"]
        for item in parsed.get("Items", ()):
            if "account_id" in item:
                self.read[str(call.request["TableName"]), item["account_id"]["S"]] += 1
        if disturbance in (Disturbance.KILLED_AFTER, Disturbance.REPEATED):
            self._die()
        if disturbance is Disturbance.UNANSWERED:
            raise ReadTimeoutError(endpoint_url="http://dynamodb")
        if call.operation == "TransactWriteItems" and "Error" not in parsed and disturbance is None:
            self.deliver_late()


def _method(operation: str) -> str:
    return {"TransactWriteItems": "transact_write_items"}.get(
        operation, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation).lstrip("_")
    )
