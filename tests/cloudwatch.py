"""CloudWatch's published rules of when an alarm rings, as pure functions.

From the CloudWatch User Guide: "Alarm evaluation" says how often an alarm is evaluated and over which windows, and
"Configuring how CloudWatch alarms treat missing data" holds the table of states that `evaluate` computes. What neither
of them decides is a NotImplementedError here, never a guess.

    period             length of a window, in whole minutes; a window with no sample is a missing data point
    evaluation range   the windows that are looked at: more than the alarm's evaluation periods, so that older data
                       points may stand in for missing ones. Published is 5 for periods of 5 minutes and 3 evaluations
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"

PUBLISHED_RANGE = {(300, 3): 5}
"""(period in seconds, evaluation periods) → data points in the evaluation range."""

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"Maximum": max, "Sum": sum, "SampleCount": len}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A metric alarm's rule. `evaluation_range` is in data points, None where it is not published."""

    period_s: int
    evaluation_periods: int
    datapoints_to_alarm: int
    missing: str
    statistic: str
    comparison: str
    threshold: float
    evaluation_range: int | None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Alarm:
        """The rule of an AWS::CloudWatch::Alarm."""
        period_s, periods = properties["Period"], properties["EvaluationPeriods"]
        return cls(
            period_s=period_s,
            evaluation_periods=periods,
            datapoints_to_alarm=properties["DatapointsToAlarm"],
            missing=properties["TreatMissingData"],
            statistic=properties["Statistic"],
            comparison=properties["ComparisonOperator"],
            threshold=properties["Threshold"],
            evaluation_range=PUBLISHED_RANGE.get((period_s, periods)),
        )

    def breaches(self, samples: Sequence[float]) -> bool | None:
        """Whether one window's samples breach the threshold; None when there are none."""
        if not samples:
            return None
        return COMPARISONS[self.comparison](STATISTICS[self.statistic](samples), self.threshold)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value and when it was sent; an alarm sees it `in_flight_s` later. Times in seconds."""

    sent_s: float
    value: float
    in_flight_s: float = 0


def evaluate(points: Sequence[bool | None], *, of: int, needed: int, missing: str, now: str) -> str:
    """The state after one look at the data points of the evaluation range, oldest first.

    A point is True when it breaches, None when it is missing; `of` are the evaluation periods, `needed` the data points
    to alarm, `missing` the treatment of missing data, `now` the state so far.
    """
    real = [point for point in points if point is not None]
    if len(real) >= of:
        return ALARM if sum(real[-of:]) >= needed else OK
    if sum(real) >= needed:
        return ALARM
    if missing == "notBreaching":
        return OK
    if not real:
        return {"missing": INSUFFICIENT_DATA, "ignore": now, "breaching": ALARM}[missing]
    if all(real):
        age = len(points) - points.index(True)
        if age < needed:
            raise NotImplementedError(f"not published: breaching points only, the oldest {age} periods old")
        return now if missing == "ignore" else ALARM
    filled = of - len(real) if missing == "breaching" else 0
    return ALARM if sum(real) + filled >= needed else OK


def states(
    alarm: Alarm, samples: Iterable[Sample], *, until_s: int, since_s: int = 0, start: str = INSUFFICIENT_DATA
) -> Iterator[tuple[int, str]]:
    """Each change of state as (second, new state), for an alarm that is evaluated at every whole minute.

    At the end of a minute the windows end with that minute: a 5 minute window is minutes 1 to 5, a minute later 2 to 6.
    """
    if alarm.evaluation_range is None:
        raise NotImplementedError("the evaluation range of this alarm is not published: give it one")
    sent = sorted(samples, key=lambda sample: sample.sent_s)
    state = start
    for now_s in range(since_s, until_s + 1, 60):
        known = [sample for sample in sent if sample.sent_s + sample.in_flight_s <= now_s]
        ends = [now_s - back * alarm.period_s for back in reversed(range(alarm.evaluation_range))]
        points = [
            alarm.breaches([s.value for s in known if end_s - alarm.period_s <= s.sent_s // 60 * 60 < end_s])
            for end_s in ends
        ]
        new = evaluate(
            points, of=alarm.evaluation_periods, needed=alarm.datapoints_to_alarm, missing=alarm.missing, now=state
        )
        if new != state:
            state = new
            yield now_s, state


def told(changes: Iterable[tuple[int, str]], *, wait_s: int, until_s: int) -> list[int]:
    """When a composite alarm over one alarm tells of ALARM, if its suppressor never rings: `wait_s` into each one."""
    moments = []
    since_s: int | None = None
    for at_s, state in [*changes, (until_s, "")]:
        if since_s is not None and since_s + wait_s <= at_s:
            moments.append(since_s + wait_s)
        since_s = at_s if state == ALARM else None
    return moments
