"""Every failure reported from the field has a test that reproduces it, or a reason why not yet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CASES = {
    "B01": "a scheduled function is invoked twice",
    "B03": "a second delivery arrives while the first still works",
    "B05": "a client that stops waiting sends its call again",
    "B07": "a paused holder wakes up and writes",
    "B09": "a timeout is a kill: what releases the lock never runs",
    "B11": "an expired row comes back, or takes its counter with it",
    "B13": "the write landed, its answer was lost, and its repeat fails",
    "B15": "a stale worker overwrites what is newer, and cleanup removes it",
    "B17": "which condition failed cannot be told from the message",
    "B19": "a request token comes back with another body, or too late",
    "B21": "a reserved word breaks an expression on its first update only",
    "B23": "an update of a missing row makes a ghost",
    "B25": "one hot key is throttled whatever the billing mode",
    "B27": "there is a continue key though nothing is left",
    "B29": "the row that the checkpoint names is gone",
    "B31": "one row is lost at each page boundary",
    "B33": "an id that looks like a number becomes one",
    "B35": "an id holds the separator, or is empty, or too long",
    "B37": "a checkpoint that was not saved still moves the position",
    "B39": "after a long outage nothing runs, or everything does",
    "B41": "a rate limit lets through twice its rate after a rest",
    "B43": "the SDK's defaults outlast the function",
    "B45": "a local schedule fires twice in the repeated hour",
    "B47": "a time without a zone is read in another one",
    "B49": "a killed run leaves its slot in progress for good",
    "B51": "after a timeout the effects run again",
    "B53": "an error forgets the slot, and the retry starts over",
    "B55": "a job that never ran has no data, so no alarm",
    "B57": "a run that fails sends no metric",
    "B59": "a daily metric falls out of its window",
    "B61": "missing data does not ring at once",
    "B63": "a deployment goes out without its dependencies",
    "B65": "variables of a local invocation are ignored",
    "B67": "localhost is the container itself",
    "B69": "a log group never expires, or comes back after the stack",
    "B71": "a fixed layer ARN fails in another region",
    "B73": "an alarm is tested where nothing evaluates it",
    "B75": "a Decimal is not JSON",
}

EXEMPT: dict[str, str] = {}


def marked(path: Path) -> Iterator[str]:
    """The cases named by the `field` marks of a test module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.field":
            yield from map(ast.literal_eval, node.args)


def covered() -> set[str]:
    return {case for path in Path(__file__).parent.rglob("test_*.py") for case in marked(path)}


def test_every_case_has_a_test_or_a_reason() -> None:
    assert sorted(set(CASES) - covered() - set(EXEMPT)) == []


def test_every_mark_names_a_case() -> None:
    assert sorted(covered() - set(CASES)) == []


def test_no_reason_outlives_the_test_it_excuses() -> None:
    assert sorted(covered() & set(EXEMPT)) == []
    assert set(EXEMPT) <= set(CASES)
