"""Processes that share a long search, and end with whoever started it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any

GRACE_S = 10.0
"""How long what a task has set up may take to end."""

_ending = threading.Event()
"""In a process of the pool: it has been told to end."""


@contextmanager
def pool(size: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """`size` processes, by default one for each core.

    On any error, on Ctrl-C and on SIGTERM, which is KeyboardInterrupt too, running tasks are ended, having ended what
    they set up, and no other is started. They end as well when the process itself is killed.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    running = _Pool(size, mp_context=get_context("spawn"), initializer=_until_told)
    try:
        yield running
        running.shutdown()
    except BaseException:
        _end(running)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


class _Pool(ProcessPoolExecutor):
    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        return super().submit(_run, task, arguments, named)


def _end(running: ProcessPoolExecutor) -> None:
    children = active_children()
    running.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.terminate()
    deadline = time.monotonic() + GRACE_S
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()


def _run(task: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A process that has been told to end does so once its task is undone: the executor would give it another."""
    try:
        return task(*arguments, **named)
    finally:
        if _ending.is_set():
            os._exit(1)


def _until_told() -> None:
    """Ctrl-C reaches every process of a terminal: here it is left to the parent, who tells."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _unwind)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _unwind(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _ending.set()
    raise SystemExit(1)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
