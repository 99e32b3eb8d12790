"""Act 3: while the killed night is unfinished a release changes parameters and code. It resumes the night and has a
defect; the code is rolled back, a person lets the night go on at once, and it completes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tests.rehearsal.conftest import ACCOUNTS, INTERVAL, PARAMETERS, Killed, until
from tests.rehearsal.project import Project
from tests.rehearsal.stack import Json, Reply, Stack
from tools.verify import out_of_line, versions, view_checksum

IDS = sorted({row["account_id"] for row in (*ACCOUNTS.source, *ACCOUNTS.view)}, key=str.encode)
BROKEN = IDS[len(IDS) * 2 // 3]
DEFECT = f"""

_decide = decide


def decide(pair):
    if pair.account_id.encode() >= {BROKEN.encode()!r}:
        raise RuntimeError("a defect of the new version")
    return _decide(pair)
"""
RELEASE = PARAMETERS | {"RangeSize": "50", "PageSize": "400", "TickMinutes": "10"}
(MALFORMED,) = (row["account_id"] for row in ACCOUNTS.source if row["entitlements"] == "gold")


@dataclass(frozen=True, slots=True)
class Rows:
    """What is on record of the night, its events in their order, and which code is deployed."""

    record: Json
    progress: Json
    lease: Json
    events: list[str]
    code: str

    @property
    def state(self) -> list[Json]:
        return [self.record, self.progress, self.lease]


@dataclass(frozen=True, slots=True)
class Released:
    """The rows before and after the deployment, the tick that followed, and the rows after it."""

    before: Rows
    after: Rows
    tick: Reply
    then: Rows


@dataclass(frozen=True, slots=True)
class RolledBack:
    """As `Released`, the tick delivered twice; `said` is the answer to the person's command."""

    before: Rows
    after: Rows
    said: str
    tick: Reply
    again: Reply
    then: Rows


def rows(stack: Stack) -> Rows:
    (record,), (progress,), (lease,) = map(stack.control, ("INTERVAL#", "PROGRESS#", "LEASE#"))
    events = sorted((row["at"], row["event"]) for row in stack.control(f"AUDIT#{INTERVAL}#") if "event" in row)
    deployed = stack.account.functions.get_function_configuration(FunctionName=stack.resources["ReconcileFunction"])
    return Rows(record, progress, lease, [event for _, event in events], deployed["CodeSha256"])


@pytest.fixture(scope="session")
def released(dev: Stack, project: Project, killed: Killed) -> Released:
    """The release; then, when the lease of the killed process has run out, a tick."""
    before = rows(dev)
    project.release(DEFECT)
    project.deploy("default", **RELEASE)
    after = rows(dev)
    runs_out = int(after.lease["expires_at_ms"]) / 1000 + 5  # and the clocks' skew
    until("the lease has run out", lambda: time.time() > runs_out)
    tick = dev.deliver("tick", datetime.now(UTC))
    return Released(before, after, tick, rows(dev))


@pytest.fixture(scope="session")
def rolled_back(dev: Stack, project: Project, released: Released) -> RolledBack:
    """The previous code with the parameters of the release; a rerun ends the wait for the next attempt; a tick."""
    before = rows(dev)
    project.release()
    project.deploy("default", **RELEASE)
    after = rows(dev)
    said = project.type(
        f"./reconcilectl rerun {INTERVAL} --stack-name {dev.name} --reason 'the release is rolled back'"
    )
    at = datetime.now(UTC)
    return RolledBack(before, after, said, dev.deliver("tick", at), dev.deliver("tick", at), rows(dev))


def test_an_update_of_parameters_and_code_keeps_what_an_unfinished_night_has_done(
    dev: Stack, released: Released
) -> None:
    assert dev.described() == ("UPDATE_COMPLETE", dev.outputs), "nothing is replaced"
    assert released.after.state == released.before.state
    assert released.after.code != released.before.code


def test_the_killed_night_is_resumed_after_its_last_range_with_the_new_parameters(released: Released) -> None:
    assert "TAKEOVER" in released.then.events
    assert released.then.lease["generation"] > released.before.lease["generation"]
    added = {name: released.then.progress[name] - released.after.progress[name] for name in ("accounts", "ranges")}
    assert int(PARAMETERS["RangeSize"]) < added["accounts"] / added["ranges"] <= int(RELEASE["RangeSize"])


def test_a_defect_of_a_release_fails_loudly_and_keeps_what_is_done(released: Released) -> None:
    assert "a defect of the new version" in (released.tick.error or "")
    assert released.then.record["state"] == "RUNNING"
    assert released.then.progress["checkpoint"] < BROKEN
    assert released.then.events[-1] == "FAILED"


def test_a_rollback_of_the_code_keeps_what_an_unfinished_night_has_done(
    released: Released, rolled_back: RolledBack
) -> None:
    assert rolled_back.after.state == rolled_back.before.state
    assert rolled_back.after.code == released.before.code != rolled_back.before.code


def test_the_night_resumes_under_the_previous_code_and_completes(rolled_back: RolledBack) -> None:
    assert rolled_back.tick.payload["outcome"] == "completed", rolled_back.tick
    (attempt,) = rolled_back.tick.payload["attempts"]
    assert attempt["resumed_after"] == rolled_back.before.progress["checkpoint"]
    assert INTERVAL in rolled_back.said
    assert rolled_back.then.record["repair_owner"]


def test_the_record_tells_what_the_night_did_in_all(dev: Stack, rolled_back: RolledBack) -> None:
    record = rolled_back.then.record
    counted = {name: record[name] for name in ("accounts", "granted", "changed", "revoked", "rejected")}
    assert record["state"] == "COMPLETED"
    assert record["run_id"] == f"{dev.name}/{INTERVAL}/1"
    assert counted == {name: getattr(ACCOUNTS, name) for name in counted}
    assert record["checksum"] == view_checksum(dev.rows("EntitlementsTableName"))


def test_the_view_is_in_line_and_no_change_was_made_twice(dev: Stack, rolled_back: RolledBack) -> None:
    view = dev.rows("EntitlementsTableName")
    assert out_of_line(dev.rows("AccountsTableName"), view) == {MALFORMED}
    start = {row["account_id"]: row["version"] for row in ACCOUNTS.view}
    rose = {account_id: version - start.get(account_id, 0) for account_id, version in versions(view).items()}
    assert rose == {account_id: account_id != MALFORMED for account_id in IDS}


def test_a_duplicate_of_a_delivery_gets_its_answer(rolled_back: RolledBack) -> None:
    assert rolled_back.again.payload["outcome"] == "duplicate"
    assert rolled_back.again.payload["first"] == rolled_back.tick.payload
