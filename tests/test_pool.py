"""The processes of a long search end with it, however it ends, and start nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.pool import pool
from tests.processes import running, wait_for_the_end
from tools.emulator import ROOT

SIZE, TASKS = 2, 8


def square(number: Any) -> Any:
    return number**2


def last(directory: Path, number: int) -> None:
    """A task that never ends; its files tell that it began, and that what it set up was ended."""
    (directory / f"began-{number}").write_text(str(os.getpid()))
    try:
        time.sleep(3600)
    finally:
        (directory / f"undone-{number}").touch()


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    with pool(SIZE) as processes:
        list(processes.map(partial(last, Path(sys.argv[1])), range(TASKS)))


def test_every_task_is_done_in_another_process() -> None:
    with pool(SIZE) as processes:
        assert list(processes.map(square, range(TASKS))) == [number**2 for number in range(TASKS)]
        assert processes.submit(os.getpid).result() != os.getpid()


def test_an_error_of_a_task_is_raised_where_its_result_is_asked_for() -> None:
    with pytest.raises(TypeError, match="unsupported operand"), pool(1) as processes:
        processes.submit(square, "two").result()


@pytest.mark.parametrize(
    ("told", "ended"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT), (signal.SIGKILL, signal.SIGKILL)],
)
def test_processes_end_and_begin_no_further_task_when_the_one_that_started_them_is_ended(
    tmp_path: Path, told: signal.Signals, ended: signal.Signals
) -> None:
    command = [sys.executable, "-c", "from tests.test_pool import main; main()", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as search:
        deadline = time.monotonic() + 60
        while len(began := [path.read_text() for path in tmp_path.glob("began-*")]) < SIZE or not all(began):
            assert time.monotonic() < deadline
            assert search.poll() is None
            time.sleep(0.05)
        search.send_signal(told)
        assert search.wait(60) == -ended
    try:
        wait_for_the_end(map(int, began))
    finally:
        for pid in running(map(int, began)):
            os.kill(pid, signal.SIGKILL)
    assert [len(list(tmp_path.glob(f"{which}-*"))) for which in ("began", "undone")] == [SIZE, SIZE]
