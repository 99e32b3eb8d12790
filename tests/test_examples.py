"""docs/adapting.md: by the commands that stand there, the second job takes the place of the sample."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs/adapting.md").read_text("utf-8")
COPIED = ("src", "tests", "tools", "examples", "template.yaml", "pyproject.toml")
JOB = ("source.py", "view.py", "diff.py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as an adopter has it."""
    directory = tmp_path_factory.mktemp("mine")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, directory / name)
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


def run(command: str, cwd: Path) -> str:
    done = subprocess.run(["bash", "-ec", command], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_example_takes_the_place_of_the_sample_in_three_files(copy: Path) -> None:
    (commands,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert re.search(r"(\d+) passed", run(commands, copy))
    changed = [
        path.name
        for path in sorted((ROOT / "src/reconciler").iterdir())
        if path.is_file() and path.read_bytes() != (copy / "src/reconciler" / path.name).read_bytes()
    ]
    assert changed == sorted(JOB)


def test_nothing_else_knows_what_the_sample_keeps(copy: Path) -> None:
    """mypy finds every module that uses an attribute which only the sample has, but for the sample's other sources."""
    run(re.findall(r"^cp .+src/reconciler/$", TEXT, re.MULTILINE)[0], copy)
    others = [path for path in (copy / "src/reconciler").glob("*.py") if "SourceRecord(" not in path.read_text("utf-8")]
    modules = " ".join(sorted(f"src/reconciler/{path.name}" for path in others))
    run(f"{sys.executable} -m mypy --follow-imports=silent {modules}", copy)


def test_every_file_of_the_document_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", TEXT)) | {
        f"src/reconciler/{name}" for name in re.findall(r"`(\w+\.py)`", TEXT)
    }
    assert {"examples/price_list/", "tests/contract.py", "src/reconciler/app.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_name_of_the_document_is_one_of_the_code() -> None:
    modules = {path.stem for path in (ROOT / "src/reconciler").glob("*.py")}
    dotted = [(one, two) for one, two in re.findall(r"`(\w+)\.(\w+)", TEXT) if one in modules and two != "py"]
    assert ("merge", "Side") in dotted
    assert [pair for pair in dotted if not hasattr(import_module(f"reconciler.{pair[0]}"), pair[1])] == []
    seam = re.findall(r"^\|(?: `(\w+)\.py`)? \| `(\w+)", TEXT, re.MULTILINE)
    assert len(seam) == 6
    module = ""
    for named, attribute in seam:
        module = named or module
        assert hasattr(import_module(f"reconciler.{module}"), attribute), attribute
