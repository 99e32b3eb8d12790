"""One range, committed among live writers: read again, isolate, reject, and never revoke more than allowed.

A live writer that keeps changing one account must not hold up the others: after ROUNDS conflicts the range is
committed up to before that account, then the account alone, then it is rejected for this run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.attempt import Attempt
from reconciler.commit import Adopted, Committed, Conflicted, CounterMoved, Unstorable, commit
from reconciler.decisions import Decision, rejected, take_range
from reconciler.errors import GuardTripped
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.observability import logger
from reconciler.scan import Sides
from reconciler.timing import check_range

ROUNDS = 3

EMPTY_SOURCE = "the source is empty, but the view is not"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive accounts to commit together; `rounds` of conflicts met so far; `alone` is the last try of one."""

    decisions: Sequence[Decision]
    rounds: int = 0
    alone: bool = False


def commit_range(decisions: Sequence[Decision], attempt: Attempt, sides: Sides, *, invocation: Invocation) -> bool:
    """Commit every account of a range; False when the caller must go on from the adopted checkpoint instead.

    Raises GuardTripped before anything is written that would revoke too much, and what `commit` raises.
    """
    parts = deque([Part(decisions)])
    while parts:
        part = parts.popleft()
        fitting = take_range(part.decisions, len(part.decisions))
        if fitting < len(part.decisions):
            parts.appendleft(replace(part, decisions=part.decisions[fitting:]))
            part = replace(part, decisions=part.decisions[:fitting])
        _guard(part.decisions, attempt.holding, sides, invocation)
        result = commit(part.decisions, attempt.holding, invocation=invocation)
        match result:
            case Committed(holding, done):
                for decision in part.decisions:
                    if decision.rejection:
                        logger.warning("account rejected", account_id=decision.account_id, reason=decision.rejection)
                logger.debug("range committed", accounts=done.accounts, checkpoint=holding.progress.checkpoint)
                attempt.go_on(holding, done)
            case Adopted(holding, done):
                attempt.go_on(holding, done)
                return False
            case CounterMoved(holding):
                attempt.holding = holding
                parts.appendleft(part)
            case Conflicted(account_id):
                attempt.conflicts += 1
                logger.info("a live writer was here", account_id=account_id, round=part.rounds + 1)
                parts.extendleft(reversed(_again(part, account_id, attempt.holding, sides)))
            case Unstorable(account_id):
                parts.extendleft(reversed(_without(part, account_id)))
        if parts:
            check_range(attempt, invocation=invocation)
    return True


def _again(part: Part, account_id: str, holding: Holding, sides: Sides) -> list[Part]:
    """The part's accounts read anew, and divided once they have conflicted too often."""
    fresh = sides.between(holding.progress.checkpoint, part.decisions[-1].account_id)
    if part.alone:
        reason = "a live writer changes it faster than it can be read"
        return [Part([rejected(d, reason) if d.account_id == account_id else d], alone=True) for d in fresh]
    if part.rounds + 1 < ROUNDS:
        return [Part(fresh, part.rounds + 1)] if fresh else []
    before = [decision for decision in fresh if decision.account_id < account_id]
    alone = [decision for decision in fresh if decision.account_id == account_id]
    behind = [decision for decision in fresh if decision.account_id > account_id]
    return [piece for piece in (Part(before), Part(alone, alone=True), Part(behind)) if piece.decisions]


def _without(part: Part, account_id: str | None) -> list[Part]:
    """The part with the unstorable account rejected; halved while it is not known which account that is."""
    if account_id is None:
        middle = len(part.decisions) // 2
        return [replace(part, decisions=part.decisions[:middle]), replace(part, decisions=part.decisions[middle:])]
    reason = "DynamoDB cannot store its content"
    kept = [rejected(d, reason) if d.account_id == account_id else d for d in part.decisions]
    return [replace(part, decisions=kept)]


def _guard(decisions: Sequence[Decision], holding: Holding, sides: Sides, invocation: Invocation) -> None:
    revokes = sum(decision.revokes for decision in decisions)
    if not revokes:
        return
    record = holding.record
    bound = invocation.settings.max_revocations if record.revocation_bound is None else record.revocation_bound
    if reason := too_many(record.revoked + revokes, bound):
        raise GuardTripped(reason)
    seen = holding.progress.totals.source_rows + sum(decision.pair.record is not None for decision in decisions)
    if not seen and record.revocation_bound is None and sides.source_is_empty():
        raise GuardTripped(EMPTY_SOURCE)


def too_many(revoked: int, bound: int) -> str | None:
    """What the guard says of so many revocations; None when they are allowed."""
    return f"{revoked} revocations, but only {bound} are allowed" if revoked > bound else None
