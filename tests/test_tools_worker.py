"""A worker is the real handler in a process of its own: warm, one event at a time, frozen and killed at will."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.processes import wait_for_the_end
from tools.runtime import Context
from tools.scene import local_client, scheduled_event
from tools.tables import create_tables, environment
from tools.worker import ROOT, Worker, WorkerError

WATCHDOG = scheduled_event("watchdog", datetime(2026, 11, 29, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def variables(emulator_url: str) -> dict[str, str]:
    client = local_client(emulator_url, "setup")
    tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
    client.close()
    return environment(tables, job="worker-test")


@pytest.fixture
def worker(emulator_url: str, variables: dict[str, str], tmp_path: Path) -> Iterator[Worker]:
    with Worker("worker-x", variables, endpoint=emulator_url, directory=tmp_path) as running:
        running.ready()
        yield running


def test_it_answers_what_the_handler_returns_and_keeps_what_it_emits(worker: Worker) -> None:
    first = worker.call(WATCHDOG, handler="watchdog")
    assert first.error is None
    assert first.result["UnfinishedIntervals"] == 0
    assert {(name, unit) for name, _, unit in worker.metrics()} >= {
        ("SecondsPastDeadline", "Seconds"),
        ("UnfinishedIntervals", "Count"),
    }
    emitted = len(worker.metrics())
    worker.call(WATCHDOG, handler="watchdog")
    assert len(worker.metrics()) == 2 * emitted


def test_an_error_is_answered_by_class_and_message_and_the_next_event_runs(worker: Worker) -> None:
    refused = worker.call({**WATCHDOG, "source": "nobody"})
    assert refused.result is None
    assert refused.error == "InvalidTrigger"
    assert refused.message is not None
    assert "source" in refused.message
    assert worker.call(WATCHDOG, handler="watchdog").error is None


def test_a_handler_that_does_not_exist_is_an_error_and_no_crash(worker: Worker) -> None:
    assert worker.call(WATCHDOG, handler="nobody").error == "AttributeError"
    assert worker.call(WATCHDOG, handler="watchdog").error is None


def test_a_frozen_worker_answers_only_once_it_is_woken(worker: Worker) -> None:
    worker.stop()
    worker.send(WATCHDOG, handler="watchdog")
    with pytest.raises(WorkerError, match=r"worker-x did not answer within 0\.3 s"):
        worker.reply(0.3)
    assert not worker.answered
    worker.go_on()
    assert worker.reply().error is None


def test_a_killed_worker_says_so_instead_of_answering(worker: Worker) -> None:
    assert worker.kill() == -signal.SIGKILL
    worker.send(WATCHDOG)
    with pytest.raises(WorkerError, match="worker-x ended with -9"):
        worker.reply(5)
    assert worker.answered


@pytest.mark.parametrize("frozen", [False, True])
def test_it_ends_with_its_block_even_when_frozen(
    emulator_url: str, variables: dict[str, str], tmp_path: Path, frozen: bool
) -> None:
    with Worker("worker-y", variables, endpoint=emulator_url, directory=tmp_path) as running:
        running.ready()
        pid = running._process.pid
        if frozen:
            running.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


FROZEN = """
import json, os, signal, sys
from pathlib import Path
from tools.worker import Worker

variables, endpoint, directory = json.loads(sys.argv[1])
with Worker("orphan", variables, endpoint=endpoint, directory=Path(directory)) as running:
    running.ready()
    running.stop()
    print(running._process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_it_ends_with_a_parent_that_is_killed_even_when_frozen(
    emulator_url: str, variables: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", FROZEN, json.dumps([variables, emulator_url, str(tmp_path)])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    try:
        wait_for_the_end([pid])
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_one_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    lost = {"PYTHONPATH": "/nowhere"}
    with (
        Worker("worker-z", lost, endpoint="http://127.0.0.1:9", directory=tmp_path) as broken,
        pytest.raises(WorkerError, match="No module named 'reconciler'"),
    ):
        broken.ready(10)


def test_a_setting_that_is_missing_is_named(emulator_url: str, variables: dict[str, str], tmp_path: Path) -> None:
    lacking = {name: value for name, value in variables.items() if name != "LEASE_SECONDS"}
    with Worker("worker-w", lacking, endpoint=emulator_url, directory=tmp_path) as running:
        running.ready()
        reply = running.call(WATCHDOG, handler="watchdog")
    assert reply.error == "SettingsError"
    assert "LEASE_SECONDS" in (reply.message or "")


def test_it_sees_no_setting_of_the_machine(
    emulator_url: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_PROFILE", "somebody")
    with Worker("worker-v", variables, endpoint=emulator_url, directory=tmp_path) as running:
        running.ready()
        assert running.call(WATCHDOG, handler="watchdog").error is None


def test_lines_that_are_not_json_are_no_log_lines(worker: Worker) -> None:
    worker.log.write_text('plain words\n[1]\n{"message": "m"}\n', "utf-8")
    assert worker.lines() == [{"message": "m"}]
    assert worker.metrics() == []


def test_metrics_are_read_in_the_embedded_format(worker: Worker) -> None:
    directive = {"Metrics": [{"Name": "Many", "Unit": "Count"}, {"Name": "One"}]}
    line = {"_aws": {"CloudWatchMetrics": [directive]}, "Many": [1, 2.5], "One": 7, "service": "x"}
    worker.log.write_text(json.dumps(line) + "\n", "utf-8")
    assert worker.metrics() == [("Many", 1.0, "Count"), ("Many", 2.5, "Count"), ("One", 7.0, "None")]


def test_the_context_counts_down_and_never_below_zero() -> None:
    context = Context(remaining_s=0.2, function_name="f")
    assert 0 < context.get_remaining_time_in_millis() <= 200
    time.sleep(0.25)
    assert context.get_remaining_time_in_millis() == 0
    assert Context(1, "f").aws_request_id != Context(1, "f").aws_request_id
