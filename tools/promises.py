"""What was seen of a story, and whether it keeps the job's promises. Pure: facts in, verdicts out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a story came to, as the demo prints it with --json; counts are of the first night unless they say otherwise.

    `source_reads` are those the proxy saw, `source_reads_minimum` what one undisturbed reading takes; `pages` are
    those of the shorter side. `max_changes_per_account` is the growth of `version` in the view; `writes_agree` tells
    that the proxy saw as many successful writes, row by row. `late_*` are the watchdog's SecondsPastDeadline.
    """

    state: str
    killed_after_range: int
    resumed_after_range: int | None
    generations: list[int]
    accounts: int
    source_pages: int
    view_pages: int
    ranges: int
    granted: int
    changed: int
    revoked: int
    rejected: int
    seeded: dict[str, int]
    out_of_line: int
    max_changes_per_account: int
    writes_agree: bool
    source_reads: int
    source_reads_minimum: int
    reads_of_refused_triggers: int
    checksum: str
    view_checksum: str
    duplicate_delivery: str
    delayed_trigger: str
    delayed_by_the_dead: str
    stale_commit: str
    view_changed_by_stale_commit: bool
    woken_holder: str
    second_interval_state: str
    second_interval_changes: int
    second_interval_waited: bool
    late_before: float
    late_after: float

    def json(self) -> dict[str, Any]:
        """Return the facts under their names, and `pages`."""
        return {**asdict(self), "pages": min(self.source_pages, self.view_pages)}


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, what was seen of it, and whether that keeps it."""

    says: str
    seen: str
    kept: bool


def judge(facts: Facts, *, kill_after_range: int) -> list[Promise]:
    """Return every promise of the story with its verdict."""
    f = facts
    counts = {name: getattr(f, name) for name in f.seeded}
    out_of_line = sum(f.seeded[name] for name in ("granted", "changed", "revoked"))
    most = 1 if out_of_line else 0
    extra = f.source_reads - f.source_reads_minimum
    return [
        Promise(
            "Two triggers never work on the same accounts",
            f"second trigger while A works: {f.delayed_trigger}; trigger after A's death, its lease still standing: "
            f"{f.delayed_by_the_dead}; pages of accounts they read: {f.reads_of_refused_triggers}",
            (f.delayed_trigger, f.delayed_by_the_dead, f.reads_of_refused_triggers) == ("delayed", "delayed", 0),
        ),
        Promise(
            "An event delivered twice costs nothing",
            f"same event again: {f.duplicate_delivery}",
            f.duplicate_delivery == "duplicate",
        ),
        Promise(
            "A killed run goes on where it stopped",
            f"killed after range {f.killed_after_range}, resumed after range {f.resumed_after_range}",
            f.killed_after_range == f.resumed_after_range == kill_after_range,
        ),
        Promise(
            "Every new holder of the lease has a higher generation",
            f"generations {', '.join(map(str, f.generations))}",
            f.generations == sorted(set(f.generations)) and len(f.generations) == 4,
        ),
        Promise(
            "A holder that lost its lease changes nothing",
            f"its late commit: {f.stale_commit}; view changed: {_yes(f.view_changed_by_stale_commit)}; "
            f"it then said: {f.woken_holder}",
            (f.stale_commit, f.view_changed_by_stale_commit, f.woken_holder) == ("refused", False, "lost"),
        ),
        Promise(
            "No change is applied twice",
            f"most versions one account gained: {f.max_changes_per_account}; "
            f"as many writes on the wire: {_yes(f.writes_agree)}",
            f.max_changes_per_account == most and f.writes_agree,
        ),
        Promise(
            "Little is read again after a crash",
            f"{f.source_reads} reads of the source; {f.source_reads_minimum} without a crash, and at most the page "
            "in work and the one ahead of it for each of two takeovers",
            0 <= extra <= 4,
        ),
        Promise(
            "Completed means completed",
            f"{f.state}; {f.granted} granted, {f.changed} changed, {f.revoked} revoked, {f.rejected} rejected of "
            f"{f.accounts}; the view has this checksum: {_yes(f.checksum == f.view_checksum)}",
            f.state == "COMPLETED"
            and counts == f.seeded
            and f.out_of_line == f.rejected
            and f.checksum == f.view_checksum,
        ),
        Promise(
            "The next night runs after the unfinished one",
            f"next night: {f.second_interval_state}, begun after the first ended: {_yes(f.second_interval_waited)}, "
            f"changes: {f.second_interval_changes}",
            (f.second_interval_state, f.second_interval_waited, f.second_interval_changes) == ("COMPLETED", True, 0),
        ),
        Promise(
            "A late night is seen even while nothing runs",
            f"watchdog: {_duration(f.late_before)} late while it was unfinished, {_duration(f.late_after)} afterwards",
            f.late_before > 0 and f.late_after == 0,
        ),
    ]


def _yes(value: bool, yes: str = "yes", no: str = "no") -> str:
    return yes if value else no


def _duration(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if seconds >= 60 else f"{seconds:g} s"
