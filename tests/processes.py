"""Whether processes have ended that nobody here is the parent of."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable

PATIENCE_S = 60.0


def running(pids: Iterable[int]) -> list[int]:
    """Those that are still there; one that has ended and that nobody has asked about yet is not."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    there = {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")}
    return [pid for pid in pids if pid in there]


def wait_for_the_end(pids: Iterable[int]) -> None:
    """Raises TimeoutError naming those that do not end."""
    awaited, deadline = list(pids), time.monotonic() + PATIENCE_S
    while left := running(awaited):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still running after {PATIENCE_S:g} s: {left}")
        time.sleep(0.05)
