"""The interpreter that `sam build` needs: one of the Lambda runtime's version, with pip.

As a module it prints that interpreter's directory, or says what to do when there is none and ends with 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tools.tables import load_template

RUNTIME = str(load_template()["Globals"]["Function"]["Runtime"])
VERSION = RUNTIME.removeprefix("python")
LACKING = (
    f"no working {RUNTIME} with pip was found, and sam build needs the version of the Lambda runtime: install it "
    f"(pyenv install {VERSION}, uv python install {VERSION}, or python.org), or make .venv with one that is elsewhere: "
    f"make clean install PYTHON=/path/to/{RUNTIME}"
)


@cache
def python_of_the_runtime() -> Path | None:
    """This interpreter, the one on the PATH, or the one that pyenv or uv has put aside; None when none works."""
    candidates = [sys.executable, shutil.which(RUNTIME)]
    if prefix := _said("pyenv", "prefix", VERSION):
        candidates.append(f"{prefix}/bin/{RUNTIME}")
    candidates.append(_said("uv", "python", "find", "--no-project", VERSION))
    return next((Path(python) for python in candidates if python and is_runtime(python)), None)


def is_runtime(python: str) -> bool:
    """Whether it starts, is of the runtime's version and has pip (a pyenv shim may do none of it)."""
    return _said(python, "-c", "import sys, pip; print('python%d.%d' % sys.version_info[:2])") == RUNTIME


def _said(*command: str) -> str:
    """What a command prints; nothing when it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    found = python_of_the_runtime()
    if found is None:
        sys.exit(LACKING)
    print(found.parent)
