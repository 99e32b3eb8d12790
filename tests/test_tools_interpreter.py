"""The interpreter of the Lambda runtime is found, or it is said what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import interpreter
from tools.emulator import ROOT

OTHER = "#!/bin/sh\necho python3.9\n"


def found_on(path: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": str(path), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tools.interpreter"]
    return subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.mark.skipif(interpreter.is_runtime(sys.executable), reason="this interpreter is one")
def test_without_the_interpreter_of_the_runtime_it_is_said_what_to_do(tmp_path: Path) -> None:
    script(tmp_path / interpreter.RUNTIME, OTHER)
    answer = found_on(tmp_path)
    assert answer.returncode == 1
    assert f"no working {interpreter.RUNTIME}" in answer.stderr
    assert "make clean install PYTHON=" in answer.stderr


@pytest.mark.skipif(interpreter.is_runtime(sys.executable), reason="this interpreter is one")
def test_one_that_pyenv_has_put_aside_is_found_behind_a_shim_that_does_not_work(tmp_path: Path) -> None:
    script(tmp_path / interpreter.RUNTIME, "#!/bin/sh\nexit 127\n")
    script(tmp_path / "pyenv", f"#!/bin/sh\necho {tmp_path}\n")
    script(tmp_path / "bin" / interpreter.RUNTIME, f"#!/bin/sh\necho {interpreter.RUNTIME}\n")
    assert found_on(tmp_path).stdout == f"{tmp_path / 'bin'}\n"
