"""`make invoke EVENT=events/nightly.json`: one event through the real handler, against fresh tables on a local AWS.

Starts an emulator, or uses the one that AWS_ENDPOINT_URL names. Exits 0 with the result and the metrics it emitted,
1 when the handler raised or no tables could be made, 2 when the event file cannot be used.
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

from tools.emulator import EmulatorError, emulator
from tools.scene import local_client
from tools.seed import plan, seed
from tools.tables import create_tables, environment
from tools.worker import Reply, Worker, WorkerError

JOB = "local-invoke"
PLACEHOLDER = "<aws.scheduler.scheduled-time>"
ACCOUNTS = 40


class EventError(ValueError):
    """The event file cannot be used; the message names it and says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one event and show what came of it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.invoke", description="Run one event through the handler.")
    parser.add_argument("event", type=Path, help="file with the event, as in events/")
    parser.add_argument("--stamp", action="store_true", help="only print the event, its scheduled time filled in")
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
    """Fill in the scheduled time, as EventBridge Scheduler would: a nightly's last one, else the last full tick."""
    if event.get("time") != PLACEHOLDER:
        return event
    detail = event.get("detail")
    if isinstance(detail, dict) and detail.get("trigger") == "nightly":
        hour, minute = int(settings["SCHEDULE_HOUR"]), int(settings["SCHEDULE_MINUTE"])
        time = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if time > now:
            time -= timedelta(days=1)
    else:
        tick_s = 60 * int(settings["TICK_MINUTES"])
        time = datetime.fromtimestamp(now.timestamp() // tick_s * tick_s, UTC)
    return {**event, "time": f"{time:%Y-%m-%dT%H:%M:%SZ}"}


def environment_of(tables: dict[str, str]) -> dict[str, str]:
    """The template's environment; without tables, their logical ids stand for them."""
    names = ("ControlTable", "AccountsTable", "EntitlementsTable", "IdempotencyTable")
    return environment({name: tables.get(name, name) for name in names}, job=JOB)


def invoke(event: dict[str, Any], now: datetime) -> int:
    """Set up tables and a few accounts, run the event in a worker process, print what came of it."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-")))
        url = os.environ.get("AWS_ENDPOINT_URL") or stack.enter_context(emulator())
        client = local_client(url, "invoke")
        stack.callback(client.close)
        tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
        seed(
            client,
            plan(accounts=ACCOUNTS),
            accounts_table=tables["AccountsTable"],
            entitlements_table=tables["EntitlementsTable"],
        )
        settings = environment_of(tables)
        event = stamped(event, settings, now)
        worker = stack.enter_context(Worker("invoke", settings, endpoint=url, directory=directory))
        worker.ready()
        reply = worker.call(event, handler=handler_of(event))
        show(event, reply, worker.metrics())
    return 0 if reply.error is None else 1


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
