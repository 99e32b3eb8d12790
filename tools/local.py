"""`make local`: an emulator with the template's tables and a few accounts, for as long as it is left running.

Says so in `.local/environment.json`, where `make invoke` and `reconcilectl --local` find it, and removes that at
the end. Ctrl-C and SIGTERM end it: exit code 0; 1 when it could not be started, or when the emulator ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from tools.emulator import EmulatorError, emulator
from tools.local_file import LOCAL_FILE, answers, read_local, write_local
from tools.scene import REGION, local_client
from tools.seed import MINIMUM_ACCOUNTS, plan, seed
from tools.tables import create_tables, environment

JOB = "local"
ACCOUNTS = 200
LOOK_EVERY_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, say what to type next, wait to be ended; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.local", description="Tables to try the job on.")
    parser.add_argument("--accounts", type=int, default=ACCOUNTS, help="accounts on both sides (%(default)s)")
    parser.add_argument("--source-url", help="read a provider here instead of the AccountsTable: see tools.provider")
    parser.add_argument("--file", type=Path, default=LOCAL_FILE, help="where to say what was started (%(default)s)")
    given = parser.parse_args(arguments)
    if given.accounts < MINIMUM_ACCOUNTS:
        parser.error(f"--accounts must be at least {MINIMUM_ACCOUNTS}, not {given.accounts}")
    running = read_local(given.file)
    if running is not None and answers(running["endpoint"]):
        print(f"make local is running already, at {running['endpoint']} ({given.file})", file=sys.stderr)
        return 1
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with started(given.accounts, given.file, given.source_url) as endpoint:
            tell(endpoint, given.accounts)
            while not ended.wait(LOOK_EVERY_S):
                if not answers(endpoint):
                    raise EmulatorError("the emulator has ended, and its tables with it")
    except (EmulatorError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"the tables could not be set up: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def started(accounts: int, file: Path, source_url: str | None = None) -> Iterator[str]:
    """Run an emulator with tables and accounts, and the file that says so; yields its endpoint."""
    source = {"Source": "http", "SourceUrl": source_url} if source_url else {}
    with emulator() as endpoint:
        client = local_client(endpoint, "local")
        tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
        names = {"accounts_table": tables["AccountsTable"], "entitlements_table": tables["EntitlementsTable"]}
        seed(client, plan(accounts=accounts), **names)
        client.close()
        said = {"endpoint": endpoint, "region": REGION, "variables": environment(tables, job=JOB, parameters=source)}
        write_local(file, said)
        try:
            yield endpoint
        finally:
            if read_local(file) == said:  # a later one's stays
                file.unlink(missing_ok=True)


def tell(endpoint: str, accounts: int) -> None:
    """What was started, and what to type in another terminal."""
    console = Console(highlight=False)
    console.print(
        f"Emulator at {endpoint} with {accounts} accounts, until Ctrl-C. In another terminal:\n", soft_wrap=True
    )
    for command, what in NEXT:
        console.print(f"  {command:<44}{what}", soft_wrap=True, markup=False)


NEXT = (
    ("make invoke EVENT=events/nightly.json", "last night, run now"),
    ("make invoke EVENT=events/tick.json", "what a tick finds left to do"),
    ("./reconcilectl --local status", "what is known of it"),
    ("./reconcilectl --local plan", "what the next tick would do"),
    ("./reconcilectl --local pause --reason why", "an operator's command; --help lists all"),
)


if __name__ == "__main__":
    sys.exit(main())
