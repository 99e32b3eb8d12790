"""Conditions taken out of the workers' writes on the wire: the scenarios must notice each.

The condition stays, so that every name is used, but it holds for every row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.traffic import writer
from tests.faults import WRITERS, step_name
from tools.proxy import Proxy
from tools.wire import Answer, Call

Matters = Callable[[str, str], bool]
"""Whether a step of a writer loses its condition."""


def whole_acquire(writer: str, step: str) -> bool:
    """An acquire takes the lease whoever has it, and whatever has happened since it was read."""
    return writer == "acquire"


def fence(writer: str, step: str) -> bool:
    """Generation and token of the lease do not matter to a write of its holder."""
    return writer in WRITERS and writer != "acquire" and step == "LEASE"


def without(loses: Matters, patch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    """Every message that passes this proxy is without that condition."""
    forward = proxy.forward

    def weakened(call: Call) -> Answer | None:
        name = writer(call)
        if name is None:
            return forward(call)
        request = json.loads(call.body)
        for action in request["TransactItems"]:
            ((_, body),) = action.items()
            if "ConditionExpression" in body and loses(name, step_name(action)):
                always = "attribute_exists(pk) OR attribute_not_exists(pk)"
                body["ConditionExpression"] = f"{always} OR {body['ConditionExpression']}"
        return forward(replace(call, request=request, body=json.dumps(request).encode()))

    patch.setattr(proxy, "forward", weakened)
