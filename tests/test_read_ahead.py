"""Reading ahead: what is read when, by whom, and what becomes of it when the attempt ends."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import read_ahead
from reconciler.attempt import Attempt
from reconciler.errors import OutOfTime, SourceWait
from reconciler.merge import Page, Side
from reconciler.read_ahead import Helper, TakingTurns
from reconciler.reader import Reader
from reconciler.source import AccountsTable, SourceRecord
from reconciler.view import EntitlementsTable, ViewRow
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import LOST, PASS, Wire, meanwhile
from tests.kit import AtOnce, grants, hold, numbered
from tests.world import World

if TYPE_CHECKING:
    from reconciler.invocation import Invocation

DEADLINE_S = 30
"""For what another thread does at once."""

PAGES = 6


@dataclass(slots=True)
class Watch:
    """Both sides of a world, and who read them: (side, after, by a helper), in order.

    `before` is called before each read with the side's name and `after`.
    """

    world: World
    before: Callable[[str, str | None], object] = lambda side, after: None
    reads: list[tuple[str, str | None, bool]] = field(default_factory=list)
    under_way: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    reader: Reader | None = None

    def job(self, invocation: Invocation) -> Job:
        view: Any = Watched(self, "view", EntitlementsTable(invocation))
        return Job(Watched(self, "source", AccountsTable(invocation)), view)

    def run(self, kind: str = "tick", **about: Any) -> list[str]:
        return [result.outcome for result in self.world.run(kind, job=self.job, **about)]

    def source_reads(self) -> list[str | None]:
        return [after for side, after, _ in self.reads if side == "source"]

    def wait_for(self, reads_of_the_source: int) -> None:
        """Until so many were answered."""
        wait_until(lambda: len(self.source_reads()) >= reads_of_the_source and not self.under_way["source"])


@dataclass(frozen=True, slots=True)
class Watched:
    watch: Watch
    name: str
    side: Side[Any]

    def read_by(self, reader: Reader) -> Watched:
        self.watch.reader = reader
        return self

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Any]:
        watch = self.watch
        watch.under_way[self.name] += 1
        watch.most_at_once = max(watch.most_at_once, watch.under_way[self.name])
        try:
            watch.before(self.name, after)
            page = self.side.read(segment, after=after, upto=upto, limit=limit)
            watch.reads.append((self.name, after, helping()))
            return page
        finally:
            watch.under_way[self.name] -= 1


def helping() -> bool:
    return threading.current_thread() is not threading.main_thread()


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


@pytest.fixture
def watch(world: World) -> Watch:
    """Six pages of two accounts, each of which needs an effect, and a page is a range."""
    world.set(page_size=2, range_size=2, read_ahead=True)
    grants(world, *numbered(2 * PAGES))
    return Watch(world)


def test_the_next_page_is_read_while_a_range_is_being_committed_and_no_further_one(watch: Watch) -> None:
    wire = Wire(watch.world.client)
    read: list[int] = []

    def next_page_is_there() -> None:
        watch.wait_for(min(len(read) + 2, PAGES))
        time.sleep(0.02)  # in which a helper that runs on would read further
        read.append(len(watch.source_reads()))

    wire.next("commit", then=meanwhile(next_page_is_there))
    assert watch.run("nightly") == ["completed"]
    assert read == [2, 3, 4, 5, 6, 6]
    assert [by_helper for side, _, by_helper in watch.reads if side == "source"] == [False, *[True] * (PAGES - 1)]
    assert watch.world.view() == {name: {"plan": "gold"} for name in numbered(2 * PAGES)}
    assert helpers() == []


def test_the_view_is_read_before_the_source_for_the_same_accounts(watch: Watch) -> None:
    for name in numbered(2 * PAGES):
        watch.world.view_row(name, plan="old")
    assert watch.run("nightly") == ["completed"]
    reached = ""
    for side, after, _ in watch.reads:
        if side == "view":
            reached = after or ""
        else:
            assert reached >= (after or ""), watch.reads
    assert {by_helper for _, _, by_helper in watch.reads} == {True, False}


def test_without_it_everything_is_read_by_the_holder_after_its_commits(watch: Watch) -> None:
    watch.world.set(read_ahead=False)
    wire = Wire(watch.world.client)
    read: list[int] = []
    wire.next("commit", then=meanwhile(lambda: read.append(len(watch.source_reads()))))
    assert watch.run("nightly") == ["completed"]
    assert read == [1, 2, 3, 4, 5, 6]
    assert not any(by_helper for _, _, by_helper in watch.reads)


def test_what_a_page_read_ahead_fails_with_is_raised_once_the_present_range_is_in(watch: Watch) -> None:
    class Broken(RuntimeError):
        pass

    def breaks(side: str, after: str | None) -> None:
        if side == "source" and after == "acct-0001":
            raise Broken

    watch.before = breaks
    with pytest.raises(Broken):
        watch.run("nightly")
    assert watch.world.progress()["checkpoint"] == "acct-0001"
    assert watch.world.lease().get("owner") is None
    watch.before = lambda side, after: None
    watch.world.clock.advance(600)
    assert watch.run() == ["completed"]
    assert helpers() == []


def test_a_pause_that_the_source_asks_for_ahead_is_a_yield_after_the_present_range(watch: Watch) -> None:
    def asks(side: str, after: str | None) -> None:
        if side == "source" and after == "acct-0003":
            raise SourceWait(900, "the provider said so")

    watch.before = asks
    assert watch.run("nightly") == ["yielded"]
    assert watch.world.progress()["checkpoint"] == "acct-0003"
    assert watch.world.progress()["attempts"] == 0


@pytest.mark.parametrize("ends", ["lost", "yielded"])
def test_a_reader_that_waits_is_called_off_when_the_attempt_ends(watch: Watch, ends: str) -> None:
    """The helper's source waits until it is told that nobody has patience any more; the lease is free after that."""
    world = watch.world
    waiting = threading.Event()
    owner_then: list[object] = []

    def waits(side: str, after: str | None) -> None:
        if side == "source" and after == "acct-0001":
            waiting.set()
            reader = watch.reader
            assert reader is not None
            wait_until(lambda: reader.patience_s() <= 0)
            owner_then.append(world.lease().get("owner"))

    def meanwhile_this() -> None:
        assert waiting.wait(DEADLINE_S)
        if ends == "lost":
            world.put_control("LEASE#000", token="somebody else's", owner="worker-2", generation=9)
        else:
            world.clock.advance(world.settings.lease_seconds - 3 * world.settings.call_budget_s)

    watch.before = waits
    wire = Wire(world.client)
    wire.next("commit", meanwhile(meanwhile_this))
    if ends == "yielded":
        world.set(range_size=1)  # the second range of the page finds the lease too old
        wire.next("commit", PASS, meanwhile(meanwhile_this))
    assert watch.run("nightly") == [ends]
    assert owner_then == ["worker-2" if ends == "lost" else "worker-1"]
    assert helpers() == []


def test_nothing_is_read_once_the_attempt_is_over(watch: Watch) -> None:
    invocation = watch.world.invocation()
    assert watch.run("nightly", remaining_s=62) == ["out_of_time"]
    holding = hold(watch.world)
    with Helper(Attempt(holding), invocation) as helper:
        source = TakingTurns(watch.job(invocation).source, helper, Attempt(holding), invocation)
        assert len(source.read("000", after=None, upto=None, limit=2).rows) == 2
    with pytest.raises(OutOfTime):
        source.read("000", after=None, upto=None, limit=2)
    assert watch.source_reads() == [None]


def test_both_threads_take_turns_when_a_range_is_read_again(watch: Watch) -> None:
    """A conflict in the middle of reading ahead: what the holder reads anew waits for the read under way."""
    world = watch.world
    began = threading.Event()

    def dawdles(side: str, after: str | None) -> None:
        if helping() and side == "source":
            began.set()
            time.sleep(0.05)

    def intrudes() -> None:
        assert began.wait(DEADLINE_S)
        world.view_row("acct-0000", version=7, plan="mine")

    watch.before = dawdles
    wire = Wire(world.client)
    wire.next("commit", meanwhile(intrudes))
    assert watch.run("nightly") == ["completed"]
    assert watch.most_at_once == 1
    assert world.counted()["RangeConflicts"] == 1
    assert world.versions()["acct-0000"] == 8


def test_nothing_is_read_ahead_when_waiting_for_it_could_use_up_the_end_of_the_attempt(watch: Watch) -> None:
    """Time for a range and its end, but not for one more call."""
    settings = watch.world.settings
    just_enough = 4 * settings.call_budget_s + settings.slack_s
    assert watch.run("nightly", remaining_s=just_enough + settings.call_budget_s / 2) == ["completed"]
    assert not any(by_helper for _, _, by_helper in watch.reads)


def test_an_adopted_checkpoint_is_gone_on_from_whatever_was_read_ahead(watch: Watch, monkeypatch: Any) -> None:
    monkeypatch.setattr(read_ahead, "ThreadPoolExecutor", AtOnce)
    wire = Wire(watch.world.client)
    wire.next("commit", PASS, LOST)
    assert watch.run("nightly") == ["completed"]
    assert set(watch.world.versions().values()) == {1}
    assert watch.world.interval()["accounts"] == 2 * PAGES


def test_a_night_on_the_emulator_is_the_same_with_and_without_it(emulator_url: str) -> None:
    """Reads and writes really at the same time."""
    left = []
    for ahead in (False, True):
        world = World(live_client(emulator_url), READ_AHEAD=ahead, PAGE_SIZE=5, RANGE_SIZE=5, MAX_REVOCATIONS=1000)
        for index, name in enumerate(numbered(120)):
            if index % 5:
                world.account(name, plan="gold", seats=index)
            if index % 3:
                world.view_row(name, plan="gold" if index % 7 else "silver")
        watch = Watch(world)
        assert watch.run("nightly") == ["completed"]
        assert any(by_helper for _, _, by_helper in watch.reads) == ahead
        row = world.interval()
        left.append((world.view(), world.versions(), {name: row[name] for name in ("checksum", "ranges", "revoked")}))
        assert row["checksum"] == world.view_checksum()
    assert left[0] == left[1]


def asks_for_a_pause(watch: Watch, seconds: float) -> tuple[threading.Event, list[str | None]]:
    """The helper is told to come back later; set then, and what the source is asked for after that."""
    told = threading.Event()
    asked: list[str | None] = []

    def before(side: str, after: str | None) -> None:
        if side != "source":
            return
        if told.is_set():
            asked.append(after)
        elif helping():
            told.set()
            raise SourceWait(seconds, "the provider said so")

    watch.before = before
    return told, asked


def test_a_source_that_told_the_helper_to_wait_is_not_asked_by_the_holder(watch: Watch) -> None:
    """A live writer makes the holder read its range again."""
    world = watch.world
    told, asked = asks_for_a_pause(watch, 900)

    def intrudes() -> None:
        assert told.wait(DEADLINE_S)
        world.view_row("acct-0000", version=7, plan="mine")

    Wire(world.client).next("commit", meanwhile(intrudes))
    assert watch.run("nightly") == ["yielded"]
    assert asked == []
    assert world.progress()["waits_for_source"]


def test_a_pause_is_counted_from_when_the_helper_was_told(watch: Watch) -> None:
    world = watch.world
    began_ms = world.clock.wall_ms
    told, _ = asks_for_a_pause(watch, 45)

    def dawdles() -> None:
        assert told.wait(DEADLINE_S)
        world.clock.advance(44)

    Wire(world.client).next("commit", meanwhile(dawdles))
    assert watch.run("nightly") == ["yielded"]
    assert world.progress()["next_attempt_at_ms"] - began_ms == pytest.approx(45_000, abs=500)


@pytest.mark.parametrize("ends", ["paused", "failed"])
def test_a_pause_is_kept_however_the_attempt_ends(watch: Watch, ends: str) -> None:
    world = watch.world
    told, asked = asks_for_a_pause(watch, 900)

    def happens() -> None:
        assert told.wait(DEADLINE_S)
        if ends == "paused":
            world.put_control("LEASE#000", paused=1)
        else:
            raise RuntimeError("a defect")

    Wire(world.client).next("commit", meanwhile(happens))
    if ends == "failed":
        with pytest.raises(RuntimeError, match="a defect"):
            watch.run("nightly")
    else:
        assert watch.run("nightly") == ["paused"]
        world.put_control("LEASE#000", paused=...)
    assert world.progress()["next_attempt_at_ms"] - world.clock.wall_ms == pytest.approx(900_000, abs=1_000)
    world.clock.advance(600)
    assert watch.run() == ["source_waits"]
    assert asked == []


def test_a_pause_shorter_than_the_backoff_of_a_failed_attempt_shortens_nothing(watch: Watch) -> None:
    world = watch.world
    told, _ = asks_for_a_pause(watch, 3)

    def fails() -> None:
        assert told.wait(DEADLINE_S)
        raise RuntimeError("a defect")

    Wire(world.client).next("commit", meanwhile(fails))
    with pytest.raises(RuntimeError):
        watch.run("nightly")
    assert world.progress()["next_attempt_at_ms"] - world.clock.wall_ms > 25_000
    assert "waits_for_source" not in world.progress()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("error", [SourceWait, OutOfTime, ValueError])
def test_the_pages_of_an_attempt_are_gone_with_it(watch: Watch, ahead: bool, error: Callable[..., Exception]) -> None:
    """Without a collection: an invocation that follows in the same process needs the memory."""
    watch.world.set(read_ahead=ahead)

    def breaks(side: str, after: str | None) -> None:
        if side == "source" and after == "acct-0003":
            raise error(*((900, "later") if error is SourceWait else ()))

    watch.before = breaks
    logging.disable()  # pytest keeps what is logged, and the errors with it
    gc.collect()
    gc.disable()
    try:
        before = rows_held()
        with suppress(ValueError):
            watch.run("nightly")
        assert rows_held() == before
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def rows_held() -> int:
    return sum(isinstance(held, SourceRecord | ViewRow) for held in gc.get_objects())
