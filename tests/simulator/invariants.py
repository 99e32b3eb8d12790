"""What must hold after every write, whoever made it, in whatever order it came.

Each rule is told of one message that was applied, as the rows that it wrote, before and after. A rule yields what it
found broken. The ledger, not a worker, says what was true then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reconciler import keys
from reconciler.checksum import MODULUS, canonical
from reconciler.records import RUNNABLE
from tests.simulator.ledger import Ledger
from tests.simulator.limits import attempts_count, commits_stop, leases_run_out
from tests.simulator.writes import Write, named
from tests.world import JOB

CHANGES = ("granted", "changed", "revoked")
NEXT_STATES = {
    None: {"EXPECTED", "SKIPPED", "RUNNING"},
    "EXPECTED": {"RUNNING", "SKIPPED"},
    "RUNNING": {"COMPLETED", "NEEDS_REPAIR"},
    "NEEDS_REPAIR": {"RUNNING", "COMPLETED"},
    "SKIPPED": {"RUNNING"},
    "COMPLETED": {"RUNNING"},
}
"""After NEEDS_REPAIR the segments that are leased finish, and the last of them completes the interval."""


def effects(writes: Sequence[Write]) -> list[Write]:
    return [write for write in writes if write.table == "EntitlementsTable"]


def generations(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """Generations strictly rise, and no row is written by one below that already there."""
    for lease in named(writes, "LEASE#"):
        was, is_ = lease["generation"]
        acquired = lease.before is not None and lease["acquired_at_ms"][0] != lease["acquired_at_ms"][1]
        if was is not None and acquired and is_ != was + 1:
            yield f"{lease.name} acquired with generation {is_} after {was}"
    for write in writes:
        was, is_ = write["generation"]
        if was is not None and (is_ is None or is_ < was):
            yield f"{write.name} written by generation {is_} although {was} was there"


def fences(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """A fence is valid once: a token that was replaced never comes back, and a released lease is nobody's."""
    for lease in named(writes, "LEASE#"):
        was = (lease["generation"][0], lease["token"][0])
        is_ = (lease["generation"][1], lease["token"][1])
        if was != is_ and (lease.name, *is_) in ledger.fences:
            yield f"{lease.name}: the fence {is_} was valid before"
        held = "owner" in (lease.after or {})
        if held != ("expires_at_ms" in (lease.after or {})):
            yield f"{lease.name}: owner and expiry do not go together: {lease.after}"
        if was == is_ and held and "owner" not in (lease.before or {}):
            yield f"{lease.name}: held again without a new fence"
        if was != is_ and was[0] == is_[0] and held:
            yield f"{lease.name}: a second fence of generation {is_[0]}"
        ledger.fences.add((lease.name, *is_))


def under_a_lease(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """Effects and progress are written together with the lease of their generation, by its owner."""
    leases = {lease.name.removeprefix("LEASE#"): lease for lease in named(writes, "LEASE#")}
    for write in (*effects(writes), *named(writes, "PROGRESS#")):
        segment = ledger.segment(write.name) if write.table == "EntitlementsTable" else write.name.rpartition("#")[2]
        lease = leases.get(segment)
        if lease is None:
            yield f"{write.name} written without its lease"
            continue
        if lease["generation"][1] != write["generation"][1]:
            yield f"{write.name} written by generation {write['generation'][1]} under {lease['generation'][1]}"
        acquired = lease["generation"][0] != lease["generation"][1]
        if not acquired and lease["owner"][0] is None:
            yield f"{write.name} written under a lease that nobody held"
        if acquired and write.table == "ControlTable" and write["checkpoint"][0] != write["checkpoint"][1]:
            yield f"{write.name}: an acquisition moved the checkpoint"


def checkpoints(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """The checkpoint moves from the previous to the next, and every account in between is counted exactly once."""
    rejected = len([write for write in named(writes, "AUDIT#") if "#REJECTED#" in write.name])
    changed = effects(writes)
    for progress in named(writes, "PROGRESS#"):
        segment = progress.name.rpartition("#")[2]
        before, after = progress.before or {}, progress.after or {}
        was, is_ = progress["checkpoint"]
        added = {
            name: after.get(name, 0) - before.get(name, 0) for name in (*CHANGES, "rejected", "accounts", "ranges")
        }
        if was == is_:
            if any(added.values()) or changed:
                yield f"{progress.name}: {added} without a move of the checkpoint from {was}"
            continue
        if is_ is None or (was is not None and is_ <= was):
            yield f"{progress.name}: the checkpoint went from {was} back to {is_}"
            continue
        if (
            added["ranges"] != 1
            or sum(added[name] for name in CHANGES) != len(changed)
            or added["rejected"] != rejected
        ):
            yield f"{progress.name}: {added} of a commit of {len(changed)} effects and {rejected} rejections"
        accounts = ledger.between(segment, was, is_)
        since = ledger.leased.get(segment, 0)
        sure = [one for one in accounts if ledger.stood(one, since)]
        if not len(sure) <= added["accounts"] <= len(accounts):
            counts = f"{added['accounts']} accounts, not {len(sure)} to {len(accounts)}"
            yield f"{progress.name}: from {was} to {is_} {counts}"
        if all(ledger.touched.get(one, -1) < since for one in accounts):
            rows, checksum = ledger.checksum(accounts)
            told = int(after["checksum"], 16) - int(before.get("checksum", "0"), 16)
            if after["view_rows"] - before.get("view_rows", 0) != rows or (told - checksum) % MODULUS:
                yield f"{progress.name}: view rows and checksum from {was} to {is_} are not those of the view"


def live_changes(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """No live change is overwritten, and an effect is what the source says, unless a live writer is in between."""
    for write in effects(writes):
        was, is_ = write["version"]
        if is_ != (was or 0) + 1:
            yield f"{write.name}: version {is_} written over {was}"
        wanted, given = ledger.desired(write.name), write["entitlements"][1]
        if ledger.settled(write.name) and canonical(wanted) != canonical(given):
            kind = "a false revocation" if not given else "an outdated effect"
            yield f"{write.name}: {kind}: {given}, but the source says {wanted}"


def run_records(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """States follow each other as they may, counters are those of what was committed, nothing first is overwritten."""
    for write in named(writes, "INTERVAL#"):
        after = write.after or {}
        was, is_ = write["state"]
        reran = (write["rerun"][0] or 0) < after.get("rerun", 0)
        if was != is_ and is_ not in NEXT_STATES[was]:
            yield f"{write.name}: {was} became {is_}"
        if was in ("NEEDS_REPAIR", "SKIPPED", "COMPLETED") and is_ == "RUNNING" and not reran:
            yield f"{write.name}: {was} became RUNNING without a rerun"
        if write["first_started_at"][0] not in (None, write["first_started_at"][1]):
            yield f"{write.name}: first_started_at was overwritten"
        if (write["pass"][0] or 0) > after["pass"] or (write["rerun"][0] or 0) > after["rerun"]:
            yield f"{write.name}: pass or rerun fell"
        if after["run_id"] != keys.run_id(JOB, write.name.removeprefix("INTERVAL#"), after["pass"]):
            yield f"{write.name}: run id {after['run_id']} in pass {after['pass']}"
        if after["revoked"] != ledger.revocations[after["run_id"]]:
            yield f"{write.name}: {after['revoked']} revoked, {ledger.revocations[after['run_id']]} committed"
        if "acknowledged_at" in after and is_ in (*RUNNABLE, "COMPLETED") and was == is_:
            yield f"{write.name}: acknowledged while {is_}"


def completions(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """COMPLETED only when every segment was scanned to its end in that pass, with the totals of what was committed."""
    for done in named(writes, "PROGRESS#"):
        if done["done"] == (False, True):
            segment = done.name.rpartition("#")[2]
            known = [one for one in ledger.accounts if ledger.stood(one, ledger.leased.get(segment, 0))]
            last = max((one for one in known if ledger.segment(one) == segment), default="")
            if (done["checkpoint"][1] or "") < last:
                yield f"{done.name}: done at {done['checkpoint'][1]}, before {last}"
    for write in named(writes, "INTERVAL#"):
        after = write.after or {}
        if write["state"][1] != "COMPLETED" or write["state"][0] == "COMPLETED":
            continue
        interval_id = write.name.removeprefix("INTERVAL#")
        segments = keys.segments(ledger.settings.segment_count)
        rows = [ledger.control(keys.progress(interval_id, after["pass"], segment)) or {} for segment in segments]
        if sorted(after["segments"]) != list(segments) or not all(row.get("done") for row in rows):
            yield f"{write.name}: COMPLETED, but not every segment is done"
        for name in (*CHANGES, "accounts", "rejected", "ranges", "view_rows"):
            if after[name] != sum(row.get(name, 0) for row in rows):
                yield f"{write.name}: {name} {after[name]} is not the sum of its segments"
        if sum(after[name] for name in CHANGES) != ledger.effects[after["run_id"]]:
            yield f"{write.name}: totals of {ledger.effects[after['run_id']]} committed effects are wrong: {after}"
        if (int(after["checksum"], 16) - sum(int(row.get("checksum", "0"), 16) for row in rows)) % MODULUS:
            yield f"{write.name}: its checksum is not the sum of its segments"


def the_job(writes: Sequence[Write], ledger: Ledger) -> Iterator[str]:
    """A pause reaches every acquisition, and no unfinished interval is left behind."""
    job = ledger.control(keys.CONTROL) or {}
    for lease in named(writes, "LEASE#"):
        if "pause" in job and lease["generation"][0] != lease["generation"][1] and "owner" in (lease.after or {}):
            yield f"{lease.name}: acquired although the job is paused"
        if "paused" in (lease.after or {}) and "pause" not in job:
            yield f"{lease.name}: paused although the job is not"
    for write in named(writes, keys.CONTROL):
        was, is_ = write["open_from"]
        if (write["pause_no"][0] or 0) > (write["pause_no"][1] or 0):
            yield "CONTROL: pause_no fell"
        for name, row in ledger.controls("INTERVAL#").items() if was is not None and is_ > was else ():
            closed = row["state"] == "COMPLETED" or ("acknowledged_at" in row and row["state"] not in RUNNABLE)
            if was <= name.removeprefix("INTERVAL#") < is_ and not closed:
                yield f"CONTROL: open_from {is_} leaves {name} behind, which is {row['state']}"


RULES: tuple[Callable[[Sequence[Write], Ledger], Iterator[str]], ...] = (
    generations,
    fences,
    under_a_lease,
    checkpoints,
    live_changes,
    run_records,
    completions,
    the_job,
    leases_run_out,
    commits_stop,
    attempts_count,
)


def broken(writes: Sequence[Write], ledger: Ledger) -> list[str]:
    """What a message broke. Takes it into the ledger first, as far as it is a run's."""
    for lease in named(writes, "LEASE#"):
        if lease["acquired_at_ms"][0] != lease["acquired_at_ms"][1]:
            ledger.leased[lease.name.removeprefix("LEASE#")] = ledger.step
    for effect in effects(writes):
        run_id = effect["run_id"][1]
        ledger.look(effect.name)
        ledger.effects[run_id] += 1
        ledger.revocations[run_id] += effect["entitlements"][1] == {}
    return [found for rule in RULES for found in rule(writes, ledger)]
