"""The process in which the emulator runs a function: found as the emulator's child, so that only that one is killed."""

from __future__ import annotations

import os
import signal
import subprocess


def kill_worker(function: str) -> None:
    """Kill the function's process, as Lambda does with one that is out of memory: nothing of it runs any more."""
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    split = [line.split(maxsplit=2) for line in listed.splitlines()]
    processes = {int(pid): (int(parent), command) for pid, parent, command in (row for row in split if len(row) == 3)}
    emulators = {pid for pid, (parent, _) in processes.items() if parent == os.getpid()}
    (worker,) = (
        pid
        for pid, (parent, command) in processes.items()
        if parent in emulators and f"ministack-lambda-{function}-" in command
    )
    os.kill(worker, signal.SIGKILL)
