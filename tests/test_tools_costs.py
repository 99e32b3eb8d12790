"""The costs: what was measured is what the job does, a night in between lies on the line, the document agrees."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest

from reconciler.observability import WATCHDOG_METRICS, WORKER_METRICS
from tools import costs
from tools.meter import ROW_OVERHEAD, Night, measure, weight
from tools.proxy import proxy
from tools.tables import load_template

BETWEEN = 10_000
"""Accounts of a night that the model was not made from."""


@pytest.fixture(scope="module")
def night(emulator_url: str) -> Night:
    with proxy(emulator_url) as through:
        return measure(through, emulator_url, accounts=BETWEEN, changed=costs.CHANGED)


def test_a_night_between_the_measured_ones_takes_what_the_model_says(night: Night) -> None:
    expected = costs.measured().use(BETWEEN)
    assert night.night.requests == pytest.approx(expected.requests, abs=2)
    assert night.night.read_units == pytest.approx(expected.read_units, rel=0.02)
    assert night.night.write_units == pytest.approx(expected.write_units, rel=0.05)
    assert night.night.log_bytes == pytest.approx(expected.log_bytes, rel=0.1)


def test_ticks_and_looks_take_what_was_measured(night: Night) -> None:
    middle = costs.measured().middle
    for now, then in ((night.tick, middle.tick), (night.look, middle.look)):
        assert (now.requests, now.read_units, now.write_units) == (then.requests, then.read_units, then.write_units)
        assert now.log_bytes == pytest.approx(then.log_bytes, rel=0.1)
    assert night.account_bytes == pytest.approx(middle.account_bytes, rel=0.01)


def test_the_rows_read_are_as_heavy_as_those_the_job_leaves(night: Night) -> None:
    """A missing attribute would show: the lightest, `generation`, is 5 % of a row."""
    assert night.kept_bytes == pytest.approx(night.written_bytes, rel=0.02)


def test_reads_and_writes_are_what_the_accounts_and_changes_make_of_them(night: Night) -> None:
    """Two units a changed account, each side read once at a unit for 4 KB."""
    changed = round((BETWEEN - 1) * costs.CHANGED)
    assert night.night.write_units >= 2 * changed + 4 * night.ranges
    pages_bytes = (night.account_bytes - 200) * BETWEEN
    assert night.night.read_units == pytest.approx(pages_bytes / 4096, rel=0.05)


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ({"a": {"S": "é"}}, 3),
        ({"a": {"N": "12345"}}, 5),
        ({"a": {"N": "-0.5"}}, 4),
        ({"a": {"BOOL": True}}, 2),
        ({"a": {"M": {"b": {"S": "cd"}}}}, 8),
        ({"a": {"L": [{"S": "cd"}, {"NULL": True}]}}, 9),
    ],
)
def test_a_row_weighs_what_the_published_rules_say(row: dict[str, dict[str, object]], size: int) -> None:
    assert weight(row) == size


def test_the_document_says_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main([]) == 0
    document = (Path(__file__).parents[1] / "docs/operations.md").read_text("utf-8")
    assert capsys.readouterr().out.strip() in document
    middle = costs.measured().middle
    source_bytes = middle.account_bytes - middle.kept_bytes - 2 * ROW_OVERHEAD
    source, view = (round(each / 10) * 10 for each in (source_bytes, middle.kept_bytes))
    assert f"about {source} bytes in the source and {view} in the view" in " ".join(document.split())
    total = sum(costs.month(10_000_000, costs.measured(), costs.prices()).values())
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    assert f"${total:.0f} at ten million" in readme
    more = costs.SOURCE_METRICS * costs.prices()["metric"]
    assert f"`Source=http` adds three metrics, ${more:.2f}," in " ".join(document.split())
    listed = json.loads(costs.PRICES.read_text("utf-8"))
    assert f"{listed['region']} list prices of {listed['as_of']}" in " ".join(document.split())


def test_every_price_has_a_unit_and_a_source_and_is_used() -> None:
    listed = json.loads(costs.PRICES.read_text("utf-8"))
    date.fromisoformat(listed["as_of"])
    for name, price in listed["prices"].items():
        assert price["usd"] > 0
        assert price["per"]
        assert "aws.amazon.com/" in price["source"], name
        dearer = costs.prices() | {name: price["usd"] * 1_000}
        model = costs.measured()
        assert sum(costs.month(10_000_000, model, dearer).values()) > sum(
            costs.month(10_000_000, model, costs.prices()).values()
        ), name


def test_what_is_counted_is_what_the_template_and_the_code_have() -> None:
    declared = WORKER_METRICS | WATCHDOG_METRICS
    of_a_provider = {name for name in declared if name.startswith("Source")}
    assert (len(declared) - len(of_a_provider), len(of_a_provider)) == (costs.METRICS, costs.SOURCE_METRICS)
    dashboards = [b for b in load_template()["Resources"].values() if b["Type"] == "AWS::CloudWatch::Dashboard"]
    assert len(dashboards) <= costs.DASHBOARDS
    functions = [b for b in load_template()["Resources"].values() if b["Type"] == "AWS::Serverless::Function"]
    assert [function["Properties"]["MemorySize"] for function in functions] == [1024, 256]
    assert {function["Properties"].get("Architectures", ["arm64"])[0] for function in functions} == {"arm64"}
    assert re.fullmatch(r"\d+", load_template()["Parameters"]["TickMinutes"]["Default"])
    assert costs.TICKS * int(load_template()["Parameters"]["TickMinutes"]["Default"]) == 30 * 24 * 60
