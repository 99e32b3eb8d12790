"""The options that every command of reconcilectl takes, before the command's name or after it."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from reconciler.errors import ReconcilerError
from reconciler.observability import logger
from tools.ctl import target
from tools.ctl.errors import USAGE, CtlError, one_line
from tools.ctl.target import Target
from tools.worker import WorkerError

P = ParamSpec("P")
KNOWN = (CtlError, ReconcilerError, BotoCoreError, ClientError, WorkerError, OSError)
"""What may go wrong without a defect of ours, which would show its traceback."""

PANEL = "Where, and how to answer"

StackName = Annotated[
    str | None,
    typer.Option("--stack-name", help="A deployed stack (default: RECONCILER_STACK).", rich_help_panel=PANEL),
]
Region = Annotated[str | None, typer.Option("--region", help="Its AWS region.", rich_help_panel=PANEL)]
Profile = Annotated[str | None, typer.Option("--profile", help="A profile of the AWS CLI.", rich_help_panel=PANEL)]
Local = Annotated[bool, typer.Option("--local", help="The tables of make local instead.", rich_help_panel=PANEL)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=PANEL)]
Night = Annotated[str, typer.Argument(metavar="INTERVAL", help="The date of the night, as in 2026-11-29.")]
SHARED: Mapping[str, Any] = {
    "stack_name": StackName,
    "region": Region,
    "profile": Profile,
    "local": Local,
    "as_json": AsJson,
}


@dataclass(slots=True)
class Here:
    """What the shared options say. `out` is for the answer, `err` for everything else."""

    stack_name: str | None = None
    region: str | None = None
    profile: str | None = None
    local: bool = False
    as_json: bool = False
    out: Console = field(default_factory=lambda: Console(highlight=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    name: str = "AWS"
    found: Target | None = None

    def target(self) -> Target:
        """Raises CtlError, or what AWS says."""
        self.name = "local emulator" if self.local else f"stack {self.stack_name or os.environ.get(target.VARIABLE)}"
        self.found = target.choose(self.stack_name, self.region, self.profile, self.local)
        self.name = self.found.name
        return self.found

    def answer(self, facts: Mapping[str, Any], *shown: object) -> None:
        """Print the facts as JSON, or what is shown of them."""
        if self.as_json:
            print(json.dumps(facts, default=str), file=self.out.file)
        else:
            for part in shown:
                self.out.print(part)

    def fail(self, line: str) -> None:
        """Say on stderr what went wrong, and as JSON on stdout too where that was asked for."""
        self.err.print(f"reconcilectl: {line}", soft_wrap=True, markup=False)
        if self.as_json:
            print(json.dumps({"error": line}), file=self.out.file)


def everywhere(command: Callable[Concatenate[Here, P], int | None]) -> Callable[..., int]:
    """Add the shared options to a command, and turn what goes wrong in it into one line and exit code 2."""
    own = inspect.signature(command, eval_str=True)
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in list(own.parameters.values())[1:]]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if kind in (Local, AsJson) else None, annotation=kind
        )
        for name, kind in SHARED.items()
    ]

    @functools.wraps(command)
    def run(context: typer.Context, *arguments: P.args, **given: P.kwargs) -> int:
        before: Mapping[str, Any] = context.obj or {}
        shared: dict[str, Any] = {name: given.pop(name) or before.get(name) for name in SHARED}
        here = Here(**shared)
        with guarded(here):
            return command(here, *arguments, **given) or 0

    parameters = [context, *kept, *added]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # what inspect reads first
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # it has other parameters
    return run


@contextmanager
def guarded(here: Here) -> Iterator[None]:
    """Silence the engine's own log, and say in one line what went wrong."""
    level = logger.log_level
    logger.setLevel("CRITICAL")
    try:
        yield
    except (typer.Exit, typer.Abort, typer.TyperException):
        raise
    except KNOWN as error:
        here.fail(one_line(error, here.name, is_local=here.local))
        raise typer.Exit(USAGE) from None
    finally:
        logger.setLevel(level)
        if here.found is not None:
            here.found.close()
