"""The pace at which a source is asked: no burst, and in no second more requests than allowed, by the provider's clock.

A request arrives at some moment between being sent and being answered. So that any two moments are far enough apart,
the n-th request after another is sent at least a second after the other was *answered*, n being what one second may
hold; and any two are sent an even step apart. Nothing is saved up while idle. A new limiter behaves as if a full
second's worth had been answered just now: by whoever held the segment before. Durations are monotonic, so a step of
the clock grants nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.clock import Clock


class Limiter:
    """Paces one segment's requests to `per_second`; below 1, one in `1 / per_second` seconds."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self.step_s = 1 / per_second
        self._clock = clock
        self._window_s = max(1.0, self.step_s)
        most = max(1, int(per_second))
        now = clock.monotonic()
        self._answered = deque([now] * most, maxlen=most)
        self._sent = now

    @property
    def wait_s(self) -> float:
        """Seconds until the next request may be sent."""
        free = max(self._answered[0] + self._window_s, self._sent + self.step_s)
        return max(0.0, free - self._clock.monotonic())

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request, sent now and answered, or given up, at the end of the block."""
        self._sent = self._clock.monotonic()
        try:
            yield
        finally:
            self._answered.append(self._clock.monotonic())


def per_segment(per_second: float, segments: int) -> float:
    """A segment's share of a rate: all may run at once."""
    return per_second / segments
