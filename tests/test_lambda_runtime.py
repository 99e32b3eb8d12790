"""The real handler under AWS's own Lambda runtime: the platform counts the time, and kills when it is up."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.chaos.verdict import Tables
from tests.faults import BEGINNINGS
from tests.lambda_runtime import RUNS_HERE, LambdaRuntime, TaskTimedOut, lambda_runtime
from tools import verify
from tools.emulator import LOCALHOST, ROOT
from tools.faults import delay, trickle
from tools.scene import Scene, scene, scheduled_event
from tools.seed import Seeded, plan

pytestmark = pytest.mark.skipif(not RUNS_HERE, reason="AWS's runtime emulator is for Linux on x86_64 and arm64")

FUNCTION = "reconcile"
ACCOUNTS, RANGE, PAGE = 240, 10, 30
LEASE_S = 22.0
"""Longer than every timeout below, so that the lease still stands when the platform kills its holder."""

SETTINGS = {
    "RANGE_SIZE": RANGE,
    "PAGE_SIZE": PAGE,
    "LEASE_SECONDS": LEASE_S,
    "CLOCK_SKEW_SECONDS": 0.2,
    "BACKOFF_SECONDS": 0,
    "CONNECT_TIMEOUT_SECONDS": 0.1,
    "READ_TIMEOUT_SECONDS": 1.9,
    "SDK_MAX_ATTEMPTS": 1,
}
"""Calls of at most 2 s: an invocation begins no range with less than 11.1 s left."""

SLOW_S = 0.7
"""By which every write of a slow night comes later."""

PATIENCE = 30
"""Ticks until a night has to be complete."""


@dataclass(frozen=True, slots=True)
class Night:
    """A due night of seeded accounts, the function that is to work on it, warm, and the events that it gets."""

    due: datetime
    rows: Seeded
    seeded_view: list[verify.Row]
    stage: Scene
    function: LambdaRuntime
    events: Iterator[Mapping[str, Any]]

    def attempts(self) -> Iterator[Any]:
        """Trigger until the night is complete, each time when nobody has the lease: what each attempt came to.

        Each goes on where the one before stopped. One that had no time left to begin is none, and one whose calls were
        not answered in time tells of nothing.
        """
        stage = self.stage
        for event in self.events:
            self.wait_for_the_lease()
            generation, checkpoint = stage.lease().get("generation", 0), stage.progress(self.due).get("checkpoint")
            answer = self.function.invoke(event)
            if answer.get("errorType") != "TransientFailure":
                (attempt,) = answer["attempts"]
                if attempt["outcome"] != "out_of_time":
                    assert (attempt["generation"], attempt["resumed_after"]) == (generation + 1, checkpoint)
                    yield attempt
            if stage.run_record(self.due).get("state") == "COMPLETED":
                return

    def wait_for_the_lease(self) -> None:
        skew_s = float(self.stage.environment["CLOCK_SKEW_SECONDS"])
        while time.time() <= self.stage.lease().get("expires_at_ms", 0) / 1000 + skew_s:
            time.sleep(0.05)

    def judge(self) -> None:
        """Completed means completed, nothing was applied twice, and each interruption had at most a page read again."""
        stage, record = self.stage, self.stage.run_record(self.due)
        view = stage.rows("EntitlementsTable")
        assert (record["state"], record["accounts"], record["rejected"]) == ("COMPLETED", ACCOUNTS, 1)
        assert {name: record[name] for name in ("granted", "changed", "revoked")} == {
            "granted": self.rows.granted,
            "changed": self.rows.changed,
            "revoked": self.rows.revoked,
        }
        assert len(verify.out_of_line(stage.rows("AccountsTable"), view)) == 1, "all but the malformed one"
        assert record["checksum"] == verify.view_checksum(view)
        assert set(stage.view_writes().values()) == {1}
        assert max(verify.growth(self.seeded_view, view).values()) == 1
        pages, told = len(stage.pages("AccountsTable", PAGE)), Tables(stage).events()
        interruptions = sum(told[event] for event in BEGINNINGS) - 1
        assert pages <= stage.source_reads(FUNCTION) <= pages + interruptions


@contextmanager
def night(timeout_s: int) -> Iterator[Night]:
    due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    rows = plan(accounts=ACCOUNTS)
    with scene(SETTINGS | {"SCHEDULE_HOUR": due.hour, "SCHEDULE_MINUTE": due.minute}) as stage:
        stage.seed(rows)
        with lambda_runtime(
            FUNCTION, stage.environment, endpoint=stage.proxy.url, directory=stage.directory, timeout_s=timeout_s
        ) as function:
            refused = function.invoke(scheduled_event("watchdog", due))
            assert refused["errorType"] == "InvalidTrigger"
            assert "detail.trigger" in refused["errorMessage"]
            assert [refused["requestId"]] == function.request_ids()
            ticks = (scheduled_event("tick", due + timedelta(minutes=minute)) for minute in range(1, PATIENCE))
            events = itertools.chain([scheduled_event("nightly", due)], ticks)
            yield Night(due, rows, stage.rows("EntitlementsTable"), stage, function, events)


def test_a_run_that_the_platform_kills_is_taken_over_after_its_last_committed_range() -> None:
    with night(timeout_s=18) as it:
        stage, function = it.stage, it.function
        answers_without_end = stage.proxy.on(
            lambda call: stage.tables["AccountsTable"] in call.reads and stage.commits(FUNCTION) >= 4, trickle(0.05)
        )
        with pytest.raises(TaskTimedOut, match=r"Task timed out after 18\.00 seconds"):
            list(it.attempts())
        now_ms = time.time_ns() // 1_000_000

        assert len(answers_without_end.matched) == 1
        (killed,) = function.killed()
        with pytest.raises(ProcessLookupError):
            os.kill(killed, 0)
        lease, progress = stage.lease(), stage.progress(it.due)
        assert lease["owner"] == f"{FUNCTION}/{function.request_ids()[-1]}"
        assert lease["expires_at_ms"] > now_ms, "killed while it had the lease"
        assert 4 <= progress["ranges"] < ACCOUNTS / RANGE
        assert stage.run_record(it.due)["state"] == "RUNNING"

        assert list(it.attempts())
        assert Tables(stage).events()["TAKEOVER"] == 1
        assert (function.starts(), len(function.killed())) == (2, 1)
        it.judge()


def test_a_run_yields_before_the_platform_would_kill_it_and_the_next_ones_go_on() -> None:
    with night(timeout_s=16) as it:
        stage, function = it.stage, it.function
        stage.proxy.on(lambda call: call.operation == "TransactWriteItems", delay(SLOW_S, "before"), times=None)
        attempts = []
        for attempt in it.attempts():
            assert {"owner", "expires_at_ms"}.isdisjoint(stage.lease())
            attempts.append(attempt)

        assert sum(attempt["ranges"] > 0 for attempt in attempts) > 1, "more than one has committed"
        assert {attempt["outcome"] for attempt in attempts} <= {"yielded", "completed"}
        assert (function.starts(), function.killed()) == (1, [])
        it.judge()


ALONE = """
import sys
from pathlib import Path
from tests.kit import environ
from tests.lambda_runtime import lambda_runtime

with lambda_runtime("alone", environ(), endpoint="http://127.0.0.1:9", directory=Path(sys.argv[1]), timeout_s=60) as it:
    it.invoke({})
    print(it.port, flush=True)
    sys.stdin.read()
"""


def test_function_and_platform_end_when_whoever_started_them_is_killed(tmp_path: Path) -> None:
    path = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    with subprocess.Popen(command, env=os.environ | path, stdin=PIPE, stdout=PIPE, text=True) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        starter.kill()
    deadline = time.monotonic() + 60
    while listens(port):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (function,) = re.findall(r"SIGKILL to runtime-\d+\((\d+)\)", (tmp_path / "alone.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(int(function), 0)


def listens(port: int) -> bool:
    try:
        socket.create_connection((LOCALHOST, port), timeout=1).close()
    except OSError:
        return False
    return True
