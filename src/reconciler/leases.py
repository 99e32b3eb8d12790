"""The lease on a segment: acquired by compare-and-swap, released by replacing its token.

    holder A   acquire g=7 ──commit──commit──▒▒▒ stalls ▒▒▒▒▒▒▒▒▒▒▒▒ commit → refused: generation is 8
    holder B                     expires_at_ms + skew ──► acquire g=8 ──commit── ...

The clock decides only *when* somebody may try. What a holder may write is decided by the fence: generation and
token on the LEASE row, checked in the same transaction as every effect. Release replaces the token, so that a late
message of a former holder fails even though nobody has taken the lease since.
"""

from __future__ import annotations

from dataclasses import dataclass

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, keys
from reconciler.errors import LeaseRowMissing, Paused
from reconciler.invocation import Invocation
from reconciler.items import Row, attribute
from reconciler.keys import SORT_KEY
from reconciler.records import Progress, RunRecord


@dataclass(frozen=True, slots=True)
class Lease:
    """A LEASE row as read. Without an owner it is free; `paused` is the pause that stopped it.

    `seen_ms` is the owner's last sign of life: its last commit, or its acquisition.
    """

    segment: str
    generation: int
    token: str
    owner: str | None = None
    expires_at_ms: int | None = None
    paused: int | None = None
    interval_id: str | None = None
    seen_ms: int | None = None

    @classmethod
    def of(cls, row: Row) -> Lease:
        acquired_at_ms = attribute(row, "acquired_at_ms", int, optional=True)
        progress_at_ms = attribute(row, "progress_at_ms", int, optional=True)
        return cls(
            segment=row[SORT_KEY].removeprefix("LEASE#"),
            generation=attribute(row, "generation", int),
            token=attribute(row, "token", str),
            owner=attribute(row, "owner", str, optional=True),
            expires_at_ms=attribute(row, "expires_at_ms", int, optional=True),
            paused=attribute(row, "paused", int, optional=True),
            interval_id=attribute(row, "interval_id", str, optional=True),
            seen_ms=acquired_at_ms if progress_at_ms is None else progress_at_ms,
        )

    def held(self, now_ms: int, skew_ms: int) -> bool:
        return self.owner is not None and self.expires_at_ms is not None and self.expires_at_ms + skew_ms >= now_ms

    @property
    def loser(self) -> Row:
        """What an audit row tells of the owner that a takeover or a person replaces; nothing when there is none."""
        if self.owner is None:
            return {}
        seen = {} if self.seen_ms is None else {"loser_seen_at": clock.text(self.seen_ms)}
        return {"loser": self.owner, "loser_generation": self.generation, **seen}

    @property
    def fence(self) -> ConditionBase:
        """Nobody took, released or replaced the lease since."""
        condition: ConditionBase = Attr("generation").eq(self.generation) & Attr("token").eq(self.token)
        return condition


@dataclass(frozen=True, slots=True)
class Renewal:
    """When the lease was last renewed, taken before the request was sent."""

    monotonic: float
    wall_ms: int

    @classmethod
    def now(cls, invocation: Invocation) -> Renewal:
        return cls(invocation.clock.monotonic(), invocation.clock.now_ms())

    def age_s(self, invocation: Invocation) -> float:
        """The longer of what both clocks say, since either may have stood still."""
        wall = (invocation.clock.now_ms() - self.wall_ms) / 1000
        return max(wall, invocation.clock.monotonic() - self.monotonic)


@dataclass(frozen=True, slots=True)
class Holding:
    """What the holder of a segment knows. Replaced, never changed: it follows what was committed.

    `event` is how it began (STARTED, RESUMED, TAKEOVER), `prior_attempts` how many attempts before this one made no
    progress, `ranges` how many ranges this attempt committed.
    """

    lease: Lease
    record: RunRecord
    progress: Progress
    renewal: Renewal
    event: str
    prior_attempts: int
    ranges: int = 0


def read_lease(segment: str, *, invocation: Invocation) -> Lease:
    """Raises LeaseRowMissing: an absent row is never created again, its generation would restart."""
    row = invocation.control_row(keys.lease(segment))
    if row is None:
        raise LeaseRowMissing(segment)
    return Lease.of(row)


def free_lease(row: Row | None) -> Lease | None:
    """The lease by a row that was read some time ago, when it was free then; nobody has to read that one again."""
    lease = Lease.of(row) if row else None
    return lease if lease and lease.owner is None and lease.paused is None else None


def refused_lease(row: Row | None, *, known: Lease, tried: str | None = None) -> bool:
    """Read the LEASE row that refused a write.

    True when the write had landed before (`tried` is the token it would have stored) and only its answer was lost;
    False when the segment is somebody else's now. Raises LeaseRowMissing, and Paused when nothing but a pause
    happened to the lease as `known`.
    """
    if row is None:
        raise LeaseRowMissing(known.segment)
    stands = Lease.of(row)
    if tried is not None and stands.token == tried:
        return True
    if stands.paused is not None and (stands.generation, stands.token) == (known.generation, known.token):
        raise Paused(f"segment {known.segment} was paused")
    return False
