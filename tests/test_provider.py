"""The provider of the demo and the tests: its protocol, its log, and its faults by method and by address."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from reconciler.keys import segment_of
from tests.providers import ODD_IDS
from tools.provider import Provider
from tools.provider_faults import FAULTS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def ours() -> Iterator[Provider]:
    with Provider() as provider:
        for name in ODD_IDS:
            provider.put(name, plan="gold")
        yield provider


def ask(url: str, path: str = "accounts", body: object = None, **query: Any) -> tuple[int, dict[str, str], Any]:
    """Status, headers and what was said, in JSON where it is."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=30)) as connection:
        target = f"{parts.path}/{path}?{urlencode(query)}"
        connection.request("GET" if body is None else "POST", target, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode()
        said = json.loads(text) if answer.getheader("Content-Type") == "application/json" else text
        return answer.status, dict(answer.getheaders()), said


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_it_answers_every_account_once_in_order(ours: Provider, limit: int) -> None:
    ids: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        status, _, page = ask(ours.url, **query)
        assert status == 200
        assert len(page["accounts"]) <= limit
        ids += [account["account_id"] for account in page["accounts"]]
        if page["next"] is None:
            break
        query = {"limit": limit, "after": page["next"]}
    assert ids == sorted(ODD_IDS, key=str.encode)


def test_a_segment_has_its_own_accounts(ours: Provider) -> None:
    ids = []
    for segment in ("000", "001", "002"):
        _, _, page = ask(ours.url, limit=100, segment=segment, segments=3)
        found = [account["account_id"] for account in page["accounts"]]
        assert {segment_of(name, 3) for name in found} <= {segment}
        ids += found
    assert sorted(ids) == sorted(ODD_IDS)


def test_it_shows_a_share_of_its_accounts(ours: Provider) -> None:
    assert ask(ours.url, "control", {"share": 0.5})[0] == 200
    assert len(ask(ours.url, limit=100)[2]["accounts"]) == round(len(ODD_IDS) / 2)
    ours.share = 0
    assert ask(ours.url, limit=100)[2] == {"accounts": [], "next": None}


def test_it_keeps_a_log_that_the_control_address_tells(ours: Provider) -> None:
    ask(ours.url, limit=3)
    ask(ours.url, limit=3, after="A")
    _, _, log = ask(ours.url, "control")
    assert [(asked["after"], asked["limit"], asked["fault"]) for asked in log] == [(None, 3, ""), ("A", 3, "")]
    assert log[0]["at"] <= log[1]["at"]


def test_it_accepts_its_token_only(ours: Provider) -> None:
    ours.token = "right"
    assert ask(ours.url, limit=3)[0] == 401


@pytest.mark.parametrize(
    "query",
    [{}, {"limit": "x"}, {"limit": ""}, {"limit": 3, "segment": "000"}, {"limit": 3, "segment": "000", "segments": 0}],
)
def test_a_request_that_is_not_of_the_protocol_is_answered_with_400(ours: Provider, query: dict[str, Any]) -> None:
    assert ask(ours.url, **query)[0] == 400


def test_faults_happen_once_each_or_always(ours: Provider) -> None:
    ask(ours.url, "control", {"next": ["throttle:7", "status:418"], "always": "unavailable"})
    status, headers, _ = ask(ours.url, limit=1)
    assert (status, headers["Retry-After"]) == (429, "7")
    assert [ask(ours.url, limit=1)[0] for _ in range(3)] == [418, 503, 503]
    ask(ours.url, "control", {"always": ""})
    assert ask(ours.url, limit=1)[0] == 200


def test_an_unknown_fault_is_refused_by_name(ours: Provider) -> None:
    status, _, said = ask(ours.url, "control", {"next": ["cut", "nonsense:1"]})
    assert (status, said) == (400, {"unknown": ["nonsense"]})
    assert not ours.waiting


ARGUMENTS = {"long": "5000", "stuck": "A", "slow": "0.01", "drip": "0.0001", "body": "{}"}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_shows(ours: Provider, name: str) -> None:
    """What arrives is not what would have been right, except for what only takes time or is padded."""
    right = ask(ours.url, limit=5)
    ours.fail(f"{name}:{ARGUMENTS[name]}" if name in ARGUMENTS else name)
    try:
        found = ask(ours.url, limit=5)
    except (HTTPException, ValueError, OSError):
        return
    assert (found[2] == right[2] and found[0] == 200) == (name in ("slow", "drip", "long"))


def test_the_command_prints_an_address_that_answers() -> None:
    command = [sys.executable, "-m", "tools.provider", "--accounts", "50"]
    environ = {"PATH": "", "POWERTOOLS_SERVICE_NAME": "provider"}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            _, _, page = ask(url, limit=100)
        finally:
            process.kill()
    assert 40 <= len(page["accounts"]) <= 50
    assert {"account_id", "status", "entitlements"} == set(page["accounts"][0])
