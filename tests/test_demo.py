"""The whole story, with real processes killed and frozen: every promise is kept, whatever the accounts look like."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SMALL = ["--accounts", "400", "--page-size", "30", "--range-size", "20"]
STORIES = {
    "default": [],
    "other seed": ["--seed", "4711", *SMALL],
    "nothing changed": ["--changed", "0", *SMALL],
    "everything changed": ["--changed", "1", "--seed", "3", *SMALL],
}

ENVIRONMENT = os.environ | {"PYTHONPATH": "src"}
"""As `make demo` sets it."""

Told = tuple[int, dict[str, Any], str]


def tell(*arguments: str) -> Told:
    """Run the demo; return its exit code, its JSON object and what it showed."""
    command = [sys.executable, "-m", "tools.demo", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the default story's timeline is drawn."""
    directory: Path = tmp_path_factory.mktemp("demo")
    return directory / "night.svg"


@pytest.fixture(scope="module")
def told(picture: Path) -> dict[str, Future[Told]]:
    """All stories at the same time: they mostly wait for leases to expire."""
    stories = {**STORIES, "default": ["--timeline", str(picture)]}
    with ThreadPoolExecutor(len(stories)) as pool:
        return {name: pool.submit(tell, *arguments) for name, arguments in stories.items()}


@pytest.mark.parametrize("story", STORIES)
def test_every_promise_is_kept(told: dict[str, Future[Told]], story: str) -> None:
    code, facts, shown = told[story].result()
    assert code == 0, shown
    assert "All 10 promises kept" in shown
    assert facts["state"] == facts["second_interval_state"] == "COMPLETED"
    assert facts["killed_after_range"] == facts["resumed_after_range"] == 17
    assert facts["ranges"] >= 20
    assert facts["generations"] == [1, 2, 3, 4]
    assert facts["source_reads_minimum"] <= facts["source_reads"] <= facts["source_reads_minimum"] + 4
    assert facts["checksum"] == facts["view_checksum"]
    assert len(facts["checksum"]) == 64
    assert (facts["duplicate_delivery"], facts["delayed_trigger"], facts["stale_commit"]) == (
        "duplicate",
        "delayed",
        "refused",
    )
    assert facts["max_changes_per_account"] == (0 if story == "nothing changed" else 1)
    assert facts["rejected"] == 1
    assert facts["late_before"] > 0 == facts["late_after"]


def test_the_default_story_is_as_large_as_announced(told: dict[str, Future[Told]]) -> None:
    _, facts, _ = told["default"].result()
    assert facts["accounts"] == 2000
    assert facts["pages"] >= 12
    assert min(facts["granted"], facts["changed"], facts["revoked"]) > 0


def test_the_shares_of_changed_accounts_are_as_asked(told: dict[str, Future[Told]]) -> None:
    changes = {
        story: sum(future.result()[1][kind] for kind in ("granted", "changed", "revoked"))
        for story, future in told.items()
    }
    assert changes == {"default": 400, "other seed": 80, "nothing changed": 0, "everything changed": 399}


def test_the_story_ends_with_who_held_the_lease_when(told: dict[str, Future[Told]], picture: Path) -> None:
    _, facts, shown = told["default"].result()
    ending = shown[shown.index("Who held the lease when") :]
    assert max(map(len, ending.splitlines()[:-1])) <= 80
    assert ending.splitlines()[-1] == f"drawn to {picture}"
    rows = re.findall(r"^ *(\d) (worker-\w) .*? (\d+) (COMPLETED|killed or frozen)", ending, re.MULTILINE)
    assert [(generation, holder, end) for generation, holder, _, end in rows] == [
        ("1", "worker-a", "killed or frozen"),
        ("2", "worker-c", "killed or frozen"),
        ("3", "worker-d", "COMPLETED"),
        ("4", "worker-b", "COMPLETED"),
    ]
    ranges = [int(count) for _, _, count, _ in rows]
    assert ranges[:2] == [17, 1]
    assert sum(ranges[:3]) == facts["ranges"]
    assert re.findall(r"([A-Za-z]+) +(worker-\w)", ending[: ending.index(" 4 worker-b")])[:10] == [
        ("OBSERVED", "worker-a"),
        ("DELAYED", "worker-b"),
        ("killed", "worker-a"),
        ("duplicate", "worker-b"),
        ("TAKEOVER", "worker-c"),
        ("frozen", "worker-c"),
        ("TAKEOVER", "worker-d"),
        ("COMPLETED", "worker-d"),
        ("refused", "worker-c"),
    ]
    drawn = picture.read_text("utf-8")
    assert "worker-a generation 1: 17 ranges, killed or frozen" in drawn
    assert "duplicate worker-b: same event" in drawn


def test_other_seeds_give_other_accounts(told: dict[str, Future[Told]]) -> None:
    assert len({future.result()[1]["checksum"] for future in told.values()}) == len(told)


def test_a_demo_that_is_told_to_end_leaves_no_process_behind() -> None:
    command = [sys.executable, "-m", "tools.demo", "--json"]
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "worker A takes the lease" in line:
                break
        started = descendants(demo.pid)
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert len(started) >= 6  # the emulator and five workers
    assert [pid for pid in started if alive(pid)] == []


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [below for child in found for below in descendants(child)]


def alive(pid: int) -> bool:
    """Whether the process is there, a moment's grace allowed for the system to take note of its end."""
    for _ in range(20):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True
