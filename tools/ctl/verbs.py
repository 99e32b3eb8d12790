"""An operator's command as an event, and what the function answers to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.ctl.errors import CtlError
from tools.ctl.format import counts, number

Json = dict[str, Any]
Send = Callable[[Json], Json]

ADDED = ("accounts", "granted", "changed", "revoked", "rejected", "view_rows", "source_rows")
"""What the parts of a preview add up to."""

NAMED = 100
"""How many accounts a preview names."""


@dataclass(frozen=True, slots=True)
class Command:
    """`about` holds the verb's own fields; those that are None or False were not asked for."""

    verb: str
    by: str
    reason: str
    id: str
    about: Mapping[str, Any]

    def event(self) -> Json:
        """What the function receives."""
        asked = {name: value for name, value in self.about.items() if value is not None and value is not False}
        detail = {**asked, "requested_by": self.by, "reason": self.reason}
        return {"source": "operator", "detail-type": self.verb, "id": self.id, "detail": detail}


def obey(command: Command, send: Send) -> Json:
    """Send a command once: its `outcome` (done, repeated or duplicate), and its `result`.

    Raises CtlError when it was refused, or when the first delivery of this id is still at work.
    """
    answer = send(command.event())
    told: Json = answer
    if answer.get("outcome") == "duplicate":
        if answer.get("first") is None:
            raise CtlError(f"a command with the id {command.id} is at work now: ask again later with the same --id")
        told = answer["first"]
    result = dict(told.get("result") or {})
    return {"verb": command.verb, "id": command.id, "outcome": answer.get("outcome"), "result": result}


def preview(
    command: Command, send: Send, *, guard_of: Callable[[int], str | None], part_done: Callable[[Json], None]
) -> Json:
    """A whole preview, in as many invocations as it takes, their counts added up.

    `guard_of` says of a number of revocations why the guard would stop them; each part knows only its own.
    """
    whole: Json = {}
    number_of = 0
    outcome = None
    for answer in _parts(command, send):
        part = answer["result"]
        number_of += 1
        outcome = outcome or answer["outcome"]
        added = {name: whole.get(name, 0) + part.get(name, 0) for name in ADDED}
        named = [*whole.get("first", []), *part.get("first", [])][:NAMED]
        guard = whole.get("guard") or part.get("guard") or guard_of(added["revoked"])
        whole = {**added, "first": named, "guard": guard, "complete": part.get("complete", True)}
        part_done(whole)
    return {
        "verb": command.verb,
        "id": command.id,
        "outcome": outcome,
        "invocations": number_of,
        "result": whole,
    }


def _parts(command: Command, send: Send) -> Iterator[Json]:
    part = command
    count = 1
    while True:
        answer = obey(part, send)
        yield answer
        following = answer["result"].get("next")
        if answer["result"].get("complete", True) or not following:
            return
        count += 1
        about = {**command.about, "segment": following["segment"], "after": following.get("after")}
        part = Command(command.verb, command.by, command.reason, f"{command.id}/{count}", about)


def lines(answer: Json) -> Iterator[str]:
    """What an answer says, for people: first that it was done, then what came of it."""
    verb, result = answer["verb"], answer["result"]
    if answer["outcome"] in ("duplicate", "repeated"):
        yield f"This command had been done before; nothing was done again (id {answer['id']})."
    yield from TOLD[verb](result)
    if answer["outcome"] == "done":
        yield f"id {answer['id']}: with the same --id it is not done again."


def so_far(part: Json) -> str:
    """What a preview has found up to now."""
    return f"Preview: {counts(part)} so far"


def _rerun(result: Json) -> Iterator[str]:
    yield (
        f"Rerun {result.get('rerun')} of {result.get('interval')}, which was {result.get('state_before')}, from the "
        f"{result.get('from')} ({result.get('why')}), as {result.get('run_id')}. The next tick works on it."
    )
    if result.get("revocation_bound") is not None:
        yield f"It may revoke {number(result['revocation_bound'])} accounts in all."
    if result.get("paused"):
        yield "The job is paused: nothing runs before reconcilectl resume."


def _skip(result: Json) -> Iterator[str]:
    yield f"{result.get('interval')} is SKIPPED. It stays alarmed until it is acknowledged."


def _acknowledge(result: Json) -> Iterator[str]:
    nights = list(result.get("intervals") or [result.get("interval")])
    span = nights[0] if len(nights) == 1 else f"{nights[0]} to {nights[-1]} ({len(nights)} nights)"
    yield f"Acknowledged: {span}. Their alarms end with the watchdog's next look."


def _pause(result: Json) -> Iterator[str]:
    yield f"Paused (pause {result.get('pause_no')}). A running worker stops at its next range; nights still turn late."


def _resume(result: Json) -> Iterator[str]:
    yield f"Resumed (pause {result.get('pause_no')}). The next tick goes on."


def _released(result: Json) -> Iterator[str]:
    if result.get("restored"):
        yield f"The lost lease of segment {result.get('segment')} is restored at generation {result.get('generation')}."
    elif result.get("loser"):
        yield (
            f"Segment {result.get('segment')} is free at generation {result.get('generation')}: {result['loser']} "
            f"(generation {result.get('loser_generation')}) can change nothing any more."
        )
    else:
        yield f"Segment {result.get('segment')} is at generation {result.get('generation')}; nobody held it."


def _verify(result: Json) -> Iterator[str]:
    same = "matches" if result.get("matches") else "does NOT match"
    yield f"The view {same} what {result.get('run_id')} left ({number(result.get('view_rows', 0))} rows then, " + (
        f"{number(result.get('view_rows_now', 0))} now)."
    )
    yield f"recorded {result.get('checksum')}"
    yield f"view     {result.get('view_checksum')}"
    touched = result.get("first") or []
    if result.get("touched"):
        yield f"{number(result['touched'])} rows were written by others since" + (
            f", the first {len(touched)}:" if result["touched"] > len(touched) else ":"
        )
    elif not result.get("matches"):
        yield "No row tells who changed it: its writer raised neither its version nor its updated_at."
    for row in touched:
        yield f"  {row.get('account_id')}  by {row.get('by')}  {row.get('updated_at') or ''}".rstrip()


def _preview(result: Json) -> Iterator[str]:
    yield f"A run now: {counts(result)}; {number(result.get('view_rows', 0))} view rows, " + (
        f"{number(result.get('source_rows', 0))} source rows. Nothing was changed."
    )
    if result.get("guard"):
        yield f"The revocation guard would stop it: {result['guard']}"
    for row in result.get("first") or []:
        yield f"  {row.get('what', ''):<8} {row.get('account_id')}"
        if row.get("reason"):
            yield f"    because  {row['reason']}"
        if row.get("before") is not None:
            yield f"    {'keeps' if row.get('what') == 'rejected' else 'before'}   {row['before']}"
        if row.get("after") is not None:
            yield f"    after    {row['after']}"


TOLD: Mapping[str, Callable[[Json], Iterator[str]]] = {
    "Rerun": _rerun,
    "Skip": _skip,
    "Acknowledge": _acknowledge,
    "Pause": _pause,
    "Resume": _resume,
    "ReleaseLease": _released,
    "Verify": _verify,
    "Preview": _preview,
}
