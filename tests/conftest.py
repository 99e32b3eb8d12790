"""Shared fixtures: no credentials, no region, no time zone of the machine's leak into a test."""

from __future__ import annotations

import os

# Powertools reads its variables when the reconciler package is imported.
os.environ |= {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "POWERTOOLS_SERVICE_NAME": "entitlements",
    "POWERTOOLS_METRICS_NAMESPACE": "ScheduledReconciler",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"):
    os.environ.pop(name, None)

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import settings
from moto import mock_aws
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table

from tests.world import World
from tools.emulator import emulator
from tools.provider import Provider

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


SESSION = boto3.Session()
"""Loads the service's description once; mock_aws forgets boto3's own session at every start."""

AS_DEPLOYED = Config(retries={"mode": "standard", "total_max_attempts": 3}, parameter_validation=False)
"""What of a client's configuration does not wait: as `aws.dynamodb` has it."""

COPIED: tuple[Any, ...] = (Table, Item)
"""Moto copies these for each transaction, and would remember every copy: hundreds of megabytes in a long test."""

# The same examples everywhere, however slow the machine is.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


FIGURE = "figure "


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Called with what a test measured, by name: the summary at the end tells each name's sum over all tests."""

    def measured(**counted: int) -> None:
        for name, value in counted.items():
            record_property(FIGURE + name, value)

    return measured


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was measured, in whichever process."""
    whole: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name.startswith(FIGURE):
                    whole[name.removeprefix(FIGURE)] += int(value)
    if whole:
        terminalreporter.write_sep("-", "measured")
        for name in sorted(whole):
            terminalreporter.write_line(f"{name}: {whole[name]}")


@pytest.fixture
def client() -> Iterator[DynamoDBClient]:
    """A client on moto, for single-threaded logic."""
    with mock_aws():
        for kind in COPIED:
            kind.instances_tracked = deque(maxlen=0)
        yield SESSION.client("dynamodb", config=AS_DEPLOYED)


@pytest.fixture
def world(client: DynamoDBClient) -> World:
    """An empty world on moto, with the template's defaults."""
    return World(client)


@pytest.fixture
def provider(world: World) -> Iterator[Provider]:
    """The source of that world, asked over HTTP, with a log by the world's clock."""
    with Provider(now=world.clock.monotonic) as provider:
        world.set(source="http", source_url=provider.url)
        yield provider


@pytest.fixture(scope="session")
def emulator_url() -> Iterator[str]:
    """An emulator with atomic conditional writes, for everything concurrent."""
    with emulator() as url:
        yield url


@pytest.fixture
def live(emulator_url: str) -> World:
    """An empty world on the emulator."""
    return World(live_client(emulator_url))


def live_client(url: str, caller: str = "tests") -> DynamoDBClient:
    """A client on the emulator; `caller` is its access key id."""
    return SESSION.client(
        "dynamodb",
        endpoint_url=url,
        aws_access_key_id=caller,
        aws_secret_access_key="testing",
        config=AS_DEPLOYED.merge(Config(max_pool_connections=50)),
    )
