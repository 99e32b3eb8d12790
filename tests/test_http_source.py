"""The HTTP source against a real server: what it sends, what it survives, and what it never does."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from reconciler import clock, http_wire, keys, read_ahead, source_token
from reconciler.errors import OutOfTime, SourceInvalid, SourceOrderError, TransientFailure, VerbRefused
from reconciler.http_source import HttpSource
from reconciler.provider_answers import MAX_BODY_BYTES, storable_id
from tests.faults import NEVER_SENT, PASS, Wire, cancelled, meanwhile
from tests.kit import (
    AtOnce,
    Killed,
    delivered,
    everything,
    kill,
    later,
    logged,
    measured,
    numbered,
    ordered,
    ticked,
    wait,
)
from tests.providers import ODD_IDS, from_provider, killed_reading, night, source
from tests.providers import everything as every_id
from tests.world import JOB, NIGHT, ManualClock, World, event
from tools.provider import Provider

SECRET_NAME = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:provider"
TOKEN = "t0k3n-9f41~x/y+z=="
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    yield
    source_token._secrets.cache_clear()
    http_wire._pools.cache_clear()


def stock(provider: Provider, count: int) -> list[str]:
    """So many accounts; their ids."""
    for name in numbered(count):
        provider.put(name, plan="gold")
    return numbered(count)


def granted(names: list[str]) -> dict[str, dict[str, str]]:
    return {name: {"plan": "gold"} for name in names}


# what is sent


def test_a_page_is_asked_for_by_the_last_account_and_says_who_asks(world: World, provider: Provider) -> None:
    world.set(page_size=2)
    names = stock(provider, 5)
    (result,) = night(world, "nightly")
    assert (result.outcome, result.accounts) == ("completed", 5)
    assert world.view() == granted(names)
    assert [(asked.after, asked.limit, asked.segment) for asked in provider.asked] == [
        (None, 2, None),
        ("acct-0001", 2, None),
        ("acct-0003", 2, None),
    ]
    assert {(asked.run_id, asked.attempt, asked.agent, asked.cache) for asked in provider.asked} == {
        (f"{JOB}/{NIGHT}/1", "1", "reconciler", "no-cache")
    }


def test_an_attempt_says_its_number(world: World, provider: Provider) -> None:
    stock(provider, 1)
    provider.fail("status:404")
    with pytest.raises(SourceInvalid):
        night(world, "nightly")
    wait(world)
    night(world)
    assert [asked.attempt for asked in provider.asked] == ["1", "2"]


def test_a_job_name_that_no_header_holds_is_written_out(world: World, provider: Provider) -> None:
    world.set(job_name="réconcilier\r\nX-Evil: 1")
    every_id(HttpSource(world.invocation()), 5)
    assert [asked.run_id for asked in provider.asked] == ["r%C3%A9concilier%0D%0AX-Evil%3A%201"]


@pytest.mark.parametrize("segments", [2, 3])
def test_each_segment_asks_for_its_own_accounts(client: Any, segments: int) -> None:
    world = World(client, SEGMENT_COUNT=segments)
    with Provider(now=world.clock.monotonic) as provider:
        world.set(source="http", source_url=provider.url, page_size=2, backfill_requests_per_second=segments)
        names = stock(provider, 9)
        assert [result.outcome for result in night(world, "nightly")] == ["completed"] * segments
    assert world.view() == granted(names)
    assert {asked.segment for asked in provider.asked} == set(keys.segments(segments))


def test_an_account_of_another_segment_is_refused_since_it_would_be_written_twice(client: Any) -> None:
    world = World(client, SEGMENT_COUNT=2)
    with Provider(now=world.clock.monotonic) as provider:
        world.set(source="http", source_url=provider.url)
        stock(provider, 30)
        text = json.dumps([json.loads(account) for account in provider.accounts.values()])
        provider.always = f'body:{{"accounts": {text}, "next": null}}'
        with pytest.raises(SourceInvalid, match=r"does not belong to segment 00[01] of 2"):
            night(world, "nightly")
    assert world.view() == {}


@pytest.mark.field("B31")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_every_id_arrives_once_and_as_it_is(world: World, provider: Provider, limit: int) -> None:
    for name in ODD_IDS:
        provider.put(name)
    assert every_id(source(world), limit) == sorted(ODD_IDS)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("odd", [1, 3, 12])
def test_accounts_with_lone_surrogates_are_got_beyond_with_pages_of_any_size(
    world: World, provider: Provider, limit: int, odd: int
) -> None:
    """No page can be asked for behind one of them: all that share its beginning are repeated, however many they are."""
    names = [
        "a",
        "a\ud7ff",
        "a\ud7ffz",
        *(f"a\ud800{index:02}" for index in range(odd)),
        "a\ue000",
        "b",
        "b\udfff",
        "c",
    ]
    for name in names:
        provider.accounts[name] = json.dumps({"account_id": name, "status": "active", "entitlements": {}})
    side = source(world)
    assert every_id(side, limit) == [storable_id(name) for name in names]
    for name in names:
        page = side.read("000", after=storable_id(name), upto=None, limit=limit)
        later = [storable_id(other) for other in names[names.index(name) + 1 :]]
        assert [row.account_id for row in page.rows] == later[: len(page.rows)]
        assert bool(page.rows) == bool(later)
        assert len(page.rows) <= limit


def test_a_page_that_can_never_reach_beyond_lone_surrogates_fails_instead_of_being_asked_for_ever(
    world: World, provider: Provider
) -> None:
    world.set(page_size=1)
    page = {"accounts": [{"account_id": "a\ud800"}], "next": "a\ud800"}
    provider.fail("", *[f"body:{json.dumps(page)}"] * 50)
    provider.accounts["a\ud800"] = json.dumps(page["accounts"][0])
    provider.put("b")
    side = source(world)
    on = side.read("000", after=None, upto=None, limit=1).more_after
    with pytest.raises(SourceInvalid, match="a page of 10000 accounts is not enough"):
        side.read("000", after=on, upto=None, limit=1)
    assert [asked.limit for asked in provider.asked] == [1, 1, 10, 100, 1_000, 10_000]


def test_a_plus_is_a_plus_and_a_space_is_none(world: World, provider: Provider) -> None:
    for name in ("a b", "a+b", "a%20b"):
        provider.put(name)
        page = source(world).read("000", after=name, upto=None, limit=1)
        assert (page.rows, provider.asked[-1].after) == ((), name)
        provider.accounts.clear()


@pytest.mark.field("B27")
def test_a_continue_key_with_nothing_left_and_an_empty_page_with_one_are_no_ends_of_their_own(
    world: World, provider: Provider
) -> None:
    world.set(page_size=2)
    stock(provider, 4)
    world.view_row("acct-0003", plan="silver")
    provider.fail("stuck:acct-", "", "", "stuck:acct-0003~")
    (result,) = night(world, "nightly")
    assert (result.outcome, result.accounts) == ("completed", 4)
    assert [asked.after for asked in provider.asked] == [None, "acct-", "acct-0001", "acct-0001", "acct-0003~"][
        : len(provider.asked)
    ]
    assert world.events().count("COMPLETED") == 1
    assert night(world) == []


@pytest.mark.field("B29")
def test_an_account_that_is_gone_is_gone_on_behind(world: World, provider: Provider) -> None:
    world.set(page_size=3)
    names = stock(provider, 9)
    wire = Wire(world.client)
    wire.next("commit", PASS, meanwhile(kill))
    with suppress(Killed):
        night(world, "nightly")
    checkpoint = world.progress()["checkpoint"]
    del provider.accounts[checkpoint]
    provider.put("acct-0000a", plan="gold")  # behind: next night's
    provider.put("acct-0005a", plan="gold")
    (result,) = later(world, job=from_provider)
    assert (result.outcome, result.resumed_after) == ("completed", checkpoint)
    assert set(world.view()) == {*names, "acct-0005a"}
    assert set(world.versions().values()) == {1}


# connections


def test_warm_invocations_use_the_connection_again(world: World, provider: Provider) -> None:
    world.set(page_size=1)
    stock(provider, 5)
    night(world, "nightly")
    wait(world)
    world.clock.advance(86_400)
    night(world)
    assert {asked.run_id for asked in provider.asked} >= {f"{JOB}/{NIGHT}/1", f"{JOB}/2026-11-30/1"}
    assert {asked.connection for asked in provider.asked} == {1}


def test_a_connection_that_the_provider_closed_meanwhile_costs_nothing(world: World, provider: Provider) -> None:
    world.set(page_size=2)
    stock(provider, 6)
    provider.arrives = lambda: provider.hang_up() if len(provider.asked) == 2 else None
    (result,) = night(world, "nightly")
    assert result.outcome == "completed"
    assert len(provider.asked) <= 4
    assert max(asked.connection for asked in provider.asked) == 2


def test_a_long_answer_that_is_not_read_spoils_no_connection(world: World, provider: Provider) -> None:
    stock(provider, 3)
    provider.fail(f"long:{MAX_BODY_BYTES + 1}")
    side = source(world)
    with pytest.raises(SourceInvalid, match=f"{MAX_BODY_BYTES} bytes: lower PAGE_SIZE"):
        every_id(side, 10)
    assert every_id(side, 10) == numbered(3)


def test_an_answer_as_long_as_the_bound_is_read(world: World, provider: Provider) -> None:
    stock(provider, 3)
    provider.fail(f"long:{MAX_BODY_BYTES}")
    assert every_id(source(world), 10) == numbered(3)


def test_no_proxy_of_the_environment_is_asked(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    stock(provider, 3)
    assert every_id(source(world), 10) == numbered(3)


# answers that are wrong


@pytest.mark.parametrize(
    ("faults", "error", "requests"),
    [
        (["cut"] * 3, TransientFailure, 3),
        (["hang-up"] * 3, TransientFailure, 3),
        (["status:500"] * 3, TransientFailure, 3),
        (["throttle"] * 3, TransientFailure, 3),
        (["truncated"] * 3, SourceInvalid, 3),
        (["body:<html>"] * 3, SourceInvalid, 3),
        (["type:text/html"] * 3, SourceInvalid, 3),
        (["no-next"] * 3, SourceInvalid, 3),
        (["cut", "throttle", "no-next"], SourceInvalid, 3),
        (["status:410"], SourceInvalid, 1),
        (["redirect"], SourceInvalid, 1),
        (["status:401"], SourceInvalid, 1),
        (["shuffled"], SourceOrderError, 1),
        (["twice"], SourceOrderError, 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
@pytest.mark.parametrize("at", [1, 2])
def test_a_wrong_answer_ends_the_attempt_and_never_harms_the_view(
    world: World, provider: Provider, faults: list[str], error: type[Exception], requests: int, at: int
) -> None:
    """On the first page or on the second: the view holds what was committed, and the next attempt completes."""
    world.set(page_size=2, max_revocations=0)
    names = stock(provider, 6)
    for name in names:
        world.view_row(name, plan="silver")
    provider.fail(*[""] * (at - 1), *faults)
    with pytest.raises(error):
        night(world, "nightly")
    assert len(provider.asked) == at - 1 + requests
    assert sum(entitlements == {"plan": "gold"} for entitlements in world.view().values()) == 2 * (at - 1)
    assert world.progress()["attempts"] == (0 if error is TransientFailure or at == 2 else 1)
    assert world.interval()["last_error"]["error"] == error.__name__
    (result,) = later(world, job=from_provider)
    assert result.outcome == "completed"
    assert world.view() == granted(names)


@pytest.mark.parametrize(
    "fault", ["cut", "hang-up", "status:502", "truncated", "no-next", "type", "throttle", "throttle:0"]
)
def test_two_wrong_answers_are_only_two_requests_more(world: World, provider: Provider, fault: str) -> None:
    names = stock(provider, 3)
    provider.fail(fault, fault)
    (result,) = night(world, "nightly")
    assert (result.outcome, len(provider.asked)) == ("completed", 3)
    assert set(world.view()) == set(names)


@pytest.mark.parametrize("on", ["acct-0001", "acct-0000", ""])
def test_a_page_that_does_not_lead_on_is_no_end_and_no_circle(world: World, provider: Provider, on: str) -> None:
    world.set(page_size=2)
    stock(provider, 6)
    provider.fail("", f"stuck:{on}")
    with pytest.raises(SourceOrderError, match=f"says to go on after '{on}'"):
        night(world, "nightly")


@pytest.mark.field("B31")
def test_a_page_is_repeated_and_that_is_noticed(world: World, provider: Provider) -> None:
    world.set(page_size=2)
    stock(provider, 6)
    first = provider.page({"limit": "2"}).rendered().decode()
    provider.fail("", f"body:{first}")
    with pytest.raises(SourceOrderError, match="'acct-0000' came after 'acct-0001'"):
        night(world, "nightly")


def test_order_is_judged_before_anything_is_cut_off(world: World, provider: Provider) -> None:
    """Behind an account out of order, another within the bounds would seem to be absent."""
    stock(provider, 4)
    swapped = [provider.accounts[name] for name in ("acct-0000", "acct-0003", "acct-0001")]
    provider.fail(f'body:{{"accounts": [{", ".join(swapped)}], "next": null}}')
    with pytest.raises(SourceOrderError, match="'acct-0001' came after 'acct-0003'"):
        source(world).read("000", after=None, upto="acct-0002", limit=10)


@pytest.mark.parametrize(
    ("upto", "found", "more_after"),
    [
        ("acct-0000", 1, None),
        ("acct-0001", 2, None),
        ("acct-0001~", 2, "acct-0001"),
        ("zz", 2, "acct-0001"),
        (None, 2, "acct-0001"),
    ],
)
def test_what_lies_beyond_the_bounds_is_cut_off(
    world: World, provider: Provider, upto: str | None, found: int, more_after: str | None
) -> None:
    stock(provider, 4)
    page = source(world).read("000", after=None, upto=upto, limit=2)
    assert [record.account_id for record in page.rows] == numbered(found)
    assert page.more_after == more_after


def test_a_redirect_is_not_followed(world: World, provider: Provider) -> None:
    with Provider() as elsewhere:
        provider.fail(f"redirect:{elsewhere.url}/accounts")
        with pytest.raises(SourceInvalid, match=r"answered 302, to '127\.0\.0\.1': redirects are not followed"):
            night(world, "nightly")
        assert elsewhere.asked == []


def test_more_accounts_than_were_asked_for_are_refused(world: World, provider: Provider) -> None:
    """A provider that takes no notice of `limit` may take none of `after` either."""
    world.set(page_size=2)
    stock(provider, 3)
    provider.always = f"body:{provider.page({'limit': '3'}).rendered().decode()}"
    with pytest.raises(SourceInvalid, match="answered 3 accounts, where 2 were asked for"):
        night(world, "nightly")
    assert world.view() == {}


def test_an_id_that_no_address_holds_fails_the_attempt_and_is_cut_where_it_is_told(
    world: World, provider: Provider
) -> None:
    provider.put("z" * 420_000)
    with logged() as lines, pytest.raises(SourceInvalid, match=r"an id is longer than 4096 bytes: 'z{60}'"):
        night(world, "nightly")
    assert "z" * 61 not in repr(lines) + repr(everything(world))


def test_no_id_of_any_length_is_told_whole(world: World, provider: Provider) -> None:
    for name in ("a" * 4_096, "b" * 4_096):
        provider.put(name)
    provider.fail("shuffled", f"stuck:{'c' * 4_096}")
    for after in (None, "c" * 4_096):
        with pytest.raises(SourceOrderError) as error:
            source(world).read("000", after=after, upto=None, limit=2)
        assert len(str(error.value)) < 250


# time


@pytest.mark.field("B43")
@pytest.mark.parametrize("fault", ["slow:6", "drip:0.1"])
def test_an_answer_that_takes_too_long_is_given_up(world: World, provider: Provider, fault: str) -> None:
    """Every byte of a dripping answer comes in time; all of it would take a minute, and one answer may take 0.5 s."""
    world.set(read_timeout_seconds=0.5, sdk_max_attempts=2)
    stock(provider, 6)
    provider.always = fault
    with pytest.raises(TransientFailure, match=f"no complete answer from {provider.url}: ReadTimeoutError"):
        night(world, "nightly")
    assert len(provider.asked) == 2


@pytest.mark.field("B43")
def test_headers_that_drip_are_given_up_too(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        world.set(source="http", source_url=f"http://127.0.0.1:{server.getsockname()[1]}", read_timeout_seconds=0.5)
        dripping = subprocess.Popen(
            [sys.executable, "-c", DRIPPING_HEADERS, str(server.fileno())], pass_fds=[server.fileno()]
        )
        try:
            with pytest.raises(TransientFailure, match="ReadTimeoutError"):
                night(world, "nightly")
        finally:
            dripping.kill()
            dripping.wait()


DRIPPING_HEADERS = """
import socket, sys, threading, time
def drip(connection):
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n")
    while True:
        time.sleep(0.1)
        connection.sendall(b"x")
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    threading.Thread(target=drip, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.mark.field("B43")
def test_a_provider_that_is_not_there_is_named(world: World, provider: Provider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    world.set(source_url=f"http://127.0.0.1:{port}/v1")
    with pytest.raises(TransientFailure, match=f"no complete answer from http://127.0.0.1:{port}/v1: "):
        night(world, "nightly", remaining_s=90)
    assert world.progress()["attempts"] == 0
    assert "owner" not in world.lease()


def test_a_worker_that_was_frozen_sends_nothing_when_it_wakes_up(world: World, provider: Provider) -> None:
    """It is frozen while it waits for its turn; its lease is another's when it goes on."""
    stock(provider, 3)
    patience = iter([30.0, 30.0, 0.0])
    with pytest.raises(OutOfTime):
        source(world, lambda: next(patience)).read("000", after=None, upto=None, limit=2)
    assert provider.asked == []


class Freezing(ManualClock):
    """The process is frozen in its third sleep, for longer than a lease lasts."""

    sleeps = 0

    def sleep(self, seconds: float) -> None:
        Freezing.sleeps += 1
        self.advance(10_000 if Freezing.sleeps == 3 else seconds)


def test_a_frozen_worker_leaves_the_provider_alone_and_the_night_completes(world: World, provider: Provider) -> None:
    world.set(page_size=2)
    world.clock = Freezing()
    names = stock(provider, 6)
    (result, *_) = night(world, "nightly", remaining_s=100_000)
    assert (result.outcome, result.ranges) == ("yielded", len(provider.asked))
    assert Freezing.sleeps == 3
    (result,) = later(world, job=from_provider)
    assert result.outcome == "completed"
    assert set(world.view()) == set(names)


# pauses that the provider asks for


def test_a_short_pause_is_waited_for(world: World, provider: Provider) -> None:
    stock(provider, 3)
    provider.fail("throttle:7", "unavailable:2.5")
    (result,) = night(world, "nightly")
    assert result.outcome == "completed"
    first, second, third = [asked.at for asked in provider.asked]
    assert (second - first >= 7, third - second >= 2.5) == (True, True)


def test_a_pause_until_a_date_is_waited_for(world: World, provider: Provider) -> None:
    stock(provider, 3)
    until = datetime.fromtimestamp(world.clock.wall_ms // 1000, UTC) + timedelta(seconds=12)
    provider.fail(f"unavailable:{until:%a, %d %b %Y %H:%M:%S} GMT")
    night(world, "nightly")
    _, second = provider.asked
    began_ms = clock.parse_ms(f"{NIGHT}T02:00:05Z")
    assert began_ms + (second.at - 1000) * 1000 >= until.timestamp() * 1000


@pytest.mark.parametrize(("asked", "waits_s"), [("31", 31), ("3600", 3600), ("999999", 3600)])
def test_no_lease_is_held_through_a_long_pause(world: World, provider: Provider, asked: str, waits_s: float) -> None:
    """A quarter of the lease is 30 s."""
    world.set(page_size=2)
    names = stock(provider, 4)
    provider.fail("", f"throttle:{asked}")
    began = world.clock.monotonic()
    (result,) = night(world, "nightly")
    assert result.outcome == "yielded"
    assert world.clock.monotonic() - began < 30
    assert "owner" not in world.lease()
    progress = world.progress()
    assert (progress["attempts"], progress["waits_for_source"]) == (0, True)
    assert progress["next_attempt_at_ms"] == pytest.approx(world.clock.wall_ms + waits_s * 1000, abs=2_000)
    assert [result.outcome for result in night(world)] == ["source_waits"]
    assert len(provider.asked) == 2
    world.clock.advance(waits_s)
    assert [result.outcome for result in night(world)] == ["completed"]
    assert set(world.view()) == set(names)


def test_an_older_night_that_waits_for_the_provider_is_not_overtaken(world: World, provider: Provider) -> None:
    stock(provider, 2)
    world.clock.set("2026-11-30T02:00:05Z")
    provider.fail("throttle:600")
    outcomes = [result.outcome for result in night(world, "nightly", time=f"{NIGHT}T02:00:00Z")]
    assert outcomes == ["yielded"]
    assert len(provider.asked) == 1


def test_a_provider_that_throttles_for_hours_costs_no_attempts(world: World, provider: Provider) -> None:
    names = stock(provider, 3)
    provider.always = "throttle:600"
    for _ in range(2 * world.settings.max_attempts):
        night(world)
        world.clock.advance(600)
    provider.always = ""
    (result,) = night(world)
    assert result.outcome == "completed"
    assert set(world.view()) == set(names)
    assert len(provider.asked) == 2 * world.settings.max_attempts + 1


@pytest.mark.parametrize("asked", ["0", "-5", "1", "8"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_provider_that_throttles_on_after_short_pauses_is_backed_off_from(
    world: World, provider: Provider, asked: str, attempts: int
) -> None:
    """What it asks for does not help, so that its pause is not the one to come back after."""
    world.set(sdk_max_attempts=attempts)
    stock(provider, 3)
    provider.always = f"throttle:{asked}"
    with pytest.raises(TransientFailure, match="answered 429"):
        night(world, "nightly")
    progress = world.progress()
    assert (progress["attempts"], "waits_for_source" in progress) == (0, False)
    backoff_ms = world.settings.backoff_seconds * 1000
    assert backoff_ms / 2 - 1_000 <= progress["next_attempt_at_ms"] - world.clock.wall_ms <= backoff_ms
    assert len(provider.asked) == attempts


def test_a_pause_that_the_backoff_might_cut_short_is_kept(world: World, provider: Provider) -> None:
    stock(provider, 3)
    half_s = world.settings.backoff_seconds / 2
    provider.fail(*["throttle:1"] * 2, f"throttle:{half_s:g}")
    assert [result.outcome for result in night(world, "nightly")] == ["yielded"]
    progress = world.progress()
    assert progress["waits_for_source"]
    assert progress["next_attempt_at_ms"] == pytest.approx(world.clock.wall_ms + half_s * 1000, abs=2_000)


def test_what_reading_cost_is_measured(world: World, provider: Provider) -> None:
    stock(provider, 3)
    provider.fail("throttle:7")
    with measured() as values:
        night(world, "nightly")
    assert (values["SourceRequests"], values["SourceThrottled"]) == ([2], [1])
    assert values["SourceWaitSeconds"] == [pytest.approx(8, abs=0.1)], "the pace's first second, the provider's seven"


def test_a_preview_tells_what_it_has_seen_when_the_provider_wants_a_pause(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set(page_size=2)
    stock(provider, 6)
    provider.fail("", "throttle:3600")
    with world.deployed(monkeypatch):
        told = ordered(world, "Preview")
        assert (told["complete"], told["accounts"], told["next"]["after"]) == (False, 2, "acct-0001")
        assert ordered(world, "Preview", after="acct-0001")["granted"] == 4
        provider.always = "throttle:3600"
        with pytest.raises(VerbRefused, match="to be left alone for 3600"):
            ordered(world, "Preview")
    assert {asked.run_id for asked in provider.asked} == {f"{JOB}/preview"}


# the token


@pytest.fixture
def secret(world: World, provider: Provider) -> Any:
    """Secrets Manager with the provider's token."""
    secrets = boto3.client("secretsmanager")
    world.set(source_token_secret=secrets.create_secret(Name="provider", SecretString=TOKEN)["ARN"])
    provider.token = TOKEN
    return secrets


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that the secret is read."""
    reads: list[str] = []
    make = boto3.client

    def client(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        made.meta.events.register("before-call.secretsmanager.GetSecretValue", lambda **_: reads.append("read"))
        return made

    monkeypatch.setattr(boto3, "client", client)
    return reads


def test_the_token_is_fetched_once(world: World, provider: Provider, secret: Any, fetched: list[str]) -> None:
    world.set(page_size=1)
    stock(provider, 5)
    (result,) = night(world, "nightly")
    assert (result.outcome, fetched) == ("completed", ["read"])
    config = source_token._secrets(world.settings).client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (1, 3)


def test_a_token_that_changed_is_fetched_anew(
    world: World, provider: Provider, secret: Any, fetched: list[str]
) -> None:
    world.set(page_size=2)
    stock(provider, 6)

    def rotate() -> None:
        if len(provider.asked) == 2:
            provider.token = "another"
            secret.put_secret_value(SecretId=world.settings.source_token_secret, SecretString="another\n")

    provider.arrives = rotate
    (result,) = night(world, "nightly")
    assert (result.outcome, len(provider.asked), len(fetched)) == ("completed", 4, 2)


def test_a_token_that_is_refused_anew_ends_the_attempt(
    world: World, provider: Provider, secret: Any, fetched: list[str]
) -> None:
    provider.token = "another"
    with pytest.raises(SourceInvalid, match="refused the token: 401"):
        night(world, "nightly")
    assert (len(provider.asked), len(fetched)) == (2, 2)


def test_a_token_that_was_refused_is_not_used_again_even_with_one_request_for_a_page(
    world: World, provider: Provider, secret: Any, fetched: list[str]
) -> None:
    world.set(sdk_max_attempts=1)
    names = stock(provider, 3)
    provider.token = "another"
    with pytest.raises(SourceInvalid, match="refused the token: 401"):
        night(world, "nightly")
    secret.put_secret_value(SecretId=world.settings.source_token_secret, SecretString="another")
    (result,) = later(world, job=from_provider)
    assert (result.outcome, len(fetched)) == ("completed", 2)
    assert set(world.view()) == set(names)


@pytest.mark.parametrize(
    "text", [f"{TOKEN} x", f"{TOKEN}\r\nX: y", f'{{"token": "{TOKEN}"}}', f"{TOKEN}é", f"Bearer {TOKEN}"]
)
def test_a_secret_that_no_header_holds_is_refused_without_being_shown(
    world: World, provider: Provider, secret: Any, text: str
) -> None:
    secret.put_secret_value(SecretId=world.settings.source_token_secret, SecretString=text)
    with logged() as lines, pytest.raises(SourceInvalid, match=r"the secret arn:.* is no bearer token") as error:
        night(world, "nightly")
    assert provider.asked == []
    assert TOKEN not in "".join(traceback.format_exception(error.value)) + repr(lines) + repr(everything(world))


def test_a_secret_of_bytes_is_refused(world: World, provider: Provider, secret: Any) -> None:
    secret.put_secret_value(SecretId=world.settings.source_token_secret, SecretBinary=b"\xff")
    with pytest.raises(SourceInvalid, match="is no bearer token"):
        night(world, "nightly")


def test_a_secret_that_is_not_there_is_named(world: World, provider: Provider) -> None:
    world.set(source_token_secret=SECRET_NAME)
    with pytest.raises(SourceInvalid, match=f"the secret {SECRET_NAME} was not read: .*ResourceNotFoundException"):
        night(world, "nightly")


def test_a_secrets_manager_that_does_not_answer_gives_the_attempt_back(
    world: World, provider: Provider, secret: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    client = boto3.client("secretsmanager", endpoint_url=f"http://127.0.0.1:{port}")
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    monkeypatch.setattr(client, "get_secret_value", refuse)
    with pytest.raises(TransientFailure, match="was not read: EndpointConnectionError"):
        night(world, "nightly")
    assert world.progress()["attempts"] == 0


def refuse(**_: object) -> None:
    from botocore.exceptions import EndpointConnectionError

    raise EndpointConnectionError(endpoint_url="http://secrets")


@pytest.mark.parametrize(
    "fault", ["status:403", "status:500", "cut", "hang-up", "body:x", "redirect", "shuffled", "throttle", "no-next"]
)
def test_no_token_and_no_payload_gets_into_a_line_a_row_or_an_error(
    world: World, provider: Provider, secret: Any, fault: str
) -> None:
    for name in numbered(4):
        provider.put(name, plan="s3cr3t-payload")
    provider.always = fault
    with logged() as lines, pytest.raises((SourceInvalid, SourceOrderError, TransientFailure)) as error:
        night(world, "nightly")
    told = "".join(traceback.format_exception(error.value)) + repr(lines) + repr(everything(world))
    chained: BaseException | None = error.value
    while chained is not None:
        told += repr(chained)
        chained = chained.__cause__ or chained.__context__
    assert TOKEN not in told
    assert "s3cr3t-payload" not in told


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of one's own for 127.0.0.1, with its key in the same file."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "provider")])
    now = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "provider.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def tls_provider(world: World, certificate: Path) -> Iterator[Provider]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with Provider(tls=tls) as provider:
        world.set(source="http", source_url=provider.url, page_size=2)
        stock(provider, 5)
        yield provider


def test_a_certificate_that_nobody_vouches_for_is_refused(world: World, tls_provider: Provider) -> None:
    with pytest.raises(SourceInvalid, match="certificate is not trusted: self-signed certificate"):
        night(world, "nightly")
    assert tls_provider.asked == []


def test_a_certificate_of_ones_own_is_trusted_when_it_is_named(
    world: World, tls_provider: Provider, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    (result,) = night(world, "nightly")
    assert (result.outcome, {asked.connection for asked in tls_provider.asked}) == ("completed", {1})


@pytest.mark.field("B43")
def test_an_answer_that_drips_is_given_up_over_tls_too(
    world: World, tls_provider: Provider, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    world.set(read_timeout_seconds=0.5, sdk_max_attempts=1)
    tls_provider.always = "drip:0.1"
    with pytest.raises(TransientFailure, match="ReadTimeoutError"):
        night(world, "nightly")


# interruptions


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kills", [0, 1, 5, 20])
def test_a_night_costs_its_pages_and_at_most_three_requests_for_each_interruption(
    world: World, provider: Provider, kills: int, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in turn when a page was answered, before a commit, and after one; some attempts make no progress."""
    pages = 25
    monkeypatch.setattr(read_ahead, "ThreadPoolExecutor", AtOnce)
    world.set(page_size=4, range_size=4, read_ahead=ahead)
    names = stock(provider, 4 * pages)
    for name in names:
        world.view_row(name, plan="gold" if name.endswith(("1", "5")) else "silver")
    wire = Wire(world.client)
    for number in range(kills):
        if number % 3 == 0:
            with killed_reading(1 + number % 2):
                night(world, "nightly")
        else:
            wire.next("commit", *[PASS] * (number % 2), meanwhile(kill))
            with suppress(Killed):
                night(world, "nightly")
        assert world.interval()["state"] == "RUNNING"
        wait(world)
    wire.next("commit")
    assert [result.outcome for result in night(world, "nightly")] == ["completed"]
    assert world.view() == granted(names)
    assert pages <= len(provider.asked) <= pages + (2 + ahead) * kills


@pytest.mark.field("B37")
def test_a_checkpoint_that_was_not_saved_is_asked_from_again(world: World, provider: Provider) -> None:
    world.set(page_size=2)
    names = stock(provider, 6)
    wire = Wire(world.client)
    wire.next("commit", PASS, then=NEVER_SENT)
    with pytest.raises(TransientFailure):
        night(world, "nightly")
    assert world.progress()["checkpoint"] == "acct-0001"
    wire.next("commit")
    (result,) = later(world, job=from_provider)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", "acct-0001", 4)
    assert world.view() == granted(names)
    assert [asked.after for asked in provider.asked] == [None, "acct-0001", "acct-0001", "acct-0003"]


@pytest.mark.field("B25")
def test_writes_grow_with_pages_and_a_throttled_row_is_a_clean_stop(world: World, provider: Provider) -> None:
    world.set(page_size=50, range_size=50)
    names = stock(provider, 200)
    for name in names:
        world.view_row(name, plan="gold")
    wire = Wire(world.client)
    throttled = cancelled({"LEASE": "ThrottlingError"})
    wire.next("commit", throttled, throttled, throttled, PASS, PASS, then=throttled)
    with pytest.raises(TransientFailure):
        night(world, "nightly")
    assert (world.progress()["checkpoint"], world.progress()["attempts"]) == ("acct-0099", 0)
    wire.next("commit")
    (result,) = later(world, job=from_provider)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", "acct-0099", 100)
    assert [asked.after for asked in provider.asked] == [
        *(None, "acct-0049", "acct-0099"),
        *("acct-0099", "acct-0149"),
    ]


# the deployed function


def test_the_deployed_function_reads_the_provider_where_it_is_told_to(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = stock(provider, 3)
    with world.deployed(monkeypatch):
        assert [attempt["outcome"] for attempt in delivered(world, event("nightly"))["attempts"]] == ["completed"]
        assert ticked(world) == []
    assert set(world.view()) == set(names)
    assert len(provider.asked) == 1, "an idle tick asks nobody"


def test_a_deployment_on_dynamodb_does_not_load_the_other_source(world: World) -> None:
    code = "import sys, reconciler.app; print({'reconciler.http_source', 'reconciler.source_token'} & set(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**world.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "set()"


def test_a_source_without_a_reader_is_read_at_the_slower_pace(world: World, provider: Provider) -> None:
    stock(provider, 5)
    every_id(HttpSource(replace(world.invocation())), 1)
    first, *_, last = [asked.at for asked in provider.asked]
    assert last - first >= 4 / world.settings.backfill_requests_per_second


def test_a_source_without_a_reader_leaves_time_for_the_read_and_for_what_follows(
    world: World, provider: Provider
) -> None:
    needed_s = 3 * world.settings.call_budget_s + world.settings.slack_s
    with pytest.raises(OutOfTime):
        every_id(HttpSource(world.invocation(remaining_s=needed_s)), 1)
    assert not provider.asked
    every_id(HttpSource(world.invocation(remaining_s=needed_s + 60)), 1)
    assert provider.asked
