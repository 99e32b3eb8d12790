"""Commit a range: one transaction, and how its answer is read.

The update of the LEASE row *is* the fence check and the renewal: a lease is renewed by progress and by nothing else.
Expiry is no condition. A late holder that nobody replaced may still commit; one that was replaced changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boto3.dynamodb.conditions import Attr

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.decisions import Decision, totals
from reconciler.errors import LeaseLost, TransientFailure
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Holding, Renewal, read_lease, refused_lease
from reconciler.records import Progress, RunRecord, interval_gone, progress_gone, unmoved
from reconciler.totals import Totals
from reconciler.transactions import CONDITION_FAILED, Answer, Outcome, Step, send, update
from reconciler.view import effect_step


@dataclass(frozen=True, slots=True)
class Committed:
    """The range is in, and the lease renewed; `done` is what it added."""

    holding: Holding
    done: Totals


@dataclass(frozen=True, slots=True)
class Adopted:
    """An earlier commit of this holder had landed and added `done`: go on from the checkpoint the row holds now."""

    holding: Holding
    done: Totals


@dataclass(frozen=True, slots=True)
class CounterMoved:
    """Another segment revoked meanwhile: judge the range by the interval's new counter."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class Conflicted:
    """A live writer changed this account since it was read."""

    account_id: str


@dataclass(frozen=True, slots=True)
class Unstorable:
    """DynamoDB cannot store the effect on this account; None: on one of the range's accounts."""

    account_id: str | None


def commit(
    decisions: Sequence[Decision], holding: Holding, *, invocation: Invocation
) -> Committed | Adopted | CounterMoved | Conflicted | Unstorable:
    """Effects, rejections, checkpoint and renewal of one range, together or not at all.

    Raises LeaseLost, Paused, TransientFailure, OutOfTime; RowMissing when the run record is gone.
    """
    renewal = Renewal.now(invocation)
    before, done = holding.progress, totals(decisions)
    after = before.advanced(decisions[-1].account_id, done, holding.record.rerun)
    revoked = holding.record.revoked + done.revoked
    steps = _range_steps(decisions, holding, after, revoked, renewal, invocation)
    answer = send(steps, invocation=invocation)
    if answer.applied or (answer.outcome is Outcome.UNKNOWN and _landed(holding, after, invocation)):
        record = replace(holding.record, revoked=revoked)
        return Committed(
            replace(holding, record=record, progress=after, renewal=renewal, ranges=holding.ranges + 1), done
        )
    landed_before(answer, holding)
    if refusal := answer.refused("PROGRESS"):
        return adopted(refusal.row, holding)
    if refusal := answer.refused("INTERVAL"):
        return CounterMoved(replace(holding, record=moved_record(refusal.row, holding)))
    if (refusal := answer.refusal) and refusal.step.account_id is not None:
        account_id = refusal.step.account_id
        return Conflicted(account_id) if refusal.code == CONDITION_FAILED else Unstorable(account_id)
    if answer.outcome is Outcome.INVALID and any(decision.effect for decision in decisions):
        return Unstorable(decisions[0].account_id if len(decisions) == 1 else None)
    raise answer.unread()


def _range_steps(
    decisions: Sequence[Decision],
    holding: Holding,
    after: Progress,
    revoked: int,
    renewal: Renewal,
    invocation: Invocation,
) -> list[Step]:
    record, lease = holding.record, holding.lease
    steps = [
        update(
            "LEASE",
            invocation.table,
            invocation.row_key(keys.lease(lease.segment)),
            set={
                "expires_at_ms": renewal.wall_ms + invocation.settings.lease_ms,
                "progress_at_ms": renewal.wall_ms,
            },
            when=lease.fence & Attr("paused").not_exists(),
        ),
        update(
            "PROGRESS",
            invocation.table,
            invocation.row_key(record.progress_key(lease.segment)),
            set={
                **after.totals.stored(),
                "checkpoint": after.checkpoint,
                "checkpoint_at": clock.text(renewal.wall_ms),
                "checkpoint_generation": lease.generation,
                "attempts": 0,
                "generation": lease.generation,
                "run_id": record.run_id,
            },
            remove=("next_attempt_at_ms",),
            when=unmoved("checkpoint", holding.progress.checkpoint),
        ),
    ]
    if revoked != record.revoked:
        steps.append(
            update(
                "INTERVAL",
                invocation.table,
                invocation.row_key(keys.interval(record.interval_id)),
                set={"revoked": revoked},
                when=unmoved("revoked", record.revoked),
            )
        )
    steps += [effect_step(d.effect, holding, invocation=invocation) for d in decisions if d.effect]
    steps += [_rejection(d, holding, invocation) for d in decisions if d.rejection]
    return steps


def _rejection(decision: Decision, holding: Holding, invocation: Invocation) -> Step:
    record, account_id = holding.record, decision.account_id
    kept = account_id.encode("utf-8", "replace")[: keys.MAX_ACCOUNT_ID_BYTES].decode("utf-8", "ignore")
    return audit(
        "REJECTED",
        record.interval_id,
        record.run_id,
        invocation=invocation,
        sort_key=keys.rejected(record.interval_id, record.pass_no, account_id),
        account_id=kept,
        reason=decision.rejection,
        segment=holding.lease.segment,
        generation=holding.lease.generation,
    )


def _landed(holding: Holding, after: Progress, invocation: Invocation) -> bool:
    """One consistent read settles whether a commit without an answer landed; it may still land later."""
    segment = holding.lease.segment
    row = invocation.control_row(holding.record.progress_key(segment)) or {}
    if (row.get("checkpoint"), row.get("generation")) == (after.checkpoint, holding.lease.generation):
        return True
    stands = read_lease(segment, invocation=invocation)
    if (stands.generation, stands.token) != (holding.lease.generation, holding.lease.token):
        raise LeaseLost(f"segment {segment} is at generation {stands.generation}")
    raise TransientFailure(f"no answer to the commit of {after.checkpoint!r}, and it has not landed")


def landed_before(answer: Answer, holding: Holding, tried: str | None = None) -> bool:
    """True when the refusing LEASE row shows that this very write had landed; False when it was not the lease.

    Raises LeaseLost, Paused, LeaseRowMissing when it was.
    """
    refusal = answer.refused("LEASE")
    if refusal is None:
        return False
    if refused_lease(refusal.row, known=holding.lease, tried=tried):
        return True
    generation = (refusal.row or {}).get("generation")
    raise LeaseLost(f"segment {holding.lease.segment} is at generation {generation}, not {holding.lease.generation}")


def adopted(row: Row | None, holding: Holding) -> Adopted:
    """What the PROGRESS row that refused a write shows of this holder's earlier commit."""
    progress = moved_progress(row, holding)
    done = progress.totals - holding.progress.totals
    return Adopted(replace(holding, progress=progress, ranges=holding.ranges + done.ranges), done)


def moved_progress(row: Row | None, holding: Holding) -> Progress:
    """The PROGRESS row that refused a write. Raises RowMissing when it is gone."""
    if row is None:
        raise progress_gone(holding.record, holding.lease.segment)
    return Progress.of(row)


def moved_record(row: Row | None, holding: Holding) -> RunRecord:
    """The run record that refused a write. Raises RowMissing when it is gone."""
    if row is None:
        raise interval_gone(holding.record.interval_id)
    return RunRecord.of(row)
