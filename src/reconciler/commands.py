"""What an operator may ask for: one event per command, every field of it checked before anything is done.

    Rerun         interval, from?, force?, revocation_bound?   run an interval again, or go on with it
    Skip          interval                                     an interval that never started is not to run
    Acknowledge   interval, through?                           seen: it rings no more, its record stays
    Pause         -                                            nothing is started; a running worker stops at its range
    Resume        -
    ReleaseLease  segment                                      fence the holder, or put a lost lease row back
    Verify        interval                                     compute the checksum again from the view
    Preview       segment?, after?                             what a run would do now

Each also has `requested_by` and `reason`, and the event an `id` of its own: the same id is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler import keys
from reconciler.errors import InvalidTrigger
from reconciler.intervals import Calendar, checked_id, days_between
from reconciler.settings import Settings
from reconciler.shown import shorten

FROM_CHECKPOINT, FROM_START = "checkpoint", "start"

FIELDS: dict[str, tuple[str, ...]] = {
    "Rerun": ("interval", "from", "force", "revocation_bound"),
    "Skip": ("interval",),
    "Acknowledge": ("interval", "through"),
    "Pause": (),
    "Resume": (),
    "ReleaseLease": ("segment",),
    "Verify": ("interval",),
    "Preview": ("segment", "after"),
}
"""Verb → the fields of its detail, besides `requested_by` and `reason`."""

VERBS = tuple(FIELDS)

REQUIRED = {"Rerun": "interval", "Skip": "interval", "Acknowledge": "interval", "Verify": "interval"}
REQUIRED["ReleaseLease"] = "segment"

MAX_SPAN = 90
"""Days of one Acknowledge: its transaction holds 100 actions at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A checked command; `asked` holds the fields of FIELDS that were given, by their names in the event."""

    verb: str
    id: str
    requested_by: str
    reason: str
    asked: Mapping[str, Any]

    @property
    def interval(self) -> str:
        """The interval it is about; "" for verbs that concern no single one."""
        return str(self.asked.get("interval", ""))


def parse_command(event: Mapping[str, Any], *, now_ms: int, settings: Settings) -> Command:
    """Raises InvalidTrigger naming the first field that is wrong."""
    verb = event.get("detail-type")
    if verb not in VERBS:
        raise InvalidTrigger("detail-type", f"must be one of {', '.join(VERBS)}, not {verb!r}")
    event_id = _text(event, "id", "id", "a text that is unique to this command", 256)
    substituted("id", event_id)
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise InvalidTrigger("detail", "must be an object")
    known = ("requested_by", "reason", *FIELDS[verb])
    for name in detail:
        if name not in known:
            raise InvalidTrigger(f"detail.{name}", f"{verb} has no such field, only {', '.join(known)}")
    requested_by = _text(detail, "requested_by", "detail.requested_by", "a text that names a person", 256)
    reason = _text(detail, "reason", "detail.reason", "a text", 2_000)
    given = {name: detail[name] for name in FIELDS[verb] if detail.get(name) is not None}
    if (lacking := REQUIRED.get(verb)) and lacking not in given:
        raise InvalidTrigger(f"detail.{lacking}", f"{verb} needs it")
    asked = {name: CHECKS[name](f"detail.{name}", value, settings) for name, value in given.items()}
    command = Command(verb=str(verb), id=event_id, requested_by=requested_by, reason=reason, asked=asked)
    if command.interval:
        _check_dates(command.interval, asked.get("through", command.interval), now_ms, settings)
    return command


def _check_dates(interval: str, through: str, now_ms: int, settings: Settings) -> None:
    if Calendar.of(settings).scheduled_ms(interval) > now_ms + settings.tick_ms:
        raise InvalidTrigger("detail.interval", f"{interval} lies in the future")
    if not 0 <= days_between(interval, through) < MAX_SPAN:
        raise InvalidTrigger("detail.through", f"{through} is not within {MAX_SPAN} days from {interval}")


def substituted(field: str, value: str) -> None:
    """Raises InvalidTrigger for a placeholder that nobody filled in."""
    if value.startswith("<"):
        raise InvalidTrigger(field, f"{value} was not substituted: its sender fills it in")


def _text(holder: Mapping[str, Any], name: str, path: str, wanted: str, longest: int) -> str:
    value = holder.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidTrigger(path, f"must be {wanted}, not {value!r}")
    if len(value) > longest:
        raise InvalidTrigger(path, f"has {len(value)} characters, more than {longest}")
    if not _is_unicode(value):
        raise InvalidTrigger(path, "holds half a character (a lone surrogate)")
    return value


def _is_unicode(value: str) -> bool:
    return value.encode("utf-8", "replace").decode("utf-8") == value


def _interval(path: str, value: object, settings: Settings) -> str:
    if not isinstance(value, str):
        raise InvalidTrigger(path, f"must be a date as in 2026-11-29, not {value!r}")
    substituted(path, value)
    try:
        return checked_id(value)
    except ValueError:
        raise InvalidTrigger(path, f"must be a date as in 2026-11-29, not {value!r}") from None


def _from(path: str, value: object, settings: Settings) -> str:
    if value not in (FROM_CHECKPOINT, FROM_START):
        raise InvalidTrigger(path, f"must be '{FROM_CHECKPOINT}' or '{FROM_START}', not {value!r}")
    return str(value)


def _flag(path: str, value: object, settings: Settings) -> bool:
    if not isinstance(value, bool):
        raise InvalidTrigger(path, f"must be true or false, not {value!r}")
    return value


def _number(path: str, value: object, settings: Settings) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000_000:
        raise InvalidTrigger(path, f"must be a whole number from 0 to 1000000000, not {value!r}")
    return value


def _segment(path: str, value: object, settings: Settings) -> str:
    names = keys.segments(settings.segment_count)
    if value not in names:
        raise InvalidTrigger(path, f"must be a segment from '{names[0]}' to '{names[-1]}', not {value!r}")
    return str(value)


def _account(path: str, value: object, settings: Settings) -> str:
    if not isinstance(value, str) or not _is_unicode(value) or len(value.encode()) > keys.MAX_ACCOUNT_ID_BYTES:
        wanted = f"an account id of at most {keys.MAX_ACCOUNT_ID_BYTES} bytes"
        raise InvalidTrigger(path, f"must be {wanted}, not {shorten(repr(value))}")
    return value


CHECKS: dict[str, Callable[[str, Any, Settings], Any]] = {
    "interval": _interval,
    "through": _interval,
    "from": _from,
    "force": _flag,
    "revocation_bound": _number,
    "segment": _segment,
    "after": _account,
}
