"""What can happen to a transaction on its way: botocore's own events, so that everything around them is the real SDK.

    wire = Wire(world.client)
    wire.next("commit", LOST)                         applied, the answer never came
    wire.next("commit", PASS, REPEATED)               the second one: applied, and sent again by the SDK
    wire.next("acquire", cancelled({"LEASE": "TransactionConflict"}), meanwhile(...))

A fault waits for the next transaction of its writer; several wait for one transaction each, in order, and the last
one stays when it is given as `then`. Nested runs on the same client are transactions like any other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from reconciler.items import from_item, to_item

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Writer = Literal["setup", "observe", "skip", "delay", "acquire", "commit", "complete", "end", "trip", "advance", "verb"]
WRITERS: tuple[Writer, ...] = ("acquire", "commit", "complete", "end", "trip")
"""Those that hold, or are about to hold, a lease."""

ENDINGS = {"YIELDED", "FAILED", "NEEDS_REPAIR"}
BEGINNINGS = {"STARTED", "RESUMED", "TAKEOVER"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to one transaction; the default is nothing."""

    meanwhile: Callable[[], object] | None = None
    unsent: Exception | None = None
    instead: Callable[[Sequence[Any]], dict[str, Any]] | None = None
    again: int = 0
    lost: Exception | None = None


PASS = Fault()
NEVER_SENT = Fault(unsent=EndpointConnectionError(endpoint_url="http://dynamodb"))
LOST = Fault(lost=ReadTimeoutError(endpoint_url="http://dynamodb"))
REPEATED = Fault(again=1)
"""Applied, and sent once more by the SDK, as after an answer that it could not read."""


def meanwhile(action: Callable[[], object]) -> Fault:
    """Something else happens just before the transaction is sent."""
    return Fault(meanwhile=action)


def answered(code: str, status: int = 400, reasons: Sequence[Mapping[str, Any]] | None = None) -> Fault:
    """Not applied; the service answers with this error."""
    return Fault(instead=lambda _: _error(code, status, reasons))


def cancelled(codes: Mapping[str, str], rows: Mapping[str, Mapping[str, Any]] | None = None) -> Fault:
    """Not applied; cancelled with these reasons by step (LEASE, PROGRESS, INTERVAL, CONTROL, AUDIT or account id).

    `rows` are the rows that the failed conditions show.
    """

    def instead(actions: Sequence[Any]) -> dict[str, Any]:
        names = [step_name(action) for action in actions]
        assert set(codes) <= set(names), f"{sorted(codes)} are not all among {names}"
        reasons: list[dict[str, Any]] = [{"Code": codes.get(name, "None")} for name in names]
        for name, row in (rows or {}).items():
            reasons[names.index(name)]["Item"] = to_item(row)
        return _error("TransactionCanceledException", 400, reasons)

    return Fault(instead=instead)


def _error(code: str, status: int, reasons: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    parsed: dict[str, Any] = {
        "Error": {"Code": code, "Message": "said by a test"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return parsed if reasons is None else parsed | {"CancellationReasons": list(reasons)}


def step_name(action: Mapping[str, Any]) -> str:
    """What an action is about: the kind of control row, or the account whose view row it writes."""
    (body,) = action.values()
    key = from_item(body.get("Key") or body["Item"])
    return str(key["account_id"] if "account_id" in key else key["sk"].partition("#")[0])


def writer_of(actions: Sequence[Mapping[str, Any]]) -> Writer:
    """Whose transaction this is, told by its rows and its audit event."""
    names = [step_name(action) for action in actions]
    puts = [from_item(action["Put"]["Item"]) for action in actions if "Put" in action]
    events = {row.get("event") for row in puts}
    if any("#OPERATOR#" in row["sk"] for row in puts):
        return "verb"
    if {"CONTROL", "LEASE"} <= {row["sk"].partition("#")[0] for row in puts}:
        return "setup"
    if set(names) <= {"INTERVAL", "AUDIT"} and not events & {"OBSERVED", "DELAYED"}:
        return "skip"
    if "LEASE" not in names:
        return "observe" if "OBSERVED" in events else "delay" if "DELAYED" in events else "advance"
    if events & BEGINNINGS:
        return "acquire"
    if events & ENDINGS:
        return "trip" if "CONTROL" in names else "end"
    return "complete" if "COMPLETED" in events else "commit"


@dataclass(slots=True)
class Wire:
    """Spoils chosen transactions of one client, and remembers every one as it was asked for."""

    client: DynamoDBClient
    sent: list[tuple[Writer, dict[str, Any]]] = field(default_factory=list)
    _waiting: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _staying: dict[str, Fault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        events: Any = self.client.meta.events  # its stubs know no handler that answers
        events.register("before-parameter-build.dynamodb.TransactWriteItems", self._asked)
        events.register("before-call.dynamodb.TransactWriteItems", self._before)
        events.register("needs-retry.dynamodb.TransactWriteItems", self._again)
        events.register("after-call.dynamodb.TransactWriteItems", self._after)

    @property
    def _fault(self) -> str:
        """Where a request carries its fault; another wire on the same client has its own."""
        return f"fault-{id(self)}"

    def next(self, writer: Writer, *faults: Fault, then: Fault = PASS) -> None:
        """Let these happen to the writer's next transactions, one each, and `then` to all after them."""
        self._waiting[writer] = deque(faults)
        self._staying[writer] = then

    def requests(self, writer: Writer) -> list[dict[str, Any]]:
        """That writer's requests so far, ready to be sent again."""
        return [request for name, request in self.sent if name == writer]

    def unused(self) -> list[str]:
        """Writers for which a fault still waits."""
        return [writer for writer, faults in self._waiting.items() if faults]

    def _asked(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        writer = writer_of(params["TransactItems"])
        self.sent.append((writer, dict(params)))
        waiting = self._waiting[writer]
        context[self._fault] = waiting.popleft() if waiting else self._staying.get(writer, PASS)
        context["actions"] = params["TransactItems"]

    def _before(self, context: dict[str, Any], **_: Any) -> tuple[SimpleNamespace, dict[str, Any]] | None:
        fault: Fault = context[self._fault]
        if fault.meanwhile:
            fault.meanwhile()
        if fault.unsent:
            raise fault.unsent
        if fault.instead is None:
            return None
        parsed = fault.instead(context["actions"])
        return SimpleNamespace(status_code=parsed["ResponseMetadata"]["HTTPStatusCode"]), parsed

    def _again(self, request_dict: dict[str, Any], attempts: int, **_: Any) -> int | None:
        """0 seconds until the SDK sends it again, or None."""
        fault: Fault = request_dict["context"][self._fault]
        return 0 if attempts <= fault.again else None

    def _after(self, context: dict[str, Any], **_: Any) -> None:
        fault: Fault = context[self._fault]
        if fault.lost:
            raise fault.lost
