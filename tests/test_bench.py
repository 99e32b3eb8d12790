"""The arithmetic of `make bench`: what is least, what is judged, and what of the page the command writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import cases, report
from bench.cases import BARE, DURABLE, LOCK, POWERTOOLS, RECONCILER, Case, Row, verdicts
from bench.growth import Synthetic
from bench.tally import Tally, minimum, out_of_line
from tools.seed import Seeded, plan
from tools.wire import Answer, Call


def numbered(accounts: int, out_of_line: range) -> Seeded:
    """Accounts with rising ids, on both sides, of which some have another seat."""
    source = [
        {"account_id": f"{n:04d}", "status": "active", "entitlements": {"seats": 1 + (n in out_of_line)}}
        for n in range(accounts)
    ]
    view = [{"account_id": f"{n:04d}", "entitlements": {"seats": 1}, "version": 1} for n in range(accounts)]
    return Seeded(tuple(source), tuple(view), 0, len(out_of_line), 0, 0)


@pytest.mark.parametrize(
    ("changed", "actions", "checkpointed", "least"),
    [
        (range(0), 20, False, 20),  # ten pages a side
        (range(0), 20, True, 30),  # and a checkpoint for each
        (range(10, 30), 20, False, 21),
        (range(10, 30), 20, True, 30),
        (range(10, 30), 7, False, 23),
        (range(10, 30), 7, True, 32),  # two pages of ten changes each, which is two transactions a page
        (range(0, 100, 10), 20, False, 21),
        (range(0, 100, 10), 20, True, 30),
    ],
)
def test_the_minimum_is_every_page_once_and_the_transactions(
    changed: range, actions: int, checkpointed: bool, least: int
) -> None:
    assert minimum(numbered(100, changed), actions=actions, checkpointed=checkpointed, page=10) == least


def test_what_has_to_change_is_what_was_seeded() -> None:
    seeded = plan(accounts=500, changed=0.2)
    assert len(out_of_line(seeded)) == seeded.granted + seeded.changed + seeded.revoked


def a_row(contender: str, case: Case, **figures: Any) -> Row:
    usual: dict[str, Any] = {
        "wall_s": 1.0,
        "cpu_s": 1.0,
        "requests": {"Query": 10},
        "read_units": 1.0,
        "write_units": 1.0,
        "minimum_requests": 10,
        "repeated_reads_after_kill": 3,
        "repeated_rows_after_kill": 300,
        "peak_mb": 60.0,
    }
    return Row(
        contender=contender,
        accounts=case.accounts,
        changed_share=case.changed_share,
        source_latency_s=case.source_latency_s,
        **usual | figures,
    )


def test_a_target_is_judged_by_its_worst_case() -> None:
    small, large = Case(10_000, 0.01), Case(100_000, 0.01)
    rows = [a_row(BARE, case) for case in (small, large)]
    rows += [a_row(RECONCILER, small, wall_s=1.1), a_row(RECONCILER, large, wall_s=1.3)]
    (wall,) = (each for each in verdicts(rows) if each.target.startswith("wall time against the bare loop, 1%"))
    assert wall.measured == "1.30 (100 k, 1%)"
    assert not wall.reached


@pytest.mark.parametrize(("theirs", "reached"), [(4, True), (3, False)])
def test_fewer_repeated_reads_means_fewer(theirs: int, reached: bool) -> None:
    case = Case(10_000, 1.0)
    rows = [a_row(RECONCILER, case), a_row(LOCK, case, repeated_reads_after_kill=theirs)]
    (fewer,) = (each for each in verdicts(rows) if each.target.startswith("fewer repeated reads"))
    assert fewer.reached is reached


def test_the_slow_contenders_run_the_small_cases_only() -> None:
    everyone = (BARE, RECONCILER, LOCK, POWERTOOLS, DURABLE)
    assert Case(100_000, 0.0).contenders(everyone) == [BARE, RECONCILER, LOCK]
    assert Case(10_000, 0.0).contenders(everyone) == list(everyone)
    assert Case(10_000, 0.0, cases.FAR_S).contenders(everyone) == [BARE, RECONCILER]


def test_a_made_up_table_gives_every_account_once_in_pages() -> None:
    client = Synthetic(None, "source", "view", 23)
    ids: list[str] = []
    start: dict[str, Any] = {}
    while True:
        answer = client.query(TableName="view", ExpressionAttributeValues={}, Limit=10, **start)
        ids += [item["account_id"]["S"] for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            break
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    assert ids == [f"{n:012d}" for n in range(23)]
    bounded = client.query(TableName="source", ExpressionAttributeValues={":upto": {"S": f"{4:012d}"}}, Limit=10)
    assert [item["account_id"]["S"] for item in bounded["Items"]] == ids[:5]
    assert "LastEvaluatedKey" not in bounded


def test_the_kill_comes_after_so_many_requests_that_touch_accounts() -> None:
    killed: list[bool] = []
    tally = Tally(frozenset({"source"}), die_at=2, kill=lambda: killed.append(True))

    def ask(table: str) -> Answer | None:
        call = Call(1, "me", "Query", {"TableName": table}, {}, b"")
        return tally(call, lambda: Answer(200, {}, b'{"Items": [], "Count": 0}'))

    assert ask("source") is not None
    assert ask("control") is not None
    assert not killed
    assert ask("source") is None
    assert killed
    assert (tally.reads, tally.operations["Query"]) == (2, 3)


def test_the_command_leaves_alone_what_is_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"by hand\n{report.BEGIN}\nold\n{report.END}\nalso by hand\n", "utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "PICTURE", tmp_path / "performance.png")
    case = Case(10_000, 0.0)
    rows = [a_row(BARE, case), a_row(RECONCILER, case)]
    figures = {"wall_s": 1.0, "cpu_s": 1.0, "peak_mb": 60.0}
    report.write(
        {
            "machine": {"python": "3"},
            "rounds": 5,
            "rows": [{field: getattr(row, field) for field in Row.__dataclass_fields__} for row in rows],
            "growth": [{"accounts": 10_000, **figures}, {"accounts": 100_000, **figures}],
            "cold_start": {kind: figures | {"import_s": 0.5} for kind in ("imports", "idle_tick")},
        }
    )
    written = page.read_text("utf-8")
    assert written.startswith("by hand\n")
    assert written.endswith("\nalso by hand\n")
    assert "old" not in written.partition(report.BEGIN)[2].split("\n")
    assert "| 10 k, 0% | reconciler |" in written
    assert (tmp_path / "performance.png").stat().st_size
