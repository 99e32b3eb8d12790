"""The interpreter that `sam build` needs: one of the Lambda runtime's version, with pip."""

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
    f"(`uv python install {VERSION}`, `pyenv install {VERSION}`, or python.org) so that {RUNTIME} is on the PATH, or "
    f"make .venv with it: make clean install PYTHON=/path/to/{RUNTIME}"
)


@cache
def python_of_the_runtime() -> Path | None:
    """This interpreter, the one on the PATH, or the one that pyenv or uv has put aside; None when none works."""
    candidates = [sys.executable, shutil.which(RUNTIME)]
    for finder, *arguments in (("pyenv", "prefix", VERSION), ("uv", "python", "find", "--no-project", VERSION)):
        if found := _said([finder, *arguments]):
            candidates.append(str(Path(found) / "bin" / RUNTIME) if finder == "pyenv" else found)
    return next((Path(found) for found in candidates if found and _is_runtime(found)), None)


def _is_runtime(python: str) -> bool:
    """Whether it starts, is of the runtime's version and has pip (a pyenv shim may do none of it)."""
    return _said([python, "-c", "import sys, pip; print('python%d.%d' % sys.version_info[:2])"]) == RUNTIME


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    if python_of_the_runtime() is None:
        sys.exit(f"make rehearse: {LACKING}")
