"""Once the faults have stopped: every due interval completes within a few ticks, and then the view is the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from reconciler import app, keys
from reconciler.checksum import canonical, hex_text
from reconciler.clock import parse_ms
from reconciler.errors import VerbRefused
from reconciler.intervals import shifted, span
from reconciler.items import Row
from tests.kit import command
from tests.simulator.clock import WorkersClock
from tests.world import Context, event

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from tests.simulator.simulation import Simulation

TICKS = 8
"""Within so many, each half an hour after the last, everything due is closed, a person doing what is a person's."""


def check(simulation: Simulation) -> None:
    """Adds to the simulation's violations."""
    close(simulation)
    if simulation.violations:
        return
    last = simulation.time.text[:10]
    simulation.time.advance((parse_ms(f"{shifted(last, 1)}T02:00:01Z") - simulation.time.wall_ms) / 1000)
    simulation.note("a night without faults")
    deliver(simulation, event("nightly", simulation.time.text))
    close(simulation)
    if not simulation.violations:
        compare(simulation, shifted(last, 1))


def close(simulation: Simulation) -> None:
    """Ticks and orders until nothing is left to do."""
    for _ in range(TICKS):
        for _ in range(2):
            if simulation.network.late:
                simulation.late_copy()
        repair(simulation)
        simulation.time.advance(1800)
        deliver(simulation, event("tick", simulation.time.text))
        if simulation.violations or closed(simulation):
            return
    states = {name: row["state"] for name, row in simulation.ledger.controls("INTERVAL#").items()}
    simulation.violations.append(f"not closed within {TICKS} ticks: {states}")


def closed(simulation: Simulation) -> bool:
    """Every interval from the first to the last due one is on record and closed, and CONTROL says so."""
    job = simulation.ledger.control(keys.CONTROL) or {}
    rows = simulation.ledger.controls("INTERVAL#")
    due = shifted(simulation.time.text[:10], 1)
    expected = [keys.interval(interval_id) for interval_id in span(str(job.get("first_interval", due)), due)]
    return bool(expected) and list(rows) == expected and all(map(_closed, rows.values())) and job["open_from"] == due


def _closed(row: Row) -> bool:
    return row["state"] == "COMPLETED" or (row["state"] in ("SKIPPED", "NEEDS_REPAIR") and "acknowledged_at" in row)


def repair(simulation: Simulation) -> None:
    """What only a person does."""
    simulation.time.advance(1000)  # so that no lease keeps a Rerun away, however wrong its owner's clock was
    for name, row in simulation.ledger.controls("INTERVAL#").items():
        interval = name.removeprefix("INTERVAL#")
        if row["state"] == "NEEDS_REPAIR" and "acknowledged_at" not in row:
            deliver(simulation, command("Rerun", interval=interval, revocation_bound=1000))
        if row["state"] == "SKIPPED" and "acknowledged_at" not in row:
            deliver(simulation, command("Acknowledge", interval=interval))
    if "pause" in (simulation.ledger.control(keys.CONTROL) or {}):
        deliver(simulation, command("Resume"))


def deliver(simulation: Simulation, said: dict[str, Any]) -> None:
    """One invocation from beginning to end."""
    context = cast("LambdaContext", Context(cast(Any, WorkersClock(simulation.time))))
    try:
        answer = app.reconcile(said, context)
    except VerbRefused as refused:
        simulation.note(f"{said['detail-type']}: {refused}")
    except Exception as error:
        simulation.violations.append(f"{said['detail-type']} without any fault raised {error!r}")
    else:
        attempts = [(one["interval"], one["segment"], one["outcome"]) for one in answer.get("attempts", ())]
        simulation.note(f"{said['detail-type']}: {answer['outcome']} {attempts or ''}")


def compare(simulation: Simulation, night: str) -> None:
    """After an undisturbed night the view is the source, and the run record is the view's."""
    ledger, found = simulation.ledger, simulation.violations
    for account_id in sorted(ledger.accounts):
        wanted, row = ledger.desired(account_id), ledger.view_row(account_id)
        if wanted is not None and canonical(wanted) != canonical(row["entitlements"] if row else {}):
            found.append(f"{account_id}: the view has {row}, the source says {wanted}")
    record = ledger.control(keys.interval(night)) or {}
    rows, checksum = ledger.checksum(sorted(ledger.accounts))
    told = (record.get("accounts"), record.get("view_rows"), record.get("checksum"))
    if record.get("state") == "COMPLETED" and told != (len(ledger.accounts), rows, hex_text(checksum)):
        found.append(f"{night}: {told} is not {(len(ledger.accounts), rows, hex_text(checksum))}")
