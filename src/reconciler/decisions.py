"""What `diff.py` decided, how many accounts make one range, and what a range adds to the run's totals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.checksum import canonical, digest_of
from reconciler.merge import Pair
from reconciler.totals import Totals

if TYPE_CHECKING:
    from reconciler.source import SourceRecord
    from reconciler.view import ViewRow

GRANT, CHANGE, REVOKE = "granted", "changed", "revoked"

MAX_EFFECTS = 98
"""Effects and rejections of one range: AWS's 100 actions, less LEASE and PROGRESS."""

MAX_BYTES = 3_500_000
"""Rough size of a range's effects, below AWS's 4 MB a transaction."""

EFFECT_OVERHEAD_BYTES = 1_000


@dataclass(frozen=True)
class Effect:
    """The view row of an account is to have this content; `row` is the row the decision was based on."""

    kind: str
    account_id: str
    content: Mapping[str, object]
    row: ViewRow | None

    @cached_property
    def text(self) -> str:
        """The content as canonical JSON."""
        return canonical(self.content)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one account needs: at most one of `effect` and `rejection` (a reason), else nothing."""

    pair: Pair[SourceRecord, ViewRow]
    effect: Effect | None = None
    rejection: str | None = None

    @property
    def account_id(self) -> str:
        return self.pair.account_id

    @property
    def writes(self) -> bool:
        return self.effect is not None or self.rejection is not None

    @property
    def revokes(self) -> bool:
        return self.effect is not None and self.effect.kind == REVOKE


def rejected(decision: Decision, reason: str) -> Decision:
    """The same account, given up for this run: its view row stays as it is."""
    return Decision(decision.pair, rejection=reason)


def totals(decisions: Sequence[Decision]) -> Totals:
    """What a range adds to the run's totals once it is committed; `checksum` is over the rows as it leaves them."""
    kinds = [decision.effect.kind for decision in decisions if decision.effect]
    left = [digest_of(d.account_id, text) for d in decisions if (text := _left(d)) is not None]
    return Totals(
        accounts=len(decisions),
        granted=kinds.count(GRANT),
        changed=kinds.count(CHANGE),
        revoked=kinds.count(REVOKE),
        rejected=sum(decision.rejection is not None for decision in decisions),
        view_rows=len(left),
        source_rows=sum(decision.pair.record is not None for decision in decisions),
        ranges=1,
        checksum=sum(left),
    )


def _left(decision: Decision) -> str | None:
    """What the account's row holds afterwards, as canonical JSON; None when there is no row."""
    if decision.effect is not None:
        return decision.effect.text
    row = decision.pair.row
    return None if row is None else canonical(row.content)


def take_range(decisions: Sequence[Decision], size: int) -> int:
    """How many of the decisions, from the first, make one range: at most `size`, within AWS's limits, at least one."""
    writes = bytes_ = 0
    most = MAX_EFFECTS
    for index, decision in enumerate(decisions[:size]):
        writes += decision.writes
        if decision.revokes:
            most = MAX_EFFECTS - 1  # the interval's counter of revocations takes an action too
        bytes_ += _size(decision) if decision.writes else 0
        if index and (writes > most or bytes_ > MAX_BYTES):
            return index
    return min(size, len(decisions))


def _size(decision: Decision) -> int:
    effect, row = decision.effect, decision.pair.row
    if effect is None:
        return EFFECT_OVERHEAD_BYTES
    before = len(canonical(row.content)) if row is not None and row.version is None else 0
    return EFFECT_OVERHEAD_BYTES + len(effect.text) + before
