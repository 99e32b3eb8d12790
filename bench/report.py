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
        (f"{size:,}", f"{each['wall_s']:.2f}", f"{1e6 * each['cpu_s'] / size:.0f}", f"{each['peak_mb']:.0f}")
        for each in results["growth"]
        if (size := each["accounts"])
    ]
    cold = [
        (kind.replace("_", " "), *(f"{1000 * figures[name]:.0f}" for name in ("import_s", "wall_s", "cpu_s")))
        for kind, figures in results["cold_start"].items()
    ]
    return "\n\n".join(
        (
            f"Measured on {said}; medians of {results['rounds']}.",
            "## Targets\n\n" + table(("target", "measured, worst case", ""), _told(verdicts)),
            "## Side by side\n\n![Time and memory against the bare loop](performance.png)",
            table(COLUMNS, [_columns(row) for row in rows]),
            "## Growth\n\n" + table(("accounts", "wall s", "CPU µs an account", "peak MB"), growth),
            "## Cold start\n\n" + table(("milliseconds", "imports", "in all", "CPU"), cold),
        )
    )


def _told(verdicts: Iterable[Verdict]) -> list[tuple[str, str, str]]:
    return [(each.target, each.measured, "reached" if each.reached else "**missed**") for each in verdicts]


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
    )


def grown(growth: Sequence[Mapping[str, float]]) -> list[Verdict]:
    """Whether memory stays flat and time per account does not rise, from 10 k accounts on."""
    base = next(each for each in growth if each["accounts"] == 10_000)
    most = growth[-1]
    memory = most["peak_mb"] / base["peak_mb"]
    pace = (most["cpu_s"] / most["accounts"]) / (base["cpu_s"] / base["accounts"])
    of = f"{most['accounts']:,} accounts to 10,000"
    return [
        Verdict(f"peak memory, {of}: ≤ 1.2", f"{memory:.2f}", memory <= 1.2),
        Verdict(f"CPU an account, {of}: ≤ 1.2", f"{pace:.2f}", pace <= 1.2),
    ]


def started(cold: Mapping[str, Mapping[str, float]]) -> list[Verdict]:
    """The whole of an idle tick against imports alone."""
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
    names = list(dict.fromkeys(row.contender for row in near if row.contender != cases.BARE))

    def plain(axes: Any) -> None:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())

    figure, (wall, cpu, grows) = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for axes, what, title in ((wall, "wall_s", "wall time"), (cpu, "cpu_s", "CPU")):
        for index, contender in enumerate(names):
            mine = {row.case: row for row in near if row.contender == contender and row.case in bare}
            at = [list(bare).index(case) + (index - len(names) / 2) * 0.15 for case in mine]
            heights = [getattr(row, what) / getattr(bare[case], what) for case, row in mine.items()]
            axes.bar(at, [height - 1 for height in heights], bottom=1, width=0.14, label=contender.replace("_", " "))
        axes.set_xticks(range(len(bare)), [cases.name(case).replace(", ", "\n") for case in bare])
        axes.set_yscale("log")
        plain(axes)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_title(f"{title} against the bare loop")
    wall.legend(fontsize="small")
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
