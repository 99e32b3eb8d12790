"""How a command is checked, asked for, sent, and what is shown of its answer."""

from __future__ import annotations

import getpass
import sys
import uuid
from dataclasses import replace

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from reconciler import keys
from reconciler.errors import InvalidTrigger
from reconciler.intervals import checked_id
from reconciler.invocation import Invocation
from reconciler.keys import MAX_SEGMENTS
from reconciler.ranges import too_many
from reconciler.records import RunRecord
from reconciler.settings import Settings
from reconciler.triggers import parse_trigger
from tools.ctl import answers as ctl_answers
from tools.ctl import target as ctl_target
from tools.ctl import verbs as ctl_verbs
from tools.ctl.errors import CtlError, Uncertain, spoken
from tools.ctl.options import Here
from tools.ctl.verbs import Command
from tools.tables import environment


def command(verb: str, by: str | None, reason: str, id: str | None, about: ctl_verbs.Json) -> Command:
    """Raises CtlError for a blank option, and when nobody is named and the system has no name for the user either."""
    for option, value in (("--by", by), ("--id", id), ("--reason", reason)):
        if value is not None and not value.strip():
            raise CtlError(f"{option} is blank: give a text{'' if option == '--reason' else ', or leave it out'}")
    try:
        return Command(verb, by or getpass.getuser(), reason, id or str(uuid.uuid4()), about)
    except (KeyError, OSError):
        raise CtlError("who asks for it? name yourself with --by") from None


def order(here: Here, given: Command, *, dry_run: bool, ask: str = "") -> ctl_verbs.Json | None:
    """Send a command and show what came of it; None for a dry run.

    `ask` is asked first; raises CtlError where nobody can be asked.
    """
    if dry_run:
        checked(given.event())
        here.out.print_json(data=given.event())
        return None
    if ask and not sys.stdin.isatty():
        raise CtlError("not a terminal, so nobody can be asked: add --yes")
    target = here.target()
    if ask and not typer.confirm(f"{target.name}: {ask}", err=True):
        raise CtlError("nothing was done")
    span = span_of(given, target.invocation())
    with here.err.status(escape(f"{given.verb}, --id {given.id}")) as waiting:
        try:
            if given.verb == "Preview":
                answer = ctl_verbs.preview(
                    given,
                    target.send,
                    guard_of=lambda revoked: too_many(revoked, target.settings.max_revocations),
                    part_done=lambda part: waiting.update(ctl_answers.so_far(part)),
                )
            else:
                answer = ctl_verbs.obey(given, target.send)
        except Uncertain as uncertain:
            raise CtlError(f"{uncertain}; {again(given)}") from None
        except KeyboardInterrupt:
            raise CtlError(f"interrupted, it may be at work all the same; {again(given)}") from None
    if span and answer["outcome"] == "done":
        touched = answer["result"].get("intervals", ())
        answer["not_touched"] = {name: state for name, state in span.items() if name not in touched}
    here.answer(answer, *map(indented, ctl_answers.lines(answer)))
    return answer


def checked(event: ctl_verbs.Json) -> None:
    """Raises CtlError for what every stack refuses; what depends on a stack's own settings it says itself."""
    names = ("ControlTable", "AccountsTable", "EntitlementsTable", "IdempotencyTable")
    settings = Settings.from_env(environment({name: name for name in names}, job="dry-run"))
    lenient = replace(settings, segment_count=MAX_SEGMENTS, schedule_hour=0, schedule_minute=0)
    try:
        parse_trigger(event, now_ms=ctl_target.CLOCK.now_ms(), settings=lenient)
    except InvalidTrigger as wrong:
        raise CtlError(f"refused: {spoken(str(wrong))}") from None


def span_of(given: Command, invocation: Invocation) -> dict[str, str]:
    """Interval → state of what an Acknowledge of a span may leave out: all that is neither completed nor seen."""
    first, last = given.about.get("interval"), given.about.get("through")
    if given.verb != "Acknowledge" or not (is_id(first) and is_id(last)):
        return {}
    bounds = {":first": keys.interval(str(first)), ":last": keys.interval(str(last))}
    rows = invocation.control_rows("#sk BETWEEN :first AND :last", bounds)
    records = [RunRecord.of(row) for row in rows]
    return {record.interval_id: record.state for record in records if not record.closed}


def is_id(text: object) -> bool:
    """Whether it is the date of a night."""
    try:
        return isinstance(text, str) and bool(checked_id(text))
    except ValueError:
        return False


def again(given: Command) -> str:
    """How to learn what came of a command."""
    return f"repeat it with --id {given.id}: it is done once"


def indented(line: str) -> Padding:
    """A line that keeps its indentation where it wraps."""
    text = line.lstrip(" ")
    return Padding(Text(text, overflow="fold"), (0, 0, 0, len(line) - len(text)), expand=False)
