"""`./reconcilectl`: what an operator asks and does, against a deployed stack or the tables of `make local`.

Exit codes: 0 done; 1 `verify` found something else than was recorded; 2 it could not be done, and one line on stderr
says why. With --json stdout holds one JSON object and nothing else, {"error": ...} when it could not be done.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tools.ctl import audit as ctl_audit
from tools.ctl import audit_text as ctl_audit_text
from tools.ctl import plan as ctl_plan
from tools.ctl import plan_text as ctl_plan_text
from tools.ctl import status
from tools.ctl import status_text as ctl_status_text
from tools.ctl import watch as ctl_watch
from tools.ctl.errors import USAGE, CtlError
from tools.ctl.options import AsJson, Here, Local, Night, Profile, Region, StackName, everywhere
from tools.ctl.orders import orders
from tools.ctl.target import Target

app = typer.Typer(
    help="See, explain and repair the nights of a scheduled reconciler.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def shared(
    context: typer.Context,
    stack_name: StackName = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
    as_json: AsJson = False,
) -> None:
    context.obj = {"stack_name": stack_name, "region": region, "profile": profile, "local": local, "as_json": as_json}


@app.command("status")
@everywhere
def show_status(
    here: Here,
    last: Annotated[int, typer.Option("--last", min=0, help="So many closed intervals too.")] = 5,
    watch: Annotated[bool, typer.Option("--watch", help="Show a live run as a bar until nobody works on it.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 2.0,
) -> None:
    """The intervals that may be unfinished and the last closed ones, their leases, delays and errors."""
    target = here.target()
    invocation = target.invocation()

    def look() -> status.Status:
        return status.collect(target.name, closed=last, invocation=invocation)

    screen = here.err if here.as_json else here.out
    seen = ctl_watch.watch(look, every, screen, plain=here.as_json) if watch else look()
    here.answer(seen.as_json(), ctl_status_text.text(seen))


@app.command()
@everywhere
def audit(here: Here, interval: Night) -> None:
    """What happened to an interval: who did what, when, why, in which pass and generation."""
    ctl_audit.checked(interval)
    target = here.target()
    story = ctl_audit.collect(interval, invocation=target.invocation())
    here.answer({"target": target.name, **story.as_json()}, heading(target), ctl_audit_text.text(story))


@app.command()
@everywhere
def plan(here: Here) -> None:
    """What the next tick would do. Writes nothing."""
    target = here.target()
    forecast = ctl_plan.collect(target.name, invocation=target.invocation())
    here.answer(forecast.as_json(), ctl_plan_text.text(forecast))


@app.command()
@everywhere
def timeline(
    here: Here,
    intervals: Annotated[list[str], typer.Argument(metavar="INTERVAL...", help="Dates of nights.")],
    out: Annotated[Path | None, typer.Option("--out", help="Draw it to this file, .svg or .png.")] = None,
) -> None:
    """Who held which lease when: ranges, kills, takeovers, skips, the deadline."""
    from tools import timeline as drawing  # matplotlib takes a second to import

    nights = [ctl_audit.checked(interval) for interval in intervals]
    try:
        if out is not None:
            drawing.drawable(out)
        target = here.target()
        seen = drawing.collect(nights, invocation=target.invocation())
        if out is not None:
            drawing.draw(seen, out)
    except drawing.UnknownInterval as unknown:
        raise CtlError(f"{unknown.interval_id} is not on record: status lists what is") from None
    except ValueError as problem:
        raise CtlError(str(problem)) from None
    except OSError as problem:
        raise CtlError(f"{out}: {problem.strerror or problem}") from None
    told = {"target": target.name, **drawing.as_json(seen)}
    here.answer(told, heading(target), drawing.text(seen, here.out.width))
    if out is not None:
        here.err.print(f"drawn to {out}", soft_wrap=True)


app.add_typer(orders)


def heading(target: Target) -> Text:
    """The job and where it is, and an empty line."""
    return Text(f"{target.settings.job_name} · {target.name}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    here = Here(as_json="--json" in given)
    try:
        code = typer.main.get_command(app).main(args=given, prog_name="reconcilectl", standalone_mode=False)
    except typer.TyperException as problem:
        said = " ".join(problem.format_message().split())
        context = getattr(problem, "ctx", None)
        here.fail(f"{said} ({context.command_path if context else 'reconcilectl'} --help lists what there is)")
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        here.fail("nothing was done")
        return USAGE
    return int(code or 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
