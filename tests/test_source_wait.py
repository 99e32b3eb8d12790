"""A source that asks for a pause: no lease is held through it, nobody overtakes, and it knows who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.errors import OutOfTime, SourceWait, TransientFailure, VerbRefused
from reconciler.intervals import next_id
from reconciler.reader import Reader
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.faults import Wire
from tests.kit import command, delivered, everything, grants, killed, numbered, ordered, wait
from tests.world import JOB, NIGHT, World, event

if TYPE_CHECKING:
    from reconciler.attempt import Result
    from reconciler.invocation import Invocation
    from reconciler.merge import Page
    from reconciler.source import SourceRecord

TOMORROW = next_id(NIGHT)
PAUSE_S = 1000.0


@dataclass(slots=True)
class Provider:
    """The accounts of a world behind a source that knows its reader; `before` may raise instead of answering a read.

    `asked` is what was read, as (reader's run id, segment, after); `readers` has one entry for each `read_by`.
    """

    world: World
    before: Callable[[Reader, str | None], None] = lambda reader, after: None
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    def job(self, invocation: Invocation) -> Job:
        return Job(ForAReader(self, AccountsTable(invocation)), EntitlementsTable(invocation))

    def run(self, kind: str = "tick", **about: Any) -> list[tuple[str, str, str]]:
        """One invocation: (interval, segment, outcome) of each attempt."""
        return [outcome(result) for result in self.world.run(kind, job=self.job, **about)]

    def pauses(self, *afters: str | None) -> None:
        """From now on every read after one of these ids asks for a pause."""

        def before(reader: Reader, after: str | None) -> None:
            if after in afters:
                raise SourceWait(PAUSE_S, "the provider said so")

        self.before = before

    def answers(self) -> None:
        self.before = lambda reader, after: None


@dataclass(frozen=True, slots=True)
class ForAReader:
    """What `Provider` hands out: to be read only by one who introduced himself."""

    provider: Provider
    side: AccountsTable
    reader: Reader | None = None

    def read_by(self, reader: Reader) -> ForAReader:
        self.provider.readers.append(reader)
        return ForAReader(self.provider, self.side, reader)

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        assert self.reader is not None, "read without a reader"
        self.provider.asked.append((self.reader.run_id, segment, after))
        self.provider.before(self.reader, after)
        return self.side.read(segment, after=after, upto=upto, limit=limit)


def outcome(result: Result) -> tuple[str, str, str]:
    return result.interval, result.segment, result.outcome


@pytest.fixture
def night(world: World) -> World:
    """Six accounts to grant, two a page and range: reads after None, acct-0001, acct-0003 and acct-0005."""
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(6))
    return world


@pytest.fixture
def provider(night: World) -> Provider:
    return Provider(night)


def pause_over(world: World, interval_id: str = NIGHT, segment: str = "000") -> None:
    """Go to the moment at which the segment may be read again."""
    until_ms = world.progress(segment, interval_id)["next_attempt_at_ms"]
    world.clock.advance((until_ms - world.clock.wall_ms) / 1000)


# ---------------------------------------------------------------------------------------------------------- the attempt


@pytest.mark.parametrize(("after", "ranges"), [(None, 0), ("acct-0001", 1), ("acct-0003", 2)])
def test_a_pause_is_a_clean_yield_that_gives_lease_and_attempt_back(
    night: World, provider: Provider, after: str | None, ranges: int
) -> None:
    provider.pauses(after)
    assert provider.run("nightly") == [(NIGHT, "000", "yielded")]
    asked_at_ms = night.clock.wall_ms
    progress, lease = night.progress(), night.lease()
    assert (progress.get("checkpoint"), progress.get("ranges", 0), progress["attempts"]) == (after, ranges, 0)
    assert progress["waits_for_source"] is True
    assert asked_at_ms - 100 <= progress["next_attempt_at_ms"] - PAUSE_S * 1000 <= asked_at_ms
    assert ("owner" in lease, "expires_at_ms" in lease) == (False, False)
    assert night.events() == ["OBSERVED", "STARTED", "YIELDED"]
    (yielded,) = [row for row in night.audit() if row["event"] == "YIELDED"]
    assert yielded["reason"] == "the source is to be left alone for 1000.0 s: the provider said so"
    assert (night.interval()["state"], "last_error" in night.interval()) == ("RUNNING", False)


def test_however_often_a_source_asks_for_a_pause_no_attempt_is_used_up(night: World, provider: Provider) -> None:
    provider.pauses("acct-0001")
    for _ in range(3 * night.settings.max_attempts):
        provider.run()
        assert night.progress()["attempts"] == 0
        pause_over(night)
    provider.answers()
    assert provider.run() == [(NIGHT, "000", "completed")]
    assert {reader.attempt for reader in provider.readers} == {1}


def test_after_the_pause_the_night_goes_on_after_its_checkpoint(night: World, provider: Provider) -> None:
    provider.pauses("acct-0001")
    provider.run("nightly")
    provider.answers()
    provider.asked.clear()
    pause_over(night)
    assert provider.run() == [(NIGHT, "000", "completed")]
    assert [after for _, _, after in provider.asked] == ["acct-0001", "acct-0003"]
    assert night.versions() == dict.fromkeys(numbered(6), 1)
    assert (night.interval()["accounts"], night.interval()["state"]) == (6, "COMPLETED")
    assert "waits_for_source" not in night.progress()


def test_a_pause_within_the_guards_look_at_the_source_is_one_too(world: World) -> None:
    """The guard asks whether there is any account at all before a range revokes."""
    world.view_row("gone", plan="gold")
    provider = Provider(world)
    reads: list[str | None] = []

    def before(reader: Reader, after: str | None) -> None:
        reads.append(after)
        if len(reads) == 2:
            raise SourceWait(PAUSE_S, "enough for now")

    provider.before = before
    assert provider.run("nightly") == [(NIGHT, "000", "yielded")]
    assert world.progress()["waits_for_source"] is True
    assert "pause" not in world.row("CONTROL")
    assert world.view() == {"gone": {"plan": "gold"}}


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (TransientFailure("no answer"), "waiting"),
        (ValueError("a defect"), "waiting"),
        (OutOfTime("no time"), "waiting"),
    ],
    ids=["no answer", "defect", "no time"],
)
def test_other_ways_to_stop_are_no_pause_of_the_source(
    night: World, provider: Provider, error: Exception, then: str
) -> None:
    def before(reader: Reader, after: str | None) -> None:
        raise error

    provider.before = before
    if isinstance(error, OutOfTime):
        assert provider.run("nightly") == [(NIGHT, "000", "yielded")]
    else:
        with pytest.raises(type(error)):
            provider.run("nightly")
    assert "waits_for_source" not in night.progress()
    assert provider.run() == [(NIGHT, "000", then)]
    assert set(night.interval()["delays"]) == {"backoff"}


# ------------------------------------------------------------------------------------------------- until it is over


def test_until_the_pause_is_over_ticks_leave_the_source_alone_and_say_so(night: World, provider: Provider) -> None:
    provider.pauses("acct-0001")
    provider.run("nightly")
    provider.answers()
    provider.asked.clear()
    before = night.lease()
    for _ in range(3):
        night.clock.advance(300)
        assert provider.run() == [(NIGHT, "000", "source_waits")]
    assert (provider.asked, night.lease()) == ([], before)
    assert set(night.interval()["delays"]) == {"source"}
    assert [row["cause"] for row in night.audit() if row["event"] == "DELAYED"] == ["source"]
    night.clock.advance(300)
    assert provider.run() == [(NIGHT, "000", "completed")]


def test_the_pause_ends_at_its_moment_and_not_before(night: World, provider: Provider) -> None:
    provider.pauses(None)
    provider.run("nightly")
    provider.answers()
    night.clock.step_ms = 0
    pause_over(night)
    night.clock.advance(-0.001)
    assert provider.run() == [(NIGHT, "000", "source_waits")]
    night.clock.advance(0.001)
    assert provider.run() == [(NIGHT, "000", "completed")]


def test_no_younger_night_overtakes_towards_a_provider_that_asked_for_a_pause(night: World, provider: Provider) -> None:
    provider.pauses("acct-0001")
    night.clock.set(f"{TOMORROW}T01:50:00Z")
    provider.run()
    provider.answers()
    provider.asked.clear()
    night.clock.set(f"{TOMORROW}T02:00:30Z")
    assert provider.run("nightly") == [(NIGHT, "000", "source_waits")]
    assert provider.asked == []
    assert (night.interval(TOMORROW)["state"], set(night.interval(TOMORROW)["delays"])) == (
        "EXPECTED",
        {"behind_older"},
    )
    pause_over(night)
    assert provider.run() == [(NIGHT, "000", "completed"), (TOMORROW, "000", "completed")]


def test_an_older_night_that_failed_lets_a_younger_one_run_and_one_that_waits_does_not(
    night: World, provider: Provider
) -> None:
    """The younger one has begun and waits for nothing of its own: it only comes second."""
    night.clock.set(f"{TOMORROW}T02:00:30Z")
    errors: dict[str, Exception] = {NIGHT: ValueError("a defect"), TOMORROW: OutOfTime("no time")}

    def before(reader: Reader, after: str | None) -> None:
        raise errors[reader.run_id.split("/")[1]]

    provider.before = before
    with pytest.raises(ValueError, match="a defect"):
        provider.run("nightly")
    assert [run_id for run_id, _, _ in provider.asked] == [f"{JOB}/{NIGHT}/1", f"{JOB}/{TOMORROW}/1"]
    wait(night)
    errors[NIGHT] = SourceWait(PAUSE_S, "enough for now")
    assert provider.run() == [(NIGHT, "000", "yielded")]
    assert provider.run() == [(NIGHT, "000", "source_waits")]
    assert len(provider.asked) == 3


def test_no_other_segment_starts_towards_a_provider_that_asked_for_a_pause(world: World) -> None:
    segmented = World(world.client, {"SegmentCount": 3})
    grants(segmented, *numbered(9))
    provider = Provider(segmented)
    provider.pauses(None)
    assert provider.run("nightly") == [(NIGHT, "000", "yielded")]
    assert provider.run() == [(NIGHT, "000", "source_waits")]
    assert [segment for _, segment, _ in provider.asked] == ["000"]
    assert set(segmented.interval()["delays"]) == {"source"}
    provider.answers()
    pause_over(segmented)
    assert provider.run() == [(NIGHT, f"00{index}", "completed") for index in range(3)]


def test_a_pause_that_the_second_segment_was_asked_for_keeps_the_third_waiting(world: World) -> None:
    segmented = World(world.client, {"SegmentCount": 3})
    grants(segmented, *numbered(9))
    provider = Provider(segmented)

    def before(reader: Reader, after: str | None) -> None:
        if provider.asked[-1][1] == "001":
            raise SourceWait(PAUSE_S, "enough for now")

    provider.before = before
    assert provider.run("nightly") == [(NIGHT, "000", "completed"), (NIGHT, "001", "yielded")]
    assert provider.run() == [(NIGHT, "001", "source_waits")]
    assert {segment for _, segment, _ in provider.asked} == {"000", "001"}


def test_a_pause_ends_with_the_attempt_that_follows_it(night: World, provider: Provider) -> None:
    """A worker that is killed then leaves a backoff, and not the source's pause."""
    provider.pauses("acct-0001")
    provider.run("nightly")
    provider.answers()
    pause_over(night)
    killed(night, Wire(night.client), "commit", kind="tick", job=provider.job)
    assert "waits_for_source" not in night.progress()
    night.expire_lease()
    night.put_control(f"PROGRESS#{NIGHT}#1#000", next_attempt_at_ms=night.clock.wall_ms + 60_000)
    assert provider.run() == [(NIGHT, "000", "waiting")]
    wait(night)
    assert provider.run() == [(NIGHT, "000", "completed")]
    assert [reader.attempt for reader in provider.readers] == [1, 1, 2]


@pytest.mark.parametrize("whence", ["checkpoint", "start"])
def test_a_person_who_reruns_a_waiting_night_does_not_wait_for_the_source(
    night: World, provider: Provider, monkeypatch: pytest.MonkeyPatch, whence: str
) -> None:
    provider.pauses("acct-0001")
    provider.run("nightly")
    provider.answers()
    provider.asked.clear()
    with night.deployed(monkeypatch):
        ordered(night, "Rerun", interval=NIGHT, **{"from": whence})
    assert provider.run() == [(NIGHT, "000", "completed")]
    pass_no, first = (1, "acct-0001") if whence == "checkpoint" else (2, None)
    assert provider.asked[0] == (f"{JOB}/{NIGHT}/{pass_no}", "000", first)
    assert night.versions() == dict.fromkeys(numbered(6), 1)


# ---------------------------------------------------------------------------------------------------------- the reader


def test_a_source_is_introduced_to_its_reader_once_an_attempt(night: World, provider: Provider) -> None:
    provider.run("nightly")
    (reader,) = provider.readers
    assert (reader.run_id, reader.attempt, reader.backlog) == (f"{JOB}/{NIGHT}/1", 1, False)
    assert len(provider.asked) == 3


def test_a_source_that_does_not_care_who_reads_it_is_read_all_the_same(night: World) -> None:
    assert [outcome(result) for result in night.run("nightly")] == [(NIGHT, "000", "completed")]


def test_an_attempt_counts_from_the_last_progress(night: World, provider: Provider) -> None:
    def at(stop: str | None) -> Callable[[Reader, str | None], None]:
        def before(reader: Reader, after: str | None) -> None:
            if after == stop:
                raise ValueError("a defect")

        return before

    for stop in (None, None, "acct-0001", "acct-0001", "acct-0001"):
        provider.before = at(stop)
        with pytest.raises(ValueError, match="a defect"):
            provider.run()
        wait(night)
    assert [reader.attempt for reader in provider.readers] == [1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("now", "backlog"),
    [
        (f"{NIGHT}T02:00:05Z", {NIGHT: False}),
        (f"{TOMORROW}T01:59:59Z", {NIGHT: False}),
        (f"{TOMORROW}T02:00:05Z", {NIGHT: True, TOMORROW: False}),
        ("2026-12-01T12:00:00Z", {NIGHT: True, TOMORROW: True, "2026-12-01": False}),
    ],
)
def test_a_night_is_backlog_once_a_newer_one_is_due(
    night: World, provider: Provider, now: str, backlog: dict[str, bool]
) -> None:
    night.clock.set(now)
    provider.run()
    assert {reader.run_id.split("/")[1]: reader.backlog for reader in provider.readers} == backlog


def test_a_rerun_of_an_old_night_is_backlog(night: World, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    night.clock.set(f"{TOMORROW}T03:00:00Z")
    provider.run()
    with night.deployed(monkeypatch):
        ordered(night, "Rerun", interval=NIGHT, force=True)
        ordered(night, "Rerun", interval=TOMORROW, force=True)
    provider.readers.clear()
    provider.run()
    assert [(reader.run_id, reader.backlog) for reader in provider.readers] == [
        (f"{JOB}/{NIGHT}/2", True),
        (f"{JOB}/{TOMORROW}/2", False),
    ]


# -------------------------------------------------------------------------------------------------------- its patience


@pytest.fixture
def patience(night: World, provider: Provider) -> Callable[..., list[float]]:
    """Run, and tell the reader's patience after every of these seconds that the first read of the source has taken.

    The lease is 120 s, a call budget 15 s and the slack 6 s, so that a wait must leave 36 s of the lease and 51 s of
    the invocation.
    """
    night.clock.step_ms = 0

    def tell(*seconds: float, remaining_s: float = 900) -> list[float]:
        told: list[float] = []

        def before(reader: Reader, after: str | None) -> None:
            for one in () if told else seconds:
                night.clock.advance(one)
                told.append(reader.patience_s())

        provider.before = before
        provider.run("nightly", remaining_s=remaining_s)
        return told

    return tell


def test_the_patience_is_a_quarter_of_a_fresh_lease_however_much_time_there_is(patience: Any) -> None:
    assert patience(0, 1, 50, 3) == [30] * 4


def test_the_patience_shrinks_with_the_age_of_the_lease_and_is_never_below_nothing(patience: Any) -> None:
    assert patience(54, 1, 28, 1, 1, 100) == pytest.approx([30, 29, 1, 0, 0, 0])


def test_the_patience_shrinks_with_the_time_left_and_is_never_below_nothing(patience: Any) -> None:
    assert patience(29, 1, 10, 18.5, 0.5, 1, remaining_s=110) == pytest.approx([30, 29, 19, 0.5, 0, 0])


def test_a_commit_renews_the_patience(night: World, provider: Provider) -> None:
    night.clock.step_ms = 0
    told: dict[str | None, list[float]] = {}

    def before(reader: Reader, after: str | None) -> None:
        told[after] = [reader.patience_s()]
        night.clock.advance(60)
        told[after].append(reader.patience_s())

    provider.before = before
    assert provider.run("nightly") == [(NIGHT, "000", "completed")]
    assert told == {None: [30, 24], "acct-0001": [30, 24], "acct-0003": [30, 24]}


# -------------------------------------------------------------------------------------------------------- a preview


@pytest.fixture
def stack(night: World, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Deployed, with the provider as its source."""
    monkeypatch.setattr(
        "reconciler.source.AccountsTable", lambda invocation: ForAReader(provider, AccountsTable(invocation))
    )
    with night.deployed(monkeypatch):
        yield night


def test_a_preview_reads_in_its_own_name_and_at_the_pace_of_a_backlog(stack: World, provider: Provider) -> None:
    assert ordered(stack, "Preview")["granted"] == 6
    (reader,) = provider.readers
    assert (reader.run_id, reader.attempt, reader.backlog) == (f"{JOB}/preview", 1, True)


def test_a_preview_has_as_much_patience_as_the_invocation_and_never_less_than_none(
    stack: World, provider: Provider
) -> None:
    """900 s less one call budget that is kept for the slot's answer, three more, and 6 s of slack."""
    stack.clock.step_ms = 0
    told: list[float] = []

    def before(reader: Reader, after: str | None) -> None:
        for seconds in () if told else (0, 100, 733.5, 0.5, 20):
            stack.clock.advance(seconds)
            told.append(reader.patience_s())

    provider.before = before
    result = ordered(stack, "Preview")
    assert told == pytest.approx([834, 734, 0.5, 0, 0])
    assert (result["complete"], result["next"]) == (False, {"segment": "000", "after": "acct-0001"})


def test_a_pause_ends_a_preview_where_it_is_and_it_goes_on_from_there(stack: World, provider: Provider) -> None:
    provider.pauses("acct-0001")
    told = ordered(stack, "Preview")
    assert (told["accounts"], told["complete"], told["next"]) == (2, False, {"segment": "000", "after": "acct-0001"})
    provider.answers()
    rest = ordered(stack, "Preview", **told["next"])
    assert (rest["accounts"], rest["complete"]) == (4, True)


def test_a_preview_that_could_not_read_anything_is_refused_and_changes_nothing(
    stack: World, provider: Provider
) -> None:
    provider.pauses(None)
    before = everything(stack)
    said = r"^Preview: the source is to be left alone for 1000.0 s: the provider said so: try again then$"
    with pytest.raises(VerbRefused, match=said):
        delivered(stack, command("Preview"))
    assert everything(stack) == before


def test_a_preview_makes_no_night_wait(stack: World, provider: Provider) -> None:
    """It holds no progress to note a pause in; the night asks for itself."""
    provider.pauses(None)
    with pytest.raises(VerbRefused):
        delivered(stack, command("Preview"))
    provider.answers()
    assert delivered(stack, event("nightly"))["outcome"] == "completed"
