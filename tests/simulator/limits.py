"""What every write keeps to besides: the lease's time, a pause, the guard's bound, the count of attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.simulator.ledger import Ledger
from tests.simulator.writes import Write, named


def leases_run_out(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """A lease is taken from its owner only once it has run out, by clocks that are right; progress renews it."""
    for lease in named(writes, "LEASE#"):
        until, acquired = lease["expires_at_ms"][0], lease["acquired_at_ms"][0] != lease["acquired_at_ms"][1]
        if acquired and until is not None and ledger.clocks_are_right and until >= ledger.time.wall_ms:
            yield f"{lease.name}: acquired although its owner's lease stands until {until}"
        was, is_ = lease["progress_at_ms"]
        if is_ not in (None, was) and lease["expires_at_ms"][1] != is_ + ledger.settings.lease_ms:
            yield f"{lease.name}: progress at {is_} renewed it until {lease['expires_at_ms'][1]}"


def commits_stop(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """No commit under a paused lease, none that is not progress, none over the bound of revocations."""
    leases = {lease.name.removeprefix("LEASE#"): lease for lease in named(writes, "LEASE#")}
    for progress in named(writes, "PROGRESS#"):
        lease = leases.get(progress.name.rpartition("#")[2])
        if progress["checkpoint"][0] == progress["checkpoint"][1] or lease is None:
            continue
        if lease["paused"][0] is not None:
            yield f"{progress.name}: committed under a paused lease"
        if lease["progress_at_ms"][1] is None:
            yield f"{progress.name}: committed without renewing the lease"
        if progress["attempts"][1] or progress["next_attempt_at_ms"][1] is not None:
            yield f"{progress.name}: committed, but its attempts or backoff stand"
    for interval in named(writes, "INTERVAL#"):
        was, is_ = interval["revoked"]
        bound = (interval.after or {}).get("revocation_bound", ledger.settings.max_revocations)
        if is_ > max(was or 0, bound):
            yield f"{interval.name}: {is_} revoked, but only {bound} are allowed"


def attempts_count(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """Whoever acquires a segment has counted the attempt, and the wait after it, in the same write."""
    for lease in named(writes, "LEASE#"):
        if lease["acquired_at_ms"][0] == lease["acquired_at_ms"][1]:
            continue
        segment = lease.name.removeprefix("LEASE#")
        counted = [write for write in named(writes, "PROGRESS#") if write.name.rpartition("#")[2] == segment]
        for progress in counted:
            was, is_ = progress["attempts"]
            same = progress["rerun"][0] == progress["rerun"][1]
            if is_ != ((was or 0) if same else 0) + 1 or progress["next_attempt_at_ms"][1] is None:
                yield f"{progress.name}: acquired with {is_} attempts after {was}"
        if not counted:
            yield f"{lease.name}: acquired without counting the attempt"
