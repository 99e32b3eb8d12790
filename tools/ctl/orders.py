"""The commands with which an operator acts; each is one event to the function."""

from __future__ import annotations

from typing import Annotated

import typer

from tools.ctl.errors import CtlError
from tools.ctl.options import Here, Night, everywhere
from tools.ctl.sending import command, is_id, order

orders = typer.Typer()

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
By = Annotated[str | None, typer.Option("--by", help="Who asks for it (default: your user name).")]
Id = Annotated[
    str | None, typer.Option("--id", help="The command's id: the same id is done once (default: a new one).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the event.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, where a command would.")]


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
    yes: Yes = False,
) -> None:
    """End the alarms of intervals that are SKIPPED or need repair; their records stay."""
    if through is not None and is_id(interval) and is_id(through) and through < interval:
        raise CtlError(f"--through {through} is before {interval}: give the last night of the span")
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
def resume(here: Here, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False, yes: Yes = False) -> None:
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
def verify(
    here: Here, interval: Night, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False, yes: Yes = False
) -> int:
    """Compute an interval's checksum again from the view; exit code 1 when it does not match."""
    answer = order(here, command("Verify", by, reason, id, {"interval": interval}), dry_run=dry_run)
    return 0 if answer is None or answer["result"].get("matches") else 1


@orders.command()
@everywhere
def preview(
    here: Here, reason: Reason, by: By = None, id: Id = None, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """What a run would grant, change, revoke and reject now. Changes nothing."""
    order(here, command("Preview", by, reason, id, {}), dry_run=dry_run)
