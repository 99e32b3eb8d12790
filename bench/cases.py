"""What is measured, and what the figures are held against. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

BARE, LOCK, POWERTOOLS, DURABLE = "bare", "lock_library", "powertools", "durable"
RECONCILER, READ_AHEAD = "reconciler", "reconciler_read_ahead"

CHECKPOINTED = (LOCK, DURABLE, RECONCILER, READ_AHEAD)
ACTIONS = {RECONCILER: 98, READ_AHEAD: 98}
"""Effects of one transaction, where it is fewer than AWS's 100 actions."""

SMALL_ONLY = (POWERTOOLS, DURABLE)
SMALL, LARGE = 10_000, 100_000
SHARES = (0.0, 0.01, 1.0)
FAR_S = 0.02
"""How far away the source is in the cases of read-ahead, in seconds a request."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many accounts, so large a share of them out of line, the source so many seconds away."""

    accounts: int
    changed_share: float
    source_latency_s: float = 0.0

    def contenders(self, known: Iterable[str]) -> list[str]:
        """Who runs it, in the order of one round."""
        far = (BARE, RECONCILER, READ_AHEAD)
        return [
            name
            for name in known
            if (self.accounts <= SMALL or name not in SMALL_ONLY) and (not self.source_latency_s or name in far)
        ]


def cases(*, quick: bool) -> list[Case]:
    """Every case, or the small choice."""
    sizes = (SMALL,) if quick else (SMALL, LARGE)
    near = [Case(accounts, share) for accounts in sizes for share in SHARES]
    return near + [Case(accounts, share, FAR_S) for accounts in sizes for share in SHARES[:2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one case. Times are medians of `wall_runs` and `cpu_runs`.

    `repeated_reads_after_kill` are Queries of accounts beyond those of an undisturbed run, `repeated_rows_after_kill`
    the rows they returned; None where no kill was played.
    """

    contender: str
    accounts: int
    changed_share: float
    source_latency_s: float
    wall_s: float
    cpu_s: float
    requests: Mapping[str, int]
    read_units: float
    write_units: float
    minimum_requests: int
    repeated_reads_after_kill: int | None
    repeated_rows_after_kill: int | None
    peak_mb: float
    wall_runs: Sequence[float] = field(default=())
    cpu_runs: Sequence[float] = field(default=())

    @property
    def case(self) -> Case:
        return Case(self.accounts, self.changed_share, self.source_latency_s)

    @property
    def sent(self) -> int:
        return sum(self.requests.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, what was measured in its worst case, and whether that reaches it."""

    target: str
    measured: str
    reached: bool


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every target for which there are figures, judged by the worst of its cases."""
    found: list[Verdict] = []
    by = {(row.case, row.contender): row for row in rows}
    mine = [row for row in rows if row.contender == RECONCILER]
    near = [row for row in mine if not row.source_latency_s]

    def at_most(target: str, bound: float, ratios: Mapping[str, float]) -> None:
        if ratios:
            worst = max(ratios, key=ratios.__getitem__)
            found.append(Verdict(f"{target}: ≤ {bound:g}", f"{ratios[worst]:.2f} ({worst})", ratios[worst] <= bound))

    def ratios(ours: Sequence[Row], other: str, what: str) -> dict[str, float]:
        pairs = [(row, by[row.case, other]) for row in ours if (row.case, other) in by]
        return {name(row.case): getattr(row, what) / getattr(peer, what) for row, peer in pairs}

    at_most(
        "requests beyond 1.05 × the minimum, an invocation",
        6,
        {name(row.case): row.sent - 1.05 * row.minimum_requests for row in near},
    )
    for share, bound in zip(SHARES, (1.15, 1.20, 1.25), strict=True):
        of_share = [row for row in near if row.changed_share == share]
        at_most(f"wall time against the bare loop, {share:.0%} changed", bound, ratios(of_share, BARE, "wall_s"))
    ahead = [row for row in rows if row.contender == READ_AHEAD and row.source_latency_s]
    at_most("wall time with read-ahead against the bare loop, source 20 ms away", 0.85, ratios(ahead, BARE, "wall_s"))
    at_most("CPU against the bare loop", 1.35, ratios(near, BARE, "cpu_s"))
    at_most("wall time against the lock library", 1.05, ratios(near, LOCK, "wall_s"))
    for peer in (POWERTOOLS, DURABLE):
        at_most(f"wall time against {peer}", 0.5, ratios(near, peer, "wall_s"))
    for peer in (LOCK, POWERTOOLS, DURABLE):
        found += fewer(peer, near, by)
    return found


def fewer(peer: str, mine: Sequence[Row], by: Mapping[tuple[Case, str], Row]) -> list[Verdict]:
    """Whether fewer reads, and fewer rows, are repeated after a kill than a peer repeats, in every case."""
    found = []
    for what in ("reads", "rows"):
        figures = [
            (name(row.case), getattr(row, attribute), getattr(by[row.case, peer], attribute))
            for row in mine
            if (row.case, peer) in by and (attribute := f"repeated_{what}_after_kill")
        ]
        if figures:
            said = ", ".join(f"{ours:,} to {theirs:,} ({case})" for case, ours, theirs in figures)
            reached = all(ours < theirs for _, ours, theirs in figures)
            found.append(Verdict(f"fewer repeated {what} after a kill than {peer}", said, reached))
    return found


def name(case: Case) -> str:
    """A case in words."""
    far = f", source {case.source_latency_s * 1000:g} ms away" if case.source_latency_s else ""
    return f"{case.accounts // 1000} k, {case.changed_share:.0%}{far}"
