"""What was measured, for people: tables and targets between two marks of docs/performance.md, and a picture."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import cases
from bench.cases import Row, Verdict

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "performance.md", DOCS / "performance.png"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"


def machine() -> dict[str, str]:
    """Where it was measured, and with what."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ("boto3", "botocore", "aws-lambda-powertools")
    return {
        "processor": f"{os.cpu_count()} × {models[0] if models else platform.machine()}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        **{name: _locked(name) for name in ("python-dynamodb-lock", "aws-durable-execution-sdk-python")},
    }


def _locked(name: str) -> str:
    lock = (DOCS.parent / "requirements-bench.lock").read_text("utf-8")
    (line,) = (line for line in lock.splitlines() if line.startswith(f"{name}=="))
    return line.split()[0].partition("==")[2]


def write(results: Mapping[str, Any]) -> None:
    """Replace what stands between the marks, and the picture; everything else on the page is left alone."""
    rows = [Row(**row) for row in results["rows"]]
    draw(rows, results["growth"], PICTURE)
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text(results, rows)}\n\n{END}{after}", "utf-8")


def text(results: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The measured part of the page."""
    said = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    verdicts = [*cases.verdicts(rows), *grown(results["growth"]), *started(results["cold_start"])]
    growth = [
        (
            f"{size:,}",
            f"{each['wall_s']:.2f}",
            f"{1e6 * each['cpu_s'] / size:.0f}",
            f"{each['peak_mb']:.0f}",
            each["rounds"],
        )
        for each in results["growth"]
        if (size := each["accounts"])
    ]
    cold = [
        (kind.replace("_", " "), *(f"{1000 * results['cold_start'][kind][name]:.0f}" for name in STARTED))
        for kind in ("imports", "idle_tick")
        if kind in results["cold_start"]
    ]
    return "\n\n".join(
        (
            f"Measured on {said}. Figures are medians of as many rounds as are stated with them.{apart(rows)}",
            "## Targets\n\n" + table(("target", "measured, worst case", ""), _told(verdicts)),
            "## Side by side\n\n![Time and memory against the bare loop](performance.png)",
            table(COLUMNS, [_columns(row) for row in rows]),
            "## Growth\n\n" + table(("accounts", "wall s", "CPU µs an account", "peak MB", "rounds"), growth),
            "## Cold start\n\n" + table(("milliseconds", "imports", "in all", "CPU"), cold),
        )
    )


def _told(verdicts: Iterable[Verdict]) -> list[tuple[str, str, str]]:
    return [(each.target, each.measured, "reached" if each.reached else "**missed**") for each in verdicts]


STARTED = ("import_s", "wall_s", "cpu_s")


def apart(rows: Sequence[Row]) -> str:
    """Which cases were not measured in one go, so that not all of their rows can be held against each other."""
    runs: dict[cases.Case, set[str]] = {}
    for row in rows:
        runs.setdefault(row.case, set()).add(row.run)
    several = "; ".join(cases.name(case) for case, begun in runs.items() if len(begun) > 1)
    return f" Measured in several goes, and so compared only within each: {several}." if several else ""


COLUMNS = (
    "case",
    "contender",
    "wall s",
    "CPU s",
    "requests",
    "minimum",
    "read units",
    "write units",
    "reads, rows repeated after a kill",
    "peak MB",
    "rounds",
)


def _columns(row: Row) -> tuple[str, ...]:
    again = "" if row.repeated_reads_after_kill is None else f"{row.repeated_reads_after_kill}, "
    again += "" if row.repeated_rows_after_kill is None else f"{row.repeated_rows_after_kill:,}"
    return (
        cases.name(row.case),
        row.contender.replace("_", " "),
        f"{row.wall_s:.2f}",
        f"{row.cpu_s:.2f}",
        f"{row.sent:,}",
        f"{row.minimum_requests:,}",
        f"{row.read_units:,.0f}",
        f"{row.write_units:,.0f}",
        again,
        f"{row.peak_mb:.0f}",
        str(row.rounds),
    )


def grown(growth: Sequence[Mapping[str, float]]) -> list[Verdict]:
    """Whether memory stays flat and time per account does not rise, from 10 k accounts to the most that were tried."""
    base = next((each for each in growth if each["accounts"] == cases.SMALL), None)
    if base is None or growth[-1] is base:
        return []
    most = growth[-1]
    memory = most["peak_mb"] / base["peak_mb"]
    pace = (most["cpu_s"] / most["accounts"]) / (base["cpu_s"] / base["accounts"])
    of = f"{most['accounts']:,} accounts to {cases.SMALL:,}"
    return [
        Verdict(f"peak memory, {of}: ≤ 1.2", f"{memory:.2f}", memory <= 1.2),
        Verdict(f"linear time, CPU an account, {of}: ≤ 1.2", f"{pace:.2f}", pace <= 1.2),
    ]


def started(cold: Mapping[str, Any]) -> list[Verdict]:
    """The whole of an idle tick, from a cold start, against imports alone."""
    if not cold:
        return []
    ratio = cold["idle_tick"]["wall_s"] / cold["imports"]["wall_s"]
    return [Verdict("idle tick against the bare imports: ≤ 1.5", f"{ratio:.2f}", ratio <= 1.5)]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def draw(rows: Sequence[Row], growth: Sequence[Mapping[str, float]], path: Path) -> None:
    """Wall time and CPU of everyone as a multiple of the bare loop's, on a scale of factors, and the growth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    near = [row for row in rows if not row.source_latency_s]
    bare = {row.case: row for row in near if row.contender == cases.BARE}
    by = {(case, cases.BARE): row for case, row in bare.items()}
    names = list(dict.fromkeys(row.contender for row in near if row.contender != cases.BARE))

    def plain(axes: Any) -> None:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())

    figure, (wall, cpu, grows) = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for axes, what, title in ((wall, "wall_s", "wall time"), (cpu, "cpu_s", "CPU")):
        for index, contender in enumerate(names):
            pairs = cases.beside([row for row in near if row.contender == contender], cases.BARE, by)
            mine = {row.case: row for row, _ in pairs}
            at = [list(bare).index(case) + (index - len(names) / 2) * 0.15 for case in mine]
            heights = [getattr(row, what) / getattr(bare[case], what) for case, row in mine.items()]
            bars = [height - 1 for height in heights]
            drawn = axes.bar(at, bars, bottom=1, width=0.14, label=contender.replace("_", " "))
            axes.bar_label(drawn, [f"{height:.3g}" for height in heights], fontsize="xx-small", rotation=90, padding=2)
        axes.set_xticks(range(len(bare)), [cases.name(case).replace(", ", "\n") for case in bare])
        axes.set_yscale("log")
        plain(axes)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_title(f"{title} against the bare loop")
        axes.margins(y=0.15)
    if wall.get_legend_handles_labels()[0]:
        figure.legend(*wall.get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize="small")
    sizes = [each["accounts"] for each in growth]
    grows.plot(sizes, [each["wall_s"] for each in growth], marker="o", color="tab:blue", label="seconds")
    grows.plot(sizes, [each["peak_mb"] for each in growth], marker="s", color="tab:red", label="peak memory, MB")
    grows.set_xscale("log")
    grows.set_yscale("log")
    plain(grows)
    grows.set_xlabel("accounts")
    grows.set_title("growth of the reconciler")
    grows.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
