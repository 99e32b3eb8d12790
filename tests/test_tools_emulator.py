"""The local emulator is ours alone: loopback only, no state, no process and no file left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import emulator as module
from tools.emulator import EmulatorError, emulator
from tools.scene import local_client
from tools.tables import create_tables


def processes(marker: str) -> list[str]:
    """Every running process whose command line or parent shows the marker."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if marker in line]


def test_it_serves_conditional_transactions_and_ends_with_its_block() -> None:
    with emulator() as url:
        client = local_client(url, "test")
        assert set(create_tables(client, suffix="x1")) >= {"ControlTable", "EntitlementsTable"}
        client.close()
        port = int(url.rpartition(":")[2])
    assert not listening(port)


def test_two_run_side_by_side_and_share_nothing() -> None:
    with emulator() as one, emulator() as other:
        assert one != other
        first, second = local_client(one, "test"), local_client(other, "test")
        create_tables(first, suffix="x1")
        assert second.list_tables()["TableNames"] == []
        first.close()
        second.close()


def test_it_listens_on_loopback_only() -> None:
    """Also no second listener: MiniStack's broker would bind every interface."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs /proc")
    with emulator():
        listeners = own_listeners()
    assert set(listeners) == {"127.0.0.1"}


def own_listeners() -> list[str]:
    """The addresses on which the children of this process listen."""
    inodes: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                address = fields[1].partition(":")[0]
                inodes[fields[9]] = (
                    socket.inet_ntoa(bytes.fromhex(address)[::-1]) if len(address) == 8 else f"tcp6 {address}"
                )
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"\nPPid:\t{os.getpid()}\n" in (process / "status").read_text():
                links = [os.readlink(link) for link in (process / "fd").iterdir()]
                found += [inodes[link[8:-1]] for link in links if link[8:-1] in inodes]
        except OSError:
            continue
    return found


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with emulator() as url:
        assert len(list(tmp_path.iterdir())) == 1
        client = local_client(url, "test")
        create_tables(client, suffix="x1")
        client.close()
    assert list(tmp_path.iterdir()) == []


def test_it_ends_when_its_block_fails() -> None:
    with pytest.raises(LookupError), emulator() as url:
        raise LookupError
    assert not listening(int(url.rpartition(":")[2]))


def test_a_missing_installation_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_EMULATOR_PYTHON", "/nowhere/python")
    with pytest.raises(EmulatorError, match=r"no emulator at /nowhere/python: run `make install` first"), emulator():
        pass


def test_one_that_does_not_start_shows_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho cannot find the thing >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setenv("RECONCILER_EMULATOR_PYTHON", str(python))
    with pytest.raises(EmulatorError, match="cannot find the thing"), emulator():
        pass


def test_one_that_never_gets_ready_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"stubborn-{os.getpid()}"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntrap '' TERM\n{sys.executable} -c 'import time; time.sleep(60)' {marker} & wait\n")
    python.chmod(0o755)
    monkeypatch.setenv("RECONCILER_EMULATOR_PYTHON", str(python))
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    with pytest.raises(EmulatorError, match=r"within 0\.5 s"), emulator(timeout_s=0.5):
        pass
    assert processes(marker) == []


def test_a_port_taken_meanwhile_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    free = module.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(module, "free_port", lambda: next(ports, None) or free())
        with emulator() as url:
            assert url != f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_simultaneous_starts_all_succeed() -> None:
    def start(_: int) -> str:
        with emulator() as url:
            return url

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(start, range(4)))) == 4


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = """
import sys
from tools.emulator import emulator
with emulator() as url:
    print(url, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=module.ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2])
        parent.kill()
    deadline = time.monotonic() + 10
    while listening(port) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "it is still there, or its directory is"
        time.sleep(0.05)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
