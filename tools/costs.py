"""`make costs`: what a stack costs a month, from what the job was measured to request and a list of prices.

tools/measured.json holds two nights, of a small and a middle size; between them every figure grows evenly with the
accounts, as the job reads and commits page by page. `--measure` runs both again on the local emulator and writes the
file. tools/prices.json holds the prices, with their date and where they come from.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.emulator import emulator
from tools.meter import Night, Use, measure
from tools.proxy import proxy
from tools.tables import load_template

HERE = Path(__file__).parent
MEASURED, PRICES = HERE / "measured.json", HERE / "prices.json"

SMALL, MIDDLE = 5_000, 15_000
SIZES = (10_000, 1_000_000, 10_000_000)
CHANGED = 0.01
"""Share of the accounts that a night changes."""

NIGHTS = 30
TICKS = LOOKS = NIGHTS * 24 * 12
AUDIT_DAYS = 400
LAMBDA_LINES_BYTES = 350
"""START, END and REPORT, which Lambda writes about each invocation."""

SECONDS_PER_ACCOUNT = 0.0005
"""Time of a worker for one account, measured on a developer's machine with the emulator on it (0.0003), rounded up."""

IDLE_SECONDS = 0.3
"""Of an idle tick or a look: three requests of 20 ms, and a cold start now and then."""

METRICS = 18
SOURCE_METRICS = 3
"""More, for a source that is a provider's: with Source=http only."""

DASHBOARDS = 1


@dataclass(frozen=True, slots=True)
class Model:
    """A night of any size, by the straight line through two that were measured."""

    small: Night
    middle: Night

    def use(self, accounts: int) -> Use:
        """What a night of so many accounts takes."""
        share = (accounts - self.small.accounts) / (self.middle.accounts - self.small.accounts)
        low, high = asdict(self.small.night), asdict(self.middle.night)
        line = {name: low[name] + share * (high[name] - low[name]) for name in low}
        return Use(round(line["requests"]), line["read_units"], line["write_units"], round(line["log_bytes"]))


def measured() -> Model:
    """The two nights of the committed file."""
    return Model(*(_night(each) for each in json.loads(MEASURED.read_text("utf-8"))))


def _night(stored: dict[str, Any]) -> Night:
    uses = {name: Use(**stored[name]) for name in ("night", "tick", "look")}
    return Night(**stored | uses)


def prices() -> dict[str, float]:
    """Name → US dollars."""
    return {name: each["usd"] for name, each in json.loads(PRICES.read_text("utf-8"))["prices"].items()}


def month(accounts: int, model: Model, usd: dict[str, float]) -> dict[str, float]:
    """What a month costs, by what it is paid for, in US dollars."""
    night, tick, look = model.use(accounts), model.middle.tick, model.middle.look
    invocations = NIGHTS + TICKS + LOOKS

    def units(name: str) -> float:
        uses = ((night, NIGHTS), (tick, TICKS), (look, LOOKS))
        return float(sum(getattr(use, name) * times for use, times in uses))

    resources = load_template()["Resources"].values()
    alarms = sum(body["Type"] == "AWS::CloudWatch::Alarm" for body in resources)
    composites = sum(body["Type"] == "AWS::CloudWatch::CompositeAlarm" for body in resources)
    gb_s = NIGHTS * accounts * SECONDS_PER_ACCOUNT * 1.0 + (TICKS * 1.0 + LOOKS * 0.25) * IDLE_SECONDS
    logs_gb = (units("log_bytes") + invocations * LAMBDA_LINES_BYTES) / 1e9
    control_gb = model.middle.control_bytes * AUDIT_DAYS / 1e9
    accounts_gb = accounts * model.middle.account_bytes / 1e9
    return {
        "reading": units("read_units") * usd["read_unit"],
        "writing": units("write_units") * usd["write_unit"],
        "storage, point-in-time recovery": (accounts_gb + control_gb) * usd["table_gb"] + control_gb * usd["pitr_gb"],
        "functions, schedules": gb_s * usd["lambda_gb_s"] + invocations * (usd["lambda_request"] + usd["schedule"]),
        "logs": logs_gb * (usd["log_gb"] + usd["log_storage_gb"]),
        "metrics": METRICS * usd["metric"],
        "alarms": alarms * usd["alarm"] + composites * usd["composite_alarm"],
        "dashboard": DASHBOARDS * usd["dashboard"],
    }


def table(model: Model, usd: dict[str, float]) -> str:
    """The months of all sizes as a table in Markdown, in US dollars."""
    months = [month(size, model, usd) for size in SIZES]
    rows = [(name, *(each[name] for each in months)) for name in months[0]]
    rows.append(("**total**", *(sum(each.values()) for each in months)))
    head = ["USD a month", *(f"{size:,} accounts" for size in SIZES)]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * len(SIZES) + "|"]
    lines += [f"| {name} | " + " | ".join(f"{value:,.2f}" for value in values) + " |" for name, *values in rows]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with `--measure` measure first."""
    parser = argparse.ArgumentParser(prog="python -m tools.costs", description="Costs per month.")
    parser.add_argument("--measure", action="store_true", help="measure again and write tools/measured.json")
    if parser.parse_args(arguments).measure:
        with emulator() as url, proxy(url) as between:
            nights = [asdict(measure(between, url, accounts=size, changed=CHANGED)) for size in (SMALL, MIDDLE)]
        MEASURED.write_text(json.dumps(nights, indent=2) + "\n", "utf-8")
    print(table(measured(), prices()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
