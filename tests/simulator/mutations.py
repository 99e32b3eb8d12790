"""What a worker would do without one of the conditions that the promises rest on: the simulator must notice each.

Each mutation takes one condition, or one value, out of the writes; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import acquire, commit, complete, ranges, release, view
from reconciler.invocation import Invocation
from reconciler.keys import ACCOUNT_ID, PARTITION_KEY
from reconciler.leases import Lease
from reconciler.records import unmoved
from reconciler.transactions import Step, update
from reconciler.view import ViewRow

EXISTS: ConditionBase = Attr(PARTITION_KEY).exists()


def without_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Generation and token of the lease do not matter to a write of its holder."""
    patch.setattr(Lease, "fence", property(lambda self: EXISTS))


def without_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A commit does not ask where the checkpoint is."""

    def careless(name: str, value: object) -> ConditionBase:
        return EXISTS if name == "checkpoint" else unmoved(name, value)

    patch.setattr(commit, "unmoved", careless)


def without_the_version(patch: pytest.MonkeyPatch) -> None:
    """An effect on a row that exists does not ask whether somebody changed it."""

    def careless(row: ViewRow | None) -> ConditionBase:
        account_id = Attr(ACCOUNT_ID)
        condition: ConditionBase = account_id.not_exists() if row is None else account_id.exists()
        return condition

    patch.setattr(view, "_unchanged", careless)


def without_a_token_of_the_release(patch: pytest.MonkeyPatch) -> None:
    """A release takes the owner off the lease, but leaves the token that late messages carry."""

    for module in (complete, release):
        patch.setattr(module, "update", _leaving_out("LEASE", "token"))


def without_the_guard(patch: pytest.MonkeyPatch) -> None:
    """Any number of accounts is revoked."""
    patch.setattr(ranges, "_guard", lambda *about: None)


def without_the_pause(patch: pytest.MonkeyPatch) -> None:
    """A commit does not ask whether the job was paused."""

    def careless(name: str) -> Attr:
        return Attr("never" if name == "paused" else name)

    patch.setattr(commit, "Attr", careless)


def without_an_expiry(patch: pytest.MonkeyPatch) -> None:
    """A lease is taken whether it has run out or not."""
    patch.setattr(Lease, "held", lambda self, now_ms, skew_ms: False)


def without_a_renewal(patch: pytest.MonkeyPatch) -> None:
    """A commit leaves the expiry of its lease as it is."""
    patch.setattr(commit, "update", _leaving_out("LEASE", "expires_at_ms"))


def without_counting_attempts(patch: pytest.MonkeyPatch) -> None:
    """An attempt is begun without being counted."""
    patch.setattr(acquire, "update", _leaving_out("PROGRESS", "attempts"))


def without_consistency(patch: pytest.MonkeyPatch) -> None:
    """A read may miss what was written just now; moto never does, so that only the request tells."""
    call = Invocation.call

    def careless(self: Invocation, operation: str, **request: Any) -> dict[str, Any]:
        request.pop("ConsistentRead", None)
        return call(self, operation, **request)

    patch.setattr(Invocation, "call", careless)


def _leaving_out(row: str, attribute: str) -> Callable[..., Step]:
    def careless(name: str, table: str, key: Mapping[str, object], **rest: Any) -> Step:
        if name == row:
            rest["set"] = {one: value for one, value in rest["set"].items() if one != attribute}
        return update(name, table, key, **rest)

    return careless
