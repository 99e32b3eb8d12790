"""Where a rerun begins: at the checkpoint, unless a later interval has been at the same accounts since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler import keys
from reconciler.commands import FROM_CHECKPOINT, FROM_START
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import Row, attribute
from reconciler.keys import SORT_KEY
from reconciler.records import COMPLETED, RunRecord

Committed = Mapping[str, tuple[int, str]]
"""Segment → generation of its last commit, and the interval that made it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a rerun begins, and why there."""

    place: str
    why: str


def where_from(record: RunRecord, asked: str | None, own: Committed, later: Committed) -> Start:
    """Pure. Raises VerbRefused when the checkpoint was asked for and is of no use any more.

    `own` are the segments that the interval's present pass has come to, `later` the last commits of later intervals.
    """
    if asked == FROM_START:
        return Start(FROM_START, "asked for")
    why = None
    if record.state == COMPLETED:
        why = f"{record.interval_id} is COMPLETED"
    for segment, (generation, _) in sorted(own.items()):
        newer, interval_id = later.get(segment, (0, ""))
        if newer > generation:
            why = f"{interval_id} has committed on segment {segment} since"
    if why is None:
        return Start(FROM_CHECKPOINT, "no later interval has committed since" if own else "nothing was committed yet")
    if asked == FROM_CHECKPOINT:
        raise VerbRefused(f"Rerun: not from the checkpoint: {why}; leave `from` out, or say start")
    return Start(FROM_START, why)


def come_to(record: RunRecord, *, invocation: Invocation) -> Committed:
    """The segments that the interval's present pass has a checkpoint in, or is done with."""
    prefix = {":prefix": keys.progress_prefix(record.interval_id, record.pass_no)}
    rows = invocation.control_rows("begins_with(#sk, :prefix)", prefix)
    return _last([row for row in rows if "checkpoint" in row or row.get("done") is True])


def later_commits(interval_id: str, *, invocation: Invocation) -> Committed:
    """The last commits of all later intervals."""
    first, last = keys.progress_after(interval_id)
    rows = invocation.control_rows("#sk BETWEEN :first AND :last", {":first": first, ":last": last})
    return _last([row for row in rows if "checkpoint" in row])


def _last(rows: list[Row]) -> Committed:
    commits: dict[str, tuple[int, str]] = {}
    for row in rows:
        _, interval_id, _, segment = row[SORT_KEY].split("#")
        name = "checkpoint_generation" if "checkpoint_generation" in row else "generation"
        commit = (attribute(row, name, int), interval_id)
        commits[segment] = max(commit, commits.get(segment, commit))
    return commits
