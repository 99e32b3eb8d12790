"""The child side of tools.worker: Lambda's part in a process of its own.

Reads one command a line, {"handler", "event", "remaining_s"}, runs that entry point of reconciler.app with a
Lambda-like context, and answers one line: {"result"} or {"error", "message"}. The first line, {}, says that the
imports are done. It ends with its parent: when stdin closes, and on Linux even when it is frozen then.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import uuid
from dataclasses import dataclass, field

PR_SET_PDEATHSIG = 1
"""prctl(2): the kernel sends a signal when the thread that started this process ends."""


@dataclass(frozen=True, slots=True)
class Context:
    """What Lambda hands a handler next to the event."""

    remaining_s: float
    function_name: str
    memory_limit_in_mb: int = 512
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.monotonic)

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:{os.environ['AWS_REGION']}:123456789012:function:{self.function_name}"

    @property
    def log_stream_name(self) -> str:
        return f"local/{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        return max(0, round((self.remaining_s - (time.monotonic() - self.started)) * 1000))


def main() -> None:
    """Serve commands until stdin ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the handler prints goes to the log, not between the replies
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper in a fresh process
    from reconciler import app

    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        context = Context(command["remaining_s"], os.environ["AWS_LAMBDA_FUNCTION_NAME"])
        try:
            reply = json.dumps({"result": getattr(app, command["handler"])(command["event"], context)})
        except Exception as error:  # as Lambda does: reported, and ready for the next event
            reply = json.dumps({"error": type(error).__name__, "message": str(error)})
        print(reply, file=replies, flush=True)


if __name__ == "__main__":
    main()
