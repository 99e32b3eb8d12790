"""A live run as a bar, or as a line a look, until nobody is at work any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from reconciler.records import RUNNING
from tools.ctl.format import span
from tools.ctl.status import Interval, Status


def watch(look: Callable[[], Status], every_s: float, console: Console, *, plain: bool = False) -> Status:
    """Show the intervals at work until there are none, or until Ctrl-C; return the last status.

    A line for each look that shows something new when that is to be `plain`, or the console is no terminal.
    """
    try:
        status = _lines(look, every_s, console) if plain or not console.is_terminal else _bars(look, every_s, console)
    except _Interrupted as interrupted:
        return interrupted.status
    if status.running:
        names = ", ".join(one.interval for one in status.running)
        console.print(f"Nobody works on {names} now: nothing to watch until a tick goes on.", soft_wrap=True)
    return status


class _Interrupted(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__()
        self.status = status


def _looks(look: Callable[[], Status], every_s: float) -> Iterator[Status]:
    """The status as long as somebody is at work, and the first one after that."""
    status = look()
    try:
        while status.at_work:
            yield status
            time.sleep(every_s)
            status = look()
    except KeyboardInterrupt:
        raise _Interrupted(status) from None
    yield status


def _lines(look: Callable[[], Status], every_s: float, console: Console) -> Status:
    told: dict[str, str] = {}
    for status in _looks(look, every_s):
        for one in status.intervals:
            if one in status.at_work or one.interval in told:
                said = _ended(one) if one.state != RUNNING else _said(one)
                if told.get(one.interval) != said:
                    console.print(f"{one.interval} {said}", soft_wrap=True)
                    told[one.interval] = said
    return status


def _bars(look: Callable[[], Status], every_s: float, console: Console) -> Status:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=14),
        TextColumn("{task.fields[said]}"),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as bars:
        for status in _looks(look, every_s):
            for one in status.at_work:
                if one.interval not in tasks:
                    tasks[one.interval] = bars.add_task(one.interval, total=None, said="")
                _show(bars, tasks[one.interval], one)
        for interval in status.intervals:
            if interval.interval in tasks:
                done = interval.progress.accounts if interval.progress else 0
                bars.update(tasks[interval.interval], total=max(1, done), completed=done, said=_ended(interval))
    return status


def _ended(one: Interval) -> str:
    return f"{one.state}, {_count(one)}"


def _show(bars: Progress, task: TaskID, one: Interval) -> None:
    progress = one.progress
    if progress is not None:
        total = progress.expected_accounts
        whole = None if total is None else max(total, progress.accounts, 1)
        bars.update(task, total=whole, completed=progress.accounts)
    bars.update(task, said=_said(one))


def _said(one: Interval) -> str:
    progress = one.progress
    if progress is None:
        return "not begun"
    said = [_count(one)]
    if progress.rate_per_s is not None:
        said.append(f"{progress.rate_per_s:,.0f}/s")
    if progress.seconds_left is not None:
        said.append(f"{span(progress.seconds_left)} left")
    return ", ".join(said)


def _count(one: Interval) -> str:
    progress = one.progress
    if progress is None:
        return "0 accounts"
    if progress.expected_accounts is None:
        return f"{progress.accounts:,} accounts"
    return f"{progress.accounts:,}/~{progress.expected_accounts:,}"
