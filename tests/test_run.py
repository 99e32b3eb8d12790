"""The story of a run, on moto."""

from __future__ import annotations

from tests.world import NIGHT, World


def seed(world: World, count: int = 10) -> None:
    """Accounts to grant, change, revoke (two ways) and leave alone."""
    for index in range(count):
        name = f"acct-{index:04d}"
        match index % 5:
            case 0:
                world.account(name, plan="gold", seats=index)
            case 1:
                world.account(name, plan="gold")
                world.view_row(name, plan="silver")
            case 2:
                world.account(name, status="cancelled", plan="gold")
                world.view_row(name, version=7, plan="gold")
            case 3:
                world.view_row(name, plan="gold")
            case 4:
                world.account(name, plan="gold", active=True)
                world.view_row(name, plan="gold", active=True)


def desired(count: int = 10) -> dict[str, dict[str, object]]:
    wanted: dict[str, dict[str, object]] = {}
    for index in range(count):
        name = f"acct-{index:04d}"
        cases: list[dict[str, object]] = [
            {"plan": "gold", "seats": index},
            {"plan": "gold"},
            {},
            {},
            {"plan": "gold", "active": True},
        ]
        wanted[name] = cases[index % 5]
    return wanted


def test_a_night_brings_the_view_in_line_with_the_source(world: World) -> None:
    seed(world)
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.view() == desired()
    row = world.interval()
    assert row["state"] == "COMPLETED"
    assert (row["accounts"], row["granted"], row["changed"], row["revoked"]) == (10, 2, 2, 4)
    assert row["checksum"] == world.view_checksum()
    assert world.events() == ["OBSERVED", "STARTED", "COMPLETED"]
    assert world.row("CONTROL")["open_from"] == "2026-11-30"
    assert row["run_id"] == f"entitlements/{NIGHT}/1"
