"""Settings: every environment variable is needed, checked, and named when it is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from reconciler import app
from reconciler.errors import SettingsError
from reconciler.settings import DYNAMODB, HTTP, OWN, POWERTOOLS, Settings
from tests.kit import environ, everything, lambda_context, watched
from tests.world import World, event

REQUIRED = [*POWERTOOLS, *(field.name.upper() for field in fields(Settings) if "optional" not in field.metadata)]
ENVIRON = environ()
PROVIDER = {"SOURCE": HTTP, "SOURCE_URL": "https://provider.example/v1"}


def given(**changes: str) -> Settings:
    return Settings.from_env(ENVIRON | changes)


def test_the_template_gives_every_setting() -> None:
    settings = given()
    assert (settings.job_name, settings.control_table) == ("entitlements", "ControlTable")
    assert (settings.lease_seconds, settings.clock_skew_seconds, settings.tick_minutes) == (120, 5, 5)
    assert (settings.call_budget_s, settings.slack_s) == (15, 6)
    assert (settings.lease_ms, settings.skew_ms, settings.tick_ms) == (120_000, 5_000, 300_000)


@pytest.mark.parametrize("value", [None, "", "  "], ids=["missing", "empty", "blank"])
@pytest.mark.parametrize("name", REQUIRED)
def test_a_variable_that_is_not_set_is_named(name: str, value: str | None) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} is not set$"):
        without(name, value)


def without(name: str, value: str | None, **given: str) -> Settings:
    changed = {**ENVIRON, **given, name: value}
    return Settings.from_env({name: value for name, value in changed.items() if value is not None})


@pytest.mark.parametrize("value", [None, "", "  "], ids=["missing", "empty", "blank"])
@pytest.mark.parametrize(
    ("source", "needs", "may_lack"),
    [
        (DYNAMODB, {"ACCOUNTS_TABLE"}, {"SOURCE_URL", "SOURCE_TOKEN_SECRET"}),
        (HTTP, {"SOURCE_URL"}, {"ACCOUNTS_TABLE", "SOURCE_TOKEN_SECRET"}),
        (OWN, set(), {"ACCOUNTS_TABLE", "SOURCE_URL", "SOURCE_TOKEN_SECRET"}),
    ],
)
def test_a_source_needs_what_it_reads_and_nothing_of_the_other(
    source: str, needs: set[str], may_lack: set[str], value: str | None
) -> None:
    given = PROVIDER | {"SOURCE": source}
    for name in needs:
        with pytest.raises(SettingsError, match=rf"^{name} is not set, but SOURCE is {source}$"):
            without(name, value, **given)
    for name in may_lack:
        assert getattr(without(name, value, **given), name.lower()) == ""
    assert needs | may_lack == {field.name.upper() for field in fields(Settings) if "optional" in field.metadata}


@pytest.mark.parametrize("handler", [app.reconcile, app.watchdog])
def test_a_function_without_a_variable_touches_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, handler: Any
) -> None:
    with world.deployed(monkeypatch):
        monkeypatch.delenv("ENTITLEMENTS_TABLE")
        with watched(world.client) as sent, pytest.raises(SettingsError, match="ENTITLEMENTS_TABLE is not set"):
            handler(event("nightly"), lambda_context(world))
        assert sent == []
    assert not any(everything(world).values())


WHOLE = [field.name.upper() for field in fields(Settings) if field.metadata["kind"] is int]
SECONDS = [field.name.upper() for field in fields(Settings) if field.metadata["kind"] is float]


@pytest.mark.parametrize("value", ["2.5", "two", "0x2", "1e1", "-", "nan", "1 0"])
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_whole_number_is_named_and_shown(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name} is {value!r}, not a whole number$"):
        given(**{name: value})


@pytest.mark.parametrize("value", ["two", "1,5", "1s", "-"])
@pytest.mark.parametrize("name", SECONDS)
def test_what_is_no_number_is_named_and_shown(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name} is {value!r}, not a number$"):
        given(**{name: value})


@pytest.mark.parametrize(
    "field", [field for field in fields(Settings) if "low" in field.metadata], ids=lambda f: f.name
)
def test_a_number_out_of_bounds_is_named_with_its_bounds(field: Any) -> None:
    name, low, high = field.name.upper(), field.metadata["low"], field.metadata["high"]
    outside = [low - 1, high + 1] + (["nan", "inf", "-inf"] if name in SECONDS else [])
    for value in outside:
        with pytest.raises(SettingsError, match=rf"^{name} is {value}, but must be between {low} and {high}$"):
            given(**{name: str(value)})


def test_a_lease_too_short_for_its_calls_is_refused_with_the_way_out() -> None:
    """Three call budgets of 15 s and 5 % of the lease must fit into it."""
    with pytest.raises(SettingsError, match=r"LEASE_SECONDS is 47.*READ_TIMEOUT_SECONDS"):
        given(LEASE_SECONDS="47")
    assert given(LEASE_SECONDS="48").lease_seconds == 48
    with pytest.raises(SettingsError, match="LEASE_SECONDS is 120"):
        given(READ_TIMEOUT_SECONDS="20")


def test_one_attempt_needs_no_time_for_backoff() -> None:
    """So that a story with a lease of five seconds is the same code."""
    short = given(LEASE_SECONDS="5", CONNECT_TIMEOUT_SECONDS="0.3", READ_TIMEOUT_SECONDS="0.9", SDK_MAX_ATTEMPTS="1")
    assert short.call_budget_s == pytest.approx(1.2)
    assert given(SDK_MAX_ATTEMPTS="2").call_budget_s == 2 * 4 + 3


def test_importing_the_handlers_needs_no_setting() -> None:
    """So a missing variable is told by its name, by the first invocation, and not as an import error."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "AWS_EC2_METADATA_DISABLED": "true"}
    subprocess.run([sys.executable, "-W", "error", "-c", "import reconciler.app"], env=environment, check=True)


# ----------------------------------------------------------------------------------------------------------- a provider


@pytest.mark.parametrize(
    "url",
    [
        "https://provider.example",
        "https://provider.example/v1/tenants/7",
        "https://provider.example:8443/v1",
        "https://[2001:db8::1]/v1",
        "https://Provider-7.example.:443/v1/a\\b",
        "https://10.0.0.1/v1",
        "http://localhost:8080/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
    ],
)
def test_a_provider_is_asked_over_tls_or_on_this_machine(url: str) -> None:
    assert given(**PROVIDER | {"SOURCE_URL": url}).source_url == url


@pytest.mark.parametrize(
    "url",
    [
        "provider.example/v1",
        "//provider.example/v1",
        "http://provider.example/v1",
        "http://10.0.0.1/v1",
        "http://localhost.provider.example/v1",
        "ftp://provider.example/v1",
        "file:///etc/passwd",
        "https:///v1",
        "https://:443/v1",
        "https://provider.example:99999/v1",
        "https://provider.example:65536/v1",
        "http://[::1].evil.example/v1",
        "http://[::1]evil.example/v1",
        "https://[2001:db8::1].evil.example/v1",
        "http://localhost\\.evil.example/v1",
        "http://localhost%2eevil.example/v1",
        "http://localhost;evil.example/v1",
        "http://127.0.0.1\u3002evil.example/v1",
        "https://ho\\st/v1",
        "https://a..b/v1",
        "https://.a/v1",
        "https://./v1",
        "https://-/v1",
        "https://-a/v1",
        "https://a-.b/v1",
        "https://provider.example:0/v1",
        "https://provider.example:port/v1",
        "https://[2001:db8::1/v1",
        "https://provider.example/v 1",
        "https://provider.example/\tv1",
        "https://provider.example/v1\r\nX-Header: 1",
    ],
)
def test_what_is_no_address_of_a_provider_is_named_and_shown(url: str) -> None:
    with pytest.raises(
        SettingsError, match=r"^SOURCE_URL is .*must be https://<host>… \(http for loopback only\)$"
    ) as e:
        given(**PROVIDER | {"SOURCE_URL": url})
    assert repr(url) in str(e.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hunter2@provider.example/v1",
        "https://:hunter2@provider.example/v1",
        "https://hunter2@provider.example/v1",
        "http://ada:hunter2@provider.example/v1",
        "https://provider.example/v1?token=hunter2",
        "https://provider.example/v1?",
        "https://provider.example/v1#hunter2",
        "https://provider.example/v1#",
    ],
)
def test_an_address_that_may_hold_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^SOURCE_URL must have no user.*SOURCE_TOKEN_SECRET$") as error:
        given(**PROVIDER | {"SOURCE_URL": url})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("name", ["SOURCE_REQUESTS_PER_SECOND", "BACKFILL_REQUESTS_PER_SECOND"])
def test_a_rate_at_which_a_request_waits_longer_than_a_quarter_of_the_lease_is_refused(name: str) -> None:
    """A first request waits for a second at any rate: a worker knows nothing of who asked before it."""
    short = {"CONNECT_TIMEOUT_SECONDS": "0.1", "READ_TIMEOUT_SECONDS": "0.1", "SDK_MAX_ATTEMPTS": "1"}
    assert given(**PROVIDER, **{name: "0.1", "LEASE_SECONDS": "48"}).source == HTTP
    assert given(**PROVIDER, **short, **{name: "10", "LEASE_SECONDS": "4"}).source == HTTP
    for changed in (
        {name: "0.033"},
        {name: "0.08", "LEASE_SECONDS": "49"},
        {name: "10", "LEASE_SECONDS": "3.9", **short},
    ):
        with pytest.raises(SettingsError, match=r"more than a quarter of the lease: raise SOURCE_REQUESTS_PER_SECOND"):
            given(**PROVIDER | changed)
        assert given(**PROVIDER | changed | {"SOURCE": DYNAMODB}).source == DYNAMODB


@pytest.mark.parametrize("name", ["SOURCE_REQUESTS_PER_SECOND", "BACKFILL_REQUESTS_PER_SECOND"])
def test_a_rate_below_one_request_a_second_for_each_segment_is_refused(name: str) -> None:
    """Nothing spreads the requests of several segments: together they could fall into one second."""
    other = {"SOURCE_REQUESTS_PER_SECOND": "64", "BACKFILL_REQUESTS_PER_SECOND": "64"}
    for segments in ("2", "3", "64"):
        assert given(**PROVIDER | other | {name: segments, "SEGMENT_COUNT": segments}).source == HTTP
        few = PROVIDER | other | {name: f"{float(segments) - 0.1}", "SEGMENT_COUNT": segments}
        with pytest.raises(SettingsError, match=rf"less than one for each of {segments} segments.*raise SOURCE_REQ"):
            given(**few)
        assert given(**few | {"SOURCE": DYNAMODB}).source == DYNAMODB
    assert given(**PROVIDER | {name: "0.5"}).segment_count == 1


ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/"
ELSEWHERE = "arn:aws:dynamodb:eu-central-1:999999999999:table/"


@pytest.mark.parametrize(
    ("accounts", "view", "same"),
    [
        ("view", "view", True),
        (f"{ARN}view", "view", True),
        ("view", f"{ARN}view", True),
        (f"{ARN}view", f"{ARN}view", True),
        (f"{ELSEWHERE}view", "view", True),
        (f"{ELSEWHERE}view", f"{ARN}view", False),
        (f"{ARN}my-view", f"{ARN}view", False),
        ("my-view", "view", False),
        ("View", "view", False),
    ],
)
def test_a_view_that_is_its_own_source_is_refused(accounts: str, view: str, same: bool) -> None:
    """Each account would be granted what its own row says, which is to say nothing would ever be revoked."""
    tables = {"ACCOUNTS_TABLE": accounts, "ENTITLEMENTS_TABLE": view}
    if same:
        with pytest.raises(SettingsError, match=r"^ACCOUNTS_TABLE and ENTITLEMENTS_TABLE are both "):
            given(**tables)
    else:
        assert given(**tables).accounts_table == accounts
    assert given(**PROVIDER, **tables).source == HTTP


def test_with_a_table_as_the_source_nothing_is_asked_of_the_provider() -> None:
    assert given(SOURCE_URL="not looked at").source == DYNAMODB
    with pytest.raises(SettingsError, match=r"^SOURCE is 'ftp', but must be one of dynamodb, http, own$"):
        given(SOURCE="ftp")
