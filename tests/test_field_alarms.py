"""Each alarm of the template by CloudWatch's published rules: breach, recovery, silence, and how long they take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from tests.alarms import RANGES, Stack
from tests.cloudwatch import ALARM, INSUFFICIENT_DATA, OK, Alarm, Sample, evaluate, states, told
from tools.tables import load_template

TEMPLATE = load_template()
RESOURCES: dict[str, dict[str, Any]] = TEMPLATE["Resources"]
ALARMS = {name: alarm for name, alarm in Stack().alarms.items() if "AlarmRule" not in alarm}
SILENT = RESOURCES["WatchdogSilentAlarm"]["Properties"]
README = " ".join((Path(__file__).parents[1] / "README.md").read_text("utf-8").split())

MINUTE, HOUR = 60, 3600
LATE_BY_S = 60
"""EventBridge Scheduler keeps a time to the minute."""
IN_FLIGHT_S = 120
"""What CloudWatch may take to make a data point of a log line."""
SQS_WAKES_S = 15 * MINUTE
"""A queue that was idle for six hours reports again up to 15 minutes after a message came (SQS Developer Guide)."""


def rate_s(schedule: str) -> int:
    """Seconds between two events of a schedule of the template, with the parameters' defaults."""
    (expression,) = (
        function["Properties"]["Events"][schedule]["Properties"]["ScheduleExpression"]
        for function in RESOURCES.values()
        if schedule in function.get("Properties", {}).get("Events", {})
    )
    if isinstance(expression, dict):
        expression = expression["Fn::If"][2]["Fn::Sub"]
    expression = expression.replace("${TickMinutes}", TEMPLATE["Parameters"]["TickMinutes"]["Default"])
    found = re.fullmatch(r"rate\((\d+) minutes\)", expression)
    assert found
    return int(found[1]) * MINUTE


LOOK_S = rate_s("Watch")
TICK_S = rate_s("Tick")


def looks(*values: float, since_s: float = 0, turn: int = 0) -> list[Sample]:
    """What the watchdog sends, one value a look: every other one late, every third long in flight, from a `turn` on."""
    return [
        Sample(
            since_s + number * LOOK_S + (number + turn) % 2 * (LATE_BY_S - 1),
            value,
            (number + turn) % 3 * IN_FLIGHT_S / 2,
        )
        for number, value in enumerate(values)
    ]


def promised_s(pattern: str) -> int:
    """A number of minutes that the README promises, in seconds."""
    found = re.search(pattern, README)
    assert found, pattern
    return int(found[1]) * MINUTE


def alarm_named(name: str, evaluation_range: int = 0) -> Alarm:
    alarm = Alarm.of(ALARMS[name])
    return replace(alarm, evaluation_range=evaluation_range) if evaluation_range else alarm


# ------------------------------------------------------------------------------------------------- the published table

RETAINS = "retains"
POINTS = {"0": False, "X": True, "-": None}


@pytest.mark.field("B61")
@pytest.mark.parametrize(
    ("needed", "points", "missing", "ignore", "breaching", "not_breaching"),
    [
        (3, "0 - X - X", OK, OK, OK, OK),
        (3, "0 - - - -", OK, OK, OK, OK),
        (3, "- - - - -", INSUFFICIENT_DATA, RETAINS, ALARM, OK),
        (3, "0 X X - X", ALARM, ALARM, ALARM, ALARM),
        (3, "- - X - -", ALARM, RETAINS, ALARM, OK),
        (2, "0 - X - X", ALARM, ALARM, ALARM, ALARM),
        (2, "0 0 X 0 X", ALARM, ALARM, ALARM, ALARM),
        (2, "0 - X - -", OK, OK, ALARM, OK),
        (2, "- - - - 0", OK, OK, ALARM, OK),
        (2, "- - - X -", ALARM, RETAINS, ALARM, OK),
    ],
)
@pytest.mark.parametrize("now", [OK, ALARM, INSUFFICIENT_DATA])
def test_the_evaluator_agrees_with_every_row_that_is_published(
    needed: int, points: str, missing: str, ignore: str, breaching: str, not_breaching: str, now: str
) -> None:
    """Three evaluation periods of five data points, `needed` of them to alarm; newest on the right."""
    expected = {"missing": missing, "ignore": ignore, "breaching": breaching, "notBreaching": not_breaching}
    for treatment, state in expected.items():
        seen = [POINTS[point] for point in points.split()]
        answer = evaluate(seen, of=3, needed=needed, missing=treatment, now=now)
        assert answer == (now if state == RETAINS else state), treatment


def test_what_is_not_published_is_not_guessed() -> None:
    for treatment in ("missing", "ignore", "breaching"):
        with pytest.raises(NotImplementedError, match="not published"):
            evaluate([None, None, None, None, True], of=3, needed=3, missing=treatment, now=OK)
    with pytest.raises(NotImplementedError, match="not published"):
        list(states(alarm_named("LateAlarm"), [], until_s=HOUR))


def test_a_window_slides_by_a_minute() -> None:
    """The guide's own example: at the end of minute 5 minutes 1 to 5 count, at the end of minute 6 minutes 2 to 6."""
    alarm = alarm_named("UndeliveredAlarm", 1)
    sent = [Sample(1, 1.0), Sample(5 * MINUTE, 0.0)]
    changes = states(alarm, sent, since_s=5 * MINUTE, until_s=10 * MINUTE)
    assert list(changes) == [(5 * MINUTE, ALARM), (6 * MINUTE, OK)]


# ---------------------------------------------------------------------------------------------------------- the windows

SENT_EVERY_S = {"ScheduledReconciler": LOOK_S, "AWS/SQS": MINUTE, "AWS/Lambda": TICK_S}
"""Namespace → seconds between two data points: the watchdog's looks, a queue in use, one invocation a tick."""


@pytest.mark.field("B59")
@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_window_is_one_that_aws_takes_and_its_metric_comes_in_every_period(name: str) -> None:
    """A total of at most a day, or of 7 days with periods of an hour and more (PutMetricAlarm); M of N needs M ≤ N."""
    alarm = Alarm.of(ALARMS[name])
    assert alarm.period_s % MINUTE == 0, "10, 20 and 30 seconds are for high resolution metrics only"
    total_s = alarm.period_s * alarm.evaluation_periods
    assert total_s <= (24 * HOUR if alarm.period_s < HOUR else 7 * 24 * HOUR)
    assert 1 <= alarm.datapoints_to_alarm <= alarm.evaluation_periods
    assert SENT_EVERY_S[ALARMS[name]["Namespace"]] <= alarm.period_s


@pytest.mark.field("B59")
def test_the_age_of_a_night_is_sent_at_least_hourly() -> None:
    assert LOOK_S <= HOUR
    assert {ALARMS[n]["Namespace"] for n in ("LateAlarm", "WatchdogQuietAlarm")} == {"ScheduledReconciler"}


# ------------------------------------------------------------------------------------------ Late, Skipped, NeedsRepair

STATE_ALARMS = ("LateAlarm", "SkippedAlarm", "NeedsRepairAlarm")


@pytest.mark.field("B59")
@pytest.mark.parametrize("evaluation_range", RANGES)
@pytest.mark.parametrize("name", STATE_ALARMS)
def test_lateness_skips_and_repairs_ring_at_once_and_end_once(name: str, evaluation_range: int) -> None:
    """However the looks lie to CloudWatch's minutes, and however late and slow they are."""
    alarm = alarm_named(name, evaluation_range)
    promise_s = promised_s(r"Late rings within (\d+) minutes of")
    for phase_s, turn in product(range(0, LOOK_S, 23), range(6)):
        sent = looks(*[0.0] * 5, *[1.0] * 6, *[0.0] * 6, since_s=phase_s, turn=turn)
        (_, first), (rang_s, second), (ended_s, third) = states(alarm, sent, until_s=18 * LOOK_S)
        assert (first, second, third) == (OK, ALARM, OK)
        assert 0 < rang_s - sent[4].sent_s <= promise_s, "the deadline was just after a look"
        assert 0 < ended_s - sent[11].sent_s <= alarm.period_s


@pytest.mark.field("B61")
@pytest.mark.parametrize("evaluation_range", RANGES)
@pytest.mark.parametrize("name", STATE_ALARMS)
@pytest.mark.parametrize(("value", "state"), [(1.0, ALARM), (0.0, OK)])
def test_lateness_skips_and_repairs_stay_as_they_are_while_the_watchdog_is_silent(
    name: str, evaluation_range: int, value: float, state: str
) -> None:
    sent = looks(*[value] * 4)
    assert [new for _, new in states(alarm_named(name, evaluation_range), sent, until_s=48 * HOUR)] == [state]
    assert list(states(alarm_named(name, evaluation_range), [], until_s=48 * HOUR)) == [], "and before its first word"


# ------------------------------------------------------------------------------------------------------- WatchdogSilent


def silences(sent: list[Sample], until_s: int) -> list[int]:
    """When the composite alarm tells of the watchdog's silence, in seconds."""
    wait_s = SILENT["ActionsSuppressorWaitPeriod"]
    changes = states(alarm_named("WatchdogQuietAlarm"), sent, until_s=until_s)
    return [at_s for at_s, state in told(changes, wait_s=wait_s, until_s=until_s) if state == ALARM]


def delays_of_silence() -> Iterator[float]:
    """Seconds from the last report to the alarm, for every second of a period that it may have come at."""
    for phase_s in range(LOOK_S):
        sent = [Sample(phase_s + number * LOOK_S, 0.0) for number in range(8)]
        (moment_s,) = silences(sent, until_s=3 * HOUR)
        yield moment_s - sent[-1].sent_s


@pytest.mark.field("B61")
def test_silence_of_the_watchdog_rings_when_the_readme_says() -> None:
    """Five windows are looked at, not three: the last report has to leave all of them, and then the wait begins."""
    delays = list(delays_of_silence())
    assert (min(delays), max(delays)) == (35 * MINUTE + 1, 36 * MINUTE)
    assert promised_s(r"alarms (\d+) to \d+ minutes after the last report") <= min(delays)
    longest_s = promised_s(r"alarms \d+ to (\d+) minutes after the last report")
    assert max(delays) + MINUTE + IN_FLIGHT_S <= longest_s, "evaluation and delivery take their time, too"


@pytest.mark.field("B61")
def test_three_missing_reports_are_not_silence_yet() -> None:
    """What `3 of 3, missing is breaching` seems to say, and does not: one report in five windows is enough."""
    sent = [Sample(number * LOOK_S, 0.0) for number in range(8)]
    quiet = [(at_s, state) for at_s, state in states(alarm_named("WatchdogQuietAlarm"), sent, until_s=2 * HOUR)]
    rang_s = next(at_s for at_s, state in quiet if state == ALARM and at_s > sent[-1].sent_s)
    assert rang_s - sent[-1].sent_s == 5 * LOOK_S + MINUTE


@pytest.mark.field("B61")
def test_a_watchdog_that_speaks_late_or_misses_looks_is_not_called_silent() -> None:
    steady = looks(*[0.0] * 40)
    assert silences(steady, until_s=40 * LOOK_S) == []
    gaps = [sample for number, sample in enumerate(steady) if number % 5 < 2]
    assert max(after.sent_s - before.sent_s for before, after in pairwise(gaps)) >= 4 * LOOK_S - LATE_BY_S
    assert silences(gaps, until_s=37 * LOOK_S) == []


@pytest.mark.field("B61")
def test_the_silence_ends_with_the_next_report() -> None:
    sent = [*looks(*[0.0] * 4), Sample(3 * HOUR, 0.0)]
    changes = list(states(alarm_named("WatchdogQuietAlarm"), sent, until_s=3 * HOUR + 2 * MINUTE))
    assert changes[-1] == (3 * HOUR + MINUTE, OK)


@pytest.mark.field("B61")
def test_a_new_deployment_has_ten_minutes_to_say_its_first_word() -> None:
    first_s = LOOK_S + LATE_BY_S
    for phase_s in range(0, MINUTE, 5):
        sent = [Sample(first_s + phase_s + n * LOOK_S, 0.0, IN_FLIGHT_S) for n in range(20)]
        assert silences(sent, until_s=2 * HOUR) == []
    assert silences([], until_s=2 * HOUR) == [SILENT["ActionsSuppressorWaitPeriod"]], "silent from the start"


@pytest.mark.field("B61")
@pytest.mark.parametrize("evaluation_range", RANGES)
def test_the_suppressor_rings_in_no_case(evaluation_range: int) -> None:
    for sent in ([], looks(*[0.0] * 9), looks(5.0, 0.0)):
        seen = {state for _, state in states(alarm_named("NeverAlarm", evaluation_range), sent, until_s=3 * HOUR)}
        assert seen == {OK}


# ------------------------------------------------------------------------------------------------- Undelivered, Errors


@pytest.mark.field("B61")
@pytest.mark.parametrize("evaluation_range", RANGES)
def test_an_undelivered_trigger_rings_until_its_message_is_gone(evaluation_range: int) -> None:
    """An idle queue reports nothing: that is neither a message nor the end of one."""
    alarm = alarm_named("UndeliveredAlarm", evaluation_range)
    arrived_s = HOUR
    wakes_s = arrived_s + SQS_WAKES_S
    there = [Sample(at_s, 1.0) for at_s in range(wakes_s, wakes_s + 6 * HOUR, MINUTE)]
    gone = [Sample(at_s, 0.0) for at_s in range(20 * HOUR, 26 * HOUR, MINUTE)]
    assert list(states(alarm, [], until_s=24 * HOUR)) == []
    (rang_s, rings), (ended_s, ends) = states(alarm, there + gone, until_s=30 * HOUR)
    assert (rings, ends) == (ALARM, OK)
    assert rang_s - arrived_s <= SQS_WAKES_S + MINUTE
    assert 0 < ended_s - gone[0].sent_s <= MINUTE


def failures(every_s: int, count: int, since_s: int = HOUR) -> list[Sample]:
    """The job's errors: one invocation a tick, of which `count` from `since_s` on fail."""
    return [
        Sample(at_s, float(since_s <= at_s < since_s + count * every_s))
        for at_s in range(0, since_s + 2 * HOUR, every_s)
    ]


@pytest.mark.parametrize("evaluation_range", RANGES)
def test_three_failed_ticks_ring_and_two_do_not(evaluation_range: int) -> None:
    alarm = alarm_named("ErrorsAlarm", evaluation_range)
    assert [state for _, state in states(alarm, failures(TICK_S, 2), until_s=3 * HOUR)] == [OK]
    (_, first), (rang_s, second), (ended_s, third) = states(alarm, failures(TICK_S, 3), until_s=3 * HOUR)
    assert (first, second, third) == (OK, ALARM, OK)
    assert rang_s - HOUR == 2 * TICK_S + MINUTE
    assert ended_s - HOUR == alarm.period_s + MINUTE, "half an hour after the first of the three"


@pytest.mark.parametrize("evaluation_range", RANGES)
def test_errors_end_when_nothing_is_invoked_any_more(evaluation_range: int) -> None:
    """That nothing is invoked is another alarm's business: lateness, and the watchdog's silence."""
    alarm = alarm_named("ErrorsAlarm", evaluation_range)
    sent = [sample for sample in failures(TICK_S, 3) if sample.sent_s < HOUR + 3 * TICK_S]
    *_, (ended_s, state) = states(alarm, sent, until_s=12 * HOUR)
    assert state == OK
    assert ended_s <= HOUR + 3 * TICK_S + evaluation_range * alarm.period_s + MINUTE


def test_the_tick_beyond_which_errors_cannot_ring_is_told() -> None:
    alarm = alarm_named("ErrorsAlarm", 1)

    def rings(minutes: int) -> bool:
        sent = failures(minutes * MINUTE, 5)
        return any(state == ALARM for _, state in states(alarm, sent, until_s=4 * HOUR))

    last = max(minutes for minutes in range(1, 61) if rings(minutes))
    assert f"Above {last} the alarm Errors cannot ring" in TEMPLATE["Parameters"]["TickMinutes"]["Description"]
