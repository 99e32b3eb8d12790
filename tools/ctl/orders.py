"""The commands with which an operator acts; each is one event to the function."""

from __future__ import annotations

import getpass
import sys
import uuid
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from reconciler.ranges import too_many
from tools.ctl import verbs as ctl_verbs
from tools.ctl.errors import CtlError, Uncertain
from tools.ctl.options import Here, Night, everywhere
from tools.ctl.verbs import Command

orders = typer.Typer()

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
By = Annotated[str | None, typer.Option("--by", help="Who asks for it (default: your user name).")]
Id = Annotated[
    str | None, typer.Option("--id", help="The command's id: the same id is done once (default: a new one).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the event.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@orders.command()
@everywhere
def rerun(
    here: Here,
    interval: Night,
    reason: Reason,
    start: Annotated[str | None, typer.Option("--from", help="checkpoint or start (default: what fits).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also one that is COMPLETED.")] = False,
    revocation_bound: Annotated[
        int | None, typer.Option("--revocation-bound", help="So many accounts may be revoked in all.")
    ] = None,
    by: By = None,
    id: Id = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run an interval again, from its checkpoint or from the start."""
    about = {"interval": interval, "from": start, "force": force, "revocation_bound": revocation_bound}
    ask = f"Run {interval} again although it may be COMPLETED?" if force else ""
    order(here, command("Rerun", by, reason, id, about), dry_run=dry_run, ask="" if yes else ask)


@orders.command()
@everywhere
def skip(
    here: Here, interval: Night, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Do not run an interval that never started."""
    ask = "" if yes else f"Skip {interval}?"
    order(here, command("Skip", by, reason, id, {"interval": interval}), dry_run=dry_run, ask=ask)


@orders.command()
@everywhere
def acknowledge(
    here: Here,
    interval: Night,
    reason: Reason,
    through: Annotated[str | None, typer.Option("--through", help="The last night of a span.")] = None,
    by: By = None,
    id: Id = None,
    dry_run: DryRun = False,
) -> None:
    """End the alarms of intervals that are SKIPPED or need repair; their records stay."""
    about = {"interval": interval, "through": through}
    order(here, command("Acknowledge", by, reason, id, about), dry_run=dry_run)


@orders.command()
@everywhere
def pause(here: Here, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Start nothing any more; a running worker stops at its next range."""
    ask = "" if yes else "Pause the whole job? Due nights turn late meanwhile."
    order(here, command("Pause", by, reason, id, {}), dry_run=dry_run, ask=ask)


@orders.command()
@everywhere
def resume(here: Here, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False) -> None:
    """End a pause."""
    order(here, command("Resume", by, reason, id, {}), dry_run=dry_run)


@orders.command("release-lease")
@everywhere
def release_lease(
    here: Here,
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="As in 000.")],
    reason: Reason,
    by: By = None,
    id: Id = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Fence the holder of a segment at once, or restore a lost lease row."""
    ask = "" if yes else f"Take the lease of segment {segment} from whoever holds it?"
    order(here, command("ReleaseLease", by, reason, id, {"segment": segment}), dry_run=dry_run, ask=ask)


@orders.command()
@everywhere
def verify(here: Here, interval: Night, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False) -> int:
    """Compute an interval's checksum again from the view; exit code 1 when it does not match."""
    answer = order(here, command("Verify", by, reason, id, {"interval": interval}), dry_run=dry_run)
    return 0 if answer is None or answer["result"].get("matches") else 1


@orders.command()
@everywhere
def preview(here: Here, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False) -> None:
    """What a run would grant, change, revoke and reject now. Changes nothing."""
    order(here, command("Preview", by, reason, id, {}), dry_run=dry_run)


def command(verb: str, by: str | None, reason: str, id: str | None, about: ctl_verbs.Json) -> Command:
    """Raises CtlError when nobody is named, and the system has no name for the user either."""
    try:
        return Command(verb, by or getpass.getuser(), reason, id or str(uuid.uuid4()), about)
    except (KeyError, OSError):
        raise CtlError("who asks for it? name yourself with --by") from None


def order(here: Here, given: Command, *, dry_run: bool, ask: str = "") -> ctl_verbs.Json | None:
    """Send a command and show what came of it; None for a dry run. `ask` is asked first of whoever can answer."""
    if dry_run:
        here.out.print_json(data=given.event())
        return None
    target = here.target()
    if ask and sys.stdin.isatty() and not typer.confirm(f"{target.name}: {ask}", err=True):
        raise CtlError("nothing was done")
    with here.err.status(escape(f"{given.verb}, --id {given.id}")) as waiting:
        try:
            if given.verb == "Preview":
                answer = ctl_verbs.preview(
                    given,
                    target.send,
                    guard_of=lambda revoked: too_many(revoked, target.settings.max_revocations),
                    part_done=lambda part: waiting.update(ctl_verbs.so_far(part)),
                )
            else:
                answer = ctl_verbs.obey(given, target.send)
        except Uncertain as uncertain:
            raise CtlError(f"{uncertain}; {again(given)}") from None
        except KeyboardInterrupt:
            raise CtlError(f"interrupted, it may be at work all the same; {again(given)}") from None
    here.answer(answer, *map(indented, ctl_verbs.lines(answer)))
    return answer


def again(given: Command) -> str:
    """How to learn what came of a command."""
    return f"repeat it with --id {given.id}: it is done once"


def indented(line: str) -> Padding:
    """A line that keeps its indentation where it wraps."""
    text = line.lstrip(" ")
    return Padding(Text(text, overflow="fold"), (0, 0, 0, len(line) - len(text)), expand=False)
