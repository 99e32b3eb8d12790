"""Where a rerun begins: at the checkpoint as long as that is still true, else at the start; and what may be rerun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import clock, keys
from reconciler.errors import VerbRefused
from reconciler.intervals import shifted
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, STATES, RunRecord
from reconciler.restart import Start, where_from
from tests.faults import Wire, meanwhile
from tests.kit import (
    begun,
    delivered,
    give_up,
    grants,
    hold,
    killed,
    numbered,
    ordered,
    overtaken,
    refused,
    ticked,
    wait,
)
from tests.world import NIGHT, World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

NEXT = "2026-11-30"
STARTS_ANEW = f"{NEXT} has committed on segment 000 since"
GOES_ON = "no later interval has committed since"


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts to grant, two a page and a range."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        yield live


@pytest.fixture
def broken(night: World) -> World:
    """The night committed one of three ranges and needs repair."""
    give_up(night)
    return night


def goes_by(world: World, interval_id: str = NEXT) -> None:
    """A later interval runs."""
    world.clock.set(f"{interval_id}T02:00:05Z")
    assert (interval_id, "completed") in ticked(world)


# ---------------------------------------------------------------------------------------------------------- the rule

ROW: dict[str, Any] = {
    "sk": keys.interval(NIGHT),
    "run_id": f"entitlements/{NIGHT}/1",
    "pass": 1,
    "rerun": 0,
    "segment_count": 2,
    "scheduled_at": f"{NIGHT}T02:00:00.000Z",
    "deadline_at": f"{NIGHT}T06:00:00.000Z",
    "first_started_at": f"{NIGHT}T02:00:05.000Z",
    "revoked": 0,
    "segments": {},
    "delays": {},
}
generations = st.integers(1, 6)
segments = st.sampled_from(["000", "001"])
own_commits = st.dictionaries(segments, generations.map(lambda one: (2 * one, NIGHT)))
later_commits = st.dictionaries(segments, generations.map(lambda one: (2 * one + 1, NEXT)))


@given(st.sampled_from(STATES), own_commits, later_commits)
def test_a_checkpoint_counts_exactly_while_no_later_interval_has_committed_on_its_segment_since(
    state: str, own: dict[str, tuple[int, str]], later: dict[str, tuple[int, str]]
) -> None:
    since = [one for one in own if one in later and later[one][0] > own[one][0]]
    outdated = bool(since) or state == COMPLETED
    record = RunRecord.of(ROW | {"state": state})
    automatic = where_from(record, None, own, later)
    assert automatic.place == ("start" if outdated else "checkpoint")
    assert where_from(record, "start", own, later) == Start("start", "asked for")
    if outdated:
        with pytest.raises(VerbRefused, match=automatic.why):
            where_from(record, "checkpoint", own, later)
        assert not since or automatic.why == f"{NEXT} has committed on segment {max(since)} since"
    else:
        assert where_from(record, "checkpoint", own, later) == automatic


# --------------------------------------------------------------------------------------- automatic, over whole nights


def test_from_the_checkpoint_while_no_later_interval_has_committed(broken: World) -> None:
    told = ordered(broken, "Rerun", interval=NIGHT)
    assert (told["from"], told["why"], told["pass"]) == ("checkpoint", GOES_ON, 1)
    assert ticked(broken) == [(NIGHT, "completed")]
    assert (broken.interval()["accounts"], broken.interval()["ranges"]) == (6, 3)


def test_a_later_interval_that_merely_started_does_not_count(broken: World) -> None:
    broken.clock.set(f"{NEXT}T02:00:05Z")
    killed(broken, Wire(broken.client), "commit")
    wait(broken)
    assert broken.progress(interval_id=NEXT)["generation"] > broken.progress()["checkpoint_generation"]
    assert ordered(broken, "Rerun", interval=NIGHT)["from"] == "checkpoint"


def test_from_the_start_once_a_later_interval_has_committed_on_the_segment(broken: World) -> None:
    goes_by(broken)
    told = ordered(broken, "Rerun", interval=NIGHT)
    assert (told["from"], told["why"], told["pass"]) == ("start", STARTS_ANEW, 2)
    assert ticked(broken) == [(NIGHT, "completed")]
    assert (broken.interval()["pass"], broken.interval()["accounts"]) == (2, 6)


def test_a_later_interval_that_committed_before_the_last_checkpoint_does_not_count(broken: World) -> None:
    goes_by(broken)
    ordered(broken, "Rerun", interval=NIGHT)
    give_up(broken)
    told = ordered(broken, "Rerun", interval=NIGHT)
    assert (told["from"], told["why"], told["pass"], told["rerun"]) == ("checkpoint", GOES_ON, 2, 2)
    assert ticked(broken) == [(NIGHT, "completed")]
    assert broken.interval()["accounts"] == 6
    goes_by(broken, shifted(NEXT, 1))
    assert ordered(broken, "Rerun", interval=NIGHT, force=True)["pass"] == 3


def test_an_attempt_that_committed_nothing_makes_no_checkpoint_younger(night: World) -> None:
    """The night is taken up again after the next one has committed, and killed before it commits."""
    wire = Wire(night.client)
    killed(night, wire, "commit", 2)
    night.set(backoff_seconds=3600)
    night.clock.set(f"{NEXT}T01:50:00Z")
    killed(night, wire, "commit", kind="tick")
    night.clock.set(f"{NEXT}T02:00:05Z")
    assert ticked(night, 0) == [(NIGHT, "waiting"), (NEXT, "completed")]
    wait(night)
    killed(night, wire, "commit", kind="tick")
    wait(night)
    later = night.progress(interval_id=NEXT)["checkpoint_generation"]
    assert night.progress()["checkpoint_generation"] < later < night.progress()["generation"]
    assert ordered(night, "Rerun", interval=NIGHT)["why"] == STARTS_ANEW


def test_a_rerun_of_the_later_interval_counts_as_well(broken: World) -> None:
    goes_by(broken)
    ordered(broken, "Rerun", interval=NIGHT)
    give_up(broken)
    ordered(broken, "Rerun", interval=NEXT, force=True)
    assert (NEXT, "completed") in ticked(broken)
    assert ordered(broken, "Rerun", interval=NIGHT)["why"] == STARTS_ANEW


@pytest.mark.parametrize(("later", "place"), [("000", "start"), ("001", "checkpoint")])
def test_only_commits_on_the_same_segment_count(
    live: World, monkeypatch: pytest.MonkeyPatch, later: str, place: str
) -> None:
    """The night's only checkpoint is on segment 000; the next one commits on one segment and is killed in the other."""
    world = World(live.client, {"SegmentCount": 2})
    grants(world, *numbered(20))
    with world.deployed(monkeypatch):
        world.set(range_size=2, page_size=2)
        give_up(world)
        world.clock.set(f"{NEXT}T02:00:05Z")
        ticked(world)
        other = "001" if later == "000" else "000"
        world.put_control(keys.progress(NEXT, 1, other), checkpoint=..., checkpoint_generation=...)
        assert ordered(world, "Rerun", interval=NIGHT)["from"] == place


def test_nothing_committed_is_a_checkpoint_too(night: World) -> None:
    give_up(night, ranges=0)
    goes_by(night)
    told = ordered(night, "Rerun", interval=NIGHT)
    assert (told["from"], told["why"], told["pass"]) == ("checkpoint", "nothing was committed yet", 1)
    assert ticked(night) == [(NIGHT, "completed")]


def test_a_segment_that_was_done_without_an_account_counts_as_well(
    client: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no checkpoint: nothing was there to commit."""
    world = World(client, {"SegmentCount": 2})
    names: dict[str, list[str]] = {"000": [], "001": []}
    for name in numbered(20):
        names[keys.segment_of(name, 2)].append(name)
    grants(world, names["001"][0])
    with world.deployed(monkeypatch):
        give_up(world, ranges=0)
        assert list(world.interval()["segments"]) == ["000"]
        grants(world, names["000"][0])
        goes_by(world)
        assert ordered(world, "Rerun", interval=NIGHT)["why"] == STARTS_ANEW
        assert ticked(world) == [(NIGHT, "completed")] * 2
        assert ordered(world, "Verify", interval=NIGHT)["matches"]


# -------------------------------------------------------------------------------------------------- as the person says


def test_from_the_start_when_it_was_asked_for(broken: World) -> None:
    told = ordered(broken, "Rerun", interval=NIGHT, **{"from": "start"})
    assert (told["from"], told["why"], told["pass"]) == ("start", "asked for", 2)
    assert ticked(broken) == [(NIGHT, "completed")]
    assert (broken.interval()["accounts"], broken.interval()["granted"]) == (6, 4), "two were there already"


def test_from_the_checkpoint_when_it_was_asked_for(broken: World) -> None:
    assert ordered(broken, "Rerun", interval=NIGHT, **{"from": "checkpoint"})["why"] == GOES_ON


def test_the_checkpoint_is_refused_when_a_later_interval_has_committed_since(broken: World) -> None:
    goes_by(broken)
    assert STARTS_ANEW in refused(broken, "Rerun", interval=NIGHT, **{"from": "checkpoint"})


@pytest.mark.parametrize("asked", [{}, {"force": False}, {"from": "start"}, {"from": "checkpoint"}])
def test_a_completed_interval_needs_force(night: World, asked: dict[str, Any]) -> None:
    assert delivered(night, event("nightly"))["outcome"] == "completed"
    assert f"{NIGHT} is COMPLETED: `force`" in refused(night, "Rerun", interval=NIGHT, **asked)
    if asked.get("from") == "checkpoint":
        assert "leave `from` out" in refused(night, "Rerun", interval=NIGHT, **asked | {"force": True})
    else:
        assert ordered(night, "Rerun", interval=NIGHT, **asked | {"force": True})["pass"] == 2


# ------------------------------------------------------------------------------------------------- what may be rerun


@pytest.mark.parametrize("state", [EXPECTED, SKIPPED, RUNNING, NEEDS_REPAIR])
def test_force_is_needed_for_no_other_state(night: World, state: str) -> None:
    if state == SKIPPED:
        ordered(night, "Skip", interval=NIGHT)
    elif state == EXPECTED:
        assert ticked(night, remaining_s=60) == [(NIGHT, "out_of_time")]
    elif state == RUNNING:
        killed(night, Wire(night.client), "commit", 2)
        wait(night)
    else:
        give_up(night)
    assert night.interval()["state"] == state
    told = ordered(night, "Rerun", interval=NIGHT)
    assert (told["state_before"], told["from"], told["pass"]) == (state, "checkpoint", 1)
    row = night.interval()
    assert (row["state"], row["rerun"], "skip" in row) == (RUNNING, 1, False)
    assert ticked(night) == [(NIGHT, "completed")]
    assert night.events()[-2:] == [{RUNNING: "RESUMED", NEEDS_REPAIR: "RESUMED"}.get(state, "STARTED"), "COMPLETED"]


@pytest.mark.parametrize(("past_s", "recorded"), [(-1, True), (0, True), (1, False)])
def test_an_unrecorded_interval_is_taken_up_inside_the_window_and_refused_outside(
    night: World, past_s: int, recorded: bool
) -> None:
    """The window is three days, to the second of the command."""
    assert ticked(night) == [(NIGHT, "completed")]
    before = night.row("CONTROL")
    oldest = shifted(NIGHT, -3)
    night.clock.step_ms = 0
    night.clock.set(clock.text(clock.parse_ms(f"{NIGHT}T02:00:00Z") + past_s * 1000))
    if not recorded:
        why = refused(night, "Rerun", interval=oldest)
        assert f"{oldest} is not on record: the first one is {NIGHT}" in why
        assert "within 3 days" in why
        assert night.row("CONTROL") == before
        return
    assert ordered(night, "Rerun", interval=oldest)["pass"] == 1
    row = night.row("CONTROL")
    assert (row["first_interval"], row["open_from"]) == (oldest, oldest)
    later = [shifted(NIGHT, -2), shifted(NIGHT, -1)]
    assert ticked(night, 0) == [(one, "completed") for one in (oldest, *later)], "those between are not missed"
    assert night.row("CONTROL")["open_from"] == NEXT


def test_a_refused_rerun_adds_no_interval(night: World) -> None:
    """A worker takes the lease while the command is decided."""
    night.run(remaining_s=60)
    early = shifted(NIGHT, -2)
    Wire(night.client).next("verb", meanwhile(lambda: hold(night, "quicker")))
    assert "quicker holds segment 000" in overtaken(night, "Rerun", interval=early)
    assert night.row("CONTROL")["first_interval"] == night.row("CONTROL")["open_from"] == NIGHT
    assert not night.has(keys.interval(early))


@pytest.mark.parametrize("named", [-1, -2, -3])
def test_a_rerun_that_meets_a_late_trigger_for_an_earlier_night_adds_none_twice(night: World, named: int) -> None:
    begun(night)
    early, before_that = shifted(NIGHT, named), shifted(NIGHT, -2)
    night.clock.set(f"{NIGHT}T01:30:00Z")
    trigger = event("nightly", f"{before_that}T02:00:00Z")
    Wire(night.client).next("verb", meanwhile(lambda: delivered(night, trigger, 60)))
    told = ordered(night, "Rerun", interval=early)
    assert told["added"] == ([early] if early < before_that else [])
    first = min(early, before_that)
    assert night.row("CONTROL")["first_interval"] == night.row("CONTROL")["open_from"] == first
    due = [shifted(first, days) for days in range(4) if shifted(first, days) < NIGHT]
    assert ticked(night, 0) == [(one, "completed") for one in due]
    assert [night.events(one).count("COMPLETED") for one in due] == [1] * len(due)


def test_the_first_command_of_a_new_stack_may_be_a_rerun(night: World) -> None:
    assert ordered(night, "Rerun", interval=NIGHT)["state_before"] == EXPECTED
    assert ticked(night) == [(NIGHT, "completed")]
    assert night.events() == ["OBSERVED", "RERUN", "STARTED", "COMPLETED"]


def test_an_interval_that_is_not_due_yet_is_refused(night: World) -> None:
    assert ticked(night) == [(NIGHT, "completed")]
    night.clock.set(f"{NEXT}T01:58:00Z")
    assert f"{NEXT} is not on record: it is not due yet" in refused(night, "Rerun", interval=NEXT)
