"""What a DynamoDB message on the wire says: who calls, what it reads, and what it changed once it is answered.

Pure: bytes and headers in, values out. Reads are counted per request (a Query is one read), writes per item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, ...]
Schema = Callable[[str], tuple[str, ...]]
"""Table name → its key attributes, hash first."""

WRITES = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
SINGLE_READS = ("GetItem", "Query", "Scan")


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived. `caller` is the access key id it was signed with; `number` counts arrivals."""

    number: int
    caller: str
    operation: str
    request: Mapping[str, Any]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    method: str = "POST"
    path: str = "/"

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table the request names, each once, in the request's order."""
        return tuple(dict.fromkeys(table for table, _, _ in _parts(self.operation, self.request)))

    @property
    def reads(self) -> tuple[str, ...]:
        """The table of each read in the request."""
        return tuple(table for table, action, _ in _parts(self.operation, self.request) if action == "Read")

    def effects(self, answer: Answer, schema: Schema) -> tuple[Effect, ...]:
        """What the answered request changed: nothing after an error, nothing for condition checks."""
        if answer.error is not None:
            return ()
        changed = _changes(self.operation, self.request, schema)
        if self.operation == "BatchWriteItem":
            left = _changes(self.operation, {"RequestItems": _json(answer.body).get("UnprocessedItems")}, schema)
            return tuple(effect for effect in changed if effect not in left)
        return changed


@dataclass(frozen=True, slots=True)
class Effect:
    """One item changed. `version` is the number the write gave to the attribute of that name, if it did."""

    table: str
    action: str
    key: Key
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it goes back to the caller, `byte_s` seconds between one byte of its body and the next."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    byte_s: float = 0.0

    @property
    def error(self) -> str | None:
        """The error code, as `ConditionalCheckFailedException`; None for a success."""
        if self.status < 400:
            return None
        code: str = _json(self.body).get("__type") or f"HTTP {self.status}"
        return code.rpartition("#")[2]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The code of each item of a cancelled transaction, by position."""
        reasons = _json(self.body).get("CancellationReasons") or () if self.status >= 400 else ()
        return tuple(reason.get("Code") or "None" for reason in reasons)

    @classmethod
    def of_error(cls, code: str, status: int = 400, **more: object) -> Answer:
        """Build an error answer as DynamoDB would send it, e.g. `of_error("ThrottlingException")`."""
        prefix = "com.amazonaws.dynamodb.v20120810#"
        body = json.dumps({"__type": prefix + code, "message": code, "Message": code, **more}).encode()
        return cls(status, {"Content-Type": "application/x-amz-json-1.0"}, body)


def parse(number: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Call:
    """Read one request; one that is not DynamoDB's gets `method path` as its operation and names no table."""
    fields = {name.lower(): value for name, value in headers.items()}
    credential = re.search(r"Credential=([^/,\s]+)", fields.get("authorization", ""))
    target = fields.get("x-amz-target", "")
    dynamodb = target.startswith("DynamoDB_")
    return Call(
        number=number,
        caller=credential[1] if credential else "anonymous",
        operation=target.rpartition(".")[2] if dynamodb else f"{method} {path}",
        request=_json(body) if dynamodb else {},
        headers=dict(headers),
        body=body,
        method=method,
        path=path,
    )


def _parts(operation: str, request: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Every (table, action, details) of a request; action is Read, Put, Update, Delete, ConditionCheck or Other."""
    if operation in SINGLE_READS:
        return [(request["TableName"], "Read", request)]
    if operation in WRITES:
        return [(request["TableName"], WRITES[operation], request)]
    if operation in ("TransactWriteItems", "TransactGetItems"):
        actions = [next(iter(item.items())) for item in request["TransactItems"]]
        return [(body["TableName"], "Read" if action == "Get" else action, body) for action, body in actions]
    items = request.get("RequestItems") or {}
    if operation == "BatchGetItem":
        return [(table, "Read", body) for table, body in items.items() for _ in body["Keys"]]
    if operation == "BatchWriteItem":
        requests = [(table, *next(iter(entry.items()))) for table, entries in items.items() for entry in entries]
        return [(table, action.removesuffix("Request"), body) for table, action, body in requests]
    return [(request["TableName"], "Other", request)] if "TableName" in request else []


def _changes(operation: str, request: Mapping[str, Any], schema: Schema) -> tuple[Effect, ...]:
    return tuple(_effect(*part, schema) for part in _parts(operation, request) if part[1] in WRITES.values())


def _effect(table: str, action: str, body: Mapping[str, Any], schema: Schema) -> Effect:
    item = body.get("Key") or body["Item"]
    key = tuple(str(next(iter(item[name].values()))) for name in schema(table))
    return Effect(table, action, key, _version(body))


def _version(body: Mapping[str, Any]) -> int | None:
    """The number that a Put stores as `version`, or that an Update SETs it to."""
    if "Item" in body:
        value = body["Item"].get("version", {})
    else:
        names = {name: placeholder for placeholder, name in (body.get("ExpressionAttributeNames") or {}).items()}
        name = re.escape(names.get("version", "version"))
        assigned = re.search(rf"(?<![\w.#]){name}\s*=\s*(:\w+)", body.get("UpdateExpression", ""))
        value = body["ExpressionAttributeValues"][assigned[1]] if assigned else {}
    return int(value["N"]) if "N" in value else None


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
