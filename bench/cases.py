"""What is measured, and what the figures are held against. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from bench.job import PAGE_SIZE

BARE, LOCK, POWERTOOLS, DURABLE = "bare", "lock_library", "powertools", "durable"
RECONCILER, READ_AHEAD = "reconciler", "reconciler_read_ahead"

CONTENDERS = (BARE, RECONCILER, READ_AHEAD, LOCK, POWERTOOLS, DURABLE)
"""In the order of a round."""

CHECKPOINTED = (LOCK, DURABLE, RECONCILER, READ_AHEAD)
ACTIONS = {RECONCILER: 98, READ_AHEAD: 98}
"""Effects of one transaction, where it is fewer than AWS's 100 actions."""

SLOW, SLOW_ROUNDS = 10.0, 3
"""Who takes so many times as long as the bare loop in the first round is measured in fewer of them."""

SMALL_ONLY = (POWERTOOLS, DURABLE)
SMALL, LARGE = 10_000, 100_000
SHARES = (0.0, 0.01, 1.0)
FAR_S = 0.02
FAR_PAGE = 500
"""How far away the source is in the cases of read-ahead, in seconds a request, and how much it gives at once: as one
behind somebody's interface, where a read is not a megabyte."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many accounts, so large a share of them out of line, the source so many seconds away."""

    accounts: int
    changed_share: float
    source_latency_s: float = 0.0

    @property
    def page_size(self) -> int:
        return FAR_PAGE if self.source_latency_s else PAGE_SIZE

    @property
    def killed(self) -> bool:
        """Whether a kill is played, too: not where many thousand transactions would only make it long."""
        return not self.source_latency_s and self.accounts * self.changed_share <= SMALL

    def contenders(self, known: Iterable[str]) -> list[str]:
        """Who runs it, in the order of one round."""
        far = (BARE, RECONCILER, READ_AHEAD)
        return [
            name
            for name in known
            if (self.accounts <= SMALL or name not in SMALL_ONLY) and (not self.source_latency_s or name in far)
        ]


def cases(
    accounts: Sequence[int] = (SMALL, LARGE),
    shares: Sequence[float] = SHARES,
    latencies: Sequence[float] = (0.0, FAR_S),
) -> list[Case]:
    """Every combination; those of the same accounts follow each other. What all accounts need, no reading hides."""
    return [Case(*each) for each in product(accounts, shares, sorted(latencies)) if not (each[1] == 1.0 and each[2])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one case. Times are medians of `wall_runs` and `cpu_runs`, which are `rounds` each.

    `run` is when the case was begun: rows of one case were measured side by side only if they agree in it.
    `repeated_reads_after_kill` are Queries of accounts beyond those of an undisturbed run, `repeated_rows_after_kill`
    the rows they returned; None where no kill was played.
    """

    contender: str
    accounts: int
    changed_share: float
    source_latency_s: float
    page_size: int
    wall_s: float
    cpu_s: float
    requests: Mapping[str, int]
    read_units: float
    write_units: float
    minimum_requests: int
    repeated_reads_after_kill: int | None
    repeated_rows_after_kill: int | None
    peak_mb: float
    rounds: int
    run: str
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
    """Every target for which there are figures, judged by the worst of its cases; other sizes are not judged."""
    found: list[Verdict] = []
    rows = [row for row in rows if row.accounts in (SMALL, LARGE)]
    by = {(row.case, row.contender): row for row in rows}
    ours = [row for row in rows if row.contender in (RECONCILER, READ_AHEAD)]
    near = [row for row in ours if row.contender == RECONCILER and not row.source_latency_s]

    def at_most(target: str, bound: float, figures: Mapping[str, float]) -> None:
        if figures:
            worst = max(figures, key=figures.__getitem__)
            found.append(Verdict(f"{target}: ≤ {bound:g}", f"{figures[worst]:.2f} ({worst})", figures[worst] <= bound))

    def ratios(mine: Sequence[Row], other: str, what: str) -> dict[str, float]:
        return {said(row): getattr(row, what) / getattr(peer, what) for row, peer in beside(mine, other, by)}

    beyond = {said(row): row.sent - 1.05 * row.minimum_requests for row in ours}
    at_most("requests beyond 1.05 × the minimum, an invocation", 6, beyond)
    for share, bound in zip(SHARES, (1.15, 1.20, 1.25), strict=True):
        of_share = [row for row in near if row.changed_share == share]
        at_most(f"wall time against the bare loop, {share:.0%} changed", bound, ratios(of_share, BARE, "wall_s"))
    ahead = [row for row in ours if row.contender == READ_AHEAD and row.source_latency_s]
    at_most("wall time with read-ahead against the bare loop, source 20 ms away", 0.85, ratios(ahead, BARE, "wall_s"))
    at_most("CPU an account against the bare loop", 1.35, ratios(ours, BARE, "cpu_s"))
    shipped = [row for row in ours if row.contender == READ_AHEAD and not row.source_latency_s]
    at_most("wall time with read-ahead against the lock library", 1.05, ratios(shipped, LOCK, "wall_s"))
    for peer in (POWERTOOLS, DURABLE):
        at_most(f"wall time with read-ahead against {peer}", 0.5, ratios(shipped, peer, "wall_s"))
    for peer in (LOCK, POWERTOOLS, DURABLE):
        found += fewer(peer, ours, by)
    return found


def beside(mine: Sequence[Row], other: str, by: Mapping[tuple[Case, str], Row]) -> list[tuple[Row, Row]]:
    """Each row with another contender's that was measured side by side with it."""
    pairs = [(row, by[row.case, other]) for row in mine if (row.case, other) in by]
    return [(row, peer) for row, peer in pairs if row.run == peer.run]


def fewer(peer: str, mine: Sequence[Row], by: Mapping[tuple[Case, str], Row]) -> list[Verdict]:
    """Whether fewer reads, and fewer rows, are repeated after a kill than a peer repeats, in every case."""
    found = []
    pairs = beside([row for row in mine if row.case.killed], peer, by)
    for what in ("reads", "rows") if pairs else ():
        figures = [tuple(getattr(row, f"repeated_{what}_after_kill") for row in pair) for pair in pairs]
        cases = [said(row) for row, _ in pairs]
        words = "; ".join(
            f"{ours:,} to {theirs:,} ({case})" for case, (ours, theirs) in zip(cases, figures, strict=True)
        )
        reached = all(ours < theirs for ours, theirs in figures)
        found.append(Verdict(f"fewer repeated {what} after a kill than {peer}", words, reached))
    return found


def said(row: Row) -> str:
    """The case of a row in words, and whether it was read ahead in it."""
    return name(row.case) + (", read-ahead" if row.contender == READ_AHEAD else "")


def name(case: Case) -> str:
    """A case in words."""
    far = f", source {case.source_latency_s * 1000:g} ms away, {FAR_PAGE} a page" if case.source_latency_s else ""
    return f"{case.accounts // 1000} k, {case.changed_share:.0%}{far}"
