"""`make invoke EVENT=events/nightly.json`: one event through the real handler, against tables on a local AWS.

While `make local` runs, on its tables, so that one event goes on where another left off; else on fresh ones, on an
emulator of its own or on the one that AWS_ENDPOINT_URL names. Exits 0 with the result and the metrics it emitted, 1
when the handler raised or no tables could be made, 2 when the event file cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from tools import local_file
from tools.emulator import EmulatorError, emulator
from tools.local_file import answers, read_local
from tools.scene import REGION, local_client
from tools.seed import plan, seed
from tools.tables import create_tables, environment
from tools.worker import Reply, Worker, WorkerError

JOB = "local-invoke"
TIME, UNIQUE, LAST_NIGHT = "<aws.scheduler.scheduled-time>", "<unique>", "<last-night>"
"""What a sample leaves open: EventBridge Scheduler's own placeholder, an operator's new id, the last night's date."""

ACCOUNTS = 40


class EventError(ValueError):
    """The event file cannot be used; the message names it and says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one event and show what came of it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.invoke", description="Run one event through the handler.")
    parser.add_argument("event", type=Path, help="file with the event, as in events/")
    parser.add_argument("--stamp", action="store_true", help="only print the event, its placeholders filled in")
    given = parser.parse_args(arguments)
    now = datetime.now(UTC)
    try:
        event = read_event(given.event)
        if given.stamp:
            print(json.dumps(stamped(event, environment_of({}), now)))
            return 0
        return invoke(event, now)
    except EventError as error:
        print(error, file=sys.stderr)
        return 2
    except (EmulatorError, WorkerError) as error:
        print(error, file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"the tables could not be set up at {os.environ.get('AWS_ENDPOINT_URL')}: {error}", file=sys.stderr)
        return 1


def read_event(path: Path) -> dict[str, Any]:
    """Return the event in a file. Raises EventError unless it is a JSON object."""
    try:
        event = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise EventError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise EventError(f"{path}: not JSON: {error}") from None
    if not isinstance(event, dict):
        raise EventError(f"{path}: not a JSON object")
    return event


def stamped(event: dict[str, Any], settings: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Fill in what a sample leaves open: TIME as EventBridge Scheduler would, UNIQUE and LAST_NIGHT as a person would.

    A nightly's time is that of the last night, however often it is sent; every other's is the present second, so that
    two of them are two deliveries.
    """
    detail = event.get("detail")
    filled = dict(event)
    if event.get("time") == TIME:
        nightly = isinstance(detail, dict) and detail.get("trigger") == "nightly"
        time = last_night(settings, now) if nightly else now
        filled["time"] = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    if event.get("id") == UNIQUE:
        filled["id"] = str(uuid.uuid4())
    if isinstance(detail, dict) and detail.get("interval") == LAST_NIGHT:
        filled["detail"] = {**detail, "interval": f"{last_night(settings, now):%Y-%m-%d}"}
    return filled


def last_night(settings: Mapping[str, str], now: datetime) -> datetime:
    """The last scheduled time of a night that is not in the future."""
    hour, minute = int(settings["SCHEDULE_HOUR"]), int(settings["SCHEDULE_MINUTE"])
    time = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return time - timedelta(days=1) if time > now else time


def environment_of(tables: dict[str, str]) -> dict[str, str]:
    """The template's environment; without tables, their logical ids stand for them."""
    names = ("ControlTable", "AccountsTable", "EntitlementsTable", "IdempotencyTable")
    return environment({name: tables.get(name, name) for name in names}, job=JOB)


def invoke(event: dict[str, Any], now: datetime) -> int:
    """Run the event in a worker process, print what came of it."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-")))
        url, region, settings = local_tables() or fresh_tables(stack)
        event = stamped(event, settings, now)
        worker = stack.enter_context(Worker("invoke", settings, endpoint=url, directory=directory, region=region))
        worker.ready()
        reply = worker.call(event, handler=handler_of(event), timeout_s=960)
        show(event, reply, worker.metrics())
    return 0 if reply.error is None else 1


def local_tables() -> tuple[str, str, Mapping[str, str]] | None:
    """Endpoint, region and environment of `make local`; None when it does not run, or another endpoint is named."""
    found = None if os.environ.get("AWS_ENDPOINT_URL") else read_local(local_file.LOCAL_FILE)
    if found is None or not answers(found["endpoint"]):
        return None
    return found["endpoint"], found["region"], found["variables"]


def fresh_tables(stack: ExitStack) -> tuple[str, str, Mapping[str, str]]:
    """The same, of new tables with a few accounts; an emulator that was started for them ends with the stack."""
    url = os.environ.get("AWS_ENDPOINT_URL") or stack.enter_context(emulator())
    client = local_client(url, "invoke")
    stack.callback(client.close)
    tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
    names = {"accounts_table": tables["AccountsTable"], "entitlements_table": tables["EntitlementsTable"]}
    seed(client, plan(accounts=ACCOUNTS), **names)
    return url, REGION, environment_of(tables)


def handler_of(event: Mapping[str, Any]) -> str:
    """The function that the template's schedule of this event wakes."""
    detail = event.get("detail")
    return "watchdog" if isinstance(detail, dict) and detail.get("trigger") == "watchdog" else "reconcile"


def show(event: dict[str, Any], reply: Reply, metrics: Sequence[tuple[str, float, str]]) -> None:
    """Print event, result or error, and metrics."""
    console = Console()
    console.print(f"[bold]{handler_of(event)}[/] with", highlight=False)
    console.print_json(json.dumps(event))
    if reply.error is None:
        console.print("[bold green]returned[/]")
        console.print_json(json.dumps(reply.result))
    else:
        console.print(f"[bold red]raised {reply.error}:[/] {reply.message}", highlight=False)
    table = Table("Metric", "Value", "Unit", title="Metrics emitted", title_justify="left")
    for name, value, unit in metrics:
        table.add_row(name, f"{value:g}", unit)
    console.print(table if metrics else "no metrics emitted")


if __name__ == "__main__":
    sys.exit(main())
