"""What a worker would do without one of the conditions that the promises rest on: the simulator must notice each.

Each mutation takes one condition, or one value, out of the writes; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import commit, complete, release, view
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

    def careless(name: str, table: str, key: Mapping[str, object], **rest: Any) -> Step:
        if name == "LEASE":
            rest["set"] = {one: value for one, value in rest["set"].items() if one != "token"}
        return update(name, table, key, **rest)

    patch.setattr(complete, "update", careless)
    patch.setattr(release, "update", careless)


MUTATIONS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    without_the_fence,
    without_the_checkpoint,
    without_the_version,
    without_a_token_of_the_release,
)
