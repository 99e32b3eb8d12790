"""The README names only what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reconciler.due import SKIPS_A_TICK

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
GUARANTEES = (ROOT / "docs/guarantees.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_every_guarantee_names_a_test_that_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", README))
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"def (test_\w+)", sources))


def test_every_make_target_and_every_module_of_the_readme_exists() -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))))
    assert {"demo", "test", "invoke"} <= targets <= set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    modules = set(re.findall(r"`(?:src/reconciler/)?(\w+\.py)`", README))
    assert modules <= {path.name for path in (ROOT / "src/reconciler").glob("*.py")}


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md", "docs/adapting.md", "docs/performance.md"])
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", (ROOT / name).read_text("utf-8"))
    for path, anchor in links:
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, anchor


def test_the_bound_of_a_tick_is_the_one_of_the_code() -> None:
    assert re.findall(r"at most (\d+) nights a tick", " ".join(README.split())) == [str(SKIPS_A_TICK)]


def test_the_figures_are_those_that_were_measured() -> None:
    measured = json.loads((ROOT / "docs/guarantees.json").read_text("utf-8"))
    readme, guarantees = (" ".join(text.split()) for text in (README, GUARANTEES))
    points = f"{measured['crash_points']:,} points"
    differences = f"{measured['crash_differences']} differences"
    seeds = f"{measured['seeds']:,} seeds, {measured['seed_violations']} violations"
    assert re.search(f"{points}, [^()]*{differences}", readme)
    assert seeds in readme
    assert f"{points}, {measured['crash_pairs']} of them pairs, {differences}" in guarantees
    assert seeds in guarantees
    assert f"{measured['race_rounds']} races, {measured['race_double_winners']} with two winners" in guarantees
    assert f"{measured['random_kills']} kills, {measured['kills_holding_the_lease']} of a holder" in guarantees
    assert f"{measured['network_faults']} network faults" in guarantees
    assert (
        f"{measured['stalls_holding_the_lease']} holders frozen, {measured['chaos_violations']} violations"
        in guarantees
    )
