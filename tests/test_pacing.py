"""The pace: by the provider's own timestamps, across cold starts, takeovers, clock steps, retries and backlogs."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler import read_ahead
from reconciler.clock import SystemClock
from reconciler.errors import OutOfTime
from reconciler.http_source import HttpSource
from reconciler.pacing import Limiter, per_segment
from reconciler.reader import Reader
from tests.faults import PASS, Wire, meanwhile
from tests.kit import AtOnce, Killed, kill, numbered, wait
from tests.providers import busiest, everything, night, source, too_fast
from tests.world import JOB, NIGHT, ManualClock, World
from tools.provider import Provider


@dataclass(slots=True)
class Asking:
    """Sends as a worker does: waits, sends, is answered; the provider stamps each at some moment in between."""

    per_second: float
    clock: ManualClock = field(default_factory=lambda: ManualClock(step_ms=0))
    arrived: list[float] = field(default_factory=list)
    limiter: Limiter = field(init=False)

    def __post_init__(self) -> None:
        self.take_over()

    def take_over(self) -> None:
        """Another process, which knows nothing of what was sent before."""
        self.limiter = Limiter(self.per_second, self.clock)

    def ask(self, latency_s: float = 0.0, arrives: float = 0.0) -> None:
        while wait_s := self.limiter.wait_s:
            self.clock.sleep(wait_s)
        with self.limiter.request():
            self.arrived.append(self.clock.monotonic() + latency_s * arrives)
            self.clock.advance(latency_s)


LATENCIES = st.sampled_from([0.0, 0.3, 0.9, 1.0, 3.0]) | st.floats(0, 2)
ASKED = st.tuples(st.just("ask"), LATENCIES, st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
EVENTS = st.one_of(
    ASKED,
    ASKED,
    st.tuples(st.just("rest"), st.floats(0, 1000), st.just(0.0)),
    st.tuples(st.just("take over"), st.just(0.0), st.just(0.0)),
    st.tuples(st.just("clock steps"), st.floats(-1e6, 1e6), st.just(0.0)),
)
LATE, AT_ONCE, TAKE_OVER = ("ask", 0.9, 1.0), ("ask", 0.0, 0.0), ("take over", 0.0, 0.0)


@pytest.mark.field("B41")
@given(st.sampled_from([0.1, 0.25, 0.9, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 20.0]), st.lists(EVENTS, max_size=60))
@example(2.0, [LATE, AT_ONCE, AT_ONCE])
@example(2.0, [LATE, AT_ONCE, TAKE_OVER, AT_ONCE])
@example(0.25, [LATE, TAKE_OVER, AT_ONCE])
def test_no_second_holds_more_requests_than_allowed(
    per_second: float, happenings: list[tuple[str, float, float]]
) -> None:
    """A request that arrives late, just before one that arrives at once, or just before a worker that knows of none."""
    asking = Asking(per_second)
    for what, number, share in happenings:
        if what == "ask":
            asking.ask(number, share)
        elif what == "rest":
            asking.clock.advance(number)
        elif what == "take over":
            asking.take_over()
        else:
            asking.clock.wall_ms += round(number * 1000)
    window_s = max(1.0, 1 / per_second)
    assert busiest(asking.arrived, window_s - 1e-6) <= max(1, math.floor(per_second))


@pytest.mark.field("B41")
def test_fifteen_a_minute_stay_fifteen_in_any_minute() -> None:
    """Ten idle minutes, a hundred requests, a clock that steps back, and a fresh process: nothing is saved up."""
    asking = Asking(15 / 60)
    asking.clock.advance(600)
    for _ in range(50):
        asking.ask(0.2, 0.5)
    asking.clock.wall_ms -= 5_000
    for _ in range(50):
        asking.ask()
    asking.take_over()
    for _ in range(20):
        asking.ask(0.2, 1.0)
    assert busiest(asking.arrived, 60 - 1e-6) <= 15
    assert asking.arrived[99] - asking.arrived[0] < 110 * 4, "and no slower than need be"


@pytest.mark.parametrize("per_second", [0.5, 1.0, 5.0, 20.0])
def test_a_pace_is_kept_and_not_only_not_exceeded(per_second: float) -> None:
    asking = Asking(per_second)
    for _ in range(100):
        asking.ask()
    assert asking.arrived[-1] - asking.arrived[0] == pytest.approx(99 / per_second, rel=0.02)


def test_there_is_no_burst_after_a_rest() -> None:
    asking = Asking(5.0)
    asking.ask()
    asking.clock.advance(3_600)
    for _ in range(3):
        asking.ask()
    assert [later - earlier for earlier, later in pairwise(asking.arrived[1:])] == [
        pytest.approx(0.2),
        pytest.approx(0.2),
    ]


@pytest.mark.parametrize(("per_second", "segments"), [(2.0, 2), (5.0, 2), (5.0, 3), (64.0, 64), (100.0, 7)])
def test_all_segments_together_keep_the_rate_from_one_a_second_for_each(per_second: float, segments: int) -> None:
    """They all begin at the same moment, which is the worst."""
    workers = [Asking(per_segment(per_second, segments)) for _ in range(segments)]
    for worker in workers:
        for _ in range(30):
            worker.ask()
    together = [moment for worker in workers for moment in worker.arrived]
    assert busiest(together, 1 - 1e-6) <= per_second


def stock(provider: Provider, count: int) -> None:
    for name in numbered(count):
        provider.put(name, plan="gold")


def test_twenty_a_second_in_real_time_by_the_providers_own_clock(world: World, provider: Provider) -> None:
    """Two workers, the second of which takes over from the first in the middle of its second."""
    world.set(source_requests_per_second=20)
    stock(provider, 25)
    real = SystemClock()
    provider.now = real.monotonic
    for _ in range(2):
        invocation = replace(world.invocation(), clock=real)
        everything(HttpSource(invocation, Reader(f"{JOB}/{NIGHT}/1", 1, False, lambda: 30.0)), 1)
    assert len(provider.asked) == 50
    assert busiest([asked.at for asked in provider.asked]) <= 20
    assert not too_fast(provider, 20)


@pytest.mark.field("B41")
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("latency_s", [0.0, 0.3])
def test_retries_and_takeovers_keep_the_pace(
    world: World, provider: Provider, latency_s: float, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "ThreadPoolExecutor", AtOnce)
    world.set(page_size=2, source_requests_per_second=4, read_ahead=ahead)
    stock(provider, 24)
    provider.arrives = lambda: world.clock.advance(latency_s)
    wire = Wire(world.client)
    provider.fail("cut", "throttle:0", "", "status:500", "throttle:-5", "", "no-next", "throttle")
    for _ in range(4):
        wire.next("commit", PASS, PASS, meanwhile(kill))
        with suppress(Killed):
            night(world, "nightly")
        world.clock.set("2026-11-29T02:00:00Z")  # back, as far as the wall shows
        world.expire_lease()
    wire.next("commit")
    wait(world)
    night(world)
    assert world.interval()["state"] == "COMPLETED"
    assert len(provider.asked) > 12
    assert not too_fast(provider, 4)


def test_the_guards_question_and_what_is_read_anew_keep_the_pace(world: World, provider: Provider) -> None:
    """`source_is_empty` and `between` ask the same provider in the middle of a range."""
    world.set(page_size=2, source_requests_per_second=2)
    for name in numbered(6):
        world.view_row(name, plan="silver")
    for name in numbered(10)[6:]:
        provider.put(name, plan="gold")
    wire = Wire(world.client)
    wire.next("commit", PASS, meanwhile(lambda: world.view_row("acct-0004", version=7, plan="mine")))
    (result,) = night(world, "nightly")
    assert result.outcome == "completed"
    assert {asked.limit for asked in provider.asked} == {1, 2}, "the guard asks for one account"
    assert world.counted()["RangeConflicts"] == 1
    assert not too_fast(provider, 2)


@pytest.mark.field("B39")
def test_seven_missed_nights_and_this_one_keep_their_rates_oldest_first(world: World, provider: Provider) -> None:
    """The order of the deadlines: a younger night never starts before an older one is done."""
    world.set(page_size=2, source_requests_per_second=5, backfill_requests_per_second=2, catch_up_days=8)
    world.created_at = "2026-11-21T12:00:00.000Z"
    world.clock.set(f"{NIGHT}T02:00:05Z")
    stock(provider, 20)
    for _ in range(60):
        night(world, remaining_s=90)
        world.clock.advance(60)
        if world.interval(NIGHT)["state"] == "COMPLETED":
            break
    nights = [f"2026-11-{day}" for day in range(22, 30)]
    of_night = {name: [asked.at for asked in provider.asked if name in str(asked.run_id)] for name in nights}
    assert [name for name in nights if len(of_night[name]) >= 10] == nights
    firsts = [(min(moments), max(moments)) for moments in of_night.values()]
    assert all(before[1] < after[0] for before, after in pairwise(firsts)), "oldest first"
    assert not too_fast(provider, 5)
    for name in nights[:-1]:
        assert busiest(of_night[name], 1 - 1e-6) <= 2, name
    assert busiest(of_night[NIGHT], 1 - 1e-6) > 2, "tonight is read at the live rate"


def test_a_turn_for_which_no_time_is_left_is_no_wish_of_the_source(world: World, provider: Provider) -> None:
    """The settings see to it that a whole lease has time for it."""
    world.set(source_requests_per_second=0.1)
    stock(provider, 4)
    side = source(world, lambda: 9.0)
    with pytest.raises(OutOfTime, match=r"allows a request in 10\.0 s, and 9\.0 s are left"):
        side.read("000", after=None, upto=None, limit=2)
    assert provider.asked == []


@pytest.mark.parametrize("backlog", [False, True])
def test_a_backlog_is_read_at_its_own_rate(world: World, provider: Provider, backlog: bool) -> None:
    world.set(source_requests_per_second=10, backfill_requests_per_second=1)
    stock(provider, 6)
    everything(source(world, backlog=backlog), 1)
    moments = [asked.at for asked in provider.asked]
    assert moments[-1] - moments[0] == pytest.approx(5.0 if backlog else 0.5, rel=0.1)
