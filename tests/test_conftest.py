"""What tests measure is told at the end of their run, in one process or in several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.emulator import ROOT

MEASURING = """
def test_that_passes(figures):
    figures(apples=2)
    figures(apples=3)

def test_that_fails(figures):
    figures(apples=10, pears=7)
    assert False

def test_that_measures_nothing():
    pass
"""


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "two processes"])
def test_the_sum_of_each_figure_is_told_also_of_a_test_that_fails(tmp_path: Path, processes: list[str]) -> None:
    told = run(tmp_path, MEASURING, processes)
    assert "1 failed, 2 passed" in told
    _, _, measured = told.partition("- measured -")
    lines = measured.splitlines()
    assert lines[1:3] == ["apples: 15", "pears: 7"]
    assert lines[3].startswith("===")


def test_nothing_is_told_when_nothing_was_measured(tmp_path: Path) -> None:
    told = run(tmp_path, "def test_that_measures_nothing():\n    pass\n", [])
    assert "1 passed" in told
    assert "measured" not in told


def run(directory: Path, tests: str, options: list[str]) -> str:
    """What pytest prints about these tests, which have the fixtures of tests.conftest."""
    (directory / "test_measuring.py").write_text(tests, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options, "."]
    path = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=directory, env=os.environ | path, capture_output=True, text=True).stdout
