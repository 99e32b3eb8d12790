"""Building, deploying and running it by hand: what the documents say works, and what is missing is told by name."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler import app
from reconciler.errors import SettingsError, TransientFailure
from reconciler.settings import Settings
from tests.kit import delivered, environ, lambda_context
from tests.template import FUNCTIONS, VARIABLES
from tests.world import World, event

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = ["README.md", "Makefile", ".ci/run", ".github/workflows/deploy.yml"]
DOCUMENTS += [str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")]
GIVEN_BACK = "--template-file running.yaml"
"""The one template that is deployed without a build: CloudFormation's own copy of the version that ran before."""


@pytest.mark.field("B63")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_document_deploys_the_source_in_place_of_the_build(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for command in re.findall(r"sam deploy.*", text):
        assert not re.search(r"--template(-file)?\b|\s-t\b", command.replace(GIVEN_BACK, "")), command


@pytest.mark.field("B63")
@pytest.mark.parametrize("name", ["README.md", ".github/workflows/deploy.yml"])
def test_the_documented_order_is_build_and_then_deploy(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    section = text.partition("## Deploy\n")[2] or text
    build = re.search(r"make (install )?build|sam build", section)
    deploy = re.search(r"sam deploy", section)
    assert build
    assert deploy
    assert build.start() < deploy.start()


@pytest.mark.field("B65")
def test_the_variables_that_the_readme_overrides_are_ones_that_the_template_declares() -> None:
    """The SAM CLI drops every other one without a word."""
    (sample,) = re.findall(r'`(\{"ReconcileFunction": \{.*?\}\})`', README)
    overridden = json.loads(sample)
    assert set(overridden) <= set(FUNCTIONS)
    assert set().union(*overridden.values()) <= set(VARIABLES)


@pytest.mark.field("B65")
def test_the_handlers_can_be_imported_without_any_variable() -> None:
    code = "from reconciler.app import reconcile, watchdog"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


MAY_BE_EMPTY = {"POWERTOOLS_LOG_LEVEL", "SOURCE_URL", "SOURCE_TOKEN_SECRET"}


@pytest.mark.field("B65")
@pytest.mark.parametrize("name", sorted(set(VARIABLES) - MAY_BE_EMPTY))
def test_a_missing_variable_is_named_before_anything_is_done(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with world.deployed(monkeypatch):
        monkeypatch.delenv(name)
        world.requests.clear()
        with pytest.raises(SettingsError, match=rf"^{name} is not set\b"):
            delivered(world, event("nightly"))
        with pytest.raises(SettingsError, match=rf"^{name} is not set\b"):
            app.watchdog({}, lambda_context(world))
    assert world.requests == []


# ---------------------------------------------------------------------------------------------------- the endpoint


@pytest.mark.field("B67")
def test_the_endpoint_is_one_variable_of_the_sdk_that_no_deployment_sets() -> None:
    assert not [name for name in VARIABLES if "ENDPOINT" in name]
    assert "endpoint_url" not in "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for told in ("AWS_ENDPOINT_URL", "host.docker.internal", "--docker-network host"):
        assert told in README


@pytest.mark.field("B67")
def test_a_refused_connection_is_told_within_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `localhost` inside Lambda's container, where nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name, value in environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    app._client.cache_clear()
    began = time.monotonic()
    with pytest.raises(TransientFailure, match=re.escape(endpoint)):
        app.watchdog({}, lambda_context(world))
    assert time.monotonic() - began < Settings.from_env().call_budget_s
    app._client.cache_clear()
