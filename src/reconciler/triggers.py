"""An event becomes a trigger, or is refused by name before any side effect.

The slot (trigger kind and scheduled time) identifies a delivery: EventBridge Scheduler's own retries, and two
schedules on one function, carry different event ids for one slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler import clock
from reconciler.commands import Command, parse_command, substituted
from reconciler.errors import InvalidTrigger
from reconciler.settings import Settings

SCHEDULED = ("nightly", "tick", "watchdog")


@dataclass(frozen=True, slots=True)
class Trigger:
    """What woke the function.

    `kind` is `nightly`, `tick`, `watchdog` or `operator`; `time_ms` the scheduled time (for an operator: now);
    `slot` the idempotency key of the delivery; `command` what the operator wants, else None.
    """

    kind: str
    slot: str
    time_ms: int
    command: Command | None = None

    @property
    def interval_id(self) -> str:
        """The UTC date of the scheduled time."""
        return clock.text(self.time_ms)[:10]


def parse_trigger(event: object, *, now_ms: int, settings: Settings) -> Trigger:
    """Raises InvalidTrigger naming the first field that is wrong."""
    if not isinstance(event, Mapping):
        raise InvalidTrigger("event", f"must be an object, not {type(event).__name__}")
    source = event.get("source")
    if source == "operator":
        command = parse_command(event, now_ms=now_ms, settings=settings)
        return Trigger("operator", f"operator#{command.id}", now_ms, command)
    if source not in ("aws.scheduler", "aws.events"):
        raise InvalidTrigger("source", f"must be 'aws.scheduler', 'aws.events' or 'operator', not {source!r}")
    if event.get("detail-type") != "Scheduled Event":
        raise InvalidTrigger("detail-type", f"must be 'Scheduled Event', not {event.get('detail-type')!r}")
    kind = "tick" if source == "aws.events" else _kind(event.get("detail"))
    time_ms = _time(event.get("time"))
    if time_ms > now_ms + settings.tick_ms:
        raise InvalidTrigger("time", f"{event['time']} lies further in the future than one tick")
    return Trigger(kind=kind, slot=f"{kind}#{clock.text(time_ms)}", time_ms=time_ms)


def _kind(detail: object) -> str:
    if not isinstance(detail, Mapping):
        raise InvalidTrigger("detail", "must be an object with the field 'trigger'")
    kind = detail.get("trigger")
    if kind not in SCHEDULED:
        raise InvalidTrigger("detail.trigger", f"must be one of {', '.join(SCHEDULED)}, not {kind!r}")
    return str(kind)


def _time(value: object) -> int:
    if not isinstance(value, str):
        raise InvalidTrigger("time", f"must be text, not {value!r}")
    substituted("time", value)
    try:
        time_ms = clock.parse_ms(value)
    except (ValueError, OverflowError) as error:
        raise InvalidTrigger("time", f"must be ISO 8601 with a zone, as in 2026-11-29T02:00:00Z: {error}") from None
    if time_ms < 0:
        raise InvalidTrigger("time", f"{value} lies before 1970")
    return time_ms
