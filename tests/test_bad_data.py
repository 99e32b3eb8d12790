"""Data that is wrong: kept exactly or rejected with account and reason; and a sick provider that looks healthy."""

from __future__ import annotations

import json
import traceback
from contextlib import suppress
from decimal import Decimal
from random import Random
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import clock, keys, read_ahead, source_token
from reconciler.decisions import Decision
from reconciler.diff import decide
from reconciler.errors import ReconcilerError, SourceOrderError
from reconciler.intervals import next_id
from reconciler.items import MAX_ITEM_BYTES, size, storable, to_item
from reconciler.merge import Pair
from reconciler.scan import Sides
from reconciler.source import SourceRecord
from reconciler.view import EntitlementsTable, ViewRow
from reconciler.work import Job
from tests.faults import PASS, Wire, meanwhile
from tests.kit import AtOnce, Killed, Rows, kill, logged, numbered, ordered, wait
from tests.providers import night, source, too_fast
from tests.world import NIGHT, World
from tools.provider import Provider

KEPT: dict[str, tuple[str, Any]] = {
    "a fraction": ("0.5", Decimal("0.5")),
    "a float's neighbour": (
        "0.1000000000000000055511151231257827021",
        Decimal("0.1000000000000000055511151231257827021"),
    ),
    "a whole number beyond a float": ("9007199254740993", 2**53 + 1),
    "38 digits": ("9" * 38, 10**38 - 1),
    "an exponent": ("1.5e3", 1500),
    "the greatest exponent": ("1E+125", Decimal("1E+125")),
    "the least exponent": ("1E-130", Decimal("1E-130")),
    "a negative zero": ("-0", 0),
    "a boolean": ("true", True),
    "a boolean as a text": ('"true"', "true"),
    "a number as a text": ('"1e3"', "1e3"),
    "an empty text": ('""', ""),
    "a NUL": ('"a\\u0000b"', "a\0b"),
    "a pair of surrogates": ('"\\ud83d\\ude00"', "😀"),
    "two Unicode forms": ('"e\\u0301 \\u00e9"', "e\u0301 é"),
    "300,000 bytes": (f'"{"é" * 150_000}"', "é" * 150_000),
}
REJECTED: dict[str, tuple[str, str]] = {
    "NaN": ("NaN", "'plan' is a number that DynamoDB cannot store"),
    "Infinity": ("Infinity", "'plan' is a number that DynamoDB cannot store"),
    "-Infinity": ("-Infinity", "'plan' is a number that DynamoDB cannot store"),
    "39 digits": ("1" * 39, "'plan' is a number that DynamoDB cannot store"),
    "5,000 digits": ("1" * 5_000, "'plan' is a number that DynamoDB cannot store"),
    "too great an exponent": ("1E+126", "'plan' is a number that DynamoDB cannot store"),
    "too small an exponent": ("1E-131", "'plan' is a number that DynamoDB cannot store"),
    "an exponent of no number": ("1e999999999999999999999", "'plan' is a number that DynamoDB cannot store"),
    "nothing": ("null", "'plan' is neither text, number nor boolean"),
    "a list": ('["s3cr3t"]', "'plan' is neither text, number nor boolean"),
    "a map": ('{"s3cr3t": 1}', "'plan' is neither text, number nor boolean"),
    "a depth": ("[" * 500 + "]" * 500, "'plan' is neither text, number nor boolean"),
    "a lone surrogate": ('"s3cr3t \\ud800"', "'plan' is a text that DynamoDB cannot store"),
    "400 KB": (f'"{"x" * 409_600}"', f"bytes, more than DynamoDB's {MAX_ITEM_BYTES}"),
    "400 KB of two-byte characters": (f'"{"é" * 204_800}"', f"bytes, more than DynamoDB's {MAX_ITEM_BYTES}"),
}
WRONG_NAMES = {
    "an empty name": ("", "have the name '', which DynamoDB cannot store"),
    "a lone surrogate": ("\udc00", r"have the name '\udc00', which DynamoDB cannot store"),
    "a long name": ("n" * 65_536, "has a name of 65536 bytes, more than DynamoDB's 65535"),
}


def account(account_id: str, plan: str) -> str:
    return f'{{"account_id": {json.dumps(account_id)}, "status": "active", "entitlements": {{"plan": {plan}}}}}'


def rejections(world: World) -> dict[str, str]:
    return {row["account_id"]: row["reason"] for row in world.audit() if row["event"] == "REJECTED"}


@pytest.mark.field("B75")
def test_what_can_be_kept_is_kept_exactly(world: World, provider: Provider) -> None:
    provider.accounts = {name: account(name, text) for name, (text, _) in KEPT.items()}
    (result,) = night(world, "nightly")
    assert result.outcome == "completed"
    assert rejections(world) == {}
    found = {name: row["plan"] for name, row in world.view().items()}
    assert found == {name: value for name, (_, value) in KEPT.items()}
    assert {name: type(value) for name, value in found.items()} == {name: type(v) for name, (_, v) in KEPT.items()}
    assert world.interval()["checksum"] == world.view_checksum()
    world.clock.advance(86_400)
    night(world)
    assert set(world.versions().values()) == {1}, "what was read back is what was sent"


def test_what_cannot_is_rejected_keeps_its_row_and_is_tried_again_the_next_night(
    world: World, provider: Provider
) -> None:
    """One night rejects every kind, in one piece with a good account; the next one finds them mended."""
    world.set(page_size=4)
    provider.accounts = {name: account(name, text) for name, (text, _) in REJECTED.items()}
    for name, (wrong, _) in WRONG_NAMES.items():
        said = {"account_id": name, "status": "active", "entitlements": {wrong: "gold"}}
        provider.accounts[name] = json.dumps(said)
    provider.accounts["twice"] = '{"account_id": "twice", "status": "active", "entitlements": {"a": 1, "a": 1}}'
    provider.accounts["a status"] = '{"account_id": "a status", "status": "s3cr3t", "entitlements": {}}'
    provider.accounts["no map"] = '{"account_id": "no map", "status": "active", "entitlements": ["s3cr3t"]}'
    provider.accounts["nothing else"] = '{"account_id": "nothing else"}'
    bad = sorted(provider.accounts)
    provider.put("good", plan="gold")
    for name in bad:
        world.view_row(name, plan="silver")
    with logged() as lines:
        (result,) = night(world, "nightly")
    assert result.outcome == "completed"
    reasons = rejections(world)
    assert sorted(reasons) == bad
    for name, (_, why) in (REJECTED | WRONG_NAMES).items():
        assert why in reasons[name], name
    assert "stands twice" in reasons["twice"]
    assert world.view() == {name: {"plan": "silver"} for name in bad} | {"good": {"plan": "gold"}}
    assert world.interval()["rejected"] == len(bad)
    assert "s3cr3t" not in repr(lines) + repr(world.control())
    for name in bad:
        provider.put(name, plan="gold")
    world.clock.advance(86_400)
    night(world)
    assert world.view() == {name: {"plan": "gold"} for name in (*bad, "good")}
    assert world.interval("2026-11-30")["rejected"] == 0


def test_a_preview_rejects_what_the_run_rejects(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.accounts = {name: account(name, text) for name, (text, _) in {**REJECTED, **KEPT}.items()}
    with world.deployed(monkeypatch):
        told = ordered(world, "Preview")
    assert (told["rejected"], told["granted"]) == (len(REJECTED), len(KEPT))
    night(world, "nightly")
    rows = {row["account_id"]: row["reason"] for row in told["first"] if row["what"] == "rejected"}
    assert rows == rejections(world)
    assert world.interval()["rejected"] == len(REJECTED)


def test_what_the_source_could_not_read_is_rejected_whatever_the_decision_would_be(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a preview, in a run, and in a range that is read again."""
    reason = "source name 'plan' stands twice in one object"

    def any_job(pair: Pair[SourceRecord, ViewRow]) -> Decision:
        assert pair.record is None or pair.record.unreadable is None
        return Decision(pair)

    provider.accounts["twice"] = '{"account_id": "twice", "orders": [{"plan": 1, "plan": 1}]}'
    provider.put("well")
    monkeypatch.setattr("reconciler.scan.decide", any_job)
    with world.deployed(monkeypatch):
        assert ordered(world, "Preview")["rejected"] == 1
    night(world, "nightly")
    assert rejections(world) == {"twice": reason}
    again = Sides(source(world), EntitlementsTable(world.invocation()), "000", 5).between(None, "z")
    assert [decision.rejection for decision in again] == [reason, None]


def test_what_differs_in_how_it_is_written_only_is_not_written_again(world: World, provider: Provider) -> None:
    for name in "abc":
        world.view_row(name, seats=1500)
    provider.accounts = {name: account(name, "0").replace("plan", "seats") for name in "abc"}
    for name, text in zip("abc", ("1500", "1.5e3", "1500.0"), strict=True):
        provider.accounts[name] = account(name, text).replace("plan", "seats")
    night(world, "nightly")
    assert world.versions() == dict.fromkeys("abc", 1)


@pytest.mark.field("B35")
@pytest.mark.parametrize("page_size", [4, 5, 50])
@pytest.mark.parametrize("killed", [False, True])
def test_an_id_that_nothing_can_hold_is_rejected_and_never_in_the_way(
    world: World, provider: Provider, page_size: int, killed: bool
) -> None:
    """Empty, over-long, or with a lone surrogate; wherever a page ends, and wherever the run is killed."""
    world.set(page_size=page_size, max_attempts=100, source_requests_per_second=1000)
    bad = ("", "a\ud800", "a\ud800b", "a\udfff", "\udc00", "x" * 1100, "x" * 1100 + "y")
    good = ("a", "a\ud7ff", "a\ue000", "a\uffff", "b", "x", "y", "\ue000", "\0", "n\0ul")
    for name in (*bad, *good):
        provider.put(name, plan="gold")
    world.view_row("aa", plan="silver")  # nobody's
    wire = Wire(world.client)
    for _ in range(25 if killed else 1):
        wire.next("commit", PASS, *([meanwhile(kill)] if killed else []))
        with suppress(Killed):
            night(world, "nightly")
        wait(world)
    assert world.interval()["state"] == "COMPLETED"
    assert world.view() == {name: {"plan": "gold"} for name in good} | {"aa": {}}
    assert set(world.versions().values()) == {1, 2}
    reasons = [row["reason"] for row in world.audit() if row["event"] == "REJECTED"]
    assert len(reasons) == world.interval()["rejected"] == len(bad)
    for name in ("a\ud800", "a\ud800b", "a\udfff", "\udc00"):
        assert f"source account_id {name!r} holds a lone surrogate" in reasons
    assert reasons.count("account_id is empty") == 1
    assert reasons.count("account_id is longer than 1024 bytes") == 2


def test_any_other_source_that_has_such_an_id_fails_with_a_reason(world: World) -> None:
    source = Rows([SourceRecord("a\ud800", "active", {})])
    with pytest.raises(SourceOrderError, match="holds a lone surrogate, which has no UTF-8"):
        world.run("nightly", job=lambda invocation: Job(source, EntitlementsTable(invocation)))


VALUES = st.one_of(
    st.text(max_size=8), st.booleans(), st.integers(-(10**40), 10**40), st.decimals(), st.none(), st.lists(st.just(1))
)


@given(st.dictionaries(st.text(st.characters(codec=None), max_size=4), VALUES | st.text(st.characters(codec=None))))
def test_what_is_not_rejected_can_be_stored(entitlements: dict[str, Any]) -> None:
    decision = decide(Pair("a", SourceRecord("a", "active", entitlements), None))
    if decision.effect:
        item = to_item({"entitlements": decision.effect.content})
        json.dumps(item, ensure_ascii=False).encode()
        assert all(entitlements)
    elif decision.rejection is None:
        assert entitlements == {}
    else:
        decision.rejection.encode()


@pytest.mark.parametrize("spare", [0, 1])
def test_a_row_is_as_large_as_dynamodb_counts_it(spare: int) -> None:
    """Names, texts and 3 + 1 bytes of a map; 500 are kept for the rest of a row."""
    room = MAX_ITEM_BYTES - 500 - len("a") - 3 - 1 - len("plan")
    text = "é" * 1_000 + "x" * (room - 2_000 + spare)
    decision = decide(Pair("a", SourceRecord("a", "active", {"plan": text}), None))
    assert (decision.rejection is None) == (spare == 0)


def test_a_size_is_never_too_small() -> None:
    assert size({"plan": "gold", "é": True}) == 3 + 1 + 4 + 4 + 1 + 2 + 1
    for number in (0, -1, 10**38 - 1, Decimal("1E-130"), Decimal("-0.12345678901234567890123456789012345678")):
        assert storable(number)
        assert size(number) >= 1 + (len(Decimal(number).normalize().as_tuple().digits) + 1) // 2


# a sick provider that looks healthy


def seen(world: World) -> set[str]:
    """Accounts that still have their entitlements."""
    return {name for name, entitlements in world.view().items() if entitlements}


@pytest.mark.parametrize("segments", [1, 3])
def test_an_empty_provider_strips_nobody(client: Any, segments: int) -> None:
    world = World(client, SEGMENT_COUNT=segments)
    with Provider(now=world.clock.monotonic) as provider:
        world.set(source="http", source_url=provider.url, page_size=4, backfill_requests_per_second=segments)
        names = numbered(20)
        for name in names:
            world.view_row(name, plan="gold")
        for days in range(3):
            night(world, "nightly")
            wait(world)
            world.clock.set(f"2026-11-{29 + days}T23:00:00Z" if days < 2 else "2026-12-01T23:00:00Z")
            assert seen(world) == set(names), f"night {days}"
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert "the source is empty" in world.row("CONTROL")["pause"]["why"]


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_provider_that_lost_accounts_strips_no_more_than_allowed_in_all(
    client: Any, segments: int, share: float
) -> None:
    """Across kills, resumes, segments and nights; then it is whole again, and the night is run again from the start."""
    world = World(client, SEGMENT_COUNT=segments)
    with Provider(now=world.clock.monotonic) as provider:
        world.set(backfill_requests_per_second=segments)
        world.set(source="http", source_url=provider.url, page_size=4, range_size=4, max_revocations=6)
        names = numbered(40)
        for name in names:
            provider.put(name, plan="gold")
            world.view_row(name, plan="gold")
        wire = Wire(world.client)
        for number in range(6):
            if number == 1:
                provider.share = share
            wire.next("commit", PASS, meanwhile(kill))
            with suppress(Killed):
                night(world, "nightly")
            wait(world)
        wire.next("commit")
        for night_id in ("2026-11-30", "2026-12-01"):
            world.clock.set(f"{night_id}T02:00:05Z")
            night(world, "nightly")
            assert len(seen(world)) >= len(names) - 6, night_id
        assert "pause" in world.row("CONTROL")


def test_a_person_who_believes_the_provider_states_how_many_and_a_new_pass_counts_anew(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set(page_size=4, range_size=4, max_revocations=5)
    names = numbered(20)
    for name in names:
        provider.put(name, plan="gold")
        world.view_row(name, plan="gold")
    provider.share = 0.5
    night(world, "nightly")
    left = len(seen(world))
    assert left >= 15
    with world.deployed(monkeypatch):
        ordered(world, "Rerun", interval=NIGHT, revocation_bound=5, **{"from": "start"})
    wait(world)
    night(world)
    assert (len(seen(world)) >= left - 5, world.interval()["state"]) == (True, "NEEDS_REPAIR")
    with world.deployed(monkeypatch):
        ordered(world, "Rerun", interval=NIGHT, revocation_bound=10, **{"from": "start"})
    wait(world)
    night(world)
    assert (len(seen(world)), world.interval()["state"]) == (10, "COMPLETED")


# everything at once

TOKEN = "t0k3n-9f41"
PASSING = (
    *("cut", "hang-up", "status:500", "status:502", "type", "truncated", "no-next", "body:{", "body:[]", "body:null"),
    *("throttle", "throttle:0", "throttle:-1", "throttle:3", "throttle:soon", "unavailable", "unavailable:1.5"),
    *("unavailable:Sun, 29 Nov 2026 02:00:00 GMT", "throttle:9"),
)
"""Faults after which the same page is asked for again, nine times at most."""
ENDING = (
    *("status:403", "status:410", "redirect", "shuffled", "twice", "status:401", "throttle:90", "unavailable:999999"),
)
"""Faults that end the attempt, or may."""


def fault(random: Random) -> str:
    """One request in seven has none."""
    if random.random() < 1 / 7:
        return ""
    return random.choice(ENDING if random.random() < 0.05 else PASSING)


def completed(world: World, night_id: str) -> bool:
    row = world.invocation().control_row(keys.interval(night_id))
    return row is not None and row["state"] == "COMPLETED"


def test_five_hundred_faults_leave_the_view_right(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Night after night, every other request fails in some way, and now and then a worker is killed."""
    random = Random(6)
    monkeypatch.setattr(read_ahead, "ThreadPoolExecutor", AtOnce)
    world.set(read_ahead=True)
    provider.token = TOKEN
    secret = boto3.client("secretsmanager").create_secret(Name="provider", SecretString=TOKEN)
    world.set(source_token_secret=secret["ARN"], page_size=2, range_size=2, max_attempts=10_000, backoff_max_seconds=60)
    world.set(sdk_max_attempts=10, lease_seconds=300)
    names = numbered(24)
    bad = set(names[3::10])
    wire = Wire(world.client)
    night_id, faults, told = NIGHT, 0, [""]
    with logged() as lines:
        while faults < 500:
            plan = {"plan": f"s3cr3t-{night_id}"}
            before = world.view()
            for name in names:
                provider.put(name, **plan)
            provider.accounts |= {name: account(name, random.choice(["NaN", "[]", '"\\ud800"'])) for name in bad}
            while not completed(world, night_id):
                provider.fail(*(fault(random) for _ in range(100)))
                wire.next("commit", *([PASS, meanwhile(kill)] if random.random() < 0.3 else []))
                asked = len(provider.asked)
                outcomes = ["killed"]
                try:
                    outcomes = [result.outcome for result in night(world)]
                except Killed:
                    pass
                except ReconcilerError as error:
                    told.append("".join(traceback.format_exception(error)))
                faults += sum(bool(request.fault) for request in provider.asked[asked:])
                provider.waiting.clear()
                world.clock.advance(3_700 if "yielded" in outcomes else 310)
                now = world.view()
                assert [name for name in names if now.get(name) not in (before.get(name), plan)] == []
            assert [name for name in names if now.get(name) != plan] == sorted(bad)
            night_id = next_id(night_id)
            world.clock.set(max(f"{night_id}T02:00:05.000Z", clock.text(world.clock.wall_ms)))
    source_token._secrets.cache_clear()
    assert faults >= 500
    assert not too_fast(provider, world.settings.source_requests_per_second)
    rows = repr(world.scan("ControlTable"))
    assert [secret for secret in (TOKEN, "s3cr3t") if secret in repr(lines) + repr(told) + rows] == []
