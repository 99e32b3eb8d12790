"""`make local` keeps tables for others to act on, says where, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.settings import Settings
from tools import invoke, local, local_file, reconcilectl
from tools.emulator import free_port
from tools.local_file import answers, read_local, write_local
from tools.provider import Provider

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[str]]:
    """`make local` in a process of its own, from when its file is there; killed at the end unless it has ended."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "tools.local", "--accounts", "30", "--file", str(file)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not file.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def test_events_and_commands_act_on_one_set_of_tables_until_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "local" / "environment.json"
    monkeypatch.setattr(local_file, "LOCAL_FILE", file)
    monkeypatch.setenv("COLUMNS", "80")
    with running(file) as process:
        found = read_local(file)
        assert found is not None
        assert Settings.from_env(found["variables"]).job_name == "local"
        assert invoke.main([str(ROOT / "events" / "nightly.json")]) == 0
        assert '"accounts": 30' in capsys.readouterr().out
        assert reconcilectl.main(["--local", "--json", "status"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert [one["state"] for one in seen["intervals"]] == ["COMPLETED"]
        for name, code, words in (("pause", 0, '"outcome": "done"'), ("skip", 1, "VerbRefused"), ("resume", 0, "done")):
            assert invoke.main([str(ROOT / "events" / f"{name}.json")]) == code
            assert words in capsys.readouterr().out
        assert reconcilectl.main(["--local", "--json", "audit", seen["intervals"][0]["interval"]]) == 0
        events = [row["event"] for row in json.loads(capsys.readouterr().out)["events"]]
        assert events[-1] == "COMPLETED"

        second = subprocess.run(process.args, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        assert second.returncode == 1, "a second one would hide the first"
        assert found["endpoint"] in second.stderr

        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None
        shown = process.stdout.read()
        assert "./reconcilectl --local status" in shown
        assert "make invoke EVENT=events/nightly.json" in shown
        assert "Traceback" not in shown
    assert not file.exists()
    assert not answers(found["endpoint"])


def test_the_job_reads_a_provider_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--source-url`, and a preview by the command line."""
    monkeypatch.setattr(local_file, "LOCAL_FILE", tmp_path / "environment.json")
    with Provider() as provider, local.started(20, local_file.LOCAL_FILE, provider.url):
        provider.put("of the provider", plan="gold")
        assert reconcilectl.main(["--local", "--json", "preview", "--reason", "a trial"]) == 0
        assert '"source_rows": 1,' in capsys.readouterr().out
    assert [asked.run_id for asked in provider.asked] == ["local/preview"]


def test_ctrl_c_ends_it_too(tmp_path: Path) -> None:
    file = tmp_path / "environment.json"
    with running(file) as process:
        found = read_local(file)
        assert found is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert not file.exists()
    assert not answers(found["endpoint"])


def test_the_file_of_a_later_one_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "environment.json"
    later = {"endpoint": f"http://127.0.0.1:{free_port()}", "region": "eu-west-1", "variables": {}}
    with local.started(20, file):
        write_local(file, later)
    assert read_local(file) == later


def test_a_file_whose_emulator_is_gone_is_not_used_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator_url: str
) -> None:
    file = tmp_path / "environment.json"
    monkeypatch.setattr(local_file, "LOCAL_FILE", file)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    said = {"endpoint": emulator_url, "region": "eu-west-1", "variables": {"JOB_NAME": "x"}}
    write_local(file, said)
    assert invoke.local_tables() == (emulator_url, "eu-west-1", {"JOB_NAME": "x"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    assert invoke.local_tables() is None, "a named endpoint comes first"
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    write_local(file, said | {"endpoint": f"http://127.0.0.1:{free_port()}"})
    assert invoke.local_tables() is None
    file.write_text("[]", "utf-8")
    assert invoke.local_tables() is None


def test_what_cannot_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("RECONCILER_EMULATOR_PYTHON", str(tmp_path / "nothing"))
    try:
        assert local.main(["--file", str(tmp_path / "environment.json")]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    said = capsys.readouterr().err
    assert (said.count("\n"), "make install" in said) == (1, True)
    with pytest.raises(SystemExit) as wrong:
        local.main(["--accounts", "1"])
    assert wrong.value.code == 2


def test_it_needs_nothing_on_the_path_but_the_project() -> None:
    """`make` runs it, and the event tool, without src/ on PYTHONPATH."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for module in ("tools.local", "tools.invoke", "tools.provider"):
        command = [sys.executable, "-m", module, "--help"]
        shown = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
        assert (shown.returncode, shown.stderr) == (0, "")
