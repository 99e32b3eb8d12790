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
from reconciler.settings import POWERTOOLS, Settings
from tests.kit import environ, everything, lambda_context, watched
from tests.world import World, event

NAMES = [*POWERTOOLS, *(field.name.upper() for field in fields(Settings))]
ENVIRON = environ()


def given(**changes: str) -> Settings:
    return Settings.from_env(ENVIRON | changes)


def test_the_template_gives_every_setting() -> None:
    settings = given()
    assert (settings.job_name, settings.control_table) == ("entitlements", "ControlTable")
    assert (settings.lease_seconds, settings.clock_skew_seconds, settings.tick_minutes) == (120, 5, 5)
    assert (settings.call_budget_s, settings.slack_s) == (15, 6)
    assert (settings.lease_ms, settings.skew_ms, settings.tick_ms) == (120_000, 5_000, 300_000)


@pytest.mark.parametrize("value", [None, "", "  "], ids=["missing", "empty", "blank"])
@pytest.mark.parametrize("name", NAMES)
def test_a_variable_that_is_not_set_is_named(name: str, value: str | None) -> None:
    changed = {**ENVIRON, name: value}
    with pytest.raises(SettingsError, match=rf"^{name} is not set$"):
        Settings.from_env({name: value for name, value in changed.items() if value is not None})


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
