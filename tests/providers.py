"""What tests of the HTTP source share: a job that reads it, a reader, and how fast a provider was asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import http_wire
from reconciler.http_source import HttpSource
from reconciler.reader import Reader
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.kit import Killed
from tests.world import JOB, NIGHT, World

if TYPE_CHECKING:
    from reconciler.attempt import Result
    from reconciler.invocation import Invocation
    from tools.provider import Provider

ODD_IDS = (
    *("9", "10", "A", "a", "é", "e\u0301", "～", "😀", "A#", "#B", "012345670123", "x" * 1024, "\0", "n\0ul", "a/b"),
    *("/?&=%#+ ", "null", "1e10", "../..", "%00", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"),
)


def from_provider(invocation: Invocation) -> Job:
    """For `World.run`: as the deployed function puts it together."""
    return Job(HttpSource(invocation), EntitlementsTable(invocation))


def night(world: World, kind: str = "tick", **about: Any) -> list[Result]:
    """One invocation that reads the provider."""
    return world.run(kind, job=from_provider, **about)


def source(world: World, patience_s: Callable[[], float] = lambda: 30.0, *, backlog: bool = False) -> HttpSource:
    """A source as one attempt reads it."""
    return HttpSource(world.invocation(), Reader(f"{JOB}/{NIGHT}/1", 1, backlog, patience_s))


def everything(side: HttpSource, limit: int, segment: str = "000") -> list[str]:
    """The ids of every account that a source tells of, in its order."""
    ids: list[str] = []
    after = None
    while True:
        page = side.read(segment, after=after, upto=None, limit=limit).checked(after, None)
        ids += [record.account_id for record in page.rows]
        if page.more_after is None:
            return ids
        after = page.more_after


def busiest(moments: Sequence[float], window_s: float = 1.0) -> int:
    """The most moments in any half-open window of that length."""
    ordered = sorted(moments)
    return max((sum(first <= moment < first + window_s for moment in ordered) for first in ordered), default=0)


def too_fast(provider: Provider, per_second: float) -> bool:
    """Whether the provider was asked more often than it allows, by its own clock."""
    moments = [asked.at for asked in provider.asked]
    window_s = max(1.0, 1 / per_second)
    return busiest(moments, window_s - 1e-9) > max(1, math.floor(per_second))


def gaps(provider: Provider) -> list[float]:
    """Seconds between requests, by the provider's clock."""
    return [later.at - earlier.at for earlier, later in pairwise(provider.asked)]


@contextmanager
def killed_reading(number: int) -> Iterator[None]:
    """The worker in the block is killed when its nth page has been answered."""
    left = iter(range(1, number + 1))
    get = http_wire.get

    def and_killed(*args: Any, **kwargs: Any) -> Any:
        answer = get(*args, **kwargs)
        if next(left) == number:
            raise Killed
        return answer

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(http_wire, "get", and_killed)
        yield
