"""A local AWS for as long as a `with` block lasts: MiniStack, on loopback only, leaving nothing behind.

Its conditional writes and transactions are atomic between clients, which is what the job's promises rest on.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCALHOST = "127.0.0.1"
GRACE_S = 5.0
START_ATTEMPTS = 3  # somebody else may take the free port between our look and the emulator's bind


class EmulatorError(RuntimeError):
    """The emulator is not installed, or did not get ready; the message says which and shows its last words."""


RUN = """
import os, runpy, shutil, signal, sys, threading

def end_with_parent():
    sys.stdin.buffer.read()
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    os.killpg(0, signal.SIGKILL)

threading.Thread(target=end_with_parent, daemon=True).start()
sys.argv = ["ministack"]
runpy.run_module("ministack", run_name="__main__")
"""
"""What its interpreter runs: MiniStack, and when stdin closes, which is when the parent was killed, its own end."""


@contextmanager
def emulator(*, timeout_s: float = 30.0, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start an emulator of its own and yield its endpoint URL; end it and everything it started at exit.

    `settings` adds environment variables of the emulator. Raises EmulatorError when it is not installed or not ready
    within `timeout_s` seconds.
    """
    python = emulator_python()
    with tempfile.TemporaryDirectory(prefix="reconciler-emulator-") as directory:
        process, port = _start(python, Path(directory), timeout_s, settings or {})
        try:
            yield f"http://{LOCALHOST}:{port}"
        finally:
            _end(process)


def emulator_python() -> Path:
    """Return the interpreter that has MiniStack: `.venv/emulator`, or what RECONCILER_EMULATOR_PYTHON names."""
    chosen = os.environ.get("RECONCILER_EMULATOR_PYTHON")
    python = Path(chosen) if chosen else ROOT / ".venv" / "emulator" / "bin" / "python"
    if not python.is_file():
        raise EmulatorError(f"no emulator at {python}: run `make install` first")
    return python


def _start(
    python: Path, directory: Path, timeout_s: float, settings: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start it and wait until it answers; return the process and its port."""
    log = directory / "emulator.log"
    for _ in range(START_ATTEMPTS):
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [python, "-c", RUN],
                cwd=directory,
                env=_environment(port, directory) | dict(settings),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its Lambda workers are in its group, and so end with it
            )
        ready = False
        try:
            ready = _ready(process, port, timeout_s)
        finally:
            if not ready:
                _end(process)
        if ready:
            return process, port
        words = log.read_text("utf-8", "replace")
        if "already in use" not in words:
            break
    raise EmulatorError(f"the emulator did not get ready within {timeout_s:g} s; its last words:\n{words[-2000:]}")


def _environment(port: int, directory: Path) -> dict[str, str]:
    """Its whole environment: nothing of ours but PATH, so that no setting of the user's machine changes a run."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "GATEWAY_PORT": str(port),
        "BIND_HOST": LOCALHOST,
        "LOG_LEVEL": "WARNING",
        # Listeners that would bind every interface, whatever BIND_HOST says.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "USE_SSL": "0",
        # State lives in memory; what is written all the same goes to the temporary directory.
        "PERSIST_STATE": "0",
        "S3_PERSIST": "0",
        "STATE_DIR": str(directory / "state"),
        "S3_DATA_DIR": str(directory / "s3"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Functions run as child processes, never in containers, and no container of the machine is touched.
        "LAMBDA_EXECUTOR": "local",
        "DOCKER_HOST": f"unix://{directory}/no-docker.sock",
    }


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _ready(process: subprocess.Popen[bytes], port: int, timeout_s: float) -> bool:
    """Wait until the health address answers 200; False when the process ended or the time is up."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection(LOCALHOST, port, timeout=1)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", "/_ministack/health")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                return True
        time.sleep(0.05)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the emulator and its process group: asked first, then killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
