"""Answers of a provider, one by one: what is believed, what is asked again, and what fails with a reason."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler import clock
from reconciler.errors import SourceInvalid, TransientFailure
from reconciler.merge import Page
from reconciler.provider_answers import (
    MAX_BODY_BYTES,
    MAX_ID_BYTES,
    Again,
    Answer,
    asked_after,
    read_answer,
    retry_after_s,
    storable_id,
)
from reconciler.source import SourceRecord
from tests.providers import ODD_IDS

NOW_MS = clock.parse_ms("2026-11-29T02:00:00Z")
SECRET = "s3cr3t-9f41"
JSON = {"Content-Type": "application/json"}


def read(body: str | bytes, status: int = 200, **headers: str) -> Page[SourceRecord] | Again:
    given_headers = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return read_answer(Answer(status, given_headers, body.encode() if isinstance(body, str) else body), NOW_MS)


def page_of(*accounts: str, on: str = "null") -> Page[SourceRecord]:
    page = read(f'{{"accounts": [{", ".join(accounts)}], "next": {on}}}')
    assert isinstance(page, Page), page
    return page


def account(entitlements: str = "{}", account_id: str = '"a"') -> str:
    return f'{{"account_id": {account_id}, "status": "active", "entitlements": {entitlements}}}'


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        ("-7", 0.0),
        ("+7", 7.0),
        ("1.5", 1.5),
        ("86400", 3600.0),
        ("9" * 500, 3600.0),
        ("Sun, 29 Nov 2026 02:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 03:00:30 +0100", 30.0),
        ("Sunday, 29-Nov-26 02:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 01:00:00 GMT", 0.0),
        ("Sun, 29 Nov 2099 02:00:00 GMT", 3600.0),
        ("Sun, 29 Nov 2026 02:00:30 -0000", 30.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("5, 5", None),
        ("٥", None),
        ("Sun, 99 Nov 2026 02:00:30 GMT", None),
        ("Sun, 29 Nov 99999999999999999999 02:00:30 GMT", None),
    ],
)
def test_a_pause_is_asked_for_in_seconds_or_by_a_date_and_is_never_longer_than_an_hour(
    header: str | None, seconds: float | None
) -> None:
    assert retry_after_s(header, NOW_MS) == seconds


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, [0-9 ]{1,12} [A-Za-z]{3} [0-9]{1,9} [0-9:]{1,12} .{0,6}"))
@example("Sun, 29 Nov 0000 00:00:00 GMT")
@example("Sat, 01 Jan 0001 00:00:00 +2359")
def test_whatever_asks_for_a_pause_is_read_or_ignored(header: str) -> None:
    seconds = retry_after_s(header, NOW_MS)
    assert seconds is None or 0 <= seconds <= 3600


@pytest.mark.field("B75")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("9007199254740993", 2**53 + 1),
        ("0.5", Decimal("0.5")),
        ("0.12345678901234567890123456789012345678", Decimal("0.12345678901234567890123456789012345678")),
        ("1e2", 100),
        ("1E-100", Decimal("1E-100")),
        ("1" + "0" * 5000, Decimal("1" + "0" * 5000)),
        ("-0", 0),
        ("true", True),
        ('"true"', "true"),
        ("null", None),
    ],
)
def test_a_number_is_exactly_what_was_said(text: str, value: object) -> None:
    (record,) = page_of(account(f'{{"seats": {text}}}')).rows
    assert isinstance(record.entitlements, dict)
    found = record.entitlements["seats"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e99999999999999999999", "1e-99999999999999999999"])
def test_what_is_no_number_is_one_that_cannot_be_stored(text: str) -> None:
    (record,) = page_of(account(f'{{"seats": {text}}}')).rows
    assert isinstance(record.entitlements, dict)
    assert not record.entitlements["seats"].is_normal()


@pytest.mark.parametrize(
    "text",
    [
        account('{"plan": 1, "plan": 2}'),
        '{"account_id": "a", "status": "active", "status": "cancelled", "entitlements": {}}',
        '{"account_id": "a", "status": "active", "entitlements": {}, "entitlements": {"x": 1}}',
        '{"account_id": "a", "status": "active", "entitlements": {}, "address": {"city": "x", "city": "y"}}',
        '{"account_id": "a", "orders": [[], [1, {"price": {"net": 1, "net": 1}}]]}',
    ],
)
def test_a_name_that_stands_twice_makes_its_account_unreadable_and_no_other(text: str) -> None:
    first, second = page_of(text, account(account_id='"b"')).rows
    assert first.unreadable is not None
    assert "stands twice in one object" in first.unreadable
    assert second.unreadable is None


WRONG_IN_ITSELF = {
    "cut off": f'{{"accounts": [{account()}], "next"',
    "no JSON": f"<html>{SECRET}</html>",
    "a text": f'"{SECRET}"',
    "no object": f"[{account()}]",
    "no accounts": '{"next": null}',
    "accounts that are no list": f'{{"accounts": {{"{SECRET}": 1}}, "next": null}}',
    "no next": f'{{"accounts": [{account()}]}}',
    "a number as next": f'{{"accounts": [{account()}], "next": 7}}',
    "next twice": f'{{"accounts": [{account()}], "next": null, "next": "{SECRET}"}}',
    "another encoding": f'{{"accounts": [{account()}], "next": null}}'.encode("utf-16"),
    "a depth that cannot be read": '{"accounts": ' + "[" * 100_000,
    "two documents": '{"accounts": [], "next": null} {"accounts": [], "next": null}',
}


@pytest.mark.parametrize("body", WRONG_IN_ITSELF.values(), ids=WRONG_IN_ITSELF.keys())
def test_an_answer_that_breaks_the_protocol_is_worth_asking_again_and_shows_no_payload(body: str | bytes) -> None:
    again = read(body)
    assert isinstance(again, Again)
    assert isinstance(again.error, SourceInvalid)
    assert SECRET not in str(again.error)


@pytest.mark.field("B33")
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('"a"', "account 2 of a page has no account_id"),
        ("null", "account 2 of a page has no account_id"),
        ('{"status": "active"}', "account 2 of a page has no account_id"),
        (account(account_id="12345670123"), "not text: 12345670123"),
        (account(account_id="1e10"), "not text: 10000000000"),
        (account(account_id="NaN"), "not text: NaN"),
        (account(account_id="true"), "not text: True"),
        (account(account_id="null"), "not text: None"),
        (account(account_id=f'["{SECRET}"]'), "not text: of another type"),
        ('{"account_id": "a", "account_id": "b"}', "two account_ids, one of them 'b'"),
    ],
)
def test_an_account_without_a_text_for_an_id_fails_the_page_since_it_could_be_anybody(entry: str, why: str) -> None:
    with pytest.raises(SourceInvalid, match=why) as refused:
        page_of(account(), entry)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("status", [429, 503])
def test_a_throttled_request_is_asked_again_when_the_provider_says(status: int) -> None:
    again = read(SECRET, status, Retry_After="7")
    assert isinstance(again, Again)
    assert (again.throttled, again.wait_s, type(again.error)) == (True, 7.0, TransientFailure)
    again = read(SECRET, status)
    assert isinstance(again, Again)
    assert (again.throttled, again.wait_s) == (True, None)


@pytest.mark.parametrize("status", [500, 502, 504, 520, 408])
def test_a_sick_provider_is_no_answer(status: int) -> None:
    again = read(SECRET, status)
    assert isinstance(again, Again)
    assert (type(again.error), again.throttled) == (TransientFailure, False)


@pytest.mark.field("B29")
@pytest.mark.parametrize("status", [204, 206, 400, 403, 404, 410, 414])
def test_a_refusal_is_never_an_end(status: int) -> None:
    with pytest.raises(SourceInvalid, match=f"answered {status}") as refused:
        read(json.dumps({"accounts": [], "next": None, "why": SECRET}), status)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("location", [f"https://elsewhere.example/{SECRET}", f"/{SECRET}", "", f"https://[{SECRET}"])
def test_a_redirect_is_refused_with_the_host_it_names(status: int, location: str) -> None:
    with pytest.raises(SourceInvalid, match="redirects are not followed") as refused:
        read("", status, Location=location)
    assert ("elsewhere.example" in str(refused.value)) == ("elsewhere" in location)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("kind", ["", "text/html", "application/xml; x=application/json", "application/jsonp"])
def test_another_type_than_json_is_not_read(kind: str) -> None:
    assert isinstance(read('{"accounts": [], "next": null}', Content_Type=kind), Again)


def test_the_type_may_name_its_encoding() -> None:
    assert read('{"accounts": [], "next": null}', Content_Type="Application/JSON; charset=utf-8") == Page((), None)


def test_an_answer_over_the_bound_says_what_to_lower() -> None:
    with pytest.raises(SourceInvalid, match=f"{MAX_BODY_BYTES} bytes: lower PAGE_SIZE"):
        read(b" " * (MAX_BODY_BYTES + 1))


@pytest.mark.parametrize("status", [429, 503, 500, 401])
def test_an_error_is_what_its_status_says_however_long_its_page_is(status: int) -> None:
    assert isinstance(read(b" " * (MAX_BODY_BYTES + 1), status), Again)
    with pytest.raises(SourceInvalid, match="answered 404"):
        read(b" " * (MAX_BODY_BYTES + 1), 404)


@pytest.mark.parametrize(
    "longest",
    ["x" * MAX_ID_BYTES, "é" * (MAX_ID_BYTES // 2), "\ud800" * (MAX_ID_BYTES // len(storable_id("\ud800").encode()))],
)
def test_an_id_that_is_too_long_to_be_asked_from_fails_the_page_and_is_not_shown_whole(longest: str) -> None:
    (record,) = page_of(account(account_id=json.dumps(longest)), on=json.dumps(longest)).rows
    assert record.account_id == storable_id(longest)
    for page in (
        (account(account_id=json.dumps(longest + longest[0])), "null"),
        (account(), json.dumps(longest + longest[0])),
    ):
        with pytest.raises(SourceInvalid, match=f"longer than {MAX_ID_BYTES} bytes: ") as refused:
            page_of(page[0], on=page[1])
        assert repr(longest[:60]) in str(refused.value)
        assert len(str(refused.value)) < 450


@given(st.lists(st.text(st.characters(codec=None) | st.sampled_from("\ud7ff\ud800\udfff\ue000"), max_size=5)))
def test_an_id_that_has_no_utf8_gets_one_that_sorts_in_its_place(ids: list[str]) -> None:
    held = [storable_id(account_id) for account_id in ids]
    assert all(name.encode() for name in held if name)
    if not any("\ud7ff\U0010ffff" in name for name in ids):
        assert [storable_id(name) for name in sorted(ids)] == sorted(held)
    for name, safe in zip(ids, held, strict=True):
        asked = asked_after(safe)
        assert asked is not None
        assert asked <= safe
        assert asked <= name
        assert asked.encode().decode() == asked
        assert asked == name or name != safe


def test_an_id_with_a_lone_surrogate_is_an_account_of_its_own_to_be_rejected() -> None:
    page = page_of(account(account_id='"a"'), account(account_id='"a\\ud800b"'), on='"a\\ud800b"')
    good, bad = page.checked(None, None).rows
    assert (good.unreadable, bad.unreadable) == (None, "account_id 'a\\ud800b' holds a lone surrogate")
    assert page.more_after == bad.account_id


def test_ids_arrive_as_they_are() -> None:
    accounts = [account(account_id=json.dumps(name)) for name in sorted(ODD_IDS)]
    assert [record.account_id for record in page_of(*accounts).rows] == sorted(ODD_IDS)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_no_answer_is_a_crash(value: Any) -> None:
    for body in (value, {"accounts": value, "next": None}, {"accounts": [], "next": value}):
        with suppress(SourceInvalid):
            assert isinstance(read(json.dumps(body)), Page | Again)


@given(st.binary(max_size=60))
def test_no_bytes_are_a_crash(body: bytes) -> None:
    assert isinstance(read(body), Page | Again)
