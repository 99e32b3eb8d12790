"""The real handler under AWS's own Lambda runtime: the platform counts the time, and kills when it is up."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.lambda_runtime import RUNS_HERE, LambdaRuntime, TaskTimedOut, lambda_runtime
from tools import verify
from tools.emulator import LOCALHOST, ROOT
from tools.faults import delay, trickle
from tools.scene import Scene, scene, scheduled_event
from tools.seed import Seeded, plan

pytestmark = pytest.mark.skipif(not RUNS_HERE, reason="AWS's runtime emulator is for Linux on x86_64 and arm64")

FUNCTION = "reconcile"
ACCOUNTS, RANGE, PAGE = 240, 10, 30
LEASE_S = 11.0
"""Longer than every timeout below, so that the lease still stands when the platform kills its holder."""

SETTINGS = {
    "RANGE_SIZE": RANGE,
    "PAGE_SIZE": PAGE,
    "LEASE_SECONDS": LEASE_S,
    "CLOCK_SKEW_SECONDS": 0.2,
    "BACKOFF_SECONDS": 0,
    "CONNECT_TIMEOUT_SECONDS": 0.1,
    "READ_TIMEOUT_SECONDS": 0.9,
    "SDK_MAX_ATTEMPTS": 1,
}
"""Calls of at most 1 s: an invocation begins no range with less than 5.55 s left."""

SLOW_S = 0.35
"""By which every write of a slow night comes later."""

PATIENCE = 30
"""Ticks until a night has to be complete."""


@dataclass(frozen=True, slots=True)
class Night:
    """A due night of seeded accounts, and the function that is to work on it, warm."""

    due: datetime
    rows: Seeded
    seeded_view: list[verify.Row]
    stage: Scene
    function: LambdaRuntime

    def begin(self) -> Any:
        return self.function.invoke(scheduled_event("nightly", self.due))

    def attempts(self) -> Iterator[Any]:
        """Tick until the night is complete: what each tick came to, without those that had no time left to begin."""
        for minute in range(1, PATIENCE):
            (attempt,) = self.function.invoke(scheduled_event("tick", self.due + timedelta(minutes=minute)))["attempts"]
            if attempt["outcome"] != "out_of_time":
                yield attempt
            if attempt["outcome"] == "completed":
                return

    def judge(self, *, interruptions: int) -> None:
        """Completed means completed, nothing was applied twice, and little was read again."""
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
        pages = len(stage.pages("AccountsTable", PAGE))
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
            yield Night(due, rows, stage.rows("EntitlementsTable"), stage, function)


def test_a_run_that_the_platform_kills_is_taken_over_after_its_last_committed_range() -> None:
    with night(timeout_s=9) as it:
        stage, function = it.stage, it.function
        answers_without_end = stage.proxy.on(
            lambda call: stage.tables["AccountsTable"] in call.reads and stage.commits(FUNCTION) >= 4, trickle(0.05)
        )
        began_ms = time.time_ns() // 1_000_000
        with pytest.raises(TaskTimedOut, match=r"Task timed out after 9\.00 seconds"):
            it.begin()

        assert len(answers_without_end.matched) == 1
        (killed,) = function.killed()
        with pytest.raises(ProcessLookupError):
            os.kill(killed, 0)
        lease, progress = stage.lease(), stage.progress(it.due)
        assert (lease["generation"], lease["owner"]) == (1, f"{FUNCTION}/{function.request_ids()[-1]}")
        assert lease["expires_at_ms"] > began_ms + function.timeout_s * 1000
        assert progress["ranges"] == stage.commits(FUNCTION)
        assert stage.run_record(it.due)["state"] == "RUNNING"

        free_ms = lease["expires_at_ms"] + float(stage.environment["CLOCK_SKEW_SECONDS"]) * 1000
        time.sleep(max(0.0, free_ms / 1000 - time.time()) + 0.2)
        attempts = list(it.attempts())
        assert attempts[0]["generation"] == lease["generation"] + 1
        assert attempts[0]["resumed_after"] == progress["checkpoint"]
        assert (function.starts(), len(function.killed())) == (2, 1)
        it.judge(interruptions=len(attempts))


def test_a_run_yields_before_the_platform_would_kill_it_and_the_next_ones_go_on() -> None:
    with night(timeout_s=8) as it:
        stage, function = it.stage, it.function
        stage.proxy.on(lambda call: call.operation == "TransactWriteItems", delay(SLOW_S, "before"), times=None)
        outcomes = [it.begin()["outcome"]]
        checkpoint = stage.progress(it.due).get("checkpoint")
        for generation, attempt in enumerate(it.attempts(), start=stage.lease()["generation"] + 1):
            assert (attempt["generation"], attempt["resumed_after"]) == (generation, checkpoint)
            assert {"owner", "expires_at_ms"}.isdisjoint(stage.lease())
            checkpoint = stage.progress(it.due)["checkpoint"]
            outcomes.append(attempt["outcome"])

        assert stage.commits(FUNCTION) * SLOW_S > function.timeout_s, "one invocation would not have been enough"
        assert outcomes == ["yielded"] * (len(outcomes) - 1) + ["completed"]
        assert (function.starts(), function.killed()) == (1, [])
        it.judge(interruptions=len(outcomes) - 1)


ALONE = """
import sys
from pathlib import Path
from tests.kit import environ
from tests.lambda_runtime import lambda_runtime

with lambda_runtime("alone", environ(), endpoint="http://127.0.0.1:9", directory=Path(sys.argv[1]), timeout_s=30) as it:
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
    deadline = time.monotonic() + 30
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
