"""The timeline of some intervals: who held which lease when, ranges, kills, takeovers, delays, skips, reruns, deadline.

Everything is read from the ControlTable, so any deployed stack has one:

    found = collect(["2026-11-29"], invocation=invocation)
    console.print(text(found, console.width))
    draw(found, Path("night.svg"))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler import clock, keys
from reconciler.invocation import Invocation
from reconciler.items import Row
from tools.timeline.history import History, Mark, history

if TYPE_CHECKING:
    from rich.console import RenderableType


class UnknownInterval(LookupError):
    """Nothing is on record for an interval."""

    def __init__(self, interval_id: str) -> None:
        super().__init__(f"no interval {interval_id} is on record")
        self.interval_id = interval_id


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was on record at a moment (`now_ms`, epoch milliseconds); one history for each interval asked for."""

    job: str
    now_ms: int
    histories: tuple[History, ...]

    def noted(self, interval_id: str, marks: Iterable[Mark]) -> Timeline:
        """The same with what somebody else saw of an interval, and what the ControlTable does not tell."""
        return replace(
            self,
            histories=tuple(one.noted(marks) if one.interval_id == interval_id else one for one in self.histories),
        )


def collect(interval_ids: Sequence[str], *, invocation: Invocation) -> Timeline:
    """Read what is on record of these intervals, each once, in their own order.

    Raises UnknownInterval, and TransientFailure, OutOfTime and SchemaTooNew as every read does.
    """
    wanted = sorted(set(interval_ids))
    job = invocation.settings.job_name
    leases = {row["sk"].removeprefix("LEASE#"): row for row in _rows("LEASE#", invocation)}
    progress = {name: _rows(f"PROGRESS#{name}#", invocation) for name in wanted}
    events = {name: _events(name, invocation) for name in wanted}
    of_job = _events(job, invocation)
    now_ms = invocation.clock.now_ms()
    histories = []
    for name in wanted:
        record = invocation.control_row(keys.interval(name))
        if record is None:
            raise UnknownInterval(name)
        others = of_job + [row for other, rows in events.items() if other != name for row in rows]
        found = history(record, events[name], others=others, progress=progress[name], leases=leases, now_ms=now_ms)
        histories.append(found)
    return Timeline(job, now_ms, tuple(histories))


def _rows(prefix: str, invocation: Invocation) -> list[Row]:
    return invocation.control_rows("begins_with(#sk, :prefix)", {":prefix": prefix})


def _events(name: str, invocation: Invocation) -> list[Row]:
    """The AUDIT rows of an interval or of the job, without the many of rejected accounts, which come last."""
    bounds = {":first": f"AUDIT#{name}#", ":last": f"AUDIT#{name}#REJECTED"}
    return invocation.control_rows("#sk BETWEEN :first AND :last", bounds)


def text(timeline: Timeline, width: int) -> RenderableType:
    """The timeline for a terminal, no line longer than `width` columns (80 or more)."""
    from tools.timeline.terminal import render

    return render(timeline, width)


def draw(timeline: Timeline, path: Path | str) -> None:
    """Write the timeline as a picture. Raises as `drawable` does, and OSError when the file cannot be written."""
    file = drawable(path)
    from tools.timeline.picture import picture  # matplotlib takes its time to load

    picture(timeline, file)


def drawable(path: Path | str) -> Path:
    """The path itself. Raises ValueError naming it when its suffix says no kind of picture, or there is no folder."""
    file = Path(path)
    if file.suffix.lower() not in (".svg", ".png"):
        raise ValueError(f"{path}: a timeline is drawn as .svg or .png")
    if not file.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {file.parent}")
    return file


def as_json(timeline: Timeline) -> dict[str, Any]:
    """The timeline as JSON values; every time as UTC text, null where nothing is known."""
    return {"job": timeline.job, "now": clock.text(timeline.now_ms), "intervals": list(map(_json, timeline.histories))}


def _json(value: History) -> dict[str, Any]:
    fields: dict[str, Any] = _with_times(asdict(value))
    fields["attempts"] = list(map(_with_times, fields["attempts"]))
    fields["marks"] = list(map(_with_times, fields["marks"]))
    return fields


def _with_times(fields: dict[str, Any]) -> dict[str, Any]:
    """Epoch milliseconds named `_ms` as UTC text named `_at`, `at_ms` as `at`."""
    named = {name: name.removesuffix("_ms") if name == "at_ms" else name.replace("_ms", "_at") for name in fields}
    return {
        named[name]: clock.text(value) if name.endswith("_ms") and value is not None else value
        for name, value in fields.items()
    }
