"""An operator's command as an event, and what the function answers to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler import clock
from tools.ctl import target
from tools.ctl.errors import CtlError, Uncertain

Json = dict[str, Any]
Send = Callable[[Json], Json]

ADDED = ("accounts", "granted", "changed", "revoked", "rejected", "view_rows", "source_rows")
"""What the parts of a preview add up to."""

NAMED = 100
"""How many accounts a preview names."""

AT_MOST_MS = 900_000
"""What the function may take, and so how long a killed one keeps others with its id away."""


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
            until = clock.text(target.CLOCK.now_ms() + AT_MOST_MS)[11:19]
            raise CtlError(
                f"the command with the id {command.id} came before, and its answer is not there: it may still be at "
                f"work, or was killed: repeat it with the same --id, at {until} UTC at the latest it is answered"
            )
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
        try:
            answer = obey(part, send)
        except Uncertain:
            raise
        except CtlError as refused:
            if count == 1:
                raise
            raise CtlError(f"{refused}; with --id {command.id} it goes on after what it has read") from None
        yield answer
        following = answer["result"].get("next")
        if answer["result"].get("complete", True) or not following:
            return
        count += 1
        about = {**command.about, "segment": following["segment"], "after": following.get("after")}
        part = Command(command.verb, command.by, command.reason, f"{command.id}/{count}", about)
