"""Every failure reported from the field has a test that reproduces it, or a reason why not yet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CASES = frozenset(f"B{number:02d}" for number in range(1, 76, 2))

EXEMPT = {
    "B39": "what follows a long outage belongs to the catch-up window",
    "B41": "source pacing comes with the backfill rate",
    "B61": "the time from silence to an alarm is computed with the catch-up work",
    "B63": "the order of build and deploy is checked with the operations documentation",
    "B65": "variables inside a container of `sam local invoke` need Docker",
    "B67": "endpoints as seen from inside a container need Docker",
}


def marked(path: Path) -> Iterator[str]:
    """The cases named by the `field` marks of a test module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.field":
            yield from map(ast.literal_eval, node.args)


def covered() -> set[str]:
    return {case for path in Path(__file__).parent.glob("test_*.py") for case in marked(path)}


def test_every_case_has_a_test_or_a_reason() -> None:
    assert sorted(CASES - covered() - set(EXEMPT)) == []


def test_every_mark_names_a_case() -> None:
    assert sorted(covered() - CASES) == []


def test_no_reason_outlives_the_test_it_excuses() -> None:
    assert sorted(covered() & set(EXEMPT)) == []
    assert set(EXEMPT) <= CASES
