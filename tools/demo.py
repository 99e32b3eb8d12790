"""`make demo`: one bad night of the job, played in real processes against a local AWS, and judged at the end.

Exits 0 when every promise was kept, 1 when one was broken or the story came to a halt, 2 for bad arguments.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools import timeline
from tools.director import StoryError
from tools.emulator import EmulatorError
from tools.promises import Facts, Promise, judge
from tools.seed import MINIMUM_ACCOUNTS, plan
from tools.story import Options, tell
from tools.worker import WorkerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the story, print what came of it, return the exit code."""
    options, as_json, picture = parse(arguments)
    console = Console(stderr=as_json)  # with --json, stdout holds the object and nothing else
    began = time.monotonic()
    try:
        with Screen(console, options.accounts) as screen:
            told = tell(options, screen)
    except (StoryError, WorkerError, EmulatorError, TimeoutError) as error:
        console.print(f"[bold red]The story came to a halt:[/] {error}", highlight=False)
        return 1
    facts = told.facts
    promises = judge(facts, kill_after_range=options.kill_after_range)
    present(console, facts, promises, time.monotonic() - began)
    console.print("\nWho held the lease when. All times are UTC; what the ControlTable tells is in capitals\n")
    console.print(timeline.text(told.timeline, console.width))
    if picture is not None:
        timeline.draw(told.timeline, picture)
        console.print(f"\ndrawn to {picture}", highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(facts.json()))
    return 0 if all(promise.kept for promise in promises) else 1


def parse(arguments: Sequence[str] | None) -> tuple[Options, bool, Path | None]:
    """Read and check the command line; exits with 2 and a message that names what is wrong.

    Returns the story's options, whether JSON is wanted, and where to draw the timeline.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description="Play one bad night and judge it.")
    defaults = Options()
    parser.add_argument("--accounts", type=int, default=defaults.accounts, help="accounts on both sides (%(default)s)")
    parser.add_argument("--range-size", type=int, default=defaults.range_size, help="accounts a commit (%(default)s)")
    parser.add_argument("--page-size", type=int, default=defaults.page_size, help="rows a read (%(default)s)")
    parser.add_argument(
        "--kill-after-range",
        type=int,
        help=f"the last range before the first worker is killed ({defaults.kill_after_range}, or half of them)",
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="another one, other accounts (%(default)s)")
    parser.add_argument(
        "--changed", type=float, default=defaults.changed, help="share out of line, 0 to 1 (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON object on the last line")
    parser.add_argument("--timeline", metavar="FILE", help="draw who held the lease when, as .svg or .png")
    given = vars(parser.parse_args(arguments))
    as_json: bool = given.pop("json")
    file: str | None = given.pop("timeline")
    try:
        picture = None if file is None else timeline.drawable(file)
    except ValueError as error:
        parser.error(f"--timeline: {error}")
    wanted = given.pop("kill_after_range")
    options = Options(**given)
    if problem := _problem(options):
        parser.error(problem)
    ranges = _ranges(options)
    last = ranges - 2  # worker C commits one range more, and worker D at least one
    if last < 1:
        parser.error(f"the story needs at least 3 ranges, not {ranges}: more --accounts, or a smaller --range-size")
    if wanted is None:
        wanted = options.kill_after_range if options.kill_after_range <= last else math.ceil(last / 2)
    if not 1 <= wanted <= last:
        parser.error(f"--kill-after-range must be between 1 and {last}, not {wanted}: there are {ranges} ranges")
    return replace(options, kill_after_range=wanted), as_json, picture


def _problem(options: Options) -> str | None:
    """What is wrong with the options, if anything."""
    if not MINIMUM_ACCOUNTS <= options.accounts <= 100_000:
        return f"--accounts must be between {MINIMUM_ACCOUNTS} and 100000, not {options.accounts}"
    for name in ("range_size", "page_size"):
        if not 1 <= getattr(options, name) <= 10_000:
            return f"--{name.replace('_', '-')} must be between 1 and 10000, not {getattr(options, name)}"
    if not 0 <= options.changed <= 1:
        return f"--changed must be between 0 and 1, not {options.changed}"
    return None


def _ranges(options: Options) -> int:
    """How many ranges the night has at the least."""
    source = len(plan(accounts=options.accounts, seed=options.seed, changed=options.changed).source)
    return max(math.ceil(options.accounts / options.range_size), math.ceil(source / options.page_size))


class Screen:
    """The story as it goes: each step a line, and a bar for the accounts that are done."""

    def __init__(self, console: Console, accounts: int) -> None:
        columns = (
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,} accounts"),
        )
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self._progress.add_task("", total=accounts)
        self._step = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        self._step += 1
        self._progress.console.print(f"{self._step:>2}  {text}", highlight=False, soft_wrap=True)

    def accounts(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


def present(console: Console, facts: Facts, promises: Sequence[Promise], seconds: float) -> None:
    """Show every promise, what was seen of it, and the verdict."""
    table = Table(title="What the job promises, and what was seen", title_justify="left", show_lines=True)
    table.add_column("Promise", ratio=2)
    table.add_column("Seen", ratio=3)
    table.add_column("Kept", justify="center")
    for promise in promises:
        table.add_row(promise.says, promise.seen, "[green]yes[/]" if promise.kept else "[bold red]NO[/]")
    console.print(table, highlight=False)
    broken = [promise.says for promise in promises if not promise.kept]
    told = f"{facts.accounts:,} accounts in {facts.ranges} ranges, {seconds:.0f} s"
    if broken:
        console.print(f"[bold red]Broken:[/] {'; '.join(broken)} ({told})", highlight=False)
    else:
        console.print(f"[bold green]All {len(promises)} promises kept[/] ({told})", highlight=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that what was started ends too
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
