"""What can happen to a message between a caller and DynamoDB.

A fault gets the call and a function that forwards it, and returns the answer to send back, or None to break the
connection. Whatever real networks do is a short composition of these two: not forwarding is a lost request, not
answering is a lost answer, forwarding twice is a duplicate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tools.wire import Answer, Call

Forward = Callable[[], Answer | None]
Fault = Callable[[Call, Forward], Answer | None]
Stage = Literal["before", "after"]
"""`before` the request is forwarded (nothing applied yet), or `after` (applied, not yet answered)."""


def drop_request(call: Call, forward: Forward) -> Answer | None:
    """The request never arrives; the caller's connection breaks."""
    return None


def drop_answer(call: Call, forward: Forward) -> Answer | None:
    """The request is applied; the caller's connection breaks before the answer."""
    forward()
    return None


def repeat(call: Call, forward: Forward) -> Answer | None:
    """The request is applied twice; the second answer goes back, as after a retry inside the SDK."""
    forward()
    return forward()


def delay(seconds: float, stage: Stage) -> Fault:
    """The request, or its answer, comes `seconds` later."""

    def fault(call: Call, forward: Forward) -> Answer | None:
        if stage == "before":
            time.sleep(seconds)
            return forward()
        answer = forward()
        time.sleep(seconds)
        return answer

    return fault


def trickle(byte_s: float) -> Fault:
    """The answer comes a byte every `byte_s` seconds: no read timeout that is longer ever ends the call."""

    def fault(call: Call, forward: Forward) -> Answer | None:
        answer = forward()
        return answer and replace(answer, byte_s=byte_s)

    return fault


def answer_with(answer: Answer, *, applied: bool = False) -> Fault:
    """The caller gets this answer; the request is applied as well only if `applied`."""

    def fault(call: Call, forward: Forward) -> Answer | None:
        if applied:
            forward()
        return answer

    return fault


class Hold:
    """Messages wait, `before` or `after` they are applied, until the test lets them go.

    A caller that gave up meanwhile does not matter: a released request is forwarded all the same, as a message that
    was delayed in the network would be.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.held: list[Call] = []
        self._dropped = False
        self._open = False
        self._changed = threading.Condition()

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        if self.stage == "before":
            return forward() if self._pass(call) else None
        answer = forward()
        return answer if self._pass(call) else None

    def _pass(self, call: Call) -> bool:
        """Wait for the gate; False when the message is to be dropped."""
        with self._changed:
            self.held.append(call)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open)
            return not self._dropped

    def wait(self, timeout_s: float) -> Call:
        """Block until a message is held and return the first; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self.held), timeout_s):
                raise TimeoutError(f"no message was held within {timeout_s:g} s")
            return self.held[0]

    def release(self) -> None:
        """Let the held messages go on, and all that come later."""
        self._end(dropped=False)

    def drop(self) -> None:
        """Break the connections of the held messages, and of all that come later."""
        self._end(dropped=True)

    def _end(self, *, dropped: bool) -> None:
        with self._changed:
            if not self._open:
                self._open, self._dropped = True, dropped
            self._changed.notify_all()
