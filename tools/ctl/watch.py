"""A live run as a bar, until nothing runs any more."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from tools.ctl.format import span
from tools.ctl.status import Interval, Status


def watch(look: Callable[[], Status], every_s: float, console: Console) -> Status:
    """Show the running intervals until there are none, or until Ctrl-C; return the last status."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=14),
        TextColumn("{task.fields[said]}"),
    )
    tasks: dict[str, TaskID] = {}
    status = look()
    with Progress(*columns, console=console) as bars:
        try:
            while status.running:
                for one in status.running:
                    if one.interval not in tasks:
                        tasks[one.interval] = bars.add_task(one.interval, total=None, said="")
                    _show(bars, tasks[one.interval], one)
                time.sleep(every_s)
                status = look()
        except KeyboardInterrupt:
            return status
        for interval in status.intervals:
            if interval.interval in tasks:
                said = f"{interval.state}, {_count(interval)}"
                done = interval.progress.accounts if interval.progress else 0
                bars.update(tasks[interval.interval], total=max(1, done), completed=done, said=said)
    return status


def _show(bars: Progress, task: TaskID, one: Interval) -> None:
    progress = one.progress
    if progress is None:
        bars.update(task, said="not begun")
        return
    said = [_count(one)]
    if progress.rate_per_s is not None:
        said.append(f"{progress.rate_per_s:,.0f}/s")
    if progress.seconds_left is not None:
        said.append(f"{span(progress.seconds_left)} left")
    total = progress.expected_accounts
    bars.update(task, total=None if total is None else max(total, progress.accounts, 1), completed=progress.accounts)
    bars.update(task, said=", ".join(said))


def _count(one: Interval) -> str:
    progress = one.progress
    if progress is None:
        return "0 accounts"
    if progress.expected_accounts is None:
        return f"{progress.accounts:,} accounts"
    return f"{progress.accounts:,}/~{progress.expected_accounts:,}"
