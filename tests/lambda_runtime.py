"""The real handler under AWS's own Lambda runtime: its client, and its emulator, which the SAM CLI brings.

The emulator decides as the platform does: it hands out events one at a time, says how much time is left, kills with
SIGKILL when none is, and starts a new process for the next event. The start of a process counts against its event.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tools.emulator import GRACE_S, LOCALHOST, emulator_python, free_port
from tools.worker import function_environment

BINARY = {"x86_64": "aws-lambda-rie-x86_64", "aarch64": "aws-lambda-rie-arm64"}.get(platform.machine())
RUNS_HERE = sys.platform == "linux" and BINARY is not None

TIMED_OUT = "Task timed out"

UNTIL_STDIN_CLOSES = '"$@" & read -r _; kill $!; wait $!'
"""What the shell that starts the emulator runs: stdin closes when we are done with it, and when we were killed."""


class TaskTimedOut(Exception):
    """The platform killed the invocation; the message is its own."""


@dataclass(frozen=True, slots=True)
class LambdaRuntime:
    """One function of the platform; `log` has what platform and handler wrote, in order."""

    name: str
    timeout_s: int
    port: int
    log: Path

    def invoke(self, event: object) -> Any:
        """Return what the handler did, or {"errorType", "errorMessage", "requestId", "stackTrace"} when it raised.

        Raises TaskTimedOut.
        """
        connection = HTTPConnection(LOCALHOST, self.port, timeout=self.timeout_s + 30)
        try:
            connection.request("POST", "/2015-03-31/functions/function/invocations", json.dumps(event))
            answer = connection.getresponse().read().decode()
        finally:
            connection.close()
        if answer.startswith(TIMED_OUT):
            raise TaskTimedOut(answer)
        return json.loads(answer)

    def request_ids(self) -> list[str]:
        """The id that the platform gave each invocation, oldest first."""
        return re.findall(r"^START RequestId: (\S+)", self.words(), re.MULTILINE)

    def starts(self) -> int:
        """How many processes were started so far."""
        return self.words().count("INIT START")

    def killed(self) -> list[int]:
        """The process of each invocation that ran out of time, oldest first."""
        found = re.findall(r"Reset initiated: Timeout\n.*Sending SIGKILL to runtime-\d+\((\d+)\)", self.words())
        return [int(pid) for pid in found]

    def words(self) -> str:
        return self.log.read_text("utf-8", "replace")


@contextmanager
def lambda_runtime(
    name: str, environment: Mapping[str, str], *, endpoint: str, directory: Path, timeout_s: int
) -> Iterator[LambdaRuntime]:
    """Run the reconcile function with a timeout of its own; it ends with everything it started.

    `name` is also the access key id, so the caller name that a proxy sees.
    """
    port, log = free_port(), directory / f"{name}.log"
    command = [str(_binary()), "--runtime-interface-emulator-address", f"{LOCALHOST}:{port}"]
    command += ["--runtime-api-address", f"{LOCALHOST}:{free_port()}"]
    command += [sys.executable, "-m", "awslambdaric", "reconciler.app.reconcile"]
    variables = function_environment(name, environment, endpoint=endpoint)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", UNTIL_STDIN_CLOSES, "sh", *command],
            env=variables | {"AWS_LAMBDA_FUNCTION_TIMEOUT": str(timeout_s)},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = LambdaRuntime(name, timeout_s, port, log)
    try:
        _wait_until_it_listens(running)
        yield running
    finally:
        _end(process)


def _binary() -> Path:
    find = "import importlib.util as u; print(*u.find_spec('samcli').submodule_search_locations)"
    found = subprocess.run([emulator_python(), "-c", find], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip()) / "local" / "rapid" / str(BINARY)


def _wait_until_it_listens(running: LambdaRuntime, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        connection = HTTPConnection(LOCALHOST, running.port, timeout=1)
        with suppress(OSError):
            connection.connect()
            connection.close()
            return
        time.sleep(0.05)
    raise TimeoutError(f"the runtime emulator did not listen within {timeout_s:g} s; its log:\n{running.words()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The emulator kills the function's process, which is in a group of its own, before it ends."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
