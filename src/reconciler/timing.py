"""When to stop: no range is started that the lease or the invocation might not outlive."""

from __future__ import annotations

from reconciler.attempt import Attempt
from reconciler.errors import OutOfTime
from reconciler.invocation import Invocation


def check_invocation(invocation: Invocation, slowest_range_s: float = 0.0, *, calls: int = 0) -> None:
    """Raises OutOfTime unless one more range, and the end of the attempt after it, fit into the invocation.

    And so many calls besides.
    """
    settings = invocation.settings
    budget = settings.call_budget_s
    needed = max(slowest_range_s, 3 * budget) + (1 + calls) * budget + settings.slack_s
    if invocation.remaining_s < needed:
        raise OutOfTime(f"a range needs {needed:.1f} s of the invocation, {invocation.remaining_s:.1f} s are left")


def check_range(attempt: Attempt, *, invocation: Invocation) -> None:
    """Raises OutOfTime unless one more range fits into the lease and into the invocation."""
    _check(attempt, invocation)
    attempt.began_range = True


def may_read_ahead(attempt: Attempt, *, invocation: Invocation) -> bool:
    """Whether one more range still fits when a call of the helper has to be waited for."""
    try:
        _check(attempt, invocation, calls=1)
    except OutOfTime:
        return False
    return True


def _check(attempt: Attempt, invocation: Invocation, calls: int = 0) -> None:
    settings = invocation.settings
    age_s = attempt.holding.renewal.age_s(invocation)
    usable_s = settings.lease_seconds - ((3 + calls) * settings.call_budget_s + settings.slack_s)
    if age_s > usable_s:
        raise OutOfTime(f"the lease was renewed {age_s:.1f} s ago; no range is started after {usable_s:.1f} s")
    check_invocation(invocation, attempt.slowest_range_s, calls=calls)


def patience_s(attempt: Attempt, invocation: Invocation) -> float:
    """How many seconds a read of the source may wait, so that it, the commit and the end of the attempt still fit."""
    settings = invocation.settings
    after_it_s = 2 * settings.call_budget_s + settings.slack_s
    lease_s = settings.lease_seconds - attempt.holding.renewal.age_s(invocation) - after_it_s
    return max(0.0, min(settings.lease_seconds / 4, lease_s, looking_patience_s(invocation)))


def looking_patience_s(invocation: Invocation) -> float:
    """The same for who holds no lease: so that the read, two more calls and the end of the invocation still fit."""
    settings = invocation.settings
    return max(0.0, invocation.remaining_s - 3 * settings.call_budget_s - settings.slack_s)
