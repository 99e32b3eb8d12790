"""A function's execution environment as a process of its own: started warm, one event at a time, killed at will.

The parent holds a `Worker`; the child runs tools.runtime. What the handler prints (logs, metrics) goes to a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]


class WorkerError(RuntimeError):
    """The worker ended, or did not answer in time; the message has the last words of its log."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one invocation came to: a result, or the class and message of the error it raised."""

    result: Any = None
    error: str | None = None
    message: str | None = None


def function_environment(
    name: str, environment: Mapping[str, str], *, endpoint: str, region: str = "eu-west-1"
) -> dict[str, str]:
    """The whole environment of a function's process: nothing of ours but PATH. `name` is also its access key id."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYTHONUTF8": "1",
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        **environment,
    }


class Worker:
    """One warm execution environment with credentials of its own: `name` is its access key id, so its caller name.

    Ends with its `with` block, whatever state it is in; on Linux also with the thread that made it, however that ends.
    """

    def __init__(
        self, name: str, environment: Mapping[str, str], *, endpoint: str, directory: Path, region: str = "eu-west-1"
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._replies: queue.Queue[Json | None] = queue.Queue()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.runtime"],
                cwd=ROOT,
                env=function_environment(name, environment, endpoint=endpoint, region=region),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(json.loads(line))
        self._replies.put(None)

    def ready(self, timeout_s: float = 30.0) -> None:
        """Block until the handler's modules are imported."""
        self._next(timeout_s)

    def send(self, event: object, *, handler: str = "reconcile", remaining_s: float = 900.0) -> None:
        """Start one invocation with `remaining_s` seconds until its time is up."""
        assert self._process.stdin is not None
        command = {"handler": handler, "event": event, "remaining_s": remaining_s}
        with contextlib.suppress(BrokenPipeError):  # the reply tells
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    @property
    def answered(self) -> bool:
        """Whether a reply is there, or the worker has ended."""
        return not self._replies.empty()

    def reply(self, timeout_s: float = 60.0) -> Reply:
        """Return what the invocation came to; raises WorkerError when it died or is not done in time."""
        return Reply(**self._next(timeout_s))

    def call(self, event: object, *, handler: str = "reconcile", timeout_s: float = 60.0) -> Reply:
        """Run one invocation to its end."""
        self.send(event, handler=handler)
        return self.reply(timeout_s)

    def _next(self, timeout_s: float) -> Json:
        try:
            reply = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerError(f"{self.name} did not answer within {timeout_s:g} s; its log:\n{self._words()}") from None
        if reply is None:
            self._replies.put(None)
            raise WorkerError(f"{self.name} ended with {self._process.wait()}; its log:\n{self._words()}")
        return reply

    def _words(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2000:]

    def stop(self) -> None:
        """Freeze it where it stands (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Wake it up again (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """End it at once (SIGKILL), with no chance to clean up; return its exit status."""
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()

    def lines(self) -> list[Json]:
        """Return the log lines that are JSON objects, oldest first."""
        return list(_objects(self.log.read_text("utf-8", "replace")))

    def metrics(self) -> list[tuple[str, float, str]]:
        """Return (name, value, unit) of every metric emitted so far, in CloudWatch's embedded metric format."""
        found = []
        for line in self.lines():
            for directive in line.get("_aws", {}).get("CloudWatchMetrics", ()):
                for metric in directive["Metrics"]:
                    values = line[metric["Name"]]
                    values = values if isinstance(values, list) else [values]
                    found += [(metric["Name"], float(value), metric.get("Unit", "None")) for value in values]
        return found


def _objects(text: str) -> Iterator[Json]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value
