"""Dashboard and saved queries show what the functions really emit and log, of this stack and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from moto import mock_aws

from reconciler.observability import WATCHDOG_METRICS, WORKER_METRICS
from tests.conftest import SESSION
from tests.kit import logged
from tests.nights import a_lost_night, a_troubled_night, an_adopting_night
from tests.template import RESOURCES, VARIABLES, of_type, resolve
from tests.world import JOB, NIGHT, World

OWN = VARIABLES["POWERTOOLS_METRICS_NAMESPACE"]
STACK = ("service", "${AWS::StackName}")
BODY: str = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
FUNCTIONS = {("FunctionName", "${ReconcileFunction}"), ("FunctionName", "${WatchdogFunction}")}
QUEUES = {("QueueName", "${Undelivered.QueueName}"), ("QueueName", "${Failed.QueueName}")}
LAMBDA = {"Errors": "Sum", "Throttles": "Sum", "Invocations": "Sum", "Duration": "Maximum"}
SUMMED = {name for name, unit in WORKER_METRICS.items() if unit.value == "Count"} | {"SourceWaitSeconds"}
"""What happened in a period is the sum of what each read or invocation counted; an age is its latest worst."""


@dataclass(frozen=True, slots=True)
class Metric:
    namespace: str
    name: str
    dimension: tuple[str, str]
    statistic: str
    id: str | None


def widgets(body: str) -> list[dict[str, Any]]:
    """The widgets of a body as CloudWatch gets it, names of resources left open."""
    found: list[dict[str, Any]] = json.loads(resolve({"Fn::Sub": body}))["widgets"]
    return found


def metrics(body: str) -> Iterator[Metric]:
    for widget in widgets(body):
        for entry in widget["properties"].get("metrics", []):
            options = entry[-1] if isinstance(entry[-1], dict) else {}
            if "expression" not in options:
                namespace, name, *dimension = entry[: -1 if options else None]
                statistic = options.get("stat", widget["properties"]["stat"])
                yield Metric(namespace, name, tuple(dimension), statistic, options.get("id"))


def problems(body: str) -> list[str]:
    """What a dashboard shows that nothing emits, and what is emitted that it does not show."""
    shown = list(metrics(body))
    own = {metric.name for metric in shown if metric.namespace == OWN}
    declared = set(WORKER_METRICS) | set(WATCHDOG_METRICS)
    found = [f"{name} is emitted by nobody" for name in sorted(own - declared)]
    found += [f"{name} is not shown" for name in sorted(declared - own)]
    for metric in shown:
        match metric.namespace:
            case namespace if namespace == OWN:
                right = metric.dimension == STACK
                wanted = "Sum" if metric.name in SUMMED else "Maximum"
                if metric.statistic != wanted:
                    found.append(f"{metric.name} is shown as {metric.statistic}")
            case "AWS/Lambda":
                right = metric.dimension in FUNCTIONS and LAMBDA.get(metric.name) == metric.statistic
            case "AWS/SQS":
                right = metric.dimension in QUEUES and metric.name == "ApproximateNumberOfMessagesVisible"
            case _:
                right = False
        if not right:
            found.append(f"{metric.namespace} {metric.name} of {metric.dimension} is not of this stack")
    failing = {metric.dimension for metric in shown if metric.name == "Errors"}
    measured = {metric.dimension for metric in shown}
    found += [f"errors of {function} are not shown" for function in sorted(FUNCTIONS - failing)]
    found += [f"depth of {queue} is not shown" for queue in sorted(QUEUES - measured)]
    return found


def test_the_dashboard_shows_every_metric_that_is_emitted_and_no_other() -> None:
    assert problems(BODY) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"LeaseLost"', '"LeasesLost"', "LeasesLost is emitted by nobody"),
        ('"Takeovers"', '"LeaseLost"', "Takeovers is not shown"),
        ('"RunDelay", "service"', '"RunDelay", "Service"', "RunDelay of"),
        ('"ConsistencyLag", "service", "${AWS::StackName}"', '"ConsistencyLag"', "ConsistencyLag of"),
        ('"SecondsPastDeadline", "service", "${AWS::StackName}"', '"SecondsPastDeadline", "service", "prod"', "'prod'"),
        ('["ScheduledReconciler", "RangeConflicts"', '["Reconciler", "RangeConflicts"', "RangeConflicts is not shown"),
        ('"Errors", "FunctionName", "${WatchdogFunction}"', '"Errors", "FunctionName", "${Failed}"', "errors of"),
        ("${Failed.QueueName}", "${Undelivered.QueueName}", "depth of"),
        ("${Failed.QueueName}", "${Failed}", "is not of this stack"),
        ('"stat": "Maximum", "yAxis": "right"', '"yAxis": "right"', "AWS/Lambda Duration of"),
        (
            '"SecondsSinceProgress", "service", "${AWS::StackName}"',
            '"SecondsSinceProgress", "service", "${AWS::StackName}", {"stat": "Sum"}',
            "SecondsSinceProgress is shown as Sum",
        ),
    ],
)
def test_a_broken_dashboard_is_told(before: str, after: str, told: str) -> None:
    assert before in BODY
    found = problems(BODY.replace(before, after))
    assert any(told in problem for problem in found), found


def test_what_a_dashboard_refers_to_is_in_the_template() -> None:
    named = {name.partition(".")[0] for name in re.findall(r"\$\{([^}]+)\}", BODY)}
    known = set(RESOURCES) | {"AWS::StackName", "AWS::Region", "DeadlineMinutes", "ScheduleState"}
    assert named <= known
    assert "Condition" not in RESOURCES["Dashboard"], "what it shows does not depend on the schedules"


def test_the_deadline_is_a_line_in_the_same_unit_as_the_age_of_a_night() -> None:
    (widget,) = (widget for widget in widgets(BODY) if "annotations" in widget["properties"])
    assert widget["properties"]["annotations"]["horizontal"] == [{"label": "deadline", "value": 240}]
    ids = {metric.id: metric.name for metric in metrics(BODY) if metric.id}
    expressions = {entry[0]["expression"] for entry in widget["properties"]["metrics"] if "expression" in entry[0]}
    assert ids == {"age": "OldestUnfinishedAge", "late": "SecondsPastDeadline"}
    assert expressions == {"age / 60", "late / 60"}, "minutes, as DeadlineMinutes"


def test_it_opens_on_a_day_with_the_job_and_its_progress_in_widgets_of_their_own() -> None:
    assert json.loads(resolve({"Fn::Sub": BODY}))["start"] == "-PT24H"
    shown = [
        {metric[1] for metric in widget["properties"].get("metrics", []) if len(metric) > 1} for widget in widgets(BODY)
    ]
    assert {"SecondsSinceProgress"} in shown
    assert {"Invocations", "Errors", "Duration"} in shown


def test_every_widget_has_a_title_a_region_and_a_place_of_its_own() -> None:
    shown = widgets(BODY)
    for widget in shown:
        assert widget["x"] + widget["width"] <= 24
        if widget["type"] == "metric":
            assert widget["properties"]["title"]
            assert widget["properties"]["region"] == "${AWS::Region}"
            assert widget["properties"]["period"] == 300
    for one, other in combinations(shown, 2):
        beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        above = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
        assert beside or above, (one["properties"], other["properties"])


# -------------------------------------------------------------------------------------------------------- saved queries

QUERIES = {name: body["Properties"] for name, body in RESOURCES.items() if body["Type"] == "AWS::Logs::QueryDefinition"}
BUILT_IN = {"@timestamp"}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the form: fields … | filter one field | sort @timestamp | limit."""

    fields: list[str]
    filtered: str
    wanted: list[str]

    @classmethod
    def of(cls, name: str) -> Query:
        text: str = resolve(QUERIES[name]["QueryString"], **{"AWS::StackName": JOB})
        fields, condition, sort, limit = (part.strip() for part in text.split("|"))
        assert re.fullmatch(r"sort @timestamp (asc|desc)", sort)
        assert int(limit.removeprefix("limit ")) <= 10_000, "the most that Logs Insights shows"
        found = re.fullmatch(r"filter (\w+) (?:= (\".*\")|in (\[.*\]))", condition)
        assert found, condition
        return cls(fields.removeprefix("fields ").split(", "), found[1], json.loads(found[3] or f"[{found[2]}]"))

    def rows(self, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the query shows of log lines."""
        matching = [line for line in lines if line.get(self.filtered) in self.wanted]
        return [{name: line.get(name) for name in self.fields} for line in matching]


@cache
def said() -> list[dict[str, Any]]:
    """The log lines of nights in which everything happens that a query asks for."""
    with mock_aws(), logged() as lines:
        client = SESSION.client("dynamodb")
        for night in (a_troubled_night, a_lost_night, an_adopting_night):
            night(World(client))
    return lines


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_what_is_really_logged(name: str) -> None:
    query = Query.of(name)
    rows = query.rows(said())
    assert {line[query.filtered] for line in said() if query.filtered in line} >= set(query.wanted)
    for field in set(query.fields) - BUILT_IN:
        assert any(row[field] is not None for row in rows), f"{field} is in none of the lines"
    assert QUERIES[name]["LogGroupNames"] == [{"Ref": "ReconcileLogs"}]


def test_one_run_is_followed_from_end_to_end_across_its_attempts() -> None:
    assert Query.of("RunQuery").wanted == [f"{JOB}/{NIGHT}/1"], "a run id, to be edited"
    rows = Query.of("RunQuery").rows(said())
    assert len({row["generation"] for row in rows if row["generation"]}) >= 3
    assert {"attempt ended", "attempt failed", "account rejected"} <= {row["message"] for row in rows}
    assert "ClientError" in {row["exception_name"] for row in rows}


def test_a_refused_commit_and_a_rejected_account_say_where_they_were() -> None:
    for name in ("RefusedCommitsQuery", "RejectedAccountsQuery"):
        for row in Query.of(name).rows(said()):
            assert None not in (row["run_id"], row["segment"], row["generation"], row["range"]), row
    assert all(row["account_id"] and row["reason"] for row in Query.of("RejectedAccountsQuery").rows(said()))


def test_every_saved_query_is_named_by_its_stack() -> None:
    assert (
        set(of_type("AWS::Logs::QueryDefinition"))
        == set(QUERIES)
        == {
            "RunQuery",
            "RefusedCommitsQuery",
            "RejectedAccountsQuery",
        }
    )
    for query in QUERIES.values():
        assert query["Name"]["Fn::Sub"].startswith("${AWS::StackName}/")
