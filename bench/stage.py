"""The emulator with seeded accounts, brought back to where it was before every run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from boto3.dynamodb.types import TypeSerializer

from bench.cases import READ_AHEAD, RECONCILER
from bench.job import SEGMENT, Job
from bench.tally import Kind, Tally, out_of_line
from tools.emulator import ROOT, emulator
from tools.meter import kind, weight
from tools.proxy import proxy
from tools.scene import REGION, local_client
from tools.seed import Seeded, seed
from tools.tables import create_tables, environment

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

PYTHON = Path(os.environ.get("RECONCILER_BENCH_PYTHON") or ROOT / ".venv" / "bench" / "bin" / "python")
"""The interpreter of the contenders, or what RECONCILER_BENCH_PYTHON names."""

EMULATOR = Path(__file__).with_name("emulator")
"""On the emulator's path: what keeps its Queries of large tables from taking seconds."""

TIMEOUT_S = 1800


class BenchError(RuntimeError):
    """A contender failed or left the view wrong; the message says which, with the last words of its log."""


class Child:
    """One contender's process, prepared and ready to run."""

    def __init__(self, job: Job, environment: dict[str, str], log: Path) -> None:
        self._job, self._log = job, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [PYTHON, "-m", "bench.child"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        self._say(job.line())
        self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def run(self) -> dict[str, Any]:
        """Run, and return what `bench.child.measured` says."""
        self._say({})
        return self._hear()

    def start(self) -> int:
        """Run to the end or to its kill; return the exit status."""
        self._say({})
        return self._process.wait(TIMEOUT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _say(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            words = self._log.read_text("utf-8", "replace")[-3000:]
            raise BenchError(f"{self._job.contender} ended with {self._process.wait()}; its log:\n{words}")
        heard: dict[str, Any] = json.loads(line)
        return heard


@dataclass(frozen=True, slots=True)
class Stage:
    """Tables filled with `seeded`; `client` goes past the proxy."""

    url: str
    client: DynamoDBClient
    tables: dict[str, str]
    seeded: Seeded
    backup: str
    due_ms: int
    directory: Path

    def job(self, contender: str, **more: Any) -> Job:
        """A run of a contender, with a name that no other run has."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        return Job(contender=contender, name=name, tables=self.tables, due_ms=self.due_ms, **more)

    def measure(self, job: Job) -> dict[str, Any]:
        """Run straight against the emulator; wall and CPU seconds, peak memory."""
        with self._child(job, self.url) as child:
            return self._checked(job, child.run())

    def count(self, job: Job) -> tuple[Tally, dict[str, Any]]:
        """Run through the proxy, and count."""
        with proxy(self.url) as between:
            tally = self._tally()
            with self._child(job, between.url) as child:
                between.on(lambda call: call.caller == job.name, tally, times=None)
                return tally, self._checked(job, child.run())

    def count_killed(self, job: Job, die_at: int) -> Tally:
        """Run through the proxy, die at that request, run again to the end; what both asked for."""
        with proxy(self.url) as between:
            tally = self._tally()
            dying = replace(job, die_at=die_at)
            if job.contender == "durable":  # its checkpoints live in its process
                with self._child(dying, between.url) as child:
                    between.on(lambda call: call.caller == job.name, tally, times=None)
                    self._checked(job, child.run())
                return tally
            with self._child(dying, between.url) as child:
                tally.die_at, tally.kill = die_at, child.kill
                rule = between.on(lambda call: call.caller == job.name, tally, times=None)
                if child.start() != -9:
                    raise BenchError(f"{job.contender} ended before request {die_at}")
            rule.times = 0
            with self._child(replace(job, resumed=True), between.url) as child:
                between.on(lambda call: call.caller == job.name, tally, times=None)
                self._checked(job, child.run())
            return tally

    def units(self, tally: Tally) -> tuple[float, float]:
        """Read and write units of what was counted, by the rows as they stand now."""
        heaviest: Counter[Kind] = Counter()
        for table in self.tables.values():
            for row in self.client.scan(TableName=table, Limit=5000)["Items"]:
                each = (table, kind(row))
                heaviest[each] = max(heaviest[each], weight(row))
        return tally.units(heaviest)

    def restore(self) -> None:
        """Bring the view back to what was seeded."""
        table = self.tables["EntitlementsTable"]
        self.client.delete_table(TableName=table)
        self.client.restore_table_from_backup(TargetTableName=table, BackupArn=self.backup)

    def _tally(self) -> Tally:
        return Tally(frozenset((self.tables["AccountsTable"], self.tables["EntitlementsTable"])))

    def variables(self, job: Job, endpoint: str) -> dict[str, str]:
        """The whole environment of a process that runs a job: the function's, and what Lambda adds."""
        due = time.gmtime(job.due_ms / 1000)
        overrides: dict[str, Any] = {
            "SCHEDULE_HOUR": due.tm_hour,
            "SCHEDULE_MINUTE": due.tm_min,
            "MAX_REVOCATIONS": 1_000_000,
            "PAGE_SIZE": job.page_size,
        }
        if job.contender in (RECONCILER, READ_AHEAD):  # else as the template has it
            overrides["READ_AHEAD"] = str(job.contender == READ_AHEAD).lower()
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "PYTHONUTF8": "1",
            "AWS_ACCESS_KEY_ID": job.name,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_LAMBDA_FUNCTION_NAME": job.name,
            **environment(self.tables, job=job.name, overrides=overrides),
        }

    def _child(self, job: Job, endpoint: str) -> Child:
        return Child(job, self.variables(job, endpoint), self.directory / "children.log")

    def _checked(self, job: Job, figures: dict[str, Any]) -> dict[str, Any]:
        """The figures of a run that left a sample of what had to change as it has to be."""
        needs = out_of_line(self.seeded)
        wanted = {row["account_id"]: row for row in self.seeded.source}
        versions = {row["account_id"]: row["version"] for row in self.seeded.view}
        for account_id in needs[:: max(1, len(needs) // 50)]:
            record = wanted.get(account_id)
            entitlements = record["entitlements"] if record is not None and record["status"] == "active" else {}
            key = {"segment": {"S": SEGMENT}, "account_id": {"S": account_id}}
            row = self.client.get_item(TableName=self.tables["EntitlementsTable"], Key=key, ConsistentRead=True)["Item"]
            expected = TypeSerializer().serialize(entitlements)
            version = {"N": str(versions.get(account_id, 0) + 1)}
            if _numbers(row["entitlements"]) != _numbers(expected) or row["version"] != version:
                raise BenchError(f"{job.contender} left {account_id!r} at {row}")
        return figures


def _numbers(value: Any) -> Any:
    """Entitlements as sent or as stored: one notation of each number."""
    return {name: float(entry["N"]) if "N" in entry else entry for name, entry in value["M"].items()}


@contextmanager
def stage(seeded: Seeded) -> Iterator[Stage]:
    """An emulator of its own with these accounts; everything ends with it."""
    if not PYTHON.is_file():
        raise BenchError(f"no contenders at {PYTHON}: run `make bench`")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-bench-")))
        url = stack.enter_context(emulator(settings={"PYTHONPATH": str(EMULATOR)}))
        client = local_client(url, "stage")
        stack.callback(client.close)
        tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
        tables["LockTable"] = _lock_table(client)
        seed(client, seeded, accounts_table=tables["AccountsTable"], entitlements_table=tables["EntitlementsTable"])
        backup = client.create_backup(TableName=tables["EntitlementsTable"], BackupName="seeded")["BackupDetails"]
        due_ms = (int(time.time()) // 60 + 60) * 60_000  # after the tables' creation, whatever the hour
        yield Stage(url, client, tables, seeded, backup["BackupArn"], due_ms, directory)


def _lock_table(client: DynamoDBClient) -> str:
    name = f"LockTable-{uuid.uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": "lock_key", "AttributeType": "S"},
            {"AttributeName": "sort_key", "AttributeType": "S"},
        ],
        KeySchema=[{"AttributeName": "lock_key", "KeyType": "HASH"}, {"AttributeName": "sort_key", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name
