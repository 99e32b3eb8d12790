"""The arithmetic of `make bench`: what is least, what is judged, and what of the page the command writes."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import cases, measure, report
from bench.cases import BARE, CONTENDERS, DURABLE, LOCK, POWERTOOLS, READ_AHEAD, RECONCILER, Case, Row, verdicts
from bench.child import measured
from bench.growth import Synthetic
from bench.measure import _case, _counted, turns
from bench.results import Results
from bench.stage import EMULATOR, Stage
from bench.tally import Tally, minimum, out_of_line
from tools.emulator import emulator
from tools.scene import local_client
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
        (range(0), 20, False, 22),  # eleven pages a side: the last one is empty
        (range(0), 20, True, 32),  # and a checkpoint for each that is not
        (range(10, 30), 20, False, 23),
        (range(10, 30), 20, True, 32),
        (range(10, 30), 7, False, 25),
        (range(10, 30), 7, True, 34),  # two pages of ten changes each, which is two transactions a page
        (range(0, 100, 10), 20, False, 23),
        (range(0, 100, 10), 20, True, 32),
        (range(9, 17), 7, True, 32),  # the last of its page, and seven of the next
        (range(3, 11), 7, True, 32),
    ],
)
def test_the_minimum_is_every_page_once_and_the_transactions(
    changed: range, actions: int, checkpointed: bool, least: int
) -> None:
    assert minimum(numbered(100, changed), actions=actions, checkpointed=checkpointed, page=10) == least


def test_the_last_page_counts_however_little_is_on_it() -> None:
    assert minimum(numbered(91, range(0)), actions=20, checkpointed=False, page=10) == 20
    assert minimum(numbered(0, range(0)), actions=20, checkpointed=True, page=10) == 3


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
        "rounds": 5,
        "run": "2026-11-30T02:00:00Z",
    }
    return Row(
        contender=contender,
        accounts=case.accounts,
        changed_share=case.changed_share,
        source_latency_s=case.source_latency_s,
        page_size=case.page_size,
        **usual | figures,
    )


def test_a_target_is_judged_by_its_worst_case() -> None:
    small, large = Case(10_000, 0.01), Case(100_000, 0.01)
    rows = [a_row(BARE, case) for case in (small, large)]
    rows += [a_row(RECONCILER, small, wall_s=1.1), a_row(RECONCILER, large, wall_s=1.3)]
    (wall,) = (each for each in verdicts(rows) if each.target.startswith("wall time against the bare loop, 1%"))
    assert wall.measured == "1.30 (100 k, 1%)"
    assert not wall.reached


def judged(*rows: Row) -> dict[str, tuple[str, bool]]:
    return {each.target: (each.measured, each.reached) for each in verdicts(rows)}


SMALL = {share: Case(10_000, share) for share in cases.SHARES}
FAR = Case(10_000, 0.0, cases.FAR_S)


@pytest.mark.parametrize(
    ("target", "case", "mine", "peer", "bound"),
    [
        ("wall time against the bare loop, 0% changed: ≤ 1.15", SMALL[0.0], RECONCILER, BARE, 1.15),
        ("wall time against the bare loop, 1% changed: ≤ 1.2", SMALL[0.01], RECONCILER, BARE, 1.2),
        ("wall time against the bare loop, 100% changed: ≤ 1.25", SMALL[1.0], RECONCILER, BARE, 1.25),
        ("wall time with read-ahead against the bare loop, source 20 ms away: ≤ 0.85", FAR, READ_AHEAD, BARE, 0.85),
        ("wall time with read-ahead against the lock library: ≤ 1.05", SMALL[0.0], READ_AHEAD, LOCK, 1.05),
        ("wall time with read-ahead against powertools: ≤ 0.5", SMALL[0.0], READ_AHEAD, POWERTOOLS, 0.5),
        ("wall time with read-ahead against durable: ≤ 0.5", SMALL[0.0], READ_AHEAD, DURABLE, 0.5),
    ],
)
def test_every_target_of_wall_time_has_its_bound(target: str, case: Case, mine: str, peer: str, bound: float) -> None:
    for beyond, reached in ((0.0, True), (0.011, False)):
        found = judged(a_row(peer, case, wall_s=2.0), a_row(mine, case, wall_s=2.0 * (bound + beyond)))
        assert found[target] == (f"{bound + beyond:.2f} ({found[target][0].partition(' (')[2]}", reached)


@pytest.mark.parametrize("mine", [RECONCILER, READ_AHEAD])
def test_cpu_and_requests_are_judged_with_and_without_read_ahead(mine: str) -> None:
    case = SMALL[0.0]
    rows = [a_row(BARE, case, cpu_s=2.0)]
    rows += [a_row(mine, case, cpu_s=2.8, requests={"Query": 100, "PutItem": 12}, minimum_requests=100)]
    found = judged(*rows)
    assert found["CPU an account against the bare loop: ≤ 1.35"][1] is False
    assert found["requests beyond 1.05 × the minimum, an invocation: ≤ 6"][0].startswith("7.00 (")
    rows[1] = a_row(mine, case, cpu_s=2.7, requests={"Query": 100, "PutItem": 11}, minimum_requests=100)
    assert all(judged(*rows)[target][1] for target in found if target.startswith(("CPU", "requests")))


@pytest.mark.parametrize("peer", [LOCK, POWERTOOLS, DURABLE])
@pytest.mark.parametrize(("theirs", "reached"), [(4, True), (3, False)])
def test_fewer_repeated_reads_means_fewer_in_every_case(peer: str, theirs: int, reached: bool) -> None:
    rows = [a_row(RECONCILER, case) for case in SMALL.values()]
    rows += [a_row(peer, case, repeated_reads_after_kill=4) for case in (SMALL[0.0], SMALL[0.01])]
    rows += [a_row(peer, SMALL[1.0], repeated_reads_after_kill=theirs)]
    found = judged(*rows)
    assert found[f"fewer repeated reads after a kill than {peer}"][1] is reached
    assert found[f"fewer repeated rows after a kill than {peer}"][1] is False


def test_what_was_not_measured_side_by_side_is_not_compared() -> None:
    case = SMALL[0.0]
    rows = [a_row(BARE, case, run="yesterday"), a_row(LOCK, case, run="yesterday"), a_row(RECONCILER, case)]
    assert [target for target in judged(*rows) if "against" in target or "than" in target] == []
    assert "several goes, and so compared only within each: 10 k, 0%." in report.apart(rows)
    assert report.apart(rows[:2]) == ""


def test_memory_and_time_are_those_of_the_most_accounts_to_ten_thousand() -> None:
    small = {"accounts": 1_000, "cpu_s": 0.9, "peak_mb": 10.0}
    base = {"accounts": 10_000, "cpu_s": 1.0, "peak_mb": 50.0}
    for cpu_s, peak_mb, reached in ((120.0, 60.0, True), (121.0, 61.0, False)):
        most = {"accounts": 1_000_000, "cpu_s": cpu_s, "peak_mb": peak_mb}
        found = report.grown([small, base, most])
        assert [each.reached for each in found] == [reached, reached]
    assert report.grown([small, base]) == []
    assert report.grown([small]) == []


def test_an_idle_tick_is_held_against_the_imports() -> None:
    for wall_s, reached in ((3.0, True), (3.1, False)):
        (found,) = report.started({"imports": {"wall_s": 2.0}, "idle_tick": {"wall_s": wall_s, "import_s": 1.0}})
        assert found.reached is reached
    assert report.started({}) == []


def test_who_is_many_times_slower_runs_in_fewer_rounds() -> None:
    none: dict[str, list[dict[str, float]]] = {BARE: [], POWERTOOLS: []}
    assert turns(POWERTOOLS, none, 5) == 5
    runs = {BARE: [{"wall_s": 1.0}], POWERTOOLS: [{"wall_s": 10.5}], DURABLE: [{"wall_s": 10.0}]}
    assert [turns(name, runs, 5) for name in runs] == [5, cases.SLOW_ROUNDS, 5]
    assert turns(POWERTOOLS, runs, 1) == 1
    assert turns(POWERTOOLS, {POWERTOOLS: runs[POWERTOOLS]}, 5) == 5


class Staged:
    """A stage on which the bare loop takes these seconds, one run after the other, and Powertools twenty times that."""

    def __init__(self, seconds: list[float]) -> None:
        self.seeded = numbered(25, range(0, 25, 2))
        self.left = {BARE: list(seconds), POWERTOOLS: [20 * each for each in seconds]}
        self.order: list[str] = []
        self.killed_at: list[int] = []

    def job(self, name: str, **_: Any) -> str:
        return name

    def restore(self) -> None:
        self.order.append("restored")

    def measure(self, job: str) -> dict[str, float]:
        self.order.append(job)
        seconds = self.left[job].pop(0)
        return {"wall_s": seconds, "cpu_s": seconds / 2, "peak_mb": 10 * seconds}

    def count(self, job: str) -> tuple[Any, dict[str, Any]]:
        counted = SimpleNamespace(operations={"Query": 4, "PutItem": 2}, work=9, reads=4, rows=50)
        return counted, {"others": {"Elsewhere": 3}}

    def count_killed(self, job: str, die_at: int) -> Any:
        self.killed_at.append(die_at)
        return SimpleNamespace(reads=7, rows=80)

    def units(self, _: Any) -> tuple[float, float]:
        return 12.0, 34.0


def test_a_row_holds_medians_of_runs_that_alternate_and_what_was_counted_once() -> None:
    here: Any = Staged([9.0, 1.0, 2.0, 8.0, 3.0])
    bare, slow = _case(here, SMALL[0.0], [BARE, POWERTOOLS], 5)
    assert (bare.wall_s, bare.cpu_s, bare.peak_mb, bare.rounds) == (3.0, 1.5, 30.0, 5)
    assert bare.wall_runs == [9.0, 1.0, 2.0, 8.0, 3.0]
    assert (slow.wall_s, slow.rounds) == (40.0, 3)
    ran = [each for each in here.order if each != "restored"]
    assert ran == [BARE, POWERTOOLS, POWERTOOLS, BARE, BARE, POWERTOOLS, BARE, BARE]
    assert len(here.order) == len(ran) + len(ran) + 4  # after every run, and after both of what is counted
    assert bare.requests == {"PutItem": 2, "Query": 4, "Elsewhere": 3}
    assert (bare.read_units, bare.write_units) == (12.0, 34.0)
    assert (bare.repeated_reads_after_kill, bare.repeated_rows_after_kill) == (3, 30)
    assert here.killed_at == [4, 4]
    assert bare.run == slow.run


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        (0, {BARE: 2, POWERTOOLS: 2, LOCK: 3, DURABLE: 3, RECONCILER: 3, READ_AHEAD: 3}),
        (99, {BARE: 3, POWERTOOLS: 3, LOCK: 3, DURABLE: 3, RECONCILER: 4, READ_AHEAD: 4}),
    ],
)
def test_each_has_the_minimum_of_what_it_promises(changes: int, least: dict[str, int]) -> None:
    here: Any = Staged([])
    here.seeded = numbered(200, range(changes))
    assert {name: _counted(here, SMALL[0.0], name)["minimum_requests"] for name in CONTENDERS} == least


def test_growth_leaves_out_what_making_accounts_up_took(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def ran_for(job: int) -> dict[str, Any]:
        ran.append(job)
        return {"wall_s": 5.0, "cpu_s": 4.0, "peak_mb": 50.0, "others": {"making_s": 3.0}}

    here = SimpleNamespace(job=lambda _, accounts: accounts, measure=ran_for)
    monkeypatch.setattr(measure, "stage", lambda _: nullcontext(here))
    found = list(measure.grow([100_000, 1_000_000], 5))
    assert found[0] == {"accounts": 100_000, "rounds": 5, "wall_s": 2.0, "cpu_s": 1.0, "peak_mb": 50.0}
    assert found[1]["rounds"] == 1
    assert ran == [100_000] * 5 + [1_000_000]


def test_cpu_is_that_of_the_process_and_memory_in_megabytes() -> None:
    def run() -> None:
        for _ in range(5):
            os.urandom(10_000_000)

    before = time.process_time()
    figures = measured(run)
    assert figures["cpu_s"] == pytest.approx(time.process_time() - before, rel=0.2, abs=0.02)
    assert 20 < figures["peak_mb"] < 5_000


def test_units_are_those_of_the_heaviest_row_of_each_kind() -> None:
    rows = [{"pk": {"S": "job"}, "sk": {"S": f"PROGRESS#{n}"}, "text": {"S": "x" * 1_000 * n}} for n in (1, 2)]
    client: Any = SimpleNamespace(scan=lambda **_: {"Items": rows})
    here = Stage("", client, {"ControlTable": "control"}, numbered(0, range(0)), "", 0, Path())
    tally = Tally(frozenset())
    put = Call(1, "me", "PutItem", {"TableName": "control", "Item": rows[0]}, {}, b"")
    tally(put, lambda: Answer(200, {}, b"{}"))
    got = Call(2, "me", "GetItem", {"TableName": "control", "ConsistentRead": True}, {}, b"")
    tally(got, lambda: Answer(200, {}, json.dumps({"Item": rows[1]}).encode()))
    assert here.units(tally) == (1.0, 2.0)


def test_no_kill_is_played_where_everything_changes_in_many_accounts() -> None:
    here: Any = Staged([1.0, 1.0])
    large = Case(100_000, 1.0)
    (row,) = _case(here, large, [BARE], 1)
    assert (row.repeated_reads_after_kill, row.repeated_rows_after_kill) == (None, None)
    assert here.killed_at == []
    (far,) = _case(here, FAR, [BARE], 1)
    assert (far.repeated_reads_after_kill, far.page_size, far.minimum_requests) == (None, 500, 3)
    assert [case.killed for case in (Case(100_000, 0.01), SMALL[1.0], FAR)] == [True, True, False]
    rows = [row, a_row(RECONCILER, large), a_row(LOCK, large)]
    assert not [target for target in judged(*rows) if target.startswith("fewer")]


def test_an_interrupted_bench_goes_on_where_it_was(tmp_path: Path) -> None:
    path, machine = tmp_path / "results.json", {"python": "3"}
    results = Results(path, machine)
    case = SMALL[0.0]
    results.add([a_row(RECONCILER, case, wall_s=9.0), a_row(BARE, case)])
    assert results.has(case, [BARE, RECONCILER])
    assert not results.has(case, [BARE, RECONCILER, LOCK])
    assert not results.has(FAR, [BARE])
    results.add_growth({"accounts": 10_000, "wall_s": 2.0})
    results.add_growth({"accounts": 1_000, "wall_s": 1.0})
    again = Results(path, machine)
    assert again.held == json.loads(json.dumps(results.held))
    assert again.has_growth(1_000)
    assert not again.has_growth(100_000)
    assert [each["accounts"] for each in again.held["growth"]] == [1_000, 10_000]
    again.add([a_row(RECONCILER, case, wall_s=8.0, run="later"), a_row(LOCK, FAR)])
    held = [(row["contender"], row["source_latency_s"], row["wall_s"]) for row in again.held["rows"]]
    assert held == [(BARE, 0.0, 1.0), (RECONCILER, 0.0, 8.0), (LOCK, cases.FAR_S, 1.0)]
    assert not again.has(case, [BARE, RECONCILER])
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"]
    with pytest.raises(ValueError, match="--anew forgets it"):
        Results(path, {"python": "4"})
    assert Results(path, None).held == json.loads(path.read_text("utf-8"))


def test_the_slow_contenders_run_the_small_cases_only() -> None:
    everyone = (BARE, RECONCILER, LOCK, POWERTOOLS, DURABLE)
    assert Case(100_000, 0.0).contenders(everyone) == [BARE, RECONCILER, LOCK]
    assert Case(10_000, 0.0).contenders(everyone) == list(everyone)
    assert Case(10_000, 0.0, cases.FAR_S).contenders(everyone) == [BARE, RECONCILER]
    assert FAR.contenders(CONTENDERS) == [BARE, RECONCILER, READ_AHEAD]


def test_the_cases_are_those_of_the_shares_and_sizes_and_what_follows_a_far_source() -> None:
    chosen = cases.cases()
    near = [(case.accounts, case.changed_share) for case in chosen if not case.source_latency_s]
    assert near == [(10_000, 0.0), (10_000, 0.01), (10_000, 1.0), (100_000, 0.0), (100_000, 0.01), (100_000, 1.0)]
    far = [(case.accounts, case.changed_share) for case in chosen if case.source_latency_s == 0.02]
    assert far == [(10_000, 0.0), (10_000, 0.01), (100_000, 0.0), (100_000, 0.01)]


def test_the_emulator_of_the_bench_answers_as_the_emulator_does(emulator_url: str) -> None:
    ids = [f"{n:012d}" for n in random.Random(7).sample(range(10**12), 40)] + ["é", "😀", "A#"]

    def pages(url: str) -> list[Any]:
        client = local_client(url, "bench")
        name = f"accounts-{random.randrange(10**9)}"
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("segment", "account_id")],
            KeySchema=[
                {"AttributeName": "segment", "KeyType": "HASH"},
                {"AttributeName": "account_id", "KeyType": "RANGE"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        seen: list[Any] = []

        def put(*accounts: str) -> None:
            for account_id in accounts:
                key = {"segment": {"S": "000"}, "account_id": {"S": account_id}}
                client.put_item(TableName=name, Item={**key, "version": {"N": str(len(seen))}})

        def read(sign: str = "", bound: str = "") -> None:
            request: dict[str, Any] = {
                "TableName": name,
                "KeyConditionExpression": "#segment = :segment" + (f" AND account_id {sign} :bound" if sign else ""),
                "ExpressionAttributeNames": {"#segment": "segment"},
                "ExpressionAttributeValues": {":segment": {"S": "000"}} | ({":bound": {"S": bound}} if sign else {}),
                "ConsistentRead": True,
                "Limit": 9,
            }
            while True:
                answer = client.query(**request)
                last = answer.get("LastEvaluatedKey")
                seen.append((answer["Items"], answer["Count"], last))
                if last is None:
                    return
                request["ExclusiveStartKey"] = last

        def write(token: str, account_id: str) -> None:
            update: Any = {
                "TableName": name,
                "Key": {"segment": {"S": "000"}, "account_id": {"S": account_id}},
                "UpdateExpression": "ADD written :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
            try:
                client.transact_write_items(ClientRequestToken=token, TransactItems=[{"Update": update}])
            except client.exceptions.IdempotentParameterMismatchException as refused:
                seen.append(refused.response["Error"]["Code"])

        read()
        put(*ids)
        read()
        for token, account_id in (("a", ids[0]), ("a", ids[0]), ("a", ids[1]), ("b", ids[0])):
            write(token, account_id)
        read()
        client.delete_item(TableName=name, Key={"segment": {"S": "000"}, "account_id": {"S": ids[3]}})
        put("a new one", ids[5])
        read()
        read(">=", "\0")
        read(">=", ids[9])
        read("<=", ids[11])
        arn = client.create_backup(TableName=name, BackupName="seeded")["BackupDetails"]["BackupArn"]
        put("another one")
        client.delete_table(TableName=name)
        client.restore_table_from_backup(TargetTableName=name, BackupArn=arn)
        read()
        client.close()
        return seen

    with emulator(settings={"PYTHONPATH": str(EMULATOR)}) as url:
        answers = pages(url)
    assert answers == pages(emulator_url)
    assert answers.count("IdempotentParameterMismatchException") == 1


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
        return tally(call, lambda: Answer(200, {}, b'{"Items": [], "Count": 4}'))

    assert ask("source") is not None
    assert ask("control") is not None
    assert not killed
    assert ask("source") is None
    assert killed
    assert (tally.reads, tally.rows, tally.operations["Query"]) == (2, 8, 3)


def test_the_command_leaves_alone_what_is_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"by hand\n{report.BEGIN}\nold\n{report.END}\nalso by hand\n", "utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "PICTURE", tmp_path / "performance.png")
    case = Case(10_000, 0.0)
    rows = [a_row(BARE, case), a_row(RECONCILER, case)]
    figures = {"wall_s": 1.0, "cpu_s": 1.0, "peak_mb": 60.0, "rounds": 5}
    report.write(
        {
            "machine": {"python": "3"},
            "rows": [{field: getattr(row, field) for field in Row.__dataclass_fields__} for row in rows],
            "growth": [{"accounts": 10_000, **figures}, {"accounts": 100_000, **figures}],
            "cold_start": {kind: figures | {"import_s": 0.5} for kind in ("imports", "idle_tick")},
        }
    )
    written = page.read_text("utf-8")
    assert written.startswith("by hand\n")
    assert written.endswith("\nalso by hand\n")
    assert "old" not in written.partition(report.BEGIN)[2].split("\n")
    assert "| 10 k, 0% | reconciler | 1.00 | 1.00 | 10 | 10 | 1 | 1 | 3, 300 | 60 | 5 |" in written
    assert "| 10,000 | 1.00 | 100 | 60 | 5 |" in written
    assert "| idle tick | 500 | 1000 | 1000 |" in written
    assert (tmp_path / "performance.png").stat().st_size
